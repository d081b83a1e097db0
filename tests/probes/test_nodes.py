"""Every named fake machine through the real binding: what its facts are, in one line each."""

import pytest

from fakes import nodes
from probes.facts import DeviceFault, Driver, Fabric, FieldProblem, Mig, NodeFacts, Partition, RowRemapping
from tests.probes.probing import facts

VERDICTS = {
    "h100x8": ("complete", "AllDevicesRead"),
    "h200x8": ("complete", "AllDevicesRead"),
    "a100-40x8": ("complete", "AllDevicesRead"),
    "a100-80-mig": ("complete", "AllDevicesRead"),
    "b200x8": ("complete", "AllDevicesRead"),
    "gb200": ("complete", "AllDevicesRead"),
    "gb10": ("complete", "AllDevicesRead"),
    "gb10-host-memory": ("complete", "AllDevicesRead"),
    "thor": ("complete", "AllDevicesRead"),
    "orin": ("complete", "AllDevicesRead"),
    "l4x4": ("complete", "AllDevicesRead"),
    "l40s": ("complete", "AllDevicesRead"),
    "t4": ("complete", "AllDevicesRead"),
    "v100-mixed": ("complete", "AllDevicesRead"),
    "rtx-pro-6000-mig": ("complete", "AllDevicesRead"),
    "vgpu": ("complete", "AllDevicesRead"),
    "gh200": ("complete", "AllDevicesRead"),
    "mixed-3080-3090-4090": ("complete", "AllDevicesRead"),
    "dgx-station": ("complete", "AllDevicesRead"),
    "no-gpu": ("none", "NoAccelerators"),
    "driver-no-gpu": ("none", "NoAccelerators"),
    "mig-empty": ("complete", "AllDevicesRead"),
    "mig-pending": ("complete", "AllDevicesRead"),
    "mig-no-permission": ("partial", "MigNotReadable"),
    "no-driver": ("no-driver", "DriverNotLoaded"),
    "no-runtime": ("not-in-container", "LibraryNotVisible"),
    "version-mismatch": ("version-mismatch", "DriverLibraryMismatch"),
    "h100x8-one-lost": ("partial", "DeviceLost"),
    "h100x8-lost-after-handle": ("partial", "DeviceLost"),
    "h100x8-all-lost": ("no-answer", "EveryDeviceFailed"),
    "h100x8-needs-reset": ("partial", "DeviceNeedsReset"),
    "h100x8-container-lost": ("complete", "AllDevicesRead"),
    "h100x8-count-shrinks": ("complete", "AllDevicesRead"),
    "h100x8-sick": ("complete", "AllDevicesRead"),
}
"""At the first probe; machines that hang or crash are `test_probe_host`'s."""


@pytest.fixture
def look(tmp_path):
    """Return the facts of a named machine at a probe."""

    def at(name: str, cycle: int = 1) -> NodeFacts:
        return facts(nodes.node(name), tmp_path, cycle)

    return at


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_the_verdict_on_each_machine(look, name):
    found = look(name)
    assert (found.verdict, found.reason) == VERDICTS[name]
    assert found.message
    assert found.asked is (found.verdict in {"complete", "none", "partial"})


def test_the_container_that_lost_its_devices_is_told_from_no_gpus(look):
    """FR-001, FR-004."""
    cycles = [look("h100x8-container-lost", cycle) for cycle in (1, 3, 4, 60)]
    assert [(found.verdict, found.reason) for found in cycles] == [
        ("complete", "AllDevicesRead"),
        ("complete", "AllDevicesRead"),
        ("no-answer", "InitFailed"),
        ("no-answer", "InitFailed"),
    ]
    assert "8 NVIDIA GPU(s)" in cycles[2].message


def test_a_count_that_shrinks_is_partial_and_names_the_slot(look):
    """FR-017."""
    found = look("h100x8-count-shrinks", 2)
    assert (found.verdict, found.reason, len(found.accelerators)) == ("partial", "DeviceMissing", 7)
    seen = {device.pci.address for device in found.accelerators if device.pci}
    [missing] = [f.identity.address for f in found.pci or () if f.identity.address not in seen]
    assert f"7 of the 8 GPUs on the bus, without 1 NVIDIA GPU(s) ({missing})" in found.message


def test_a_lost_device_is_named_by_its_index_and_slot_and_the_others_stay(look):
    """FR-015."""
    found = look("h100x8-one-lost")
    assert [device.index for device in found.accelerators] == list(range(8))
    lost = found.accelerators[3]
    assert lost.fault == DeviceFault(kind="lost", call="nvmlDeviceGetHandleByIndex", error="gpu-lost")
    assert lost.pci is not None
    assert lost.pci.address == "0000:61:00.0"
    assert {device.product for device in found.accelerators if device is not lost} == {
        "NVIDIA H100 80GB HBM3"
    }


