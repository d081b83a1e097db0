"""Server-side apply, on the fake and on the real API server alike."""

import pytest

from agent.cluster import NODES, Conflict, FieldConflict, Invalid, NotFound, ServerFault
from agent.core.ownership import owned_paths, owners
from tests.contract.definitions import SEALED, WIDGETS, node, widget, widget_status

LABEL = "accelerators.ome.io/family"


def labels_of(obj):
    return obj["metadata"].get("labels", {})


def test_an_apply_creates_and_owns_what_it_sent(cluster):
    made = cluster.apply(WIDGETS, widget(color="red", tags=["a"]), manager="ours")
    assert made["spec"] == {"color": "red", "sizes": {}, "tags": ["a"]}
    assert owned_paths(made, "ours") == {("spec", "color"), ("spec", "sizes"), ("spec", "tags")}


def test_the_same_apply_again_writes_nothing(cluster):
    cluster.create(NODES, node(), manager="kubelet")
    body = node(labels={LABEL: "hopper"})
    first = cluster.apply(NODES, body, manager="ours")
    second = cluster.apply(NODES, body, manager="ours")
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_key_left_out_is_removed_and_foreign_keys_stay(cluster):
    cluster.create(NODES, node(labels={"team": "x"}), manager="kubectl")
    cluster.apply(NODES, node(labels={LABEL: "hopper", "a": "1"}), manager="ours")
    assert labels_of(cluster.apply(NODES, node(labels={"a": "1"}), manager="ours")) == {"team": "x", "a": "1"}
    assert labels_of(cluster.apply(NODES, node(labels={}), manager="ours")) == {"team": "x"}
    assert labels_of(cluster.apply(NODES, node(), manager="ours")) == {"team": "x"}


def test_a_conflict_names_the_field_and_its_manager_and_refuses_the_whole(cluster):
    cluster.create(NODES, node(labels={LABEL: "ada"}), manager="kubectl-label")
    with pytest.raises(Conflict) as refused:
        cluster.apply(NODES, node(labels={LABEL: "hopper", "a": "1"}), manager="ours")
    assert refused.value.conflicts == (FieldConflict(f".metadata.labels.{LABEL}", "kubectl-label"),)
    assert labels_of(cluster.get(NODES, "n1")) == {LABEL: "ada"}


def test_force_takes_the_field(cluster):
    cluster.create(NODES, node(labels={LABEL: "ada"}), manager="kubectl-label")
    made = cluster.apply(NODES, node(labels={LABEL: "hopper"}), manager="ours", force=True)
    assert labels_of(made) == {LABEL: "hopper"}
    assert owners(made, ("metadata", "labels", LABEL)) == ("ours",)


def test_an_equal_value_is_co_owned_and_blocks_the_other(cluster):
    cluster.apply(WIDGETS, widget(color="red"), manager="person")
    made = cluster.apply(WIDGETS, widget(color="red"), manager="ours")
    assert owners(made, ("spec", "color")) == ("ours", "person")
    with pytest.raises(Conflict) as refused:
        cluster.apply(WIDGETS, widget(color="blue"), manager="person")
    assert refused.value.conflicts == (FieldConflict(".spec.color", "ours"),)


def test_giving_up_a_co_owned_field_leaves_it(cluster):
    cluster.apply(WIDGETS, widget(color="red"), manager="person")
    cluster.apply(WIDGETS, widget(color="red"), manager="ours")
    made = cluster.apply(WIDGETS, widget(), manager="ours")
    assert made["spec"]["color"] == "red"
    assert owners(made, ("spec", "color")) == ("person",)


def test_an_update_takes_the_field_only_when_its_value_changes(cluster):
    cluster.apply(WIDGETS, widget(color="red"), manager="ours")
    same = cluster.merge_patch(WIDGETS, "w", {"spec": {"color": "red"}}, manager="kubectl-edit")
    assert owners(same, ("spec", "color")) == ("ours",)
    changed = cluster.merge_patch(WIDGETS, "w", {"spec": {"color": "blue"}}, manager="kubectl-edit")
    assert owners(changed, ("spec", "color")) == ("kubectl-edit",)


