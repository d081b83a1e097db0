"""What a device is: names that stay, features that a state does not change, shares that are not the whole."""

from dataclasses import replace

import pytest

from agent.core.devices import capability_text, describe, describe_partition, nominal_bytes
from probes.facts import Accelerator, Fabric, Health, Link, Mig, Partition
from tests.hardware import GIB, MIB, fake_facts, h100, mig, pci, t4


def card(device_id="ffff", **fields):
    return Accelerator(index=0, vendor="nvidia", pci=pci(device_id), **fields)


NAMES = [
    ("a known product", h100(), "nvidia-h100-80gb"),
    ("an unknown id", card(memory_bytes=47 * GIB), "nvidia-ffff-48gb"),
    ("an unknown id without memory", card(), "nvidia-ffff"),
    (
        "no bus and no known name",
        Accelerator(index=0, vendor="nvidia", product="NVIDIA Graphics Device"),
        "nvidia-graphics-device",
    ),
    ("nothing at all", Accelerator(index=0, vendor="nvidia"), "nvidia-unknown"),
    (
        "a virtual share of a known product",
        t4(product="GRID T4-8Q", virtualization="vgpu"),
        "nvidia-t4-16gb-vgpu-8q",
    ),
    (
        "a virtual share that is a partition",
        Accelerator(
            index=0, vendor="nvidia", product="GRID A100-7-40C", pci=pci("20b0"), virtualization="vgpu"
        ),
        "nvidia-a100-40gb-vgpu-7-40c",
    ),
    (
        "a virtual share of an unknown product",
        card(memory_bytes=8 * GIB, virtualization="vgpu"),
        "nvidia-ffff-8gb-vgpu",
    ),
    ("a whole GPU passed through to this machine", t4(virtualization="passthrough"), "nvidia-t4-16gb"),
]


@pytest.mark.parametrize(("accelerator", "name"), [row[1:] for row in NAMES], ids=[row[0] for row in NAMES])
def test_a_device_has_a_class_name(accelerator, name):
    assert describe(accelerator).class_name == name


def test_an_operator_may_rename_a_class():
    assert describe(h100(), names={"nvidia-h100-80gb": "big"}).class_name == "big"


def test_a_name_of_a_whole_class_does_not_rename_its_partitions():
    parent = h100(mig=mig("1g.10gb"))
    names = {"nvidia-h100-80gb": "big", "nvidia-h100-80gb-mig-2g.20gb": "middle"}
    found = [
        describe_partition(parent, Partition(profile=profile), names=names)
        for profile in ("1g.10gb", "2g.20gb")
    ]
    assert [part and part.class_name for part in found] == ["nvidia-h100-80gb-mig-1g.10gb", "middle"]


# FR-032: totals that drivers report for one and the same card.
TOTALS = [
    ("2330", "nvidia-h100-80gb", 80, (81559,)),
    ("20b2", "nvidia-a100-80gb", 80, (81251, 81920)),
    ("20b0", "nvidia-a100-40gb", 40, (40536, 40960)),
    ("1eb8", "nvidia-t4-16gb", 16, (15360, 15109)),
    ("27b8", "nvidia-l4-24gb", 24, (23034, 22491, 24570)),
    ("2bb5", "nvidia-rtx-pro-6000-server-96gb", 96, (97887, 97871)),
]


@pytest.mark.parametrize(("device_id", "name", "gib", "totals"), TOTALS, ids=[row[1] for row in TOTALS])
def test_fr_032_class_and_nominal_size_do_not_follow_the_driver(device_id, name, gib, totals):
    described = [describe(card(device_id, memory_bytes=total * MIB)) for total in totals]
    assert {(one.class_name, one.nominal_gib, nominal_bytes(one)) for one in described} == {
        (name, gib, gib * GIB)
    }
    assert [one.memory_bytes for one in described] == [total * MIB for total in totals]


def test_fr_032_an_unknown_card_keeps_its_name_under_either_total():
    names = {describe(card(memory_bytes=total * MIB)).class_name for total in (81251, 81559, 81920)}
    assert names == {"nvidia-ffff-80gb"}


FR_039 = [
    ("NVIDIA GH200 480GB", "2342", 97871, 96),
    ("NVIDIA H100 80GB HBM3", "2330", 81559, 80),
    ("NVIDIA A30", "20b7", 24258, 24),
    ("NVIDIA T1000 8GB", "ffff", 3900, 4),
]


