"""What an agent's token cannot do although RBAC would let it: the admission policy, tried with a stolen token."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.client import APPLY, MERGE, Answer, ApiClient
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import eventually, node_token, ready_node
from tests.deploy.conftest import OTHER, OWN, Stage, record

NODE = "/api/v1/nodes/"
RECORD = "/apis/accelerators.ome.io/v1alpha1/acceleratornodes/"
DOMAIN = "accelerators.ome.io"


def patch_node(
    client: ApiClient,
    name: str,
    body: dict[str, Any],
    *,
    manager: str = "accelerator-agent",
    apply: bool = False,
) -> Answer:
    """Return the answer to a dry run of a patch of a Node."""
    query: dict[str, object] = {"fieldManager": manager, "dryRun": "All"}
    if apply:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name} | body["metadata"]}
        return client.request("PATCH", NODE + name, body, content_type=APPLY, query=query | {"force": True})
    return client.request("PATCH", NODE + name, body, content_type=MERGE, query=query)


def labels(**values: str | None) -> dict[str, Any]:
    return {"metadata": {"labels": values}}


OWN_KEYS = {
    "a key of the domain": {f"{DOMAIN}/present": "true"},
    "a key of a subdomain": {f"precision.{DOMAIN}/fp8": "true"},
    "another value of a key of the domain": {f"{DOMAIN}/family": "blackwell"},
}

FOREIGN_KEYS = {
    "a new key": {"role": "gpu"},
    "another value of a key": {"team": "b"},
    "the removal of a key": {"team": None},
    "the removal of a key that Kubernetes needs": {"kubernetes.io/hostname": None},
    "a key that tells the node's role": {"node-role.kubernetes.io/control-plane": ""},
    "a domain that only ends alike": {f"evil{DOMAIN}/present": "true"},
    "a domain that only begins alike": {f"{DOMAIN}.example.com/present": "true"},
    "a name that looks like the domain": {f"example.com/a.{DOMAIN}": "true"},
}

OWNER = {"apiVersion": "v1", "kind": "Node", "name": OTHER, "uid": "a"}
OWN_ENTRY = {
    "manager": "accelerator-agent",
    "operation": "Apply",
    "apiVersion": "v1",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:metadata": {"f:labels": {f"f:{DOMAIN}/family": {}}}},
}

OTHER_FIELDS = {
    "the spec": ({"spec": {"unschedulable": True}}, "may not change the spec"),
    "the taints": ({"spec": {"taints": None}}, "may not change the spec"),
    "an annotation": ({"metadata": {"annotations": {"note": "b"}}}, "may not change the annotations"),
    "the removal of the annotations": ({"metadata": {"annotations": None}}, "may not change the annotations"),
    "a finalizer": ({"metadata": {"finalizers": ["example.com/held"]}}, "may not change the finalizers"),
    # The server's own plugin, which the test has on, asks for the right to delete a Node first.
    "an owner": (
        {"metadata": {"ownerReferences": [OWNER]}},
        "cannot set an ownerRef on a resource you can't delete",
    ),
    "what all managers own": (
        {"metadata": {"managedFields": [{}]}},
        "which fields of a Node other managers own",
    ),
    "what other managers own": (
        {"metadata": {"managedFields": [OWN_ENTRY]}},
        "which fields of a Node other managers own",
    ),
}


@pytest.mark.parametrize("keys", OWN_KEYS.values(), ids=OWN_KEYS)
@pytest.mark.parametrize("apply", [False, True], ids=["patch", "apply"])
def test_an_agent_sets_labels_of_its_domain_on_its_node(
    stage: Stage, keys: dict[str, str], apply: bool
) -> None:
    # A merge patch under another name than the apply's would change what that one owns.
    answer = patch_node(stage.agent, OWN, labels(**keys), apply=apply)
    assert (answer.status, answer.body["metadata"]["labels"].items() >= keys.items()) == (200, True)


@pytest.mark.parametrize("keys", FOREIGN_KEYS.values(), ids=FOREIGN_KEYS)
def test_an_agent_is_refused_another_key_by_name(stage: Stage, keys: dict[str, str | None]) -> None:
    answer = patch_node(stage.agent, OWN, labels(**keys))
    assert answer.status == 403
    assert f"may not set or remove the labels {', '.join(keys)}" in answer.message


@pytest.mark.parametrize(("body", "words"), OTHER_FIELDS.values(), ids=OTHER_FIELDS)
def test_an_agent_is_refused_to_change(stage: Stage, body: dict[str, Any], words: str) -> None:
    answer = patch_node(stage.agent, OWN, body)
    assert (answer.status, words in answer.message) == (403, True), answer.message


@pytest.mark.parametrize("apply", [False, True], ids=["patch", "forced apply"])
def test_an_agent_takes_no_key_from_another_manager_even_in_its_domain(stage: Stage, apply: bool) -> None:
    answer = patch_node(stage.agent, OWN, labels(**{f"{DOMAIN}/rival": "b"}), apply=apply)
    assert (answer.status, "which fields of a Node other managers own" in answer.message) == (403, True)


def test_an_agent_is_refused_another_name_as_field_manager(stage: Stage) -> None:
    answer = patch_node(stage.agent, OWN, labels(**{f"{DOMAIN}/family": "ada"}), manager="kubelet")
    assert (answer.status, "which fields of a Node other managers own" in answer.message) == (403, True)


def test_co_owning_a_foreign_label_at_its_own_value_is_all_that_an_apply_can_do(stage: Stage) -> None:
    assert patch_node(stage.agent, OWN, labels(team="a"), apply=True).status == 200
    assert patch_node(stage.agent, OWN, labels(team="b"), apply=True).status == 403


def test_an_agent_is_refused_another_node(stage: Stage) -> None:
    answer = patch_node(stage.agent, OTHER, labels(**{f"{DOMAIN}/present": "true"}))
    assert (answer.status, f'token is bound to, "{OWN}"' in answer.message) == (403, True)


def test_an_agent_cannot_create_a_node_by_applying_to_an_absent_one(stage: Stage) -> None:
    assert patch_node(stage.agent, "gpu-9", labels(**{f"{DOMAIN}/present": "true"}), apply=True).status == 403


def test_a_token_that_is_bound_to_no_node_may_write_none(stage: Stage) -> None:
    answer = patch_node(stage.unbound, OWN, labels(**{f"{DOMAIN}/present": "true"}))
    assert (answer.status, 'token is bound to, ""' in answer.message) == (403, True)
    assert (
        stage.unbound.request("PATCH", RECORD + OWN, {"spec": {"partial": True}}, content_type=MERGE).status
        == 403
    )


def test_an_administrator_is_not_confined(stage: Stage) -> None:
    assert patch_node(stage.plane.admin, OWN, labels(role="gpu", team=None)).status == 200


def test_a_node_with_4000_labels_can_still_be_labelled(fresh_cluster: ControlPlane) -> None:
    many = {f"example.com/label-{number}": "a" for number in range(4000)}
    ready_node(fresh_cluster.admin, "crowded", labels=many)
    agent = fresh_cluster.client(node_token(fresh_cluster.admin, "crowded"))
    assert patch_node(agent, "crowded", labels(**{f"{DOMAIN}/present": "true"}), apply=True).status == 200


def with_owner(**changes: Any) -> Callable[[Stage], dict[str, Any]]:
    """Return what makes the record of the own Node with its owner changed."""

    def make(stage: Stage) -> dict[str, Any]:
        body = record(OWN, stage.own)
        body["metadata"]["ownerReferences"][0] |= changes
        return body

    return make


def with_metadata(**changes: Any) -> Callable[[Stage], dict[str, Any]]:
    """Return what makes the record of the own Node with its metadata changed."""

    def make(stage: Stage) -> dict[str, Any]:
        body = record(OWN, stage.own)
        return body | {"metadata": body["metadata"] | changes}

    return make


def two_owners(stage: Stage) -> dict[str, Any]:
    body = record(OWN, stage.own)
    body["metadata"]["ownerReferences"] += record(OTHER, stage.other)["metadata"]["ownerReferences"]
    return body


REFUSED_RECORDS = {
    "of another node": (
        lambda stage: record(OTHER, stage.other),
        "the record of the Node that its token is bound to",
    ),
    "of no node": (
        lambda stage: record("gpu-9", stage.own),
        "the record of the Node that its token is bound to",
    ),
    "without an owner": (with_metadata(ownerReferences=[]), "a record has one owner"),
    "with two owners": (two_owners, "a record has one owner"),
    "owned by another node": (with_owner(name=OTHER), "a record has one owner"),
    "owned by a namespace": (with_owner(kind="Namespace"), "a record has one owner"),
    "that its owner controls": (with_owner(controller=True), "a record has one owner"),
    "that blocks its owner": (with_owner(blockOwnerDeletion=True), "blockOwnerDeletion"),
    "with a finalizer": (with_metadata(finalizers=["example.com/held"]), "may not add finalizers"),
}


@pytest.fixture
def without_records(stage: Stage) -> Stage:
    """The stage with no record, so that each row is a create: an update's owners are the server's plugin's matter."""
    stage.plane.admin.delete(RECORD.removesuffix("/"))
    return stage


