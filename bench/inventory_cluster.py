"""The controller's process against a real API server with thousands of Nodes: cold start, memory, one change.

Takes the number of Nodes as its argument (5,000). Builds the control plane of the tests on first use.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, NODES
from bench.inventory_fold import CLASSES, DEVICES, record
from bench.outside import printed
from tests.cluster.client import ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.definitions import install_crd
from tests.cluster.objects import CLASS_CRD, NODE_CRD, make_namespace
from tests.cluster.program import find_or_build
from tests.main_path.agent_process import AgentProcess

START_BUDGET_SECONDS = 30.0
MEMORY_BUDGET_MIB = 300.0
CHANGE_BUDGET_SECONDS = 6.0


def main(count: int) -> int:
    """Print the figures; the exit status tells whether the budgets hold."""
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(find_or_build(), Path(folder))
        plane.start()
        try:
            return _measured(plane, Path(folder), count)
        finally:
            plane.stop()


def _measured(plane: ControlPlane, folder: Path, count: int) -> int:
    install_crd(plane.admin, NODE_CRD)
    install_crd(plane.admin, CLASS_CRD)
    make_namespace(plane.admin, "accelerator-system")
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: _add_node(plane, number), range(count)))
    print(f"{count} Nodes and records made in {time.monotonic() - began:.0f} s")
    environment = {"KUBECONFIG": str(plane.admin_kubeconfig), "ACCELERATOR_LISTEN": "127.0.0.1:0"}
    process = AgentProcess("inventory", log=folder / "inventory.log", environment=environment)
    began = time.monotonic()
    with process:
        _await(lambda: sum(_totals(plane)) == count * DEVICES)
        started = time.monotonic() - began
        time.sleep(6)  # so that the class was not written lately
        before = _totals(plane)
        began = time.monotonic()
        _write(plane, 0, usable=DEVICES - 1)
        _await(lambda: any("DevicesUnusable" in reasons for reasons in _reasons(plane)))
        changed = time.monotonic() - began
        peak = _peak_mib(process.process.pid)
    print(f"cold start to {len(before)} right classes: {started:.1f} s (budget {START_BUDGET_SECONDS:.0f} s)")
    print(f"peak memory of the process: {peak:.0f} MiB (budget {MEMORY_BUDGET_MIB:.0f} MiB)")
    print(
        f"one node changed, until its class says so: {changed:.2f} s (budget {CHANGE_BUDGET_SECONDS:.0f} s)"
    )
    for reader in ("ours", "client"):
        told = printed("peer_read", reader, str(plane.admin_kubeconfig)).strip()
        if not told.startswith(f"{count} Nodes:"):
            raise SystemExit(f"{reader} did not read them all: {told}")
        print(f"{reader} read {told}")
    held = started <= START_BUDGET_SECONDS and peak <= MEMORY_BUDGET_MIB and changed <= CHANGE_BUDGET_SECONDS
    return 0 if held else 1


def _add_node(plane: ControlPlane, number: int) -> None:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(DEVICES)}
    name = f"node-{number}"
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {f"example.com/label-{n}": "x" * 40 for n in range(40)}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [
                {"names": [f"registry.example.com/image-{n}@sha256:{n:064d}"], "sizeBytes": n}
                for n in range(50)
            ],
        },
    }
    plane.admin.create(NODES, body)
    _write(plane, number, usable=DEVICES)


def _write(plane: ControlPlane, number: int, *, usable: int) -> None:
    body = record(number, usable=usable)
    for entry in body["spec"]["classes"]:
        entry["resource"] = "nvidia.com/gpu"
    head = {"apiVersion": ACCELERATOR_NODES.api_version, "kind": ACCELERATOR_NODES.kind}
    # Without an owner: the uid of the Node is not known here.
    body = {**head, "metadata": {"name": f"node-{number}"}, "spec": body["spec"]}
    plane.admin.apply(ACCELERATOR_NODES, body, manager="accelerator-agent", force=True)


def _totals(plane: ControlPlane) -> list[int]:
    items = plane.admin.items(ACCELERATOR_CLASSES)
    return [item.get("status", {}).get("totalAccelerators", 0) for item in items]


def _reasons(plane: ControlPlane) -> list[set[str]]:
    items = plane.admin.items(ACCELERATOR_CLASSES)
    return [{one["reason"] for one in item["status"]["conditions"]} for item in items]


def _await(reached: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not _holds(reached):
        if time.monotonic() > deadline:
            raise SystemExit("the controller did not come to an end")
        time.sleep(0.05)


def _holds(reached: Callable[[], bool]) -> bool:
    try:
        return reached()
    except ApiError as error:
        if error.status != 429:  # the server's store of a new kind is being filled
            raise
        return False


def _peak_mib(pid: int | None) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    print(f"{CLASSES} classes", flush=True)
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000))
