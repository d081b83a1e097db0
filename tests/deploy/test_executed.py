"""The manifests executed: the real controllers and scheduler place the Pods, and each container's command runs."""

from collections.abc import Callable, Iterator

import pytest

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, NODES
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubelet import Environment, Kubelet
from tests.cluster.objects import DAEMONSET_FOLDER, NAMESPACE, delete_pod, eventually, ready_node
from tests.deploy.executed import (
    AGENTS,
    DOMAIN,
    Running,
    labels_of,
    make_a_pool,
    update_in_turn,
    variables,
)
from tests.deploy.rights import granted_to, used_by

CONTROLLERS = "app.kubernetes.io/component=inventory"


@pytest.fixture(scope="module")
def running(
    new_control_plane: Callable[..., ControlPlane],
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
    update_in_turn(running, agents=3)


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
"""For servers that refuse a watch with initial events, as Kubernetes 1.33 and those before 1.32 do by default."""


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
