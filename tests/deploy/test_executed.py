"""The manifests executed: the real controllers and scheduler place the Pods, and each container's command runs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, INFERENCE_POOLS, NODES
from tests import cluster
from tests.cluster.control_plane import ControlPlane
from tests.cluster.definitions import install_crd
from tests.cluster.kubelet import Environment, Kubelet
from tests.cluster.objects import DAEMONSET_FOLDER, NAMESPACE, delete_pod, eventually, ready_node

POOL_CRD = Path(cluster.__file__).parent / "manifests" / "inferencepools-crd.yaml"
DOMAIN = "accelerators.ome.io"
AGENTS = "app.kubernetes.io/component=agent"
CONTROLLERS = "app.kubernetes.io/component=inventory"
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


@pytest.fixture(scope="module")
def running(
    new_control_plane: Callable[[], ControlPlane],
    new_kubelet: Callable[[ControlPlane, Environment], Kubelet],
) -> Iterator[Running]:
    """Two Nodes with accelerators, one without, and what `kubectl apply -k` makes of them."""
    plane = new_control_plane()
    plane.kubectl("apply", "-k", str(DAEMONSET_FOLDER / "overlays" / "ome-crd"))
    make_a_pool(plane)
    gpus = {"nvidia.com/gpu": "8"}
    ready_node(
        plane.admin, "gpu-1", resources=gpus, taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    )
    ready_node(plane.admin, "gpu-2", resources=gpus)
    ready_node(plane.admin, "plain")
    plane.start_controllers()
    plane.start_scheduler()
    kubelet = new_kubelet(plane, variables)
    kubelet.await_ready(NAMESPACE, 3, selector=AGENTS, seconds=60)
    kubelet.await_ready(NAMESPACE, 2, selector=CONTROLLERS, seconds=60)
    yield Running(plane, kubelet)
    plane.stop()


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


def test_labels_records_and_classes_appear(running: Running) -> None:
    plane = running.plane
    eventually(
        lambda: labels_of(plane, "gpu-1").get(f"{DOMAIN}/class") == "nvidia-h100-80gb", what="the labels"
    )
    eventually(lambda: labels_of(plane, "gpu-2").get(f"{DOMAIN}/family") == "ada", what="the labels")
    records = [item["metadata"]["name"] for item in plane.admin.items(ACCELERATOR_NODES)]
    assert {"gpu-1", "gpu-2"} <= set(records)
    eventually(
        lambda: (
            (plane.admin.find(ACCELERATOR_CLASSES, "nvidia-h100-80gb") or {})
            .get("status", {})
            .get("totalAccelerators")
            == 8
        ),
        what="the class with its total",
    )


def test_fr_005_a_node_without_accelerators_has_a_ready_agent_and_no_label(running: Running) -> None:
    running.kubelet.await_ready(NAMESPACE, 3, selector=AGENTS)
    assert labels_of(running.plane, "plain") == {}


def test_a_container_that_crashes_is_started_again_and_takes_no_label_away(running: Running) -> None:
    plane, kubelet = running.plane, running.kubelet
    before = eventually(lambda: labels_of(plane, "gpu-2"), what="the labels")
    (pod,) = [
        pod
        for pod in kubelet.await_ready(NAMESPACE, 3, selector=AGENTS)
        if pod["spec"]["nodeName"] == "gpu-2"
    ]
    name = pod["metadata"]["name"]
    kubelet.process(name).kill()
    eventually(lambda: kubelet.restarts(name) == 1, what="the restart")
    kubelet.await_ready(NAMESPACE, 3, selector=AGENTS)
    assert labels_of(plane, "gpu-2") == before


def test_a_node_that_is_added_is_labelled_and_one_that_goes_takes_its_record_along(running: Running) -> None:
    plane, kubelet = running.plane, running.kubelet
    ready_node(plane.admin, "gpu-3", resources={"nvidia.com/gpu": "1"})
    eventually(
        lambda: labels_of(plane, "gpu-3").get(f"{DOMAIN}/family") == "turing", seconds=30, what="the labels"
    )
    eventually(lambda: plane.admin.find(ACCELERATOR_NODES, "gpu-3"), what="the record")
    pods = kubelet.await_ready(NAMESPACE, 4, selector=AGENTS)
    plane.admin.delete(NODES, "gpu-3")
    eventually(lambda: plane.admin.find(ACCELERATOR_NODES, "gpu-3") is None, what="the end of the record")
    mark = plane.audit.mark()

    def still_looks() -> bool:
        asked = plane.audit.since(mark, user=":accelerator-agent", resource="nodes")
        return len([one for one in asked if one.name == "gpu-3" and one.status == 404]) >= 2

    eventually(still_looks, what="two more passes of the agent whose Node is gone")
    assert plane.admin.find(NODES, "gpu-3") is None
    assert plane.admin.find(ACCELERATOR_NODES, "gpu-3") is None
    # The controller that collects Pods of gone Nodes waits 40 s before it does.
    (orphan,) = [pod["metadata"]["name"] for pod in pods if pod["spec"]["nodeName"] == "gpu-3"]
    delete_pod(plane.admin, orphan, namespace=NAMESPACE)
    kubelet.await_ready(NAMESPACE, 3, selector=AGENTS)


def test_a_drained_node_keeps_its_agent_and_loses_the_controller(running: Running) -> None:
    plane, kubelet = running.plane, running.kubelet
    plane.kubectl("drain", "plain", "--ignore-daemonsets", "--timeout=30s")
    nodes = {pod["spec"]["nodeName"] for pod in kubelet.await_ready(NAMESPACE, 2, selector=CONTROLLERS)}
    agents = {pod["spec"]["nodeName"] for pod in kubelet.await_ready(NAMESPACE, 3, selector=AGENTS)}
    plane.kubectl("uncordon", "plain")
    assert nodes == {"gpu-2"}
    assert agents == {"gpu-1", "gpu-2", "plain"}


def test_a_rolling_update_replaces_every_agent_in_time_and_writes_no_label_anew(running: Running) -> None:
    plane, kubelet = running.plane, running.kubelet
    before = {pod["metadata"]["name"] for pod in kubelet.await_ready(NAMESPACE, 3, selector=AGENTS)}
    labels = {node: labels_of(plane, node) for node in ("gpu-1", "gpu-2")}
    mark = plane.audit.mark()
    plane.kubectl("-n", NAMESPACE, "set", "env", "daemonset/accelerator-agent", "ACCELERATOR_LOG_LEVEL=debug")
    plane.kubectl("-n", NAMESPACE, "rollout", "status", "daemonset/accelerator-agent", "--timeout=60s")
    after = {pod["metadata"]["name"] for pod in kubelet.await_ready(NAMESPACE, 3, selector=AGENTS)}
    assert before & after == set()
    assert {name: kubelet.ended[name].status for name in before} == dict.fromkeys(before, 0)
    assert max(kubelet.ended[name].seconds for name in before) < 5
    assert {node: labels_of(plane, node) for node in labels} == labels
    writes = plane.audit.since(mark, user=":accelerator-agent", resource="nodes", writes_only=True)
    assert writes == []


LISTS = {
    ("list", group, resource)
    for group, resource in (
        ("", "namespaces"),
        ("", "nodes"),
        ("", "pods"),
        ("inference.networking.k8s.io", "inferencepools"),
        ("accelerators.ome.io", "acceleratornodes"),
        ("ome.io", "acceleratorclasses"),
    )
}
"""For servers that refuse a watch with initial events, which those before Kubernetes 1.32 do unless told otherwise."""


def test_the_rights_that_are_used_are_the_rights_that_are_granted(running: Running) -> None:
    plane = running.plane
    assert used_by(plane, "accelerator-agent") == granted_to(plane, "accelerator-agent")
    assert used_by(plane, "accelerator-inventory") | LISTS == granted_to(plane, "accelerator-inventory")


def test_nothing_that_the_accounts_asked_for_was_forbidden(running: Running) -> None:
    asked = running.plane.audit.since(user=":accelerator-agent") + running.plane.audit.since(
        user=":accelerator-inventory"
    )
    assert asked
    assert [request for request in asked if request.status == 403] == []


def used_by(plane: ControlPlane, account: str) -> set[tuple[str, str, str]]:
    """Return what the account asked for since the installation, as (verb, group, resource); discovery apart."""
    asked = [request for request in plane.audit.since(user=f":{account}") if request.resource]
    # An apply that creates is logged as a patch, and needs both rights.
    created = {("create", one.group, one.what) for one in asked if one.verb == "patch" and one.status == 201}
    return created | {(one.verb, one.group, one.what) for one in asked}


def granted_to(plane: ControlPlane, account: str) -> set[tuple[str, str, str]]:
    """Return what the account's roles grant, as (verb, group, resource)."""
    kinds = ("clusterroles", "roles")
    roles = [
        role for kind in kinds for role in plane.admin.items(f"/apis/rbac.authorization.k8s.io/v1/{kind}")
    ]
    return {
        (verb, group, resource)
        for role in roles
        if role["metadata"]["name"].startswith(account)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
