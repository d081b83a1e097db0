"""Creates, replaces, merge patches and deletes, on the fake and on the real API server alike."""

import pytest

from agent.cluster import LEASES, NODES, Conflict, Invalid, NotFound
from agent.core.ownership import owned_paths
from tests.contract.conftest import eventually
from tests.contract.definitions import PLAIN, WIDGETS, lease, node, widget


def test_what_exists_cannot_be_created(cluster):
    cluster.create(LEASES, lease(holderIdentity="a"), manager="m")
    with pytest.raises(Conflict) as refused:
        cluster.create(LEASES, lease(holderIdentity="b"), manager="m")
    assert refused.value.conflicts == ()
    assert cluster.get(LEASES, "l", namespace="default")["spec"] == {"holderIdentity": "a"}


def test_nothing_is_created_in_a_namespace_that_is_not_there(cluster):
    with pytest.raises(NotFound):
        cluster.create(LEASES, lease(metadata={"namespace": "no-such-namespace"}), manager="m")


def test_an_undeclared_field_of_a_create_is_dropped(cluster):
    made = cluster.create(WIDGETS, widget(unknown=1, color="red"), manager="m")
    assert made["spec"] == {"color": "red", "sizes": {}}


def test_a_required_field_that_is_missing_is_named(cluster):
    body = widget()
    del body["spec"]["sizes"]
    with pytest.raises(Invalid) as refused:
        cluster.create(WIDGETS, body, manager="m")
    assert refused.value.fields == ("spec.sizes",)


def test_a_name_that_is_no_subdomain_is_invalid(cluster):
    with pytest.raises(Invalid) as refused:
        cluster.create(NODES, node("NVIDIA_H100"), manager="m")
    assert refused.value.fields == ("metadata.name",)


def test_a_creator_owns_what_it_sent(cluster):
    made = cluster.create(WIDGETS, widget(color="red"), manager="kubectl-create")
    assert owned_paths(made, "kubectl-create") == {("spec", "color"), ("spec", "sizes")}


def test_a_replace_of_the_present_version_replaces(cluster):
    held = cluster.create(LEASES, lease(holderIdentity="a", leaseTransitions=1), manager="m")
    body = lease(metadata={"resourceVersion": held["metadata"]["resourceVersion"]}, holderIdentity="b")
    assert cluster.replace(LEASES, body, manager="m")["spec"] == {"holderIdentity": "b"}


def test_a_replace_of_an_older_version_is_refused(cluster):
    held = cluster.create(LEASES, lease(holderIdentity="a"), manager="m")
    body = lease(metadata={"resourceVersion": held["metadata"]["resourceVersion"]}, holderIdentity="b")
    cluster.replace(LEASES, body, manager="m")
    with pytest.raises(Conflict):
        cluster.replace(LEASES, {**body, "spec": {"holderIdentity": "c"}}, manager="m")


@pytest.mark.parametrize(
    ("resource", "body"),
    [pytest.param(WIDGETS, widget(), id="custom"), pytest.param(LEASES, lease(), id="lease")],
)
def test_a_replace_must_state_its_version(cluster, resource, body):
    cluster.create(resource, body, manager="m")
    with pytest.raises(Invalid) as refused:
        cluster.replace(resource, body, manager="m")
    assert refused.value.fields == ("metadata.resourceVersion",)


def test_what_is_absent_cannot_be_replaced_or_patched(cluster):
    with pytest.raises(NotFound):
        cluster.replace(WIDGETS, widget(metadata={"resourceVersion": "1"}), manager="m")
    with pytest.raises(NotFound):
        cluster.merge_patch(WIDGETS, "w", {"spec": {"color": "red"}}, manager="m")


def test_a_replace_keeps_the_status_where_that_has_a_path_of_its_own(cluster):
    cluster.create(WIDGETS, widget(), manager="m")
    held = cluster.merge_patch(WIDGETS, "w", {"status": {"total": 3}}, manager="m", subresource="status")
    made = cluster.replace(
        WIDGETS, {**held, "status": {"total": 9}, "spec": {"sizes": {}, "color": "red"}}, manager="m"
    )
    assert (made["spec"]["color"], made["status"]) == ("red", {"total": 3})


def test_without_a_path_of_its_own_the_status_is_written_with_the_rest(cluster):
    made = cluster.apply(PLAIN, widget(resource=PLAIN, status={"total": 3}), manager="m")
    assert made["status"] == {"total": 3}
    with pytest.raises(NotFound, match='"w" not found'):
        cluster.merge_patch(PLAIN, "w", {"status": {"total": 4}}, manager="m", subresource="status")


