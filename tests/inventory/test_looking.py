"""One look at the cluster, and the clean-up of an uninstall."""

from datetime import timedelta

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, NODES, SERVING_RUNTIMES
from agent.core.class_spec import ClassOptions
from agent.inventory_reading import (
    FOREIGN,
    class_states,
    difference_lines,
    fleet_rows,
    plan_once,
    read_cluster,
)
from agent.prune_pass import Pruned, prune_classes, prune_nodes
from tests.inventory.hardware import H100, L4, h100, l4

EIGHT = [h100(index) for index in range(8)]
DOMAIN = "accelerators.ome.io"
STALE = timedelta(minutes=40)


def test_one_look_tells_what_would_be_written_and_writes_nothing(scene):
    scene.node("n1", EIGHT)
    plan = plan_once(scene.cluster, ClassOptions(), now=scene.time.wall)
    (difference,) = plan.differences
    assert difference.spec["spec"]["capabilities"]["memoryGB"] == "80Gi"
    assert difference.status["totalAccelerators"] == 8
    assert scene.live(H100) is None
    assert "spec.capabilities.memoryGB: (none) -> 80Gi" in difference_lines(difference, None)


def test_one_look_at_a_cluster_in_order_finds_no_difference(scene):
    scene.node("n1", EIGHT)
    scene.settle(seconds=31)
    assert plan_once(scene.cluster, ClassOptions(), now=scene.time.wall).differences == ()
    scene.cordon("n1")
    (difference,) = plan_once(scene.cluster, ClassOptions(), now=scene.time.wall).differences
    assert difference.spec is None
    assert difference_lines(difference, scene.live(H100)) == (
        "status.availableAccelerators: 8 -> 0",
        "status.availableNodes: 1 -> 0",
        "status.conditions[AvailabilityKnown]: True AllNodesCounted -> True NodesCordoned",
    )


def test_one_look_tells_what_would_be_removed(scene):
    scene.node("n1", EIGHT)
    scene.settle(seconds=31)
    options = ClassOptions(excluded_fields=frozenset({"capabilities.clockSpeedMHz"}))
    (difference,) = plan_once(scene.cluster, options, now=scene.time.wall).differences
    clock = scene.live(H100)["spec"]["capabilities"]["clockSpeedMHz"]
    lines = difference_lines(difference, scene.live(H100))
    assert lines == (f"spec.capabilities.clockSpeedMHz: {clock} -> (none)",)


def test_one_look_names_what_was_left_alone(scene):
    body = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "AcceleratorClass",
        "metadata": {"name": H100},
        "spec": {"capabilities": {}, "discovery": {}},
    }
    scene.cluster.create(ACCELERATOR_CLASSES, body, manager="kubectl-create")
    scene.node("n1", EIGHT)
    plan = plan_once(scene.cluster, ClassOptions(), now=scene.time.wall)
    assert (plan.differences, plan.foreign) == ((), (H100,))


def test_one_look_without_the_definition_says_so(scene_without_classes):
    scene_without_classes.node("n1", EIGHT)
    plan = plan_once(scene_without_classes.cluster, ClassOptions(), now=scene_without_classes.time.wall)
    assert (plan.differences, plan.classes_installed) == ((), False)


def test_the_fleet_is_a_table(scene):
    scene.node("n1", [*EIGHT[:7], h100(7, lost=True)])
    scene.node("n2", [l4(0)], resources={})
    scene.pod("p1", "n1", 2)
    scene.settle()
    reading = read_cluster(scene.cluster, domain=DOMAIN)
    states = class_states(reading, now=scene.time.wall, stale_after=STALE)
    assert fleet_rows(states, reading.classes, ClassOptions()) == (
        (
            H100,
            1,
            8,
            7,
            5,
            "80Gi",
            "9.0",
            "fp64 fp32 tf32 fp16 bf16 fp8 int8",
            "Healthy=False:DevicesUnusable",
        ),
        (
            L4,
            1,
            1,
            1,
            None,
            "24Gi",
            "8.9",
            fleet_rows(states, reading.classes, ClassOptions())[1][7],
            "AvailabilityKnown=False:ResourceNotOffered",
        ),
    )


def test_the_table_says_which_class_is_somebody_elses_and_a_look_names_what_a_person_decided(scene):
    scene.node("n1", EIGHT)
    scene.settle()
    spec = {"family": "grace"}
    body = {"apiVersion": "ome.io/v1beta1", "kind": "AcceleratorClass", "metadata": {"name": H100}}
    scene.cluster.apply(ACCELERATOR_CLASSES, {**body, "spec": spec}, manager="person", force=True)
    foreign = {"capabilities": {}, "discovery": {}}
    scene.cluster.apply(
        ACCELERATOR_CLASSES, {**body, "metadata": {"name": "their-own"}, "spec": foreign}, manager="person"
    )
    plan = plan_once(scene.cluster, ClassOptions(), now=scene.time.wall)
    ((field, manager, theirs),) = [(one.field, one.manager, one.theirs) for one in plan.overridden[H100]]
    assert (field, manager, theirs) == ("family", "person", "grace")
    reading = read_cluster(scene.cluster, domain=DOMAIN)
    states = class_states(reading, now=scene.time.wall, stale_after=STALE)
    conditions = {row[0]: row[-1] for row in fleet_rows(states, reading.classes, ClassOptions())}
    assert conditions["their-own"] == FOREIGN
    assert conditions[H100] != FOREIGN


