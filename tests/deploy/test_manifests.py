"""The manifests as they are: kubectl applies them, the controllers place their Pods, an uninstall leaves the rest."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.cluster import ACCELERATOR_CLASSES, CRDS, NAMESPACES, PODS
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import AT_ONCE, DAEMONSET_FOLDER, NAMESPACE, eventually, ready_node
from tests.deploy.conftest import accelerator_class

BASE = DAEMONSET_FOLDER
WITH_CLASSES = DAEMONSET_FOLDER / "overlays" / "ome-crd"
# OpenShift's holds a kind that no other cluster knows: tests/deploy/test_overlays.py.
EVERY = sorted(
    path.parent
    for path in DAEMONSET_FOLDER.rglob("kustomization.yaml")
    if "components" not in path.parts and path.parent.name != "openshift"
)


@pytest.fixture(scope="module")
def installed(new_control_plane: Callable[..., ControlPlane]) -> Iterator[ControlPlane]:
    """A cluster of three Nodes, one of them tainted, on which kubectl installed the overlay with OME's definition."""
    plane = new_control_plane()
    ready_node(plane.admin, "plain")
    ready_node(plane.admin, "gpu", resources={"nvidia.com/gpu": "8"})
    tainted = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    ready_node(plane.admin, "tainted", taints=tainted)
    plane.kubectl("apply", "-k", str(WITH_CLASSES))
    plane.start_controllers()
    plane.start_scheduler()
    yield plane
    plane.stop()


def pods_of(plane: ControlPlane, component: str) -> list[dict[str, Any]]:
    """Return the Pods of one of our workloads."""
    pods = plane.admin.items(PODS, namespace=NAMESPACE)
    return [pod for pod in pods if pod["metadata"]["labels"].get("app.kubernetes.io/component") == component]


def placed(plane: ControlPlane, component: str, count: int) -> list[str] | None:
    """Return the Nodes of a workload's Pods, once there are `count` of them and each has one."""
    nodes = [pod["spec"].get("nodeName") for pod in pods_of(plane, component)]
    return sorted(nodes) if len(nodes) == count and all(nodes) else None


@pytest.mark.parametrize(
    "folder", EVERY, ids=[str(path.relative_to(DAEMONSET_FOLDER.parent)) for path in EVERY]
)
def test_the_server_accepts_every_object(control_plane: ControlPlane, folder: Path) -> None:
    done = control_plane.kubectl(
        "apply",
        "--server-side",
        "--dry-run=server",
        "--force-conflicts",
        "--validate=strict",
        "-k",
        str(folder),
    )
    # The dry run leaves the namespace's level as it is; tests/deploy/test_overlays.py applies for real.
    warnings = [line for line in done.stderr.splitlines() if "would violate PodSecurity" not in line]
    assert warnings == []
    lines = done.stdout.splitlines()
    assert lines
    assert all(line.endswith("serverside-applied (server dry run)") for line in lines)


def test_a_second_apply_by_the_same_hand_is_accepted(installed: ControlPlane) -> None:
    assert installed.kubectl("apply", "-k", str(WITH_CLASSES)).stderr == ""


def test_the_base_does_not_hold_the_definition_of_classes(control_plane: ControlPlane) -> None:
    rendered = yaml.safe_load_all(control_plane.kubectl("kustomize", str(BASE)).stdout)
    definitions = [
        body["metadata"]["name"] for body in rendered if body["kind"] == "CustomResourceDefinition"
    ]
    assert definitions == ["acceleratornodes.accelerators.ome.io"]


def test_fr_131_every_node_gets_an_agent_tainted_ones_too(installed: ControlPlane) -> None:
    nodes = eventually(lambda: placed(installed, "agent", 3), what="the agents' Pods")
    assert nodes == ["gpu", "plain", "tainted"]


def test_the_two_controllers_stand_on_different_nodes(installed: ControlPlane) -> None:
    nodes = eventually(lambda: placed(installed, "inventory", 2), what="the controllers' Pods")
    assert nodes == ["gpu", "plain"]


def test_fr_005_only_the_agents_are_given_accelerators(installed: ControlPlane) -> None:
    eventually(lambda: placed(installed, "agent", 3) and placed(installed, "inventory", 2), what="the Pods")
    visible = {
        component: {
            entry["value"]
            for pod in pods_of(installed, component)
            for entry in pod["spec"]["containers"][0]["env"]
            if entry["name"] == "NVIDIA_VISIBLE_DEVICES"
        }
        for component in ("agent", "inventory")
    }
    assert visible == {"agent": {"all"}, "inventory": {"void"}}


def test_an_uninstall_leaves_the_classes_and_their_definition(installed: ControlPlane) -> None:
    admin = installed.admin
    admin.create(ACCELERATOR_CLASSES, accelerator_class("nvidia-h100-80gb"))
    installed.kubectl("delete", "--wait=false", "-k", str(BASE))
    # No kubelet confirms the end of a Pod here, and the namespace waits for that.
    admin.delete(f"/api/v1/namespaces/{NAMESPACE}/pods", options=AT_ONCE)
    eventually(lambda: admin.find(NAMESPACES, NAMESPACE) is None, seconds=30, what="the end of the namespace")
    ours = "app.kubernetes.io/name=accelerator-discovery-agent"
    kinds = (
        "clusterroles,clusterrolebindings,customresourcedefinitions,priorityclasses,runtimeclasses,"
        "validatingadmissionpolicies,validatingadmissionpolicybindings"
    )
    assert installed.kubectl("get", kinds, "-l", ours, "-o", "name").stdout == ""
    assert installed.kubectl("get", "roles,rolebindings", "-A", "-l", ours, "-o", "name").stdout == ""
    assert [item["metadata"]["name"] for item in admin.items(CRDS)] == ["acceleratorclasses.ome.io"]
    assert [item["metadata"]["name"] for item in admin.items(ACCELERATOR_CLASSES)] == ["nvidia-h100-80gb"]
    # The other tests of this module find it installed, in whatever order they run.
    installed.kubectl("apply", "-k", str(WITH_CLASSES))