def test_a_merge_patch_changes_only_what_it_names_and_null_removes(cluster):
    cluster.create(WIDGETS, widget(color="red", count=3, selector={"a": "1", "b": "2"}), manager="m")
    patch = {"spec": {"count": None, "selector": {"a": None, "c": "3"}}}
    made = cluster.merge_patch(WIDGETS, "w", patch, manager="m")
    assert made["spec"] == {"color": "red", "sizes": {}, "selector": {"b": "2", "c": "3"}}


def test_a_merge_patch_that_changes_nothing_writes_nothing(cluster):
    first = cluster.create(WIDGETS, widget(color="red"), manager="m")
    again = cluster.merge_patch(WIDGETS, "w", {"spec": {"color": "red"}}, manager="other")
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_merge_patch_of_an_older_version_is_refused(cluster):
    old = cluster.create(WIDGETS, widget(), manager="m")["metadata"]["resourceVersion"]
    cluster.merge_patch(WIDGETS, "w", {"spec": {"color": "red"}}, manager="m")
    patch = {"metadata": {"resourceVersion": old}, "spec": {"color": "blue"}}
    with pytest.raises(Conflict):
        cluster.merge_patch(WIDGETS, "w", patch, manager="m")


def test_a_merge_patch_with_the_uid_of_another_object_is_refused(cluster):
    cluster.create(WIDGETS, widget(), manager="m")
    patch = {"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}, "spec": {"color": "blue"}}
    with pytest.raises(Invalid):
        cluster.merge_patch(WIDGETS, "w", patch, manager="m")
    assert cluster.get(WIDGETS, "w")["spec"] == {"sizes": {}}


def test_labels_are_removed_by_null_and_an_empty_text_is_a_value(cluster):
    cluster.create(NODES, node(labels={"a": "1", "b": "2"}), manager="m")
    made = cluster.merge_patch(NODES, "n1", {"metadata": {"labels": {"a": None, "b": ""}}}, manager="m")
    assert made["metadata"]["labels"] == {"b": ""}


def test_delete_removes_and_a_second_time_does_nothing(cluster):
    cluster.create(WIDGETS, widget(), manager="m")
    cluster.delete(WIDGETS, "w")
    assert cluster.get(WIDGETS, "w") is None
    cluster.delete(WIDGETS, "w")


def test_an_object_with_a_finalizer_stays_until_that_is_gone(cluster):
    cluster.create(WIDGETS, widget(metadata={"finalizers": ["example.com/wait"]}), manager="m")
    cluster.delete(WIDGETS, "w")
    assert "deletionTimestamp" in cluster.get(WIDGETS, "w")["metadata"]
    cluster.merge_patch(WIDGETS, "w", {"metadata": {"finalizers": None}}, manager="m")
    assert cluster.get(WIDGETS, "w") is None


@pytest.mark.usefixtures("owner_collector")
def test_what_a_node_owns_goes_with_it(cluster):
    owner = cluster.create(NODES, node(), manager="m")["metadata"]
    reference = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": owner["uid"]}
    cluster.create(WIDGETS, widget(metadata={"ownerReferences": [reference]}), manager="m")
    assert cluster.get(WIDGETS, "w") is not None
    cluster.delete(NODES, "n1")
    eventually(lambda: cluster.get(WIDGETS, "w") is None)


@pytest.mark.usefixtures("owner_collector")
def test_what_names_an_owner_that_never_was_goes_too(cluster):
    reference = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n1",
        "uid": "11111111-2222-3333-4444-555555555555",
    }
    cluster.create(WIDGETS, widget(metadata={"ownerReferences": [reference]}), manager="m")
    eventually(lambda: cluster.get(WIDGETS, "w") is None)


def test_a_re_created_object_has_another_uid(cluster):
    first = cluster.create(NODES, node(), manager="m")["metadata"]["uid"]
    cluster.delete(NODES, "n1")
    assert cluster.create(NODES, node(), manager="m")["metadata"]["uid"] != first


def test_forgetting_all_owners_is_possible_and_recorded(cluster):
    cluster.apply(WIDGETS, widget(color="red"), manager="ours")
    made = cluster.merge_patch(WIDGETS, "w", {"metadata": {"managedFields": [{}]}}, manager="person")
    assert owned_paths(made, "ours") == frozenset()
    with pytest.raises(Conflict) as refused:
        cluster.apply(WIDGETS, widget(color="blue"), manager="ours")
    assert [conflict.manager for conflict in refused.value.conflicts] == ["before-first-apply"]
