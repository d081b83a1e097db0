"""The commands of inference pools: their report, and what is printed for who routes to them. None writes anything."""

import argparse
from collections.abc import Callable
from typing import Any, TextIO

from agent.cluster import Cluster
from agent.commands.dumping import dump
from agent.core.pools.config import API_VERSIONS, Printed, picker_config
from agent.core.pools.engines import EngineTable
from agent.core.pools.names import PoolKeys
from agent.core.pools.report import PoolReport
from agent.core.pools.shown import NOT_INSTALLED, plain_pool, pool_table, pools_table
from agent.core.pools.split import pool_split, workload_patches
from agent.pools_asking import EndpointReader
from agent.pools_reading import ask_pools, read_pools, reports_of
from agent.settings import SettingsError

_ACTIONS = ("config", "split", "patch")


def add_pools_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes beside the settings."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="[config|split|patch] [POOL]",
        help="POOL is NAME or NAMESPACE/NAME; alone: its report. config: a picker's configuration; split: pools of one "
        "class each, and their route; patch: the labels for the templates of its workloads",
    )
    parser.add_argument("-n", "--namespace", help="only pools of this namespace")
    parser.add_argument("--no-ask", action="store_true", help="do not ask any endpoint what it serves")
    parser.add_argument(
        "--picker", choices=tuple(API_VERSIONS), default="gateway-api", help="whose picker config is for"
    )
    parser.add_argument(
        "--by",
        choices=("bandwidth", "tflops"),
        default="bandwidth",
        help="what the weights of split follow: memory bandwidth, or dense fp16 rate",
    )


def run_pools(
    arguments: argparse.Namespace,
    *,
    cluster: Cluster,
    reader: EndpointReader,
    table: EngineTable,
    keys: PoolKeys,
    output: str,
    width: int,
    stdout: TextIO,
    stderr: TextIO,
) -> int:
    """Run one of the commands; 2 for a pool that is not there."""
    action, wanted = _asked_for(arguments.words)
    namespace, name = _named(wanted, arguments.namespace)
    reading = read_pools(cluster, keys=keys, table=table, namespace=namespace)
    if reading is None:
        text = NOT_INSTALLED if output == "table" else dump({"installed": False, "pools": []}, output)
        print(text, file=stdout)
        return 0
    if not reading.namespaces_known:
        print(
            "Namespaces may not be listed, so none counts as opted in and no endpoint is asked", file=stderr
        )
    looks = {} if arguments.no_ask else ask_pools(reading, reader, table)
    reports = reports_of(reading, looks, keys=keys, table=table)
    if name is None:
        _print_reports(reports, output=output, width=width, stdout=stdout)
        return 0
    report = _one(reports, name)
    if action is None:
        text = pool_table(report, width=width) if output == "table" else dump(plain_pool(report), output)
        print(text, file=stdout)
        return 0
    printed = _ACTS[action](report, table, keys, arguments)
    _print_documents(printed, output=output, stdout=stdout, stderr=stderr)
    return 0


def _asked_for(words: list[str]) -> tuple[str | None, str | None]:
    if len(words) > 2 or (len(words) == 2 and words[0] not in _ACTIONS):
        raise SettingsError(f"pools: {' '.join(words)!r} is not [config|split|patch] [POOL]")
    if len(words) == 2:
        return words[0], words[1]
    if words and words[0] in _ACTIONS:
        raise SettingsError(f"pools {words[0]}: name the pool, as NAME or NAMESPACE/NAME")
    return None, words[0] if words else None


def _named(wanted: str | None, namespace: str | None) -> tuple[str | None, str | None]:
    """Return namespace and name."""
    if wanted is None or "/" not in wanted:
        return namespace, wanted
    stated, _, name = wanted.partition("/")
    if namespace not in {None, stated}:
        raise SettingsError(f"pools: {wanted} is not in the namespace {namespace}")
    return stated, name


def _one(reports: tuple[PoolReport, ...], name: str) -> PoolReport:
    found = [report for report in reports if report.pool.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        where = ", ".join(report.pool.key for report in found)
        raise SettingsError(f"pools: {name} is the name of several pools: {where}")
    there = ", ".join(report.pool.key for report in reports[:10]) or "none"
    raise SettingsError(f"pools: there is no InferencePool {name}; there are: {there}")


def _print_reports(reports: tuple[PoolReport, ...], *, output: str, width: int, stdout: TextIO) -> None:
    if output == "table":
        text = pools_table(reports, width=width)
    else:
        text = dump({"installed": True, "pools": [plain_pool(report) for report in reports]}, output)
    print(text, file=stdout)


def _print_documents(printed: Printed, *, output: str, stdout: TextIO, stderr: TextIO) -> None:
    """Print documents as YAML for people, with the notes as comments; elsewhere the notes go to standard error."""
    if output == "json":
        documents: Any = list(printed.documents)
        single = (
            documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": documents}
        )
        print(dump(single, output), file=stdout)
    else:
        for note in printed.notes if output == "table" else ():
            print(f"# {note}", file=stdout)
        print("\n---\n".join(dump(document, "yaml") for document in printed.documents), file=stdout)
    for note in printed.notes if output != "table" else ():
        print(note, file=stderr)


_Act = Callable[[PoolReport, EngineTable, PoolKeys, argparse.Namespace], Printed]
_ACTS: dict[str, _Act] = {
    "config": lambda report, table, keys, given: picker_config(report, table, keys, picker=given.picker),
    "split": lambda report, _, keys, given: pool_split(report, keys, measure=given.by),
    "patch": lambda report, _, keys, __: workload_patches(report, keys),
}