def test_maps_merge_by_key_and_lists_are_one_value(cluster):
    cluster.apply(WIDGETS, widget(selector={"a": "1"}, tags=["x"]), manager="person")
    made = cluster.apply(WIDGETS, widget(selector={"b": "2"}), manager="ours")
    assert made["spec"]["selector"] == {"a": "1", "b": "2"}
    with pytest.raises(Conflict) as refused:
        cluster.apply(WIDGETS, widget(tags=["y"]), manager="ours")
    assert refused.value.conflicts == (FieldConflict(".spec.tags", "person"),)


def test_items_of_a_keyed_list_have_owners_of_their_own(cluster):
    cluster.apply(WIDGETS, widget(parts=[{"name": "a", "quantity": "2"}]), manager="person")
    made = cluster.apply(WIDGETS, widget(parts=[{"name": "b", "quantity": "3"}]), manager="ours")
    assert made["spec"]["parts"] == [{"name": "a", "quantity": "2"}, {"name": "b", "quantity": "3"}]
    left = cluster.apply(WIDGETS, widget(), manager="ours")
    assert left["spec"]["parts"] == [{"name": "a", "quantity": "2"}]


def test_a_default_is_filled_in(cluster):
    made = cluster.create(WIDGETS, widget(parts=[{"name": "a"}]), manager="m")
    assert made["spec"]["parts"] == [{"name": "a", "quantity": "1"}]


def test_an_apply_with_the_uid_of_an_absent_object_is_refused(cluster):
    with pytest.raises(Conflict) as refused:
        cluster.apply(NODES, node(uid="11111111-2222-3333-4444-555555555555"), manager="ours")
    assert refused.value.conflicts == ()
    assert cluster.get(NODES, "n1") is None


def test_an_apply_with_the_uid_of_another_object_is_invalid(cluster):
    cluster.create(NODES, node(), manager="kubelet")
    with pytest.raises(Invalid) as refused:
        cluster.apply(NODES, node(uid="11111111-2222-3333-4444-555555555555"), manager="ours")
    assert refused.value.fields == ("metadata.uid",)


def test_an_apply_to_an_older_version_is_refused(cluster):
    old = cluster.apply(WIDGETS, widget(), manager="ours")["metadata"]["resourceVersion"]
    cluster.apply(WIDGETS, widget(color="red"), manager="ours")
    body = widget(color="blue", metadata={"resourceVersion": old})
    with pytest.raises(Conflict) as refused:
        cluster.apply(WIDGETS, body, manager="ours")
    assert refused.value.conflicts == ()


def test_an_apply_to_the_present_version_is_not_refused(cluster):
    made = cluster.apply(WIDGETS, widget(), manager="ours")["metadata"]
    head = {"resourceVersion": made["resourceVersion"], "uid": made["uid"]}
    assert (
        cluster.apply(WIDGETS, widget(color="red", metadata=head), manager="ours")["spec"]["color"] == "red"
    )


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"unknown": 1}, id="an undeclared field"),
        pytest.param({"color": 1}, id="a number for a text"),
        pytest.param({"tags": "x"}, id="a text for a list"),
        pytest.param({"parts": [{"name": "a"}, {"name": "a"}]}, id="a key twice"),
        pytest.param({"parts": [{"quantity": "1"}]}, id="an item without its key"),
    ],
)
def test_an_apply_that_cannot_be_typed_fails_for_good(cluster, spec):
    with pytest.raises(ServerFault) as refused:
        cluster.apply(WIDGETS, widget(**spec), manager="ours")
    assert refused.value.permanent


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"color": "pink"}, "spec.color", id="outside an enumeration"),
        pytest.param({"count": -1}, "spec.count", id="below the minimum"),
        pytest.param({"amount": "80 GB"}, "spec.amount", id="not of the pattern"),
    ],
)
def test_a_value_that_the_schema_forbids_is_invalid_and_named(cluster, spec, field):
    with pytest.raises(Invalid) as refused:
        cluster.apply(WIDGETS, widget(**spec), manager="ours")
    assert refused.value.fields == (field,)


def test_a_number_too_large_for_its_format_is_invalid(cluster):
    with pytest.raises(Invalid):
        cluster.apply(WIDGETS, widget(count=2**40), manager="ours")


