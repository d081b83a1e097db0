"""The overlay `single` executed: the agents alone label nodes, keep records and, elected among themselves, classes."""

from collections.abc import Callable, Iterator

import pytest

from agent.cluster import ACCELERATOR_CLASSES, LEASES
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubelet import Environment, Kubelet
from tests.cluster.objects import CLASS_CRD, DAEMONSET_FOLDER, NAMESPACE, eventually, ready_node
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

CLASS = "nvidia-h100-80gb"


@pytest.fixture(scope="module")
def running(
    new_control_plane: Callable[..., ControlPlane],
    new_kubelet: Callable[[ControlPlane, Environment], Kubelet],
) -> Iterator[Running]:
    """A node of eight GPUs, one without, OME's definition, and the overlay, on a server that streams no lists."""
    plane = new_control_plane("--feature-gates=WatchList=false")
    plane.kubectl("apply", "-f", str(CLASS_CRD))
    make_a_pool(plane)
    plane.kubectl("apply", "-k", str(DAEMONSET_FOLDER / "overlays" / "single"))
    ready_node(plane.admin, "gpu-1", resources={"nvidia.com/gpu": "8"})
    ready_node(plane.admin, "plain")
    plane.start_controllers()
    plane.start_scheduler()
    kubelet = new_kubelet(plane, variables)
    kubelet.await_ready(NAMESPACE, 2, selector=AGENTS, seconds=60)
    yield Running(plane, kubelet)
    plane.stop()


def leader(plane: ControlPlane) -> str:
    """Return the Pod that holds the Lease, empty where none does; each process of a Pod adds a word to its name."""
    lease = plane.admin.find(LEASES, "accelerator-inventory", namespace=NAMESPACE) or {}
    return str(lease.get("spec", {}).get("holderIdentity") or "").partition("_")[0]


def available(plane: ControlPlane) -> int | None:
    status = (plane.admin.find(ACCELERATOR_CLASSES, CLASS) or {}).get("status", {})
    found: int | None = status.get("availableAccelerators")
    return found


def test_labels_and_classes_appear_without_a_deployment(running: Running) -> None:
    plane = running.plane
    eventually(lambda: labels_of(plane, "gpu-1").get(f"{DOMAIN}/class") == CLASS, what="the labels")
    eventually(lambda: available(plane) == 8, seconds=30, what="the class with its free devices")
    assert (
        plane.kubectl("-n", NAMESPACE, "get", "deployments,poddisruptionbudgets", "-o", "name").stdout == ""
    )
    assert plane.kubectl("-n", NAMESPACE, "get", "serviceaccounts", "-o", "name").stdout.split() == [
        "serviceaccount/accelerator-agent",
        "serviceaccount/default",
    ]


def test_another_agent_takes_over_when_the_leader_is_killed(running: Running) -> None:
    plane, kubelet = running.plane, running.kubelet
    first = eventually(lambda: leader(plane), what="a leader")
    pods = {pod["metadata"]["name"] for pod in kubelet.await_ready(NAMESPACE, 2, selector=AGENTS)}
    assert first in pods
    # In order, as in a rollout: the Lease is given back at once.
    plane.kubectl("-n", NAMESPACE, "delete", "pod", first, "--wait=false")
    eventually(lambda: leader(plane) not in {"", first}, seconds=30, what="another leader")
    kubelet.await_ready(NAMESPACE, 2, selector=AGENTS, seconds=60)
    plane.admin.delete(ACCELERATOR_CLASSES, CLASS)
    eventually(lambda: available(plane) == 8, seconds=40, what="the class again")


def test_a_rolling_update_replaces_every_agent_and_the_classes_stay(running: Running) -> None:
    plane = running.plane
    update_in_turn(running, agents=2)
    eventually(lambda: leader(plane), seconds=30, what="a leader among the new agents")
    assert available(plane) == 8


def test_a_drained_node_keeps_its_agent_and_is_not_available(running: Running) -> None:
    plane, kubelet = running.plane, running.kubelet
    before = labels_of(plane, "gpu-1")
    plane.kubectl("drain", "gpu-1", "--ignore-daemonsets", "--timeout=30s")
    eventually(lambda: available(plane) == 0, seconds=30, what="the class without the cordoned node")
    assert len(kubelet.await_ready(NAMESPACE, 2, selector=AGENTS)) == 2
    assert labels_of(plane, "gpu-1") == before
    plane.kubectl("uncordon", "gpu-1")
    eventually(lambda: available(plane) == 8, seconds=30, what="the class with it")


def test_a_node_that_is_added_is_labelled_and_counted(running: Running) -> None:
    plane, kubelet = running.plane, running.kubelet
    ready_node(plane.admin, "gpu-2", resources={"nvidia.com/gpu": "2"})
    kubelet.await_ready(NAMESPACE, 3, selector=AGENTS, seconds=60)
    eventually(lambda: labels_of(plane, "gpu-2").get(f"{DOMAIN}/family") == "ada", what="the labels")
    eventually(
        lambda: (plane.admin.find(ACCELERATOR_CLASSES, "nvidia-l40s-48gb") or {}).get("status"),
        seconds=30,
        what="its class",
    )


def test_the_rights_that_are_used_are_those_of_both_roles(running: Running) -> None:
    plane = running.plane
    # An agent and a controller both come to do all that they do.
    eventually(lambda: available(plane) == 8, seconds=30, what="the class")
    granted = granted_to(plane, "accelerator-agent") | granted_to(plane, "accelerator-inventory")
    # Lists in pages and the watches behind them: a server from before watch-lists is asked for both.
    assert used_by(plane, "accelerator-agent") == granted


def test_nothing_that_the_account_asked_for_was_forbidden(running: Running) -> None:
    asked = running.plane.audit.since(user=":accelerator-agent")
    assert asked
    assert [request for request in asked if request.status == 403] == []
