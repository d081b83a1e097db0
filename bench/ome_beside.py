"""Minutes of churn beside a stand-in for OME's controller on a real API server: who wrote how often, and what is right.

`python -m bench.ome_beside --minutes 5`. The controller is a process of its own with the rights of its account.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from agent.edges.cluster import KubernetesCluster, kubeconfig
from tests.cluster.control_plane import ControlPlane
from tests.cluster.definitions import install_base, install_crd
from tests.cluster.objects import CLASS_CRD, INVENTORY_ACCOUNT, account_token
from tests.cluster.program import find_or_build
from tests.inventory.churn import Churn
from tests.inventory.ome import RunningOme
from tests.main_path.agent_process import AgentProcess

QUIET_SECONDS = 40.0
SETTLE_SECONDS = 30.0
CONFLICTS_PER_CHANGE = 0.2


def main(argv: list[str] | None = None) -> int:
    """Print the counts; 0 when writes are bounded by changes, both are silent at the end, and every figure is right."""
    parser = argparse.ArgumentParser(prog="python -m bench.ome_beside", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(find_or_build(), Path(folder))
        plane.start()
        try:
            install_base(plane.admin)
            install_crd(plane.admin, CLASS_CRD)
            return _measured(plane, Path(folder), given.minutes * 60, Random(given.seed))
        finally:
            plane.stop()


def _measured(plane: ControlPlane, folder: Path, seconds: float, random: Random) -> int:
    churn = Churn(plane, random)
    config = plane.kubeconfig(account_token(plane.admin, INVENTORY_ACCOUNT))
    environment = {"KUBECONFIG": str(config), "ACCELERATOR_LISTEN": "127.0.0.1:0"}
    ours = AgentProcess("inventory", log=folder / "inventory.log", environment=environment)
    ome_config = plane.kubeconfig(plane.admin_token, name="ome")

    def connect() -> KubernetesCluster:
        return KubernetesCluster(kubeconfig(str(ome_config)), user_agent="ome")

    with ours, RunningOme(connect, lambda: datetime.now(UTC)) as ome:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            churn.step()
            time.sleep(random.uniform(0.2, 1.0))
        right = _becomes_right(churn)
        mark = plane.audit.mark()
        time.sleep(QUIET_SECONDS)
        quiet = _class_writes(plane, mark)
    return _report(plane, churn, ome.writes, right=right, quiet=quiet)


def _becomes_right(churn: Churn) -> float | None:
    began = time.monotonic()
    while time.monotonic() - began < SETTLE_SECONDS:
        if churn.told() == churn.truth():
            return time.monotonic() - began
        time.sleep(0.2)
    return None


def _class_writes(plane: ControlPlane, mark: int) -> Counter[tuple[str, str, int]]:
    """Return (who, what, HTTP status) → writes of classes since the mark."""
    counts: Counter[tuple[str, str, int]] = Counter()
    for one in plane.audit.since(mark, resource="acceleratorclasses", writes_only=True):
        who = "ours" if one.user.endswith(INVENTORY_ACCOUNT) else "ome"
        counts[who, one.what, one.status] += 1
    return counts


def _report(
    plane: ControlPlane,
    churn: Churn,
    ome_writes: int,
    *,
    right: float | None,
    quiet: Counter[tuple[str, str, int]],
) -> int:
    writes = _class_writes(plane, 0)
    conflicts = sum(count for (_, _, status), count in writes.items() if status == 409)
    print(f"{churn.changes} changes; OME's stand-in wrote {ome_writes} times")
    for (who, what, status), count in sorted(writes.items()):
        print(f"  {count:5} {who} {what} {status}")
    total = sum(writes.values())
    print(f"writes of classes per change: {total / churn.changes:.2f}; refused with 409: {conflicts}")
    print(f"writes in {QUIET_SECONDS:.0f} s after the last change had landed: {sum(quiet.values())}")
    if right is None:
        print(f"not right after {SETTLE_SECONDS:.0f} s: told {churn.told()}, true {churn.truth()}")
    else:
        print(f"totals, availables and nodes right {right:.1f} s after the last change: {churn.told()}")
    bounded = total <= 3 * churn.changes and conflicts <= CONFLICTS_PER_CHANGE * churn.changes
    return 0 if right is not None and bounded and not quiet else 1


if __name__ == "__main__":
    sys.exit(main())
