"""The class is shared: what people, GitOps and OME's controller decide stays theirs."""

import pytest

from agent.cluster import ACCELERATOR_CLASSES, NODES
from agent.core.class_spec import ClassOptions, ListEdit
from agent.core.ownership import owners
from tests.inventory.hardware import H100, h100
from tests.inventory.ome import OmeController

EIGHT = [h100(index) for index in range(8)]
LABEL = f"class.accelerators.ome.io/{H100}"
FOREIGN = {
    "type": "example.com/Reviewed",
    "status": "True",
    "reason": "ByHand",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def ready(scene):
    scene.node("n1", EIGHT)
    scene.settle(seconds=31)
    return scene


def test_fr_104_what_a_person_sets_survives_a_hundred_passes(scene):
    ready(scene)
    scene.edit(H100, {"spec": {"cost": {"perHour": "2210m"}, "capabilities": {"memoryGB": "40Gi"}}})
    scene.edit(H100, {"spec": {"capabilities": {"features": ["bf16", "fp8", "my-own"]}}})
    scene.edit(H100, {"spec": {"discovery": {"nodeSelector": {"pool": "a"}}}})
    conditions = [*scene.live(H100)["status"]["conditions"], FOREIGN]
    scene.cluster.merge_patch(
        ACCELERATOR_CLASSES,
        H100,
        {"status": {"conditions": conditions}},
        manager="kubectl",
        subresource="status",
    )
    for step in range(100):
        scene.cordon("n1", on=step % 2 == 0)
        scene.settle(turns=1)
    live = scene.live(H100)
    assert live["spec"]["cost"] == {"perHour": "2210m"}
    assert live["spec"]["capabilities"]["memoryGB"] == "40Gi"
    assert live["spec"]["capabilities"]["features"] == ["bf16", "fp8", "my-own"]
    # One selector has one author: our key beside theirs would be a condition that nobody meant.
    assert live["spec"]["discovery"]["nodeSelector"] == {"pool": "a"}
    assert FOREIGN in live["status"]["conditions"]
    assert scene.condition(H100, "Overridden") == ("True", "FieldsOverridden")
    message = scene.message(H100, "Overridden")
    assert "capabilities.memoryGB is 40Gi by kubectl-edit, found 80Gi" in message
    assert "capabilities.features" in message
    assert "discovery.nodeSelector" in message
    assert "cost" not in message


def test_an_equal_value_of_another_applier_is_left_to_it_and_is_no_override(scene):
    ready(scene)
    head = {"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": H100}}
    spec = {"capabilities": {"memoryGB": "80Gi"}, "discovery": {}}
    scene.cluster.apply(ACCELERATOR_CLASSES, {**head, "spec": spec}, manager="argocd")
    scene.settle(turns=3)
    live = scene.live(H100)
    assert owners(live, ("spec", "capabilities", "memoryGB")) == ("argocd",)
    assert scene.condition(H100, "Overridden") == ("False", "NoFieldOverridden")
    spec = {"capabilities": {"memoryGB": "79Gi"}, "discovery": {}}
    scene.cluster.apply(ACCELERATOR_CLASSES, {**head, "spec": spec}, manager="argocd")
    scene.settle(turns=3)
    assert scene.live(H100)["spec"]["capabilities"]["memoryGB"] == "79Gi"
    assert scene.condition(H100, "Overridden") == ("True", "FieldsOverridden")


def test_fr_104_a_field_that_nobody_wants_any_more_is_ours_again(scene):
    ready(scene)
    scene.edit(H100, {"spec": {"capabilities": {"memoryGB": "40Gi"}}})
    scene.settle()
    scene.edit(H100, {"spec": {"capabilities": {"memoryGB": None}}})
    scene.settle()
    assert scene.live(H100)["spec"]["capabilities"]["memoryGB"] == "80Gi"
    assert scene.condition(H100, "Overridden") == ("False", "NoFieldOverridden")


def test_owners_that_were_lost_are_respected(scene):
    ready(scene)
    scene.edit(H100, {"metadata": {"managedFields": [{}]}})
    scene.edit(H100, {"spec": {"capabilities": {"memoryGB": "40Gi"}}})
    scene.settle(turns=4)
    assert scene.live(H100)["spec"]["capabilities"]["memoryGB"] == "40Gi"
    assert scene.condition(H100, "Overridden") == ("True", "FieldsOverridden")


def test_a_class_of_the_same_name_that_is_not_ours_is_left_alone_and_told_once(scene):
    body = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "AcceleratorClass",
        "metadata": {"name": H100},
        "spec": {"capabilities": {}, "discovery": {"nodeSelector": {"pool": "a"}}},
    }
    made = scene.cluster.create(ACCELERATOR_CLASSES, body, manager="kubectl-create")
    scene.node("n1", EIGHT)
    scene.settle(turns=4)
    scene.new_controller()
    scene.settle(turns=4)
    assert scene.live(H100) == made
    assert scene.events() == [(H100, "ForeignClass")]
    assert scene.controller.report().foreign == (H100,)