@pytest.mark.parametrize(("name", "device_id", "mib", "gib"), FR_039, ids=[row[0] for row in FR_039])
def test_fr_039_memory_never_comes_from_the_name(name, device_id, mib, gib):
    assert describe(card(device_id, product=name, memory_bytes=mib * MIB)).nominal_gib == gib


def test_fr_026_027_unified_memory_is_the_same_class_whichever_way_the_driver_answers():
    [one], [other] = fake_facts("gb10").accelerators, fake_facts("gb10-host-memory").accelerators
    assert describe(one) == describe(other)
    assert describe(one).class_name == "nvidia-gb10-128gb"
    assert "unified-memory" in describe(one).features


def test_fr_029_zero_memory_is_not_known():
    [orin] = fake_facts("orin").accelerators
    description = describe(orin)
    assert (orin.memory_bytes, description.memory_bytes, description.nominal_gib) == (None, None, None)
    assert description.class_name.startswith("nvidia-orin-nvgpu-")


def test_fr_057_an_unknown_architecture_has_a_capability_and_no_family():
    future = describe(card(compute_capability=(13, 0), memory_bytes=288 * GIB))
    assert (future.class_name, future.family, future.compute_capability) == (
        "nvidia-ffff-288gb",
        None,
        (13, 0),
    )
    assert future.precisions == frozenset()


@pytest.mark.parametrize(("capability", "text"), [((10, 0), "10.0"), ((12, 1), "12.1"), ((9, 0), "9.0")])
def test_fr_059_a_capability_is_written_by_its_parts(capability, text):
    assert capability_text(capability) == text


H100_FEATURES = {
    "confidential-computing",
    "ecc",
    "mig",
    "nvlink",
    "nvlink-4",
    "structured-sparsity",
    "tensor-cores",
    "transformer-engine",
}

STATES = [
    ("as it is", {}),
    ("its links down", {"link": Link(nvlink_active=0, nvlink_total=18)}),
    ("ECC off", {"health": Health(ecc_enabled=False)}),
    ("MIG on", {"mig": mig("1g.10gb")}),
    ("MIG off", {"mig": Mig(enabled=False, pending_enabled=False)}),
    ("a fabric that is not supported", {"fabric": Fabric(state="not-supported")}),
]


@pytest.mark.parametrize("fields", [row[1] for row in STATES], ids=[row[0] for row in STATES])
def test_a_state_changes_no_feature(fields):
    assert describe(h100(**fields)).features == H100_FEATURES


@pytest.mark.parametrize("state", ["not-started", "in-progress", "completed"])
def test_a_gpu_that_registers_with_a_fabric_is_behind_a_switch(state):
    features = describe(h100(fabric=Fabric(state=state))).features
    assert features == H100_FEATURES | {"fabric", "nvswitch"}


def test_a_pcie_card_has_nvlink_only_with_a_bridge():
    bare = card("2331", memory_bytes=80 * GIB)
    bridged = replace(bare, link=Link(nvlink_active=12, nvlink_total=18))
    assert [sorted(f for f in describe(one).features if "nvlink" in f) for one in (bare, bridged)] == [
        [],
        ["nvlink", "nvlink-4"],
    ]


def test_a_part_without_tensor_cores_promises_none():
    gtx = describe(card("2182", compute_capability=(7, 5), memory_bytes=6 * GIB))
    assert gtx.class_name == "nvidia-gtx-1660-ti-6gb"
    assert gtx.features.isdisjoint({"tensor-cores", "transformer-engine", "structured-sparsity"})
    assert gtx.precisions == {"fp16", "fp32"}


def test_an_unknown_part_promises_tensor_cores_only_where_its_capability_alone_tells():
    turing = describe(card(compute_capability=(7, 5), memory_bytes=4 * GIB))
    assert (turing.family, turing.precisions) == ("turing", {"fp16", "fp32"})
    assert "tensor-cores" not in turing.features
    ampere = describe(card(compute_capability=(8, 6), memory_bytes=24 * GIB))
    assert "tensor-cores" in ampere.features
    assert ampere.precisions > {"bf16", "tf32"}


