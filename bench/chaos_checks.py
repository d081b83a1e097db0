"""What must hold all the time in the chaos run, and what must be true at its end."""

import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, NODES, Object
from bench.chaos_world import FOREIGN_ANNOTATIONS, FOREIGN_LABELS, TOTALS, Member, World

DOMAIN = "accelerators.ome.io"
HANDMADE = "handmade"
UNTOUCHED_NODE = "cpu-only"

_CHANGING = ("count", "health", "partitioning", "fabric")
_ALLOWED_WRITES = {
    "accelerator-agent": {
        ("patch", "nodes"),
        ("patch", "acceleratornodes"),
        ("create", "acceleratornodes"),
    },
    "accelerator-inventory": {
        ("patch", "acceleratorclasses"),
        ("create", "acceleratorclasses"),
        ("patch", "acceleratorclasses/status"),
        ("create", "leases"),
        ("update", "leases"),
        ("create", "events"),
        ("patch", "events"),
    },
}
_WARM_UP_SECONDS = 120.0
_GROWTH = 1.10
_GROWTH_MIB = 4.0


@dataclass(slots=True)
class Usage:
    """What one run of one process used over time."""

    samples: list[tuple[float, float, int, int]] = field(default_factory=list)
    """(seconds since its start, MiB of it and its children, threads, open files)."""

    def flat(self) -> bool:
        """Tell whether the last third used no more than the first after the warm-up, chance apart."""
        first, last = self.thirds()
        return (
            not first
            or not last
            or (
                last[0] <= max(first[0] * _GROWTH, first[0] + _GROWTH_MIB)
                and last[1] <= first[1] + 3
                and last[2] <= first[2] + 6
            )
        )

    def thirds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the medians of the first and of the last third after the warm-up; empty for a short run."""
        warm = [sample[1:] for sample in self.samples if sample[0] >= _WARM_UP_SECONDS]
        if len(warm) < 15:
            return (), ()
        size = len(warm) // 3
        return _medians(warm[:size]), _medians(warm[-size:])


class Checks:
    """Looks at the cluster and the processes, and notes whatever is not as it must be."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.violations: Counter[str] = Counter()
        self.first_seen: dict[str, float] = {}
        self.looks = 0
        self._must_hold: dict[str, dict[str, str]] = {}
        self._handmade: Object = {}
        self._usages: dict[tuple[str, int], Usage] = {}
        self._began = time.monotonic()
        self.excused: set[str] = set()
        """Nodes that are being made again: nothing is asked of them."""

    def learn(self) -> None:
        """Take what holds now, before anything is broken, for what must hold from now on."""
        admin = self._world.plane.admin
        for name in self._world.machines:
            ours = {key: value for key, value in self._world.labels(name).items() if DOMAIN in key}
            self._must_hold[name] = {k: v for k, v in ours.items() if not self._may_change(name, k)}
        self._handmade = admin.get(ACCELERATOR_CLASSES, HANDMADE)

    def look(self) -> None:
        """Compare the cluster with what must hold; nothing is asked of a server that is away."""
        if self._world.api_down:
            return
        self.looks += 1
        admin = self._world.plane.admin
        nodes = {node["metadata"]["name"]: node for node in admin.items(NODES)}
        records = {one["metadata"]["name"]: one for one in admin.items(ACCELERATOR_NODES)}
        classes = {one["metadata"]["name"]: one for one in admin.items(ACCELERATOR_CLASSES)}
        for name in self._world.machines:
            if name not in self.excused:
                self._look_at_node(name, nodes[name], records.get(name))
        self._look_at_foreign(nodes, classes)
        if not self.excused:
            self._look_at_classes(classes)

    def measure(self) -> None:
        """Note what each process and its children use."""
        for member in self._world.members:
            if member.pid is not None and not member.stopped:
                self._measure(member, member.pid)

    def usages(self) -> Iterator[tuple[str, Usage]]:
        """Yield each run that was long enough to tell."""
        for (name, _), usage in sorted(self._usages.items()):
            if usage.thirds()[0]:
                yield name, usage

    def writes(self) -> Counter[tuple[str, str, str]]:
        """Return how often each account wrote what, and note what none of them may write."""
        counts: Counter[tuple[str, str, str]] = Counter()
        for request in self._world.plane.audit.since(writes_only=True):
            account = request.user.rpartition(":")[2]
            if account not in _ALLOWED_WRITES or request.status == 401:
                continue
            counts[account, request.verb, request.what] += 1
            if (request.verb, request.what) not in _ALLOWED_WRITES[account]:
                self.note(f"{account} asked to {request.verb} {request.what}")
        return counts

    def note(self, violation: str) -> None:
        """Count something that is not as it must be."""
        self.violations[violation] += 1
        if violation not in self.first_seen:
            self.first_seen[violation] = time.monotonic() - self._began
            print(f"{self.first_seen[violation]:7.1f} DOES NOT HOLD: {violation}", flush=True)

    def labels_back(self, node: str) -> bool:
        """Tell whether a Node has all labels that must hold."""
        held = self._world.labels(node)
        return self._must_hold[node].items() <= held.items()

    def _may_change(self, name: str, key: str) -> bool:
        group, _, rest = key.partition("/")
        # Partitions of one kind may all lie on the one GPU that fails.
        return (
            rest in _CHANGING
            or group.startswith("count.")
            or (name == "gpu-c" and group.startswith("class."))
        )

    def _look_at_node(self, name: str, node: Object, record: Object | None) -> None:
        held = node["metadata"].get("labels") or {}
        for key, value in self._must_hold[name].items():
            if held.get(key) != value:
                self.note(f"{name}: label {key} is {held.get(key, 'gone')} and must be {value}")
        if record is None:
            self.note(f"{name}: the record is gone")
        elif not (record.get("spec") or {}).get("devices"):
            self.note(f"{name}: the record has lost its devices")

    def _look_at_foreign(self, nodes: Mapping[str, Object], classes: Mapping[str, Object]) -> None:
        for name in (*self._world.machines, UNTOUCHED_NODE):
            if name in self.excused and name not in nodes:
                continue
            metadata = nodes[name]["metadata"]
            if not FOREIGN_LABELS.items() <= (metadata.get("labels") or {}).items():
                self.note(f"{name}: a foreign label was touched")
            if not FOREIGN_ANNOTATIONS.items() <= (metadata.get("annotations") or {}).items():
                self.note(f"{name}: a foreign annotation was touched")
        if any(DOMAIN in key for key in nodes[UNTOUCHED_NODE]["metadata"]["labels"]):
            self.note("a Node without an agent was labelled")
        if classes.get(HANDMADE) != self._handmade:
            self.note("a class that is not ours was touched")

    def _look_at_classes(self, classes: Mapping[str, Object]) -> None:
        for name, total in TOTALS.items():
            status = classes.get(name, {}).get("status", {})
            if status.get("totalAccelerators") != total:
                self.note(f"class {name}: total is {status.get('totalAccelerators')} and must be {total}")
            stale = [one for one in status.get("conditions") or () if one["type"] == "Stale"]
            if any(one["status"] == "True" for one in stale):
                self.note(f"class {name}: a record is stale though every agent lives")
            if (status.get("availableAccelerators") or 0) > total:
                self.note(f"class {name}: more is available than there is")

    def _measure(self, member: Member, pid: int) -> None:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            family = [process, *process.children(recursive=True)]
            used = 0.0
            for one in family:
                with suppress(psutil.Error):
                    used += one.memory_full_info().pss / 2**20
            age = time.time() - process.create_time()
            sample = (age, used, process.num_threads(), process.num_fds())
            self._usages.setdefault((member.name, pid), Usage()).samples.append(sample)


def _medians(samples: list[tuple[float, int, int]]) -> tuple[float, ...]:
    return tuple(statistics.median(column) for column in zip(*samples, strict=True))