def test_a_label_value_that_kubernetes_forbids_is_invalid_without_its_key(cluster):
    cluster.create(NODES, node(), manager="kubelet")
    with pytest.raises(Invalid) as refused:
        cluster.apply(NODES, node(labels={LABEL: "NVIDIA H100"}), manager="ours")
    assert refused.value.fields == ("metadata.labels",)


def test_emptying_a_required_object_that_one_owns_alone_is_invalid(cluster):
    cluster.apply(WIDGETS, widget(sizes={"width": 3}), manager="ours")
    with pytest.raises(Invalid) as refused:
        cluster.apply(WIDGETS, widget(sizes={}), manager="ours")
    assert "spec.sizes" in refused.value.fields


def test_fr_101_a_status_sent_to_the_main_path_is_thrown_away(cluster):
    made = cluster.apply(WIDGETS, widget(status={"total": 3}), manager="ours")
    assert "status" not in made
    again = cluster.apply(WIDGETS, widget(color="red", status={"total": 3}), manager="ours")
    assert "status" not in again


def test_fr_101_a_spec_sent_to_the_status_is_thrown_away(cluster):
    cluster.apply(WIDGETS, widget(color="red"), manager="ours")
    body = {**widget(color="blue"), **widget_status(total=3)}
    made = cluster.apply(WIDGETS, body, manager="ours", subresource="status")
    assert (made["spec"]["color"], made["status"]) == ("red", {"total": 3})


def test_main_and_status_of_one_manager_do_not_undo_each_other(cluster):
    cluster.apply(WIDGETS, widget(color="red"), manager="ours")
    cluster.apply(WIDGETS, widget_status(total=3), manager="ours", subresource="status")
    cluster.apply(WIDGETS, widget(color="blue"), manager="ours")
    made = cluster.apply(WIDGETS, widget_status(total=4), manager="ours", subresource="status")
    assert (made["spec"]["color"], made["status"]) == ("blue", {"total": 4})


def test_a_status_patch_leaves_what_an_apply_owns(cluster):
    cluster.apply(WIDGETS, widget(), manager="ours")
    cluster.apply(WIDGETS, widget_status(total=3, free=1), manager="ours", subresource="status")
    patch = {"status": {"nodes": ["n1"]}}
    made = cluster.merge_patch(WIDGETS, "w", patch, manager="manager", subresource="status")
    assert made["status"] == {"total": 3, "free": 1, "nodes": ["n1"]}
    kept = cluster.apply(WIDGETS, widget_status(total=3), manager="ours", subresource="status")
    assert kept["status"] == {"total": 3, "nodes": ["n1"]}


def test_the_status_of_an_absent_object_cannot_be_applied(cluster):
    with pytest.raises(NotFound):
        cluster.apply(WIDGETS, widget_status(total=3), manager="ours", subresource="status")


def test_an_atomic_spec_has_one_owner_and_is_replaced_as_a_whole(cluster):
    first = widget(resource=SEALED, color="red", anything={"a": 1})
    cluster.apply(SEALED, first, manager="person")
    with pytest.raises(Conflict) as refused:
        cluster.apply(SEALED, widget(resource=SEALED, color="blue"), manager="ours")
    assert refused.value.conflicts == (FieldConflict(".spec", "person"),)
    made = cluster.apply(SEALED, widget(resource=SEALED, size=2), manager="ours", force=True)
    assert made["spec"] == {"sizes": {}, "size": 2}


def test_managed_fields_may_not_be_sent(cluster):
    with pytest.raises(Invalid):
        cluster.apply(WIDGETS, widget(metadata={"managedFields": [{"manager": "x"}]}), manager="ours")


def test_the_generation_counts_changes_of_the_spec(cluster):
    assert cluster.apply(WIDGETS, widget(), manager="ours")["metadata"]["generation"] == 1
    made = cluster.apply(WIDGETS, widget(color="red"), manager="ours")
    assert made["metadata"]["generation"] == 2
    made = cluster.apply(WIDGETS, widget_status(total=1), manager="ours", subresource="status")
    assert made["metadata"]["generation"] == 2
