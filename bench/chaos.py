"""Half an hour of everything that goes wrong, at once: `python -m bench.chaos --minutes 30`.

Real processes of agents and controllers on a real kube-apiserver and fake hardware. While faults come and go the labels of
healthy hardware must stay, nothing foreign may be touched, memory and threads must be flat; at the end all must be true.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from http.client import HTTPException
from pathlib import Path
from random import Random

from agent.cluster import ACCELERATOR_CLASSES, NODES
from bench.chaos_checks import HANDMADE, UNTOUCHED_NODE, Checks
from bench.chaos_faults import Faults, NotNow, Trouble, leftover_pods
from bench.chaos_world import MACHINES, TOTALS, Data, World, wait_for
from tests.cluster.client import ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.definitions import install_base, install_crd
from tests.cluster.fault_proxy import FaultProxy
from tests.cluster.objects import CLASS_CRD, delete_pod
from tests.cluster.program import find_or_build

START_SECONDS = 90.0
SERVER_TROUBLE = (ApiError, OSError, HTTPException)
"""What the run itself meets of the server that it breaks."""
SETTLE_SECONDS = 900.0
"""A device that changed its state too often is held at the worse one for ten minutes."""
LABELS_BACK_SECONDS = 30.0
COUNTED_AGAIN_SECONDS = 120.0
"""The garbage collector may miss the old record: the agent then writes over it after 90 s."""
MOST_AT_ONCE = 5
AT_THE_END = {
    # class: (total, usable, available)
    "nvidia-h100-80gb": (16, 15, 7),
    "nvidia-a100-80gb": (2, 2, 2),
    "nvidia-a100-80gb-mig-1g.10gb": (14, 14, 9),
    "nvidia-a100-80gb-mig-2g.20gb": (0, 0, 0),
    "nvidia-a100-80gb-mig-3g.40gb": (0, 0, 0),
    "nvidia-l40s-48gb": (2, 2, 2),
}
"""After the last changes: a GPU of gpu-a lost, gpu-b cordoned, gpu-c cut anew, gpu-d deleted, half of gpu-e pulled."""


class Chaos:
    """One run."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = Random(seed)
        self.checks = Checks(world)
        self.faults = Faults(world, self.random)
        self.active: list[Trouble] = []
        self.seen: Counter[str] = Counter()
        self.back_after: list[float] = []
        self.lost_looks = 0
        self._next_measure = 0.0
        self._printed: dict[str, dict[str, str]] = {}
        self._began = time.monotonic()

    def run(self, seconds: float) -> None:
        """Break things for so long."""
        end = time.monotonic() + seconds
        next_fault = next_deletion = time.monotonic()
        next_node = time.monotonic() + 60.0
        while (now := time.monotonic()) < end:
            self.tick()
            self.lift()
            if now >= next_node and not self.active:
                self.make_node_again()
                next_node = now + 240.0
            elif now >= next_deletion + 150.0 and not self.active:
                self.delete_labels()
                next_deletion = now + 450.0
            elif now >= next_fault and len(self.active) < MOST_AT_ONCE and now < next_node:
                self.begin()
                next_fault = time.monotonic() + self.random.uniform(1.0, 6.0)
            time.sleep(0.8)

    def tick(self) -> None:
        """Play kubelet, and look whether all that must hold holds."""
        self.world.keep_all()
        try:
            self.checks.look()
        except SERVER_TROUBLE as error:
            self.say(f"nobody could look: {error}")
            self.lost_looks += 1
        if time.monotonic() >= self._next_measure:
            self._next_measure = time.monotonic() + 10.0
            self.checks.measure()

    def begin(self) -> None:
        """Break something."""
        try:
            trouble = self.faults.draw(self.active)
        except SERVER_TROUBLE as error:
            self.say(f"a fault did not begin: {error}")
            return
        if trouble is not None:
            self.say(trouble.name)
            self.seen[_kind(trouble.name)] += 1
            self.active.append(trouble)

    def lift(self, *, at_once: bool = False) -> None:
        """Undo what has lasted long enough."""
        for trouble in list(self.active):
            if at_once or time.monotonic() >= trouble.until:
                try:
                    trouble.undo()
                except (NotNow, *SERVER_TROUBLE):
                    continue
                self.active.remove(trouble)

    def make_node_again(self) -> None:
        """Delete a Node and register it anew; its labels must be back within an interval or two."""
        name = self.random.choice(["gpu-d", "gpu-e"])
        self.say(f"{name} is deleted and registered anew")
        self.checks.excused.add(name)
        self.world.plane.admin.delete(NODES, name)
        # Its record goes with it, as the garbage collector does that.
        self.world.make_node(name)
        self.world.renew_token(name)
        self._labels_come_back(name)

    def delete_labels(self) -> None:
        """Have somebody delete our labels of a Node, once in a long while: more often and the agent would yield."""
        name = self.random.choice(["gpu-a", "gpu-b"])
        self.say(f"somebody deletes the labels of {name}")
        ours = [key for key in self.world.labels(name) if "accelerators.ome.io" in key]
        self.checks.excused.add(name)
        self.world.plane.admin.patch(NODES, name, {"metadata": {"labels": dict.fromkeys(ours)}})
        self._labels_come_back(name)

    def _labels_come_back(self, name: str) -> None:
        after = wait_for(lambda: self.checks.labels_back(name), LABELS_BACK_SECONDS, self.tick)
        if after is None:
            self.checks.note(f"{name}: the labels did not come back within {LABELS_BACK_SECONDS:.0f} s")
        else:
            self.back_after.append(after)
        after = wait_for(self._totals_hold, COUNTED_AGAIN_SECONDS, self.tick)
        if after is None:
            self.checks.note(f"{name}: not counted again within {COUNTED_AGAIN_SECONDS:.0f} s")
        self.checks.excused.discard(name)

    def _totals_hold(self) -> bool:
        classes = {one["metadata"]["name"]: one for one in self.world.plane.admin.items(ACCELERATOR_CLASSES)}
        return all(
            classes.get(name, {}).get("status", {}).get("totalAccelerators") == total
            for name, total in TOTALS.items()
        )

    def settle_at_the_start(self) -> None:
        """Wait until every machine is labelled and counted."""
        if wait_for(self._totals_hold, START_SECONDS, self.world.keep_all) is None:
            raise SystemExit("the fleet did not come up; nothing was broken yet")
        self.checks.learn()

    def end(self) -> float | None:
        """Lift everything, make the last changes, and return after how long the cluster told the truth of them."""
        while self.active:
            self.lift(at_once=True)
        self.world.proxy.clear()
        self.world.keep_all()
        for pod in leftover_pods(self.world):
            delete_pod(self.world.plane.admin, pod)
        self.checks.excused |= set(MACHINES)
        self._last_changes()
        return wait_for(self.is_true, SETTLE_SECONDS, self.tick)

    def _last_changes(self) -> None:
        world, admin = self.world, self.world.plane.admin
        for machine in world.machines.values():
            machine.faults.clear()
        world.machines["gpu-a"].faults[0] = _lose_one
        world.machines["gpu-c"].faults[0] = _cut_anew
        world.machines["gpu-e"].faults[0] = _pull_half
        for machine in world.machines.values():
            machine.write()
        admin.patch(NODES, "gpu-b", {"spec": {"unschedulable": True}}, manager="kubectl")
        world.agents["gpu-d"].wanted = False
        world.agents["gpu-d"].running.process.stop()
        admin.delete(NODES, "gpu-d")

    def is_true(self) -> bool:
        """Tell whether classes and labels say what the machines are."""
        return not list(self.untruths())

    def untruths(self) -> list[str]:
        """Return whatever is not yet as it is."""
        admin = self.world.plane.admin
        found = []
        classes = {one["metadata"]["name"]: one for one in admin.items(ACCELERATOR_CLASSES)}
        for name, (total, usable, available) in AT_THE_END.items():
            status = classes.get(name, {}).get("status", {})
            told = status.get("totalAccelerators"), status.get("availableAccelerators")
            if told != (total, available):
                found.append(f"class {name} tells {told}, true are {(total, available)} ({usable} usable)")
        for name in ("gpu-a", "gpu-b", "gpu-c", "gpu-e"):
            held = {k: v for k, v in self.world.labels(name).items() if "accelerators.ome.io" in k}
            true = self.printed(name)
            if held != true:
                wrong = {
                    k: (held.get(k), true.get(k))
                    for k in held.keys() | true.keys()
                    if held.get(k) != true.get(k)
                }
                found.append(f"{name}: labels (held, true): {wrong}")
        return found

    def printed(self, name: str) -> dict[str, str]:
        """Return the labels that the one-shot command prints, which knows no past; asked once."""
        if name not in self._printed:
            self._printed[name] = self.world.printed_labels(name)
        return self._printed[name]

    def say(self, text: str) -> None:
        """Print a line of what happens."""
        print(f"{time.monotonic() - self._began:7.1f} {text}", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run, print the summary, and return 0 when everything held."""
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1, help="the same draws the same faults")
    parser.add_argument("--folder", type=Path, help="keep logs and files here")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        plane = ControlPlane(find_or_build(), folder, apiserver_flags=["--etcd-compaction-interval=20s"])
        plane.start()
        try:
            return _on(plane, folder, given.minutes * 60, given.seed)
        finally:
            plane.stop()


def _on(plane: ControlPlane, folder: Path, seconds: float, seed: int) -> int:
    install_base(plane.admin)
    install_crd(plane.admin, CLASS_CRD)
    plane.start_controllers(("garbage-collector-controller",))
    plane.admin.create(ACCELERATOR_CLASSES, _handmade())
    proxy = FaultProxy(plane.server, plane.certificates)
    proxy.start()
    world = World(plane, proxy, folder)
    world.make_node(UNTOUCHED_NODE)
    chaos = Chaos(world, seed)
    try:
        world.start()
        chaos.settle_at_the_start()
        chaos.say("everything is up")
        chaos.run(seconds)
        chaos.say("everything is mended, and the last changes are made")
        settled = chaos.end()
        return _summary(chaos, seconds, settled)
    finally:
        world.stop()
        proxy.close()


def _summary(chaos: Chaos, seconds: float, settled: float | None) -> int:
    checks, world = chaos.checks, chaos.world
    print(f"\n{seconds / 60:.0f} minutes, {sum(chaos.seen.values())} faults")
    print(f"{checks.looks} looks at the cluster, of which {chaos.lost_looks} met a server in trouble")
    for name, count in chaos.seen.most_common():
        print(f"  {count:4} × {name}")
    print("starts of each process, and how the earlier runs ended:")
    for member in world.members:
        print(f"  {member.name}: {member.starts}, {dict(member.ends)}")
    if chaos.back_after:
        print(
            f"labels that were deleted, or went with their Node, were back after at most "
            f"{max(chaos.back_after):.1f} s ({len(chaos.back_after)} times)"
        )
    print("writes, as the server logged them:")
    for (account, verb, what), count in sorted(checks.writes().items()):
        print(f"  {count:5} × {verb} {what} by {account}")
    flat = _print_usages(chaos)
    bugs = _bugs(world)
    print(f"bugs in logs: {bugs or 'none'}")
    print("what did not hold: " + ("nothing" if not checks.violations else ""))
    for violation, count in checks.violations.most_common():
        print(f"  {count} × {violation} (first after {checks.first_seen[violation]:.0f} s)")
    if settled is None:
        print("the end is not true:", *chaos.untruths(), sep="\n  ")
    else:
        print(f"the cluster told the truth {settled:.1f} s after the last change")
    return 0 if settled is not None and flat and not bugs and not checks.violations else 1


def _print_usages(chaos: Chaos) -> bool:
    flat = True
    print(
        "memory with children (MiB), threads, open files; medians of the first and the last third of a run:"
    )
    for name, usage in chaos.checks.usages():
        first, last = usage.thirds()
        minutes = usage.samples[-1][0] / 60
        verdict = "flat" if usage.flat() else "GROWING"
        flat = flat and usage.flat()
        print(
            f"  {name}, {minutes:.0f} min: {first[0]:.1f} → {last[0]:.1f}, {first[1]:.0f} → {last[1]:.0f}, "
            f"{first[2]:.0f} → {last[2]:.0f}: {verdict}"
        )
    return flat


def _bugs(world: World) -> dict[str, int]:
    """Return how many lines of each log tell of a bug, by whose it is."""
    found = {}
    for member in world.members:
        count = sum("Traceback" in line or "by a bug" in line for line in member.running.log.splitlines())
        if count:
            found[member.name] = count
    return found


def _handmade() -> Data:
    return {
        "apiVersion": ACCELERATOR_CLASSES.api_version,
        "kind": ACCELERATOR_CLASSES.kind,
        "metadata": {"name": HANDMADE},
        "spec": {"vendor": "nvidia", "capabilities": {"memoryGB": "80Gi"}, "discovery": {}},
    }


def _lose_one(data: Data) -> None:
    entry = {"function": "nvmlDevice*", "but_not": "nvmlDeviceGetHandleBy*", "device": 3, "code": 15}
    data["failures"] = [entry]


def _cut_anew(data: Data) -> None:
    data["devices"][1]["mig"] = {"enabled": True, "instances": [{"profile": "1g.10gb"}] * 7}


def _pull_half(data: Data) -> None:
    del data["devices"][2:]


def _kind(name: str) -> str:
    """Return the name of a fault without the names and numbers in it."""
    words = [word.rstrip(":") for word in name.split()]
    return " ".join("…" if any(ch.isdigit() for ch in word) or "-" in word else word for word in words)


if __name__ == "__main__":
    sys.exit(main())
