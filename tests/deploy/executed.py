"""An installation executed: what its Pods run on, and what is true of it whichever overlay it is of."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.cluster import INFERENCE_POOLS, NODES
from tests import cluster
from tests.cluster.control_plane import ControlPlane
from tests.cluster.definitions import install_crd
from tests.cluster.kubelet import Kubelet
from tests.cluster.objects import NAMESPACE

POOL_CRD = Path(cluster.__file__).parent / "manifests" / "inferencepools-crd.yaml"
DOMAIN = "accelerators.ome.io"
AGENTS = "app.kubernetes.io/component=agent"
FAKES = {"gpu-1": "h100x8", "gpu-2": "l40s", "gpu-3": "t4", "plain": "no-gpu"}


def variables(pod: dict[str, Any], ip: str) -> dict[str, str]:
    """Return what the hardware and the network would be: a fake of each node, and the Pod's own address."""
    found = {"ACCELERATOR_LISTEN": f"{ip}:9478", "ACCELERATOR_ALLOW_SIMULATED": "true"}
    if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "agent":
        found |= {"ACCELERATOR_FAKE": FAKES[pod["spec"]["nodeName"]], "ACCELERATOR_PROBE_INTERVAL": "2s"}
    return found


@dataclass(frozen=True, slots=True)
class Running:
    """An installation whose Pods were all Ready once."""

    plane: ControlPlane
    kubelet: Kubelet


def make_a_pool(plane: ControlPlane) -> None:
    """Install the kind InferencePool and one of it, so that the controller reads all it may."""
    install_crd(plane.admin, POOL_CRD)
    body = {
        "apiVersion": INFERENCE_POOLS.api_version,
        "kind": INFERENCE_POOLS.kind,
        "metadata": {"name": "llama", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": 8000}]},
    }
    plane.admin.create(INFERENCE_POOLS, body, namespace="default")


def labels_of(plane: ControlPlane, node: str) -> dict[str, str]:
    labels: dict[str, str] = plane.admin.get(NODES, node)["metadata"]["labels"]
    return {key: value for key, value in labels.items() if key.partition("/")[0].endswith(DOMAIN)}


def update_in_turn(running: Running, *, agents: int) -> None:
    """Have every agent replaced by a rolling update: each ends in time and in order, and no label is written anew."""
    plane, kubelet = running.plane, running.kubelet
    before = {pod["metadata"]["name"] for pod in kubelet.await_ready(NAMESPACE, agents, selector=AGENTS)}
    labels = {node: labels_of(plane, node) for node in FAKES if plane.admin.find(NODES, node)}
    assert any(labels.values())
    mark = plane.audit.mark()
    plane.kubectl("-n", NAMESPACE, "set", "env", "daemonset/accelerator-agent", "ACCELERATOR_LOG_LEVEL=debug")
    plane.kubectl("-n", NAMESPACE, "rollout", "status", "daemonset/accelerator-agent", "--timeout=60s")
    after = {pod["metadata"]["name"] for pod in kubelet.await_ready(NAMESPACE, agents, selector=AGENTS)}
    assert before & after == set()
    assert {name: kubelet.ended[name].status for name in before} == dict.fromkeys(before, 0)
    assert max(kubelet.ended[name].seconds for name in before) < 5
    assert {node: labels_of(plane, node) for node in labels} == labels
    writes = plane.audit.since(mark, user=":accelerator-agent", resource="nodes", writes_only=True)
    assert writes == []
