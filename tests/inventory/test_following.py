"""The class follows the cluster: after each step its figures and conditions are what the table says."""

from datetime import timedelta

import pytest

from agent.cluster import ACCELERATOR_CLASSES, ACCELERATOR_NODES, NODES
from probes.facts import Fabric
from tests.inventory.hardware import H100, L4, cut, h100, l4

EIGHT = [h100(index) for index in range(8)]


def test_the_first_node_makes_a_whole_class(scene):
    scene.node("n1", EIGHT)
    scene.settle()
    live = scene.live(H100)
    assert live["spec"] == {
        "vendor": "nvidia",
        "family": "hopper",
        "model": "h100",
        "discovery": {
            "nodeSelector": {f"class.accelerators.ome.io/{H100}": "true"},
            "pciVendorID": "10de",
            "deviceIDs": ["2330"],
        },
        "capabilities": {
            "memoryGB": "80Gi",
            "computeCapability": "9.0",
            "memoryBandwidthGBps": "3350",
            "clockSpeedMHz": live["spec"]["capabilities"]["clockSpeedMHz"],
            "features": live["spec"]["capabilities"]["features"],
            "performance": {"fp32Tflops": 67, "fp16Tflops": 989, "int8Tops": 1979},
        },
    }
    assert {"fp8", "mig", "nvlink", "tensor-cores"} <= set(live["spec"]["capabilities"]["features"])
    assert live["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "accelerator-inventory"}
    assert live["metadata"]["annotations"]["accelerators.ome.io/driver-versions"] == "580.95.05"
    assert scene.figures(H100) == (8, 8)
    assert {c["type"]: (c["status"], c["reason"]) for c in live["status"]["conditions"]} == {
        "Ready": ("True", "DevicesUsable"),
        "Consistent": ("True", "NodesAgree"),
        "Healthy": ("True", "AllDevicesUsable"),
        "AvailabilityKnown": ("True", "AllNodesCounted"),
        "Overridden": ("False", "NoFieldOverridden"),
        "Stale": ("False", "RecordsRecent"),
        "Simulated": ("False", "HardwareFacts"),
    }


def test_a_steady_state_writes_nothing(scene):
    scene.node("n1", EIGHT)
    # A class that no other controller claims gets its list of nodes half a minute later.
    scene.settle(seconds=31)
    before = scene.versions()
    scene.settle(seconds=31, turns=20)
    assert scene.versions() == before
    # A restart forgets everything but what stands in the cluster.
    scene.new_controller()
    scene.settle(turns=3)
    assert scene.versions() == before
    assert scene.events() == []


def test_fr_087_nodes_come_and_go(scene):
    """Each step, then (total, available), Ready, AvailabilityKnown."""

    def step(expected, ready="DevicesUsable", known="AllNodesCounted"):
        scene.settle()
        assert scene.figures(H100) == expected
        assert (scene.condition(H100, "Ready")[1], scene.condition(H100, "AvailabilityKnown")[1]) == (
            ready,
            known,
        )

    scene.node("n1", EIGHT)
    step((8, 8))
    scene.node("n2", [h100(9)])
    step((9, 9))
    scene.cordon("n2")
    step((9, 8), known="NodesCordoned")
    scene.set_ready("n1", ready=False)
    step((9, 0), known="NodesLeftOut")
    scene.cordon("n2", on=False)
    step((9, 1), known="NodesNotReady")
    scene.set_ready("n1", ready=True)
    step((9, 9))
    scene.remove_node("n2")
    step((8, 8))
    scene.remove_node("n1")
    step((0, 0), ready="NoNodes", known="NoNodes")
    scene.node("n1", EIGHT)
    step((8, 8))


def test_the_record_of_a_former_node_of_the_same_name_counts_nothing(scene):
    scene.node("n1", EIGHT)
    scene.settle()
    scene.cluster.delete(NODES, "n1")
    former = scene.cluster.get(ACCELERATOR_NODES, "n1")
    if former is None:  # where a garbage collector runs the record is gone at once
        former = {"metadata": {"ownerReferences": [{"uid": "11111111-2222-3333-4444-555555555555"}]}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    scene.cluster.create(NODES, node, manager="kubelet")
    scene.settle()
    assert scene.figures(H100) == (0, 0)
    scene.cluster.delete(ACCELERATOR_NODES, "n1")
    scene.node_status(
        "n1", {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
    )
    scene.write_record("n1", EIGHT)
    scene.settle()
    assert scene.figures(H100) == (8, 8)


def test_a_lost_device_counts_in_total_alone_until_it_is_back(scene):
    scene.node("n1", EIGHT, gpus=8)
    scene.settle()
    scene.write_record("n1", [*EIGHT[:7], h100(7, lost=True)])
    scene.settle()
    assert scene.figures(H100) == (8, 7)
    assert scene.condition(H100, "Healthy") == ("False", "DevicesUnusable")
    assert "n1 (1 of 8)" in scene.message(H100, "Healthy")
    scene.write_record("n1", EIGHT)
    scene.settle()
    assert scene.figures(H100) == (8, 8)
    assert scene.condition(H100, "Healthy") == ("True", "AllDevicesUsable")
    assert [reason for name, reason in scene.events() if name == "n1"] == [
        "AcceleratorLost",
        "AcceleratorRecovered",
    ]


def test_a_class_without_a_usable_device_is_not_ready(scene):
    scene.node("n1", [h100(0, lost=True)])
    scene.settle()
    assert scene.condition(H100, "Ready") == ("False", "NoUsableDevice")
    assert scene.figures(H100) == (1, 0)


def test_partitions_are_classes_of_their_own(scene):
    seven, one = f"{H100}-mig-7g.80gb", f"{H100}-mig-1g.10gb"
    resources = {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "2"}
    scene.node("n1", [h100(0), h100(1)])
    scene.settle()
    assert scene.figures(H100) == (2, 2)
    scene.write_record("n1", [h100(0), cut(h100(1), ("1g.10gb", 9.625), ("1g.10gb", 9.625))])
    scene.node_status("n1", {"allocatable": resources})
    scene.settle()
    assert (scene.figures(H100), scene.figures(one)) == ((1, 1), (2, 2))
    assert scene.live(one)["spec"]["capabilities"]["memoryGB"] == "9856Mi"
    scene.write_record("n1", [h100(0), cut(h100(1), ("7g.80gb", 79.25))])
    scene.node_status("n1", {"allocatable": {"nvidia.com/mig-1g.10gb": None, "nvidia.com/mig-7g.80gb": "1"}})
    scene.settle()
    assert (scene.figures(one), scene.figures(seven)) == ((0, 0), (1, 1))
    scene.write_record("n1", [h100(0), h100(1)])
    scene.node_status("n1", {"allocatable": {"nvidia.com/gpu": "2", "nvidia.com/mig-7g.80gb": None}})
    scene.settle()
    assert (scene.figures(H100), scene.figures(seven)) == ((2, 2), (0, 0))


def test_pods_take_and_give_back(scene):
    scene.node("n1", EIGHT)
    scene.pod("p1", "n1", 3)
    scene.settle()
    assert scene.figures(H100) == (8, 5)
    scene.pod("p2", "n1", 4)
    scene.settle()
    assert scene.figures(H100) == (8, 1)
    scene.phase("p1", "Succeeded")
    scene.settle()
    assert scene.figures(H100) == (8, 4)
    scene.phase("p2", "Failed")
    scene.settle()
    assert scene.figures(H100) == (8, 8)


def test_requests_beyond_what_is_usable_leave_zero_and_never_less(scene):
    scene.node("n1", [h100(0), h100(1, lost=True)], gpus=2)
    scene.pod("p1", "n1", 2)
    scene.settle()
    assert scene.figures(H100) == (2, 0)


def test_two_models_behind_one_resource_each_count_what_is_surely_free(scene):
    scene.node("n1", [h100(0), h100(1), l4(2), l4(3), l4(4)])
    scene.settle()
    assert (scene.figures(H100), scene.figures(L4)) == ((2, 2), (3, 3))
    scene.pod("p1", "n1", 2)
    scene.settle()
    assert (scene.figures(H100), scene.figures(L4)) == ((2, 0), (3, 1))


@pytest.mark.parametrize(
    "resources",
    [
        pytest.param({}, id="no device plugin, or DRA"),
        pytest.param({"example.com/h100": "8"}, id="a renamed resource"),
    ],
)
def test_what_a_device_plugin_does_not_offer_is_not_known_and_never_zero(scene, resources):
    scene.node("n1", EIGHT, resources=resources)
    scene.settle()
    assert scene.figures(H100) == (8, None)
    assert scene.condition(H100, "AvailabilityKnown") == ("False", "ResourceNotOffered")
    assert "n1" in scene.message(H100, "AvailabilityKnown")


def test_beside_known_nodes_an_unknown_one_adds_nothing(scene):
    scene.node("n1", EIGHT)
    scene.node("n2", EIGHT, resources={})
    scene.settle()
    assert scene.figures(H100) == (16, 8)
    assert scene.condition(H100, "AvailabilityKnown") == ("False", "ResourceNotOffered")
    scene.node_status("n1", {"allocatable": {"nvidia.com/gpu": None}})
    scene.settle()
    assert scene.figures(H100) == (16, None)


def test_a_record_that_is_not_renewed_grows_stale(scene):
    scene.node("n1", EIGHT)
    scene.node("n2", [h100(9)])
    scene.settle()
    scene.time.advance(2000)
    scene.write_record("n2", [h100(9)])
    scene.time.advance(500)
    scene.settle()
    assert scene.condition(H100, "Stale") == ("True", "RecordsStale")
    assert scene.figures(H100) == (9, 1)
    scene.write_record("n1", EIGHT)
    scene.settle()
    assert scene.condition(H100, "Stale") == ("False", "RecordsRecent")
    assert scene.figures(H100) == (9, 9)


@pytest.mark.parametrize("hours", [-2, 2, 24], ids=["back", "ahead", "a day ahead"])
def test_a_step_of_the_wall_clock_makes_no_record_stale(scene, hours):
    scene.node("n1", EIGHT)
    scene.settle(seconds=31.0, turns=3)
    before = scene.versions()
    scene.time.wall += timedelta(hours=hours)
    scene.settle(seconds=31.0)
    assert scene.figures(H100) == (8, 8)
    assert scene.condition(H100, "Stale") == ("False", "RecordsRecent")
    assert scene.versions() == before


def test_nodes_that_disagree_are_told_and_the_class_states_what_all_reach(scene):
    scene.node("n1", [h100(0)])
    scene.node("n2", [h100(1, fabric=Fabric(state="completed", cluster_uuid="c", clique=1))])
    scene.settle()
    features = set(scene.live(H100)["spec"]["capabilities"]["features"])
    assert "fp8" in features
    assert "fabric" not in features
    assert scene.condition(H100, "Consistent") == ("False", "NodesDisagree")
    assert "n2" in scene.message(H100, "Consistent")


def test_simulated_nodes_do_not_count_beside_real_ones(scene):
    scene.node("n1", EIGHT, simulated=True)
    scene.settle()
    assert scene.figures(H100) == (8, 8)
    assert scene.condition(H100, "Simulated") == ("True", "SimulatedFacts")
    assert scene.live(H100)["metadata"]["annotations"]["accelerators.ome.io/simulated"] == "true"
    scene.node("n2", [h100(9)])
    scene.settle()
    assert scene.figures(H100) == (1, 1)
    assert scene.condition(H100, "Simulated") == ("False", "SimulatedNodesLeftOut")
    assert "accelerators.ome.io/simulated" not in scene.live(H100)["metadata"]["annotations"]


def test_a_class_without_nodes_is_retired_and_keeps_its_spec(scene):
    scene.node("n1", EIGHT)
    scene.settle()
    spec = scene.live(H100)["spec"]
    scene.remove_node("n1")
    scene.settle(seconds=31)
    assert scene.live(H100)["spec"] == spec
    assert scene.condition(H100, "Ready") == ("False", "NoNodes")
    assert (H100, "NoNodes") in scene.events()
    before = scene.versions()
    scene.new_controller()
    scene.settle(turns=4)
    assert scene.versions() == before


def test_a_class_that_is_being_deleted_is_left_to_go(scene):
    scene.node("n1", EIGHT)
    scene.settle()
    scene.edit(H100, {"metadata": {"finalizers": ["acceleratorclasses.ome.io/finalizer"]}}, manager="manager")
    scene.cluster.delete(ACCELERATOR_CLASSES, H100)
    before = scene.versions()
    scene.cordon("n1")
    scene.settle(turns=5)
    assert scene.versions() == before


def test_without_the_definition_nothing_is_written_and_it_is_said(scene_without_classes):
    scene = scene_without_classes
    scene.node("n1", EIGHT)
    scene.settle(turns=3)
    report = scene.controller.report()
    assert (report.classes_installed, report.records) == (False, 1)
    assert "the cluster has no definition of classes" in report.problems
