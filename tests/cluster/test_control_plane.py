from collections.abc import Callable
from pathlib import Path

import pytest

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, NODES, PODS
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import eventually, make_pod, node_token, ready_node
from tests.cluster.program import Program, ProgramUnavailableError, find_or_build


def test_the_server_is_ready_and_of_the_pinned_version(control_plane: ControlPlane) -> None:
    assert control_plane.admin.request("GET", "/readyz").status == 200
    assert control_plane.admin.get("/version")["gitVersion"] == "v1.36.3"


def test_a_node_that_a_test_makes_is_ready_for_kubectl(fresh_cluster: ControlPlane) -> None:
    ready_node(fresh_cluster.admin, "gpu-1", labels={"zone": "a"})
    assert fresh_cluster.kubectl("get", "nodes", "-l", "zone=a", "--no-headers").stdout.split()[:2] == [
        "gpu-1",
        "Ready",
    ]


def test_a_fresh_cluster_holds_no_objects_of_other_tests(fresh_cluster: ControlPlane) -> None:
    for collection in (NODES, ACCELERATOR_NODES, ACCELERATOR_CLASSES, PODS):
        assert fresh_cluster.admin.items(collection) == []


def test_a_token_bound_to_a_pod_carries_the_name_of_its_node(fresh_cluster: ControlPlane) -> None:
    ready_node(fresh_cluster.admin, "gpu-1")
    review = fresh_cluster.client(node_token(fresh_cluster.admin, "gpu-1")).ask(
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )
    user = review["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:accelerator-system:accelerator-agent"
    assert user["extra"]["authentication.kubernetes.io/node-name"] == ["gpu-1"]


def test_the_audit_log_tells_who_asked_what_with_which_answer(fresh_cluster: ControlPlane) -> None:
    ready_node(fresh_cluster.admin, "gpu-1")
    client = fresh_cluster.client(node_token(fresh_cluster.admin, "gpu-1"))
    mark = fresh_cluster.audit.mark()
    client.get(NODES, "gpu-1")
    client.request("DELETE", "/api/v1/nodes/gpu-1")
    asked = fresh_cluster.audit.since(mark, user=":accelerator-agent")
    assert [(one.verb, one.what, one.name, one.status) for one in asked] == [
        ("get", "nodes", "gpu-1", 200),
        ("delete", "nodes", "gpu-1", 403),
    ]
    assert [one.verb for one in fresh_cluster.audit.since(mark, writes_only=True)] == ["delete"]


def test_objects_and_tokens_outlive_a_restart_of_the_server(fresh_cluster: ControlPlane) -> None:
    ready_node(fresh_cluster.admin, "gpu-1")
    client = fresh_cluster.client(node_token(fresh_cluster.admin, "gpu-1"))
    fresh_cluster.stop_apiserver()
    with pytest.raises(ConnectionRefusedError):
        client.get(NODES, "gpu-1")
    fresh_cluster.start_apiserver()
    assert client.get(NODES, "gpu-1")["metadata"]["name"] == "gpu-1"


def test_a_paused_server_accepts_connections_and_does_not_answer(fresh_cluster: ControlPlane) -> None:
    impatient = fresh_cluster.client(fresh_cluster.admin_token)
    impatient._timeout = 0.3
    fresh_cluster.pause_apiserver()
    try:
        with pytest.raises(TimeoutError):
            impatient.get(NODES)
    finally:
        fresh_cluster.resume_apiserver()
    assert fresh_cluster.admin.items(NODES) == []


@pytest.mark.usefixtures("controllers_and_scheduler")
def test_the_scheduler_and_the_collector_do_their_work(fresh_cluster: ControlPlane) -> None:
    admin = fresh_cluster.admin
    ready_node(admin, "small", labels={"sm": "80"}, resources={"nvidia.com/gpu": "8"})
    node = ready_node(admin, "big", labels={"sm": "90"}, resources={"nvidia.com/gpu": "8"})
    terms = [{"matchExpressions": [{"key": "sm", "operator": "Gt", "values": ["89"]}]}]
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    }
    make_pod(admin, "job", requests={"nvidia.com/gpu": "1"}, spec={"affinity": affinity})
    bound = eventually(
        lambda: admin.get(PODS, "job", namespace="default")["spec"].get("nodeName"), what="a binding"
    )
    assert bound == "big"

    owner = {"apiVersion": "v1", "kind": "Node", "name": "big", "uid": node["metadata"]["uid"]}
    record = {
        "apiVersion": ACCELERATOR_NODES.api_version,
        "kind": ACCELERATOR_NODES.kind,
        "metadata": {"name": "big", "ownerReferences": [owner]},
        "spec": {"agentVersion": "1"},
    }
    admin.create(ACCELERATOR_NODES, record)
    admin.delete(NODES, "big")
    eventually(lambda: admin.find(ACCELERATOR_NODES, "big") is None, what="the removal of the record")


def test_the_minimal_definition_keeps_what_the_full_one_prunes(minimal_classes: ControlPlane) -> None:
    body = {
        "apiVersion": ACCELERATOR_CLASSES.api_version,
        "kind": ACCELERATOR_CLASSES.kind,
        "metadata": {"name": "any"},
        "spec": {"anything": {"goes": 1}},
    }
    assert minimal_classes.admin.create(ACCELERATOR_CLASSES, body)["spec"] == {"anything": {"goes": 1}}


def test_without_the_definition_of_classes_the_collection_is_not_there(no_classes: ControlPlane) -> None:
    assert no_classes.admin.request("GET", "/apis/ome.io/v1beta1/acceleratorclasses").status == 404


def test_a_cluster_to_oneself_is_empty_and_apart(
    control_plane: ControlPlane, new_control_plane: Callable[..., ControlPlane]
) -> None:
    own = new_control_plane()
    assert own.server != control_plane.server
    assert own.admin.items(NODES) == []
    own.stop()
    assert own.apiserver.pid is None
    assert own.etcd.pid is None


def test_given_assets_are_used_and_a_part_they_lack_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    (tmp_path / "etcd").touch()
    with pytest.raises(ProgramUnavailableError, match="holds no kube-apiserver"):
        find_or_build()
    (tmp_path / "kube-apiserver").touch()
    assert find_or_build() == Program(tmp_path)
    assert find_or_build().argv("etcd") == [str(tmp_path / "etcd")]
