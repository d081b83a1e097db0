"""A fleet of agents on one real API server: its workers, and what the server itself counts."""

import re
import ssl
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bench.fleet_nodes import add_nodes
from bench.fleet_worker import Done, Fleet, Order
from bench.machine import ROOT
from fakes import nodes
from probes.facts import NodeFacts
from probes.host_process import probe_once
from tests.cluster.control_plane import ControlPlane
from tests.cluster.definitions import install_base, install_crd
from tests.cluster.objects import CLASS_CRD
from tests.cluster.program import find_or_build

WORKERS = 2
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the server counted between two looks."""

    requests: Counter[str]
    """`VERB resource code` → how many."""
    refused: int
    """429, by its own limits on requests in flight or by priority and fairness."""
    bytes_out: float
    cpu: float
    resident_mib: float
    storage_mib: float


class Simulation:
    """Agents on a control plane of their own."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        self._workers: list[subprocess.Popen[bytes]] = []
        self._names: list[list[str]] = []

    def open(self, count: int) -> None:
        """Make the Nodes, and start the workers with an equal share of the agents each."""
        names = [f"node-{number:05}" for number in range(count)]
        tokens = add_nodes(self.plane, names)
        facts = self.folder / "facts.json"
        facts.write_bytes(msgspec.json.encode(machine_facts()))
        for index in range(WORKERS):
            mine = names[index::WORKERS]
            fleet = Fleet(
                server=self.plane.server,
                authority=str(self.plane.certificates.authority),
                tokens={name: tokens[name] for name in mine},
                facts=str(facts),
            )
            worker = subprocess.Popen(
                [sys.executable, "-m", "bench.fleet_worker"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            self._workers.append(worker)
            self._names.append(mine)
            _tell(worker, fleet)

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.kill()
            worker.wait()

    def begin(self, order: Order, *, share: float = 1.0) -> None:
        """Give an order to all agents, or to the first part of them."""
        for worker, names in zip(self._workers, self._names, strict=True):
            _tell(worker, replace(order, names=tuple(names[: max(1, round(share * len(names)))])))

    def end(self) -> Done:
        """Wait for what was begun, and return it for all workers together."""
        found = [msgspec.json.decode(_heard(worker), type=Done) for worker in self._workers]
        requests: Counter[str] = Counter()
        for one in found:
            requests.update(one.requests)
        return Done(
            passes=sum(one.passes for one in found),
            failed=sum(one.failed for one in found),
            seconds=max(one.seconds for one in found),
            cpu=sum(one.cpu for one in found),
            mib=sum(one.mib for one in found),
            requests=dict(requests),
            slowest_passes=tuple(map(max, zip(*(one.slowest_passes for one in found), strict=True))),
        )

    def do(self, order: Order, *, share: float = 1.0) -> Done:
        """Give an order and wait for it."""
        self.begin(order, share=share)
        return self.end()

    def counts(self) -> Counts:
        """Ask the server what it has counted so far."""
        text = self._metrics()
        samples = [
            (name, dict(_LABEL.findall(labels)), float(value))
            for name, labels, value in _SAMPLE.findall(text)
        ]
        requests: Counter[str] = Counter()
        for name, labels, value in samples:
            if name == "apiserver_request_total":
                requests[f"{labels['verb']} {labels['resource']} {labels['code']}"] += int(value)

        def total(wanted: str) -> float:
            return sum(value for name, _, value in samples if name == wanted)

        return Counts(
            requests=requests,
            refused=sum(number for key, number in requests.items() if key.endswith(" 429")),
            bytes_out=total("apiserver_response_sizes_sum"),
            cpu=total("process_cpu_seconds_total"),
            resident_mib=total("process_resident_memory_bytes") / 2**20,
            storage_mib=total("apiserver_storage_size_bytes") / 2**20,
        )

    def _metrics(self) -> str:
        context = ssl.create_default_context(cafile=str(self.plane.certificates.authority))
        request = urllib.request.Request(
            f"{self.plane.server}/metrics", headers={"Authorization": f"Bearer {self.plane.admin_token}"}
        )
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            text: str = answer.read().decode()
        return text


def since(before: Counts, after: Counts) -> Counts:
    """Return what was counted between two looks; sizes are those of the later one."""
    return Counts(
        requests=after.requests - before.requests,
        refused=after.refused - before.refused,
        bytes_out=after.bytes_out - before.bytes_out,
        cpu=after.cpu - before.cpu,
        resident_mib=after.resident_mib,
        storage_mib=after.storage_mib,
    )


def machine_facts() -> NodeFacts:
    """Return the facts of eight H100."""
    if "h100x8" not in nodes.names():
        raise SystemExit("there is no fake machine h100x8")
    return probe_once((sys.executable, "-m", "fakes.child", "h100x8"), simulated=True)


@contextmanager
def simulation(count: int, folder: Path) -> Iterator[Simulation]:
    """Open a control plane with all rights and policies, so many Nodes, and their agents, of which none has run yet."""
    plane = ControlPlane(find_or_build(), folder / f"plane-{count}")
    plane.start()
    found = Simulation(plane, folder)
    try:
        install_base(plane.admin)
        install_crd(plane.admin, CLASS_CRD)
        found.open(count)
        yield found
    finally:
        found.close()
        plane.stop()


def _tell(worker: subprocess.Popen[bytes], what: Fleet | Order) -> None:
    if worker.stdin is None:
        raise SystemExit("a worker has no input")
    worker.stdin.write(msgspec.json.encode(what) + b"\n")
    worker.stdin.flush()


def _heard(worker: subprocess.Popen[bytes]) -> bytes:
    line = worker.stdout.readline() if worker.stdout is not None else b""
    if not line:
        raise SystemExit("a worker ended before its order was done")
    return line


def named(names: Sequence[str], counts: Counter[str]) -> str:
    """Return counts for people, the most first."""
    return ", ".join(
        f"{key} {number:,}" for key, number in counts.most_common() if key.split(" ")[1] in names
    )
