"""The product on a laptop: the real agents and the real controller on a small fleet of fake machines.

`python -m fakes.demo` runs all of it in this process, on the cluster in memory; `--cluster real` starts the real programs
as processes of their own against a real control plane. Both print what a person would look at, and stop by themselves.
"""

import argparse
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, NODES, Cluster, Object
from agent.core.text_table import text_table
from agent.edges.logs import set_up_logs
from fakes.fleet import FLEET, Fleet, in_memory, on_a_real_control_plane

SETTLE_SECONDS = 90.0
DOMAIN = "accelerators.ome.io"
_COLUMNS = ("class", "count", "health", "memory-gib", "family", "partitioning")
# What each condition says when all is well; the demo prints Ready and whatever is not well.
_GOOD_NEWS = {
    "Ready": "True",
    "Consistent": "True",
    "Healthy": "True",
    "AvailabilityKnown": "True",
    "Overridden": "False",
    "Stale": "False",
    "Simulated": "False",
}
_INTERESTING = (
    "accelerator_node_devices{",
    "accelerator_probe_success",
    "accelerator_simulated",
    "accelerator_publish_writes_total",
    'accelerator_class_devices{class="nvidia-h100-80gb"',
)


def main(argv: list[str] | None = None) -> int:
    """Run the demo and return 0, or 1 when the fleet did not settle."""
    parser = argparse.ArgumentParser(prog="python -m fakes.demo", description=__doc__.splitlines()[0])
    parser.add_argument("--cluster", choices=("memory", "real"), default="memory")
    parser.add_argument("--keep", action="store_true", help="leave it running until Ctrl-C")
    given = parser.parse_args(argv)
    set_up_logs("error", "text")
    start: Callable[[], Any] = in_memory if given.cluster == "memory" else on_a_real_control_plane
    with start() as fleet:
        say(f"{len(FLEET)} fake machines, {fleet.described}; waiting until every class is counted")
        began = time.monotonic()
        if not settled(fleet.cluster, SETTLE_SECONDS):
            say(f"the fleet did not settle within {SETTLE_SECONDS:.0f} s:")
            show(fleet)
            return 1
        say(f"settled after {time.monotonic() - began:.1f} s\n")
        show(fleet)
        if given.keep:
            keep(fleet)
    return 0


def settled(cluster: Cluster, seconds: float) -> bool:
    """Wait until every record's devices are counted in a class, and tell whether that came about."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if _counted(cluster):
            return True
        time.sleep(0.2)
    return False


def show(fleet: Fleet) -> None:
    """Print the Nodes' labels, the records, the classes, and what a scrape says."""
    nodes = fleet.cluster.list_all(NODES)[0]
    heading("kubectl get nodes -L " + ",".join(f"{DOMAIN}/{column}" for column in _COLUMNS))
    say(text_table(("name", *_COLUMNS), [_node_row(node) for node in nodes]))
    mixed = next(node for node in nodes if "mixed" in node["metadata"]["name"])
    heading(f"the labels of {mixed['metadata']['name']}, whose GPUs differ")
    say("\n".join(f"{key}={value}" for key, value in sorted(_ours(mixed).items())))
    heading("kubectl get acceleratornodes")
    records = fleet.cluster.list_all(ACCELERATOR_NODES)[0]
    say(
        text_table(
            ("name", "classes", "count", "healthy", "driver"), [_record_row(record) for record in records]
        )
    )
    heading("kubectl get acceleratorclasses, with status")
    classes = fleet.cluster.list_all(ACCELERATOR_CLASSES)[0]
    headers = ("class", "memory", "capability", "total", "available", "conditions")
    say(text_table(headers, [_class_row(object_) for object_ in classes]))
    for name, url in fleet.urls.items():
        heading(f"curl {url}metrics   # {name}, the lines that matter")
        say("\n".join(_scrape(url)))


def keep(fleet: Fleet) -> None:
    """Stay until Ctrl-C, and say where to look."""
    for name, url in fleet.urls.items():
        say(f"{name}: {url}")
    say(f"{fleet.hint}Ctrl-C stops it")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        say("stopping")


def heading(text: str) -> None:
    """Print a line that looks like what a person would have typed."""
    say(f"\n$ {text}")


def say(text: str) -> None:
    """Print, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _counted(cluster: Cluster) -> bool:
    records = cluster.list_all(ACCELERATOR_NODES)[0]
    expected: dict[str, int] = {}
    for record in records:
        for entry in record["spec"].get("classes", ()):
            expected[entry["name"]] = expected.get(entry["name"], 0) + entry["total"]
    found = {
        object_["metadata"]["name"]: object_.get("status", {})
        for object_ in cluster.list_all(ACCELERATOR_CLASSES)[0]
    }
    return len(records) == len(FLEET) and all(
        found.get(name, {}).get("totalAccelerators") == total and "availableAccelerators" in found[name]
        for name, total in expected.items()
    )


def _ours(node: Object) -> dict[str, str]:
    labels: dict[str, str] = node["metadata"].get("labels") or {}
    return {key: value for key, value in labels.items() if DOMAIN in key}


def _node_row(node: Object) -> tuple[str, ...]:
    labels = _ours(node)
    return (node["metadata"]["name"], *(labels.get(f"{DOMAIN}/{column}", "") for column in _COLUMNS))


def _record_row(record: Object) -> tuple[str, ...]:
    summary = record["status"]["summary"]
    driver = record["spec"].get("driver", {}).get("version", "")
    return (record["metadata"]["name"], summary["classes"], str(summary["count"]), summary["healthy"], driver)


def _class_row(object_: Object) -> tuple[str, ...]:
    status = object_.get("status", {})
    capabilities = object_["spec"]["capabilities"]
    conditions = " ".join(
        f"{condition['type']}={condition['status']}"
        for condition in status.get("conditions", ())
        if condition["status"] != _GOOD_NEWS[condition["type"]] or condition["type"] == "Ready"
    )
    return (
        object_["metadata"]["name"],
        str(capabilities.get("memoryGB", "")),
        capabilities.get("computeCapability", ""),
        str(status.get("totalAccelerators", "")),
        str(status.get("availableAccelerators", "")),
        conditions,
    )


def _scrape(url: str) -> Iterator[str]:
    with urllib.request.urlopen(f"{url}metrics", timeout=10) as answer:  # noqa: S310  # our own port
        for line in answer.read().decode().splitlines():
            if line.startswith(_INTERESTING):
                yield line


if __name__ == "__main__":
    sys.exit(main())
