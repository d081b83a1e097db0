"""Nodes of a simulated fleet and the credentials of the agents on them, made as a cluster makes them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agent.cluster import NODES
from tests.cluster.client import path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import node_token

IMAGES, LABELS = 50, 20
_AT_ONCE = 8


def add_nodes(plane: ControlPlane, names: Sequence[str]) -> dict[str, str]:
    """Create Nodes as large as kubelets make them, an agent's Pod on each, and return the token of each Pod."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(pool.map(lambda name: (name, _add(plane, name)), names))


def _add(plane: ControlPlane, name: str) -> str:
    plane.admin.ask("POST", path_of(NODES), node_body(name), query={"fieldManager": "kubelet"})
    return node_token(plane.admin, name)


def node_body(name: str) -> dict[str, Any]:
    """Return a Node of eight GPUs with the images and labels of a real one."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    images = [
        {
            "names": [f"registry.example.com/image-{n}@sha256:{n:064d}", f"registry.example.com/image-{n}:1"],
            "sizeBytes": n,
        }
        for n in range(IMAGES)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {f"example.com/label-{n}": "x" * 40 for n in range(LABELS)}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "images": images,
        },
    }