def test_a_virtual_share_of_one_of_two_boards_has_what_both_boards_have():
    share = replace(
        card("1e30", compute_capability=(7, 5), memory_bytes=8 * GIB),
        product="GRID RTX6000-8Q",
        virtualization="vgpu",
    )
    described = describe(share)
    assert described.product is None
    assert "tensor-cores" in described.features
    assert described.precisions == {"fp16", "fp32", "int4", "int8"}


def test_fr_075_a_virtual_gpu_is_not_the_bare_card():
    [share] = fake_facts("vgpu").accelerators
    described, bare = describe(share), describe(replace(share, virtualization="none"))
    assert described.class_name == "nvidia-a40-48gb-vgpu-48q"
    assert bare.class_name == "nvidia-a40-48gb"
    assert described.virtual
    assert "virtual" in described.features
    assert (described.nominal_gib, described.bandwidth_gbps, described.peaks) == (None, None, ())
    assert described.memory_bytes == 49152 * MIB


PARTITIONS = [
    ("1g.10gb", "nvidia-h100-80gb-mig-1g.10gb", "nvidia.com/mig-1g.10gb"),
    ("1g.10gb+me", "nvidia-h100-80gb-mig-1g.10gb.me", "nvidia.com/mig-1g.10gb.me"),
    ("1c.3g.40gb", "nvidia-h100-80gb-mig-1c.3g.40gb", "nvidia.com/mig-1c.3g.40gb"),
    ("1g.24gb-me", "nvidia-h100-80gb-mig-1g.24gb-me", "nvidia.com/mig-1g.24gb-me"),
    ("1g.24gb+me.all", "nvidia-h100-80gb-mig-1g.24gb.me.all", "nvidia.com/mig-1g.24gb.me.all"),
]


@pytest.mark.parametrize(("profile", "name", "resource"), PARTITIONS, ids=[row[0] for row in PARTITIONS])
def test_fr_067_a_partition_is_named_as_the_device_plugin_names_it(profile, name, resource):
    part = describe_partition(h100(), Partition(profile=profile, memory_bytes=9856 * MIB))
    assert part is not None
    assert (part.class_name, part.resource, part.memory_bytes) == (name, resource, 9856 * MIB)
    assert part.features == {"ecc", "structured-sparsity", "tensor-cores", "transformer-engine"}


def test_a_partition_may_be_offered_under_the_whole_gpus_resource():
    part = describe_partition(h100(), Partition(profile="1g.10gb"), shared_resource=True)
    assert part is not None
    assert part.resource == "nvidia.com/gpu"


def test_a_partition_of_unknown_profile_has_no_class():
    assert describe_partition(h100(), Partition(memory_bytes=9856 * MIB)) is None


def test_fr_043_a_partition_of_a_long_name_is_cut_and_stays_apart():
    parent = Accelerator(index=0, vendor="nvidia", product="A" * 80)
    parts = [describe_partition(parent, Partition(profile=profile)) for profile in ("1g.10gb", "2g.20gb")]
    names = [part.class_name for part in parts if part]
    assert [len(name) for name in names] == [63, 63]
    assert names[0] != names[1]


BANDWIDTH = [
    ("the catalogue's", h100(memory_clock_max_mhz=2619, memory_bus_bits=5120), 3350, 3352),
    ("derived", card(memory_clock_max_mhz=2619, memory_bus_bits=5120), 3352, 3352),
    ("not known", card(), None, None),
    (
        "of unified memory",
        card(memory_clock_max_mhz=8533, memory_bus_bits=256, unified_memory=True),
        None,
        None,
    ),
]


@pytest.mark.parametrize(
    ("accelerator", "stated", "derived"), [row[1:] for row in BANDWIDTH], ids=[row[0] for row in BANDWIDTH]
)
def test_bandwidth_is_the_catalogues_else_derived(accelerator, stated, derived):
    description = describe(accelerator)
    assert (description.bandwidth_gbps, description.derived_bandwidth_gbps) == (stated, derived)


def test_an_unknown_product_has_a_derived_rate_of_its_ordinary_cores_only():
    unknown = card(compute_capability=(9, 0), cores=16896, boost_clock_mhz=1980)
    assert [(peak.precision, peak.tera_ops, peak.source) for peak in describe(unknown).peaks] == [
        ("fp32", 66.9, "derived")
    ]
