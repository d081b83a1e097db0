"""`doctor` on the real control plane: what our accounts are allowed, as the server itself answers."""

import pytest

from agent.app import now
from agent.cluster import NODES
from agent.commands.doctor import Patient, doctor_checks, gather
from agent.core.doctor.check import Check, findings
from agent.core.doctor.rights import Right
from agent.edges.cluster import KubernetesCluster, kubeconfig
from agent.settings import Settings
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import INVENTORY_ACCOUNT, account_token, eventually, node_token, ready_node

AGENT_ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/accelerator-agent"


def connection(plane: ControlPlane, token: str) -> KubernetesCluster:
    return KubernetesCluster(kubeconfig(str(plane.kubeconfig(token))))


def reviewed(plane: ControlPlane, token: str, name: str | None = None) -> dict[str, dict[Right, bool]]:
    cluster = connection(plane, token)
    try:
        evidence = gather(cluster, Settings(node_name=name))
    finally:
        cluster.close()
    assert [review.problem for review in evidence.reviews] == [None] * len(evidence.reviews)
    return {review.account: dict(review.allowed) for review in evidence.reviews}


def test_the_agents_account_finds_itself_allowed_all_that_it_needs(fresh_cluster: ControlPlane) -> None:
    ready_node(fresh_cluster.admin, "gpu-1")
    found = reviewed(fresh_cluster, node_token(fresh_cluster.admin, "gpu-1"), "gpu-1")
    assert found.keys() == {"accelerator-agent"}
    assert set(found["accelerator-agent"].values()) == {True}


def test_the_controllers_account_finds_itself_allowed_all_that_it_needs(fresh_cluster: ControlPlane) -> None:
    found = reviewed(fresh_cluster, account_token(fresh_cluster.admin, INVENTORY_ACCOUNT))
    assert found.keys() == {"accelerator-inventory"}
    assert {str(right) for right, allowed in found["accelerator-inventory"].items() if not allowed} == set()


def test_an_administrator_finds_both_accounts_allowed_all_that_they_need(fresh_cluster: ControlPlane) -> None:
    found = reviewed(fresh_cluster, fresh_cluster.admin_token)
    assert found.keys() == {"accelerator-agent", "accelerator-inventory"}
    assert {allowed for rights in found.values() for allowed in rights.values()} == {True}


@pytest.mark.parametrize("by", ["agent", "administrator"])
def test_a_right_that_is_taken_away_is_named(fresh_cluster: ControlPlane, by: str) -> None:
    """FR-105."""
    admin = fresh_cluster.admin
    ready_node(admin, "gpu-1")
    token = node_token(admin, "gpu-1") if by == "agent" else fresh_cluster.admin_token
    role = admin.ask("GET", AGENT_ROLE)
    without = [
        rule | {"verbs": [verb for verb in rule["verbs"] if verb != "patch"]} for rule in role["rules"]
    ]
    admin.ask("PATCH", AGENT_ROLE, {"rules": without}, content_type="application/merge-patch+json")
    try:
        eventually(
            lambda: (
                missing(reviewed(fresh_cluster, token, "gpu-1")["accelerator-agent"])
                == {"patch nodes", "patch acceleratornodes.accelerators.ome.io"}
            )
        )
    finally:
        admin.ask("PATCH", AGENT_ROLE, {"rules": role["rules"]}, content_type="application/merge-patch+json")
    eventually(lambda: not missing(reviewed(fresh_cluster, token, "gpu-1")["accelerator-agent"]))


def missing(allowed: dict[Right, bool]) -> set[str]:
    return {str(right) for right, answer in allowed.items() if not answer}


def checks(plane: ControlPlane, token: str, name: str | None) -> dict[str, Check]:
    cluster = connection(plane, token)
    try:
        patient = Patient(facts=None, surroundings=None, cluster=cluster)
        return {check.id: check for check in doctor_checks(patient, Settings(node_name=name), now=now().wall)}
    finally:
        cluster.close()


def test_in_an_agents_pod_what_it_may_not_read_is_no_finding(fresh_cluster: ControlPlane) -> None:
    ready_node(fresh_cluster.admin, "gpu-1")
    found = checks(fresh_cluster, node_token(fresh_cluster.admin, "gpu-1"), "gpu-1")
    assert findings(found.values()) == ()
    assert found["definition-records"].status == "ok"
    assert found["node"].evidence == "there is a Node gpu-1"


def test_without_the_right_to_list_a_whole_cluster_is_not_judged(fresh_cluster: ControlPlane) -> None:
    ready_node(fresh_cluster.admin, "gpu-1", resources={"nvidia.com/gpu": "8"})
    found = checks(fresh_cluster, node_token(fresh_cluster.admin, "gpu-1"), None)
    assert found["uncovered"].status == "skipped"
    assert "nodes" in found["uncovered"].evidence


def test_an_administrator_is_told_of_gpu_nodes_without_an_agent(fresh_cluster: ControlPlane) -> None:
    """FR-131."""
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    ready_node(fresh_cluster.admin, "gpu-1", resources={"nvidia.com/gpu": "8"}, taints=[taint])
    ready_node(fresh_cluster.admin, "cpu-1")
    found = checks(fresh_cluster, fresh_cluster.admin_token, None)
    assert [check.id for check in findings(found.values())] == ["uncovered"]
    assert found["uncovered"].evidence == "gpu-1 (taints nvidia.com/gpu=present:NoSchedule)"


def test_a_token_that_is_refused_is_told(fresh_cluster: ControlPlane) -> None:
    found = checks(fresh_cluster, "not-a-token", None)
    assert [check.id for check in findings(found.values())] == ["cluster"]
    assert found["cluster"].evidence.startswith("Unauthorized: ")


def test_looking_leaves_no_trace(fresh_cluster: ControlPlane) -> None:
    ready_node(fresh_cluster.admin, "gpu-1")
    before = fresh_cluster.admin.get(NODES, "gpu-1")
    checks(fresh_cluster, fresh_cluster.admin_token, "gpu-1")
    assert fresh_cluster.admin.get(NODES, "gpu-1") == before