def test_an_adopted_class_gets_its_empty_fields_and_the_figures(scene):
    body = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "AcceleratorClass",
        "metadata": {"name": "our-h100", "annotations": {"accelerators.ome.io/adopts": H100}},
        "spec": {"vendor": "nvidia", "capabilities": {"memoryGB": "79Gi"}, "discovery": {}},
    }
    scene.cluster.create(ACCELERATOR_CLASSES, body, manager="kubectl-create")
    scene.node("n1", EIGHT)
    scene.settle(turns=4)
    assert scene.live(H100) is None
    live = scene.live("our-h100")
    assert live["spec"]["capabilities"]["memoryGB"] == "79Gi"
    assert live["spec"]["capabilities"]["computeCapability"] == "9.0"
    assert live["spec"]["discovery"]["nodeSelector"] == {LABEL: "true"}
    assert "app.kubernetes.io/managed-by" not in live["metadata"].get("labels", {})
    assert scene.figures("our-h100") == (8, 8)
    assert scene.condition("our-h100", "Overridden") == ("True", "FieldsOverridden")


def test_an_adoption_of_a_class_that_we_made_retires_ours(scene):
    ready(scene)
    body = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "AcceleratorClass",
        "metadata": {"name": "our-h100", "annotations": {"accelerators.ome.io/adopts": H100}},
        "spec": {"capabilities": {}, "discovery": {}},
    }
    scene.cluster.create(ACCELERATOR_CLASSES, body, manager="kubectl-create")
    scene.settle(turns=4)
    assert (scene.figures(H100), scene.figures("our-h100")) == ((0, 0), (8, 8))
    assert scene.condition(H100, "Ready") == ("False", "NoNodes")
    scene.cluster.delete(ACCELERATOR_CLASSES, "our-h100")
    scene.settle(turns=4)
    assert scene.figures(H100) == (8, 8)


def test_configuration_adds_to_lists_and_drops_from_them(scene):
    options = ClassOptions(
        features={H100: ListEdit(add=("nccl-tuned",), drop=("mig",))},
        resources="per-accelerator",
        prices={H100: {"perHour": "2.21", "tier": "high"}},
        excluded_fields=frozenset({"capabilities.clockSpeedMHz"}),
    )
    scene.new_controller(options)
    ready(scene)
    spec = scene.live(H100)["spec"]
    assert "nccl-tuned" in spec["capabilities"]["features"]
    assert "mig" not in spec["capabilities"]["features"]
    assert "clockSpeedMHz" not in spec["capabilities"]
    assert spec["resources"] == [{"name": "nvidia.com/gpu", "quantity": "1"}]
    assert spec["cost"] == {"perHour": "2210m", "tier": "high"}
    # What is not wanted any more goes again.
    scene.new_controller(ClassOptions())
    scene.settle(turns=3)
    assert not {"resources", "cost"} & scene.live(H100)["spec"].keys()


def test_without_ome_the_nodes_are_ours_and_with_it_they_are_left(scene):
    scene.node("n1", EIGHT)
    scene.settle(turns=1)
    assert "nodes" not in scene.live(H100)["status"]
    scene.settle(seconds=31)
    status = scene.live(H100)["status"]
    assert (status["nodes"], status["availableNodes"]) == (["n1"], 1)
    ome = OmeController(scene.cluster, scene.time.now)
    ome.reconcile()
    scene.cordon("n1")
    scene.settle(turns=3)
    ome.reconcile()
    scene.settle(turns=3)
    status = scene.live(H100)["status"]
    assert "ours" not in owners(scene.live(H100), ("status", "nodes"))
    assert (status.get("nodes"), status["totalAccelerators"], status["availableAccelerators"]) == (None, 8, 0)


def test_beside_ome_every_change_is_written_once_and_nobody_fights(scene):
    ome = OmeController(scene.cluster, scene.time.now)
    for index in range(3):
        scene.node(f"n{index}", [h100(index)])
    changes = 12
    for step in range(changes):
        scene.cordon(f"n{step % 3}", on=step % 2 == 0)
        label = {LABEL: "true"} if step % 4 else {LABEL: None}
        scene.cluster.merge_patch(
            NODES, f"n{step % 3}", {"metadata": {"labels": label}}, manager="accelerator-agent"
        )
        for _ in range(3):
            scene.settle(turns=1)
            ome.reconcile()
    quiet = scene.versions()
    for _ in range(10):
        scene.settle(turns=1)
        ome.reconcile()
    assert scene.versions() == quiet
    ours = sum(scene.controller.report().writes[target] for target in ("class", "class-status"))
    assert ours <= 2 * changes
    assert ome.writes <= 2 * changes
    assert ome.conflicts == 0
    # Canonical quantities: the typed round trip took nothing.
    assert owners(scene.live(H100), ("spec", "capabilities", "memoryGB")) == ("accelerator-inventory",)
    scene.settle()
    assert scene.figures(H100)[0] == 3


