"""How long `match` takes in all against a real API server with thousands of Nodes, and when it tells its progress.

The comparison alone is measured by `match_5000.py`. Takes the number of Nodes as its argument (5,000). Builds the control
plane of the tests on first use.
"""

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES
from bench.inventory_fold import DEVICES, record
from tests.cluster.control_plane import ControlPlane
from tests.cluster.definitions import install_crd
from tests.cluster.objects import CLASS_CRD, NODE_CRD, ready_node
from tests.cluster.program import find_or_build
from tests.core.matching.kit import a_runtime, bare_class

CLASSES = 20


def main(count: int) -> int:
    """Print the figures."""
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
    names = [f"nvidia-h100-80gb-{number}" for number in range(CLASSES)]
    for name in names:
        one = bare_class(name, vendor="nvidia", memoryGB="80Gi", computeCapability="9.0")
        plane.admin.create(ACCELERATOR_CLASSES, one)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: _add_node(plane, number), range(count)))
    path = folder / "runtime.yaml"
    path.write_text(yaml.safe_dump(a_runtime(gpus=8, minMemory=80, acceleratorClasses=names)))
    command = [
        sys.executable,
        "-m",
        "agent",
        "match",
        "-f",
        str(path),
        "--kubeconfig",
        str(plane.admin_kubeconfig),
    ]
    began = time.monotonic()
    result = subprocess.run([*command, "-o", "table"], capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    print(result.stderr.rstrip())
    print("\n".join(result.stdout.splitlines()[:6]))
    print(
        f"match: {count} Nodes on a real API server, read and answered: {seconds:.1f} s, exit status {result.returncode}"
    )
    return result.returncode


def _add_node(plane: ControlPlane, number: int) -> None:
    """Make a Node of a real one's size and its record."""
    name = f"node-{number}"
    class_name = f"nvidia-h100-80gb-{number % CLASSES}"
    ready_node(
        plane.admin,
        name,
        labels={"class.accelerators.ome.io/" + class_name: "true"},
        annotations={f"example.com/annotation-{n}": "x" * 200 for n in range(40)},
        resources={"nvidia.com/gpu": str(DEVICES)},
    )
    body = record(number)
    for entry in body["spec"]["classes"]:
        entry["resource"] = "nvidia.com/gpu"
    head = {"apiVersion": ACCELERATOR_NODES.api_version, "kind": ACCELERATOR_NODES.kind}
    plane.admin.create(ACCELERATOR_NODES, {**head, "metadata": {"name": name}, "spec": body["spec"]})


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000))