@pytest.mark.parametrize(("make", "words"), REFUSED_RECORDS.values(), ids=REFUSED_RECORDS)
def test_an_agent_is_refused_a_record(
    without_records: Stage, make: Callable[[Stage], dict[str, Any]], words: str
) -> None:
    body = make(without_records)
    query = {"fieldManager": "accelerator-agent", "dryRun": "All"}
    answer = without_records.agent.request("POST", RECORD.removesuffix("/"), body, query=query)
    assert (answer.status, words in answer.message) == (403, True), answer.message


def test_an_agent_writes_the_record_of_its_own_node(without_records: Stage) -> None:
    agent = without_records.agent
    made = agent.create(RECORD.removesuffix("/"), record(OWN, without_records.own))
    assert made["metadata"]["name"] == OWN
    answer = agent.request("PATCH", RECORD + OWN, {"spec": {"partial": True}}, content_type=MERGE)
    assert answer.body["spec"]["partial"] is True


@pytest.mark.usefixtures("controllers")
def test_the_server_finds_no_fault_in_the_types_of_the_policies(control_plane: ControlPlane) -> None:
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def checked(name: str) -> dict[str, Any] | None:
        status: dict[str, Any] = control_plane.admin.get(policies, name).get("status", {})
        return status if "typeChecking" in status else None

    for name in ("accelerator-agent-nodes", "accelerator-agent-records"):
        status = eventually(lambda name=name: checked(name), what=f"the type check of {name}")
        assert status["typeChecking"] == {}