def test_status_nodes_of_ome_survive_our_writes(scene):
    scene.node("n1", EIGHT)
    scene.cluster.merge_patch(
        NODES, "n1", {"metadata": {"labels": {LABEL: "true"}}}, manager="accelerator-agent"
    )
    ome = OmeController(scene.cluster, scene.time.now)
    scene.settle(turns=1)
    ome.reconcile()
    scene.pod("p1", "n1", 3)
    scene.settle(turns=3)
    status = scene.live(H100)["status"]
    assert (status["nodes"], status["totalAccelerators"], status["availableAccelerators"]) == (["n1"], 8, 5)


# The minimal definition


def test_on_the_minimal_definition_a_class_is_made_and_follows(minimal_scene):
    scene = minimal_scene
    scene.node("n1", EIGHT)
    scene.settle()
    assert scene.live(H100)["spec"]["capabilities"]["memoryGB"] == "80Gi"
    assert scene.figures(H100) == (8, 8)
    scene.pod("p1", "n1", 3)
    scene.settle()
    assert scene.figures(H100) == (8, 5)
    scene.settle(seconds=31)
    before = scene.versions()
    scene.settle(seconds=31, turns=5)
    scene.new_controller()
    scene.settle(turns=3)
    assert scene.versions() == before


def test_on_the_minimal_definition_a_person_is_respected_and_nothing_of_theirs_is_dropped(minimal_scene):
    scene = minimal_scene
    ready(scene)
    scene.edit(H100, {"spec": {"capabilities": {"memoryGB": "40Gi"}, "ownNotes": {"a": 1}}})
    scene.edit(H100, {"spec": {"capabilities": {"computeCapability": None}}})
    for step in range(10):
        scene.cordon("n1", on=step % 2 == 0)
        scene.settle(turns=1)
    spec = scene.live(H100)["spec"]
    assert spec["capabilities"]["memoryGB"] == "40Gi"
    assert spec["ownNotes"] == {"a": 1}
    assert spec["capabilities"]["computeCapability"] == "9.0"
    assert scene.condition(H100, "Overridden") == ("True", "FieldsOverridden")
    assert "capabilities.memoryGB is 40Gi" in scene.message(H100, "Overridden")


def test_on_the_minimal_definition_what_we_wrote_last_is_changed_with_the_facts(minimal_scene):
    scene = minimal_scene
    scene.new_controller(ClassOptions(prices={H100: {"perHour": "2"}}))
    ready(scene)
    scene.new_controller(ClassOptions(prices={H100: {"perHour": "3"}}))
    scene.settle(turns=3)
    assert scene.live(H100)["spec"]["cost"] == {"perHour": "3"}
    scene.new_controller(ClassOptions())
    scene.settle(turns=3)
    assert "perHour" not in scene.live(H100)["spec"].get("cost", {})


def test_on_the_minimal_definition_ome_keeps_its_nodes(minimal_scene):
    scene = minimal_scene
    scene.node("n1", EIGHT)
    scene.cluster.merge_patch(
        NODES, "n1", {"metadata": {"labels": {LABEL: "true"}}}, manager="accelerator-agent"
    )
    ome = OmeController(scene.cluster, scene.time.now)
    scene.settle(turns=1)
    ome.reconcile()
    scene.pod("p1", "n1", 3)
    scene.settle(turns=3)
    status = scene.live(H100)["status"]
    assert (status["nodes"], status["totalAccelerators"], status["availableAccelerators"]) == (["n1"], 8, 5)


# Batching


def test_the_first_change_is_written_at_once_and_the_next_together(scene):
    scene.node("n1", EIGHT)
    scene.turn()
    assert scene.figures(H100) == (8, 8)
    for number in range(4):
        scene.pod(f"p{number}", "n1", 1)
        assert scene.turn(after=0.5) > 0
        assert scene.figures(H100) == (8, 8)
    scene.turn(after=5)
    assert scene.figures(H100) == (8, 4)
    scene.pod("p9", "n1", 1)
    scene.turn(after=6)
    assert scene.figures(H100) == (8, 3)


def test_a_replica_that_does_not_lead_writes_nothing_and_takes_over_with_the_truth(scene):
    scene.leading = False
    scene.node("n1", EIGHT)
    scene.settle(turns=3)
    assert scene.live(H100) is None
    scene.leading = True
    scene.settle(turns=1)
    assert scene.figures(H100) == (8, 8)


@pytest.mark.parametrize("seed", range(3))
def test_no_sequence_of_edits_breaks_the_promise(scene, seed):
    """A person, a GitOps applier, OME and ours edit at random; whoever set a value last keeps it."""
    from tests.inventory.promise import run_random_edits

    ready(scene)
    run_random_edits(scene, H100, seed=seed, steps=40)