# Prune


def labelled(scene, name="n1"):
    """Give a Node our labels, a label of somebody else, and one under our domain that is somebody else's."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    ours = {f"{DOMAIN}/family": "hopper", f"class.{DOMAIN}/{H100}": "true", "nvidia.com/gpu.count": "8"}
    scene.cluster.apply(
        NODES, {**body, "metadata": {"name": name, "labels": ours}}, manager="accelerator-agent"
    )
    theirs = {f"{DOMAIN}/owner": "team-a", "zone": "z"}
    scene.cluster.merge_patch(NODES, name, {"metadata": {"labels": theirs}}, manager="kubectl-label")


def test_fr_085_a_prune_removes_exactly_what_is_ours_and_a_second_time_nothing(scene):
    scene.node("n1", EIGHT)
    labelled(scene)
    keys = (f"{DOMAIN}/family", f"class.{DOMAIN}/{H100}", "nvidia.com/gpu.count")
    expected = Pruned(labels={"n1": tuple(sorted(keys))}, records=("n1",))
    assert prune_nodes(scene.cluster, domains=(DOMAIN,), dry_run=True) == expected
    assert scene.cluster.get(ACCELERATOR_NODES, "n1") is not None
    assert prune_nodes(scene.cluster, domains=(DOMAIN,)) == expected
    labels = scene.cluster.get(NODES, "n1")["metadata"]["labels"]
    assert not {key for key in labels if key in keys}
    assert (labels[f"{DOMAIN}/owner"], labels["zone"]) == ("team-a", "z")
    assert scene.cluster.get(ACCELERATOR_NODES, "n1") is None
    assert prune_nodes(scene.cluster, domains=(DOMAIN,)) == Pruned()


def test_fr_085_a_prune_removes_keys_of_a_former_domain_and_keys_whose_owner_was_lost(scene):
    scene.node("n1", EIGHT)
    former = {"old.example.com/family": "hopper"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": former}}
    scene.cluster.apply(NODES, body, manager="accelerator-agent")
    scene.cluster.merge_patch(NODES, "n1", {"metadata": {"managedFields": [{}]}}, manager="kubectl")
    pruned = prune_nodes(scene.cluster, domains=(DOMAIN, "old.example.com"))
    assert pruned.labels == {"n1": ("old.example.com/family",)}
    assert "old.example.com/family" not in scene.cluster.get(NODES, "n1")["metadata"].get("labels", {})


def test_a_key_that_others_own_too_is_given_up_and_stays(scene):
    scene.node("n1", EIGHT)
    labelled(scene)
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    shared = {**body, "metadata": {"name": "n1", "labels": {f"{DOMAIN}/family": "hopper"}}}
    scene.cluster.apply(NODES, shared, manager="gitops")
    prune_nodes(scene.cluster, domains=(DOMAIN,))
    assert scene.cluster.get(NODES, "n1")["metadata"]["labels"][f"{DOMAIN}/family"] == "hopper"


def test_classes_that_a_runtime_names_are_kept_and_it_is_said_who(scene, runtime_definition):
    runtime_definition(scene)
    scene.node("n1", [h100(0), l4(1)])
    scene.settle()
    runtime = {
        "apiVersion": SERVING_RUNTIMES.api_version,
        "kind": "ServingRuntime",
        "metadata": {"name": "vllm", "namespace": "default"},
        "spec": {"acceleratorRequirements": {"acceleratorClasses": [H100]}},
    }
    scene.cluster.create(SERVING_RUNTIMES, runtime, manager="kubectl")
    pruned = prune_classes(scene.cluster, ClassOptions())
    assert pruned == Pruned(classes=(L4,), kept={H100: ("ServingRuntime default/vllm",)})
    assert scene.live(L4) is None
    assert scene.live(H100) is not None
    assert prune_classes(scene.cluster, ClassOptions()).classes == ()


def test_a_persons_class_is_never_pruned(scene):
    body = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "AcceleratorClass",
        "metadata": {"name": "our-h100", "annotations": {f"{DOMAIN}/adopts": H100}},
        "spec": {"capabilities": {}, "discovery": {}},
    }
    scene.cluster.create(ACCELERATOR_CLASSES, body, manager="kubectl-create")
    scene.node("n1", EIGHT)
    scene.settle()
    assert prune_classes(scene.cluster, ClassOptions()) == Pruned()