def test_fr_026_fr_027_unified_memory_is_the_same_whichever_way_the_driver_answers(look):
    """FR-026, FR-027."""
    refusing, answering = look("gb10").accelerators, look("gb10-host-memory").accelerators
    assert [(device.unified_memory, device.memory_bytes) for device in refusing + answering] == [
        (True, None)
    ] * 2
    assert refusing[0].problems == ()
    assert refusing[0].compute_capability == (12, 1)
    assert refusing[0].pci is not None
    assert refusing[0].pci.address == "000f:01:00.0"


@pytest.mark.parametrize("name", ["thor", "orin"])
def test_a_system_on_chip_has_unified_memory_and_no_size_of_its_own(look, name):
    """FR-029."""
    [device] = look(name).accelerators
    assert (device.unified_memory, device.memory_bytes, device.problems) == (True, None, ())


@pytest.mark.parametrize("name", sorted(VERDICTS.keys() - {"gb10", "gb10-host-memory", "thor", "orin"}))
def test_no_discrete_card_has_unified_memory(look, name):
    assert [device.index for device in look(name).accelerators if device.unified_memory] == []


def test_grace_memory_is_not_the_gpus(look):
    """FR-039."""
    [device] = look("gh200").accelerators
    assert device.product == "NVIDIA GH200 480GB"
    assert device.memory_bytes == 97871 << 20
    assert device.memory_numa_node is not None
    assert device.link is not None
    assert device.link.c2c is True


def test_a_fabric_domain_is_named_and_the_zero_uuid_is_none(look):
    domains = {device.fabric.cluster_uuid for device in look("gb200").accelerators if device.fabric}
    assert len(domains) == 1
    assert None not in domains
    states = {device.fabric for device in look("h200x8").accelerators}
    assert states == {Fabric(state="completed", cluster_uuid=None, clique=0, status=0, health_mask=0)}


def test_a_guests_share_says_so(look):
    """FR-075."""
    [device] = look("vgpu").accelerators
    assert (device.virtualization, device.problems) == ("vgpu", ())


def test_display_adapters_are_told_by_id_and_name(look):
    """FR-077."""
    assert [(d.product, d.display_only) for d in look("dgx-station").accelerators if d.display_only] == [
        ("NVIDIA DGX Display", True)
    ]


def test_partitions_have_nvidias_own_names(look):
    """FR-066, FR-067."""
    names = {
        name: sorted(
            {part.profile for d in look(name).accelerators if d.mig for part in d.mig.partitions or ()}
        )
        for name in ("a100-80-mig", "rtx-pro-6000-mig")
    }
    assert names == {
        "a100-80-mig": ["1g.10gb", "2g.20gb", "3g.40gb"],
        "rtx-pro-6000-mig": [
            "1g.24gb",
            "1g.24gb+gfx",
            "1g.24gb+me",
            "1g.24gb+me.all",
            "1g.24gb-me",
            "2g.48gb",
            "2g.48gb+gfx",
            "2g.48gb+me.all",
            "2g.48gb-me",
        ],
    }


def test_mig_without_instances_is_enabled_with_no_partition(look):
    """FR-065."""
    states = {device.mig for device in look("mig-empty").accelerators}
    assert Mig(enabled=True, pending_enabled=True, partitions=()) in states


def test_partitions_that_may_not_be_read_are_not_known(look):
    """FR-073."""
    found = [device for device in look("mig-no-permission").accelerators if device.mig and device.mig.enabled]
    assert {device.mig.partitions for device in found if device.mig} == {None}
    assert {device.problems for device in found} == {
        (FieldProblem(field="mig.partitions", error="no-permission"),)
    }


def test_both_versions_are_told_where_module_and_library_differ(look):
    """FR-003."""
    found = look("version-mismatch")
    assert found.message.startswith(
        "the kernel module is 570.172.08 and the library is 580.95.05: the driver was"
    )
    assert found.drivers == (Driver(name="nvidia", kernel_module_version="570.172.08"),)


def test_readings_of_sick_hardware_are_facts_not_faults(look):
    """FR-021, FR-025."""
    devices = look("h100x8-sick").accelerators
    assert [device.fault for device in devices] == [None] * 8
    remaps = {device.health.row_remapping for device in devices if device.health}
    assert RowRemapping(corrected=0, uncorrectable=4, pending=True, failed=False) in remaps


def test_the_slot_tells_the_numa_node(look):
    found = look("h100x8")
    assert [device.numa_node for device in found.accelerators] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [device.pci.numa_node for device in found.accelerators if device.pci] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_partition_carries_its_instance_and_size(look):
    part = next(d.mig.partitions[0] for d in look("a100-80-mig").accelerators if d.mig and d.mig.partitions)
    assert isinstance(part, Partition)
    assert None not in {part.id, part.profile, part.gpu_instance_id, part.memory_bytes, part.multiprocessors}
