"""The labels of a node: whole maps for whole machines, and what stays when something breaks."""

from dataclasses import replace

import pytest

from agent.core.health import Instant
from agent.core.inventory import Options, history_after, inventory_of
from agent.core.labels import class_label, labels_for, valid_labels
from agent.core.past import remembered
from probes.facts import Accelerator, Driver, Fabric, Health, Mig, RowRemapping
from tests.hardware import (
    DOMAIN,
    GIB,
    MIB,
    START,
    ManualClock,
    facts,
    failed,
    fake_facts,
    h100,
    inventory,
    mig,
    pci,
    t4,
    unread,
)

HOPPER = {
    "feature.accelerators.ome.io/confidential-computing": "true",
    "feature.accelerators.ome.io/ecc": "true",
    "feature.accelerators.ome.io/mig": "true",
    "feature.accelerators.ome.io/nvlink": "true",
    "feature.accelerators.ome.io/nvlink-4": "true",
    "feature.accelerators.ome.io/structured-sparsity": "true",
    "feature.accelerators.ome.io/tensor-cores": "true",
    "feature.accelerators.ome.io/transformer-engine": "true",
    "precision.accelerators.ome.io/bf16": "true",
    "precision.accelerators.ome.io/fp16": "true",
    "precision.accelerators.ome.io/fp32": "true",
    "precision.accelerators.ome.io/fp64": "true",
    "precision.accelerators.ome.io/fp8": "true",
    "precision.accelerators.ome.io/int8": "true",
    "precision.accelerators.ome.io/tf32": "true",
}
TWO_H100 = {
    "accelerators.ome.io/class": "nvidia-h100-80gb",
    "accelerators.ome.io/compute-capability": "9.0",
    "accelerators.ome.io/count": "2",
    "accelerators.ome.io/cuda-major": "13",
    "accelerators.ome.io/cuda-version": "13.0",
    "accelerators.ome.io/driver-major": "580",
    "accelerators.ome.io/driver-version": "580.95.05",
    "accelerators.ome.io/family": "hopper",
    "accelerators.ome.io/health": "ok",
    "accelerators.ome.io/memory-gib": "80",
    "accelerators.ome.io/memory-mib": "81559",
    "accelerators.ome.io/present": "true",
    "accelerators.ome.io/product": "NVIDIA-H100-80GB-HBM3",
    "accelerators.ome.io/sm": "90",
    "accelerators.ome.io/vendor": "nvidia",
    "class.accelerators.ome.io/nvidia-h100-80gb": "true",
    "count.accelerators.ome.io/nvidia-h100-80gb": "2",
    **HOPPER,
}


def labels(*accelerators, **fields):
    return labels_for(inventory(*accelerators, **fields))


def plain(labels_):
    """The labels under the domain itself, by name."""
    return {
        key.removeprefix(f"{DOMAIN}/"): value
        for key, value in labels_.items()
        if key.startswith(f"{DOMAIN}/")
    }


def group(labels_, name):
    """The labels of one group, by what follows its domain."""
    prefix = f"{name}.{DOMAIN}/"
    return {key.removeprefix(prefix): value for key, value in labels_.items() if key.startswith(prefix)}


def test_the_labels_of_two_equal_gpus():
    assert labels(h100(0), h100(1)) == TWO_H100


def test_a_node_without_accelerators_has_no_labels():
    assert labels() == {}


def test_a_display_adapter_is_no_accelerator():
    display = Accelerator(index=0, vendor="nvidia", product="NVIDIA DGX Display", display_only=True)
    assert labels(display) == {}
    assert labels(h100(0), h100(1), display) == TWO_H100


def test_another_domain_changes_every_key_and_no_value():
    own = labels_for(inventory(h100(0), h100(1)), domain="gpu.example.com")
    assert own == {key.replace(DOMAIN, "gpu.example.com"): value for key, value in TWO_H100.items()}


def test_the_class_key_is_the_one_that_a_selector_names():
    assert class_label("nvidia-h100-80gb") in TWO_H100


def test_fr_059_sm_is_ten_times_the_capability():
    big = Accelerator(index=0, vendor="nvidia", pci=pci("ffff"), compute_capability=(12, 1))
    assert plain(labels(big))["sm"] == "121"
    assert plain(labels(replace(big, compute_capability=(10, 0))))["sm"] == "100"


def test_fr_057_a_future_gpu_has_a_capability_and_no_family():
    future = Accelerator(index=0, vendor="nvidia", pci=pci("ffff"), compute_capability=(13, 0))
    found = plain(labels(future))
    assert found["compute-capability"] == "13.0"
    assert "family" not in found


VERSIONS = [
    ("550.120", {"driver-version": "550.120", "driver-major": "550"}),
    ("580.95.05", {"driver-version": "580.95.05", "driver-major": "580"}),
    ("378.09", {"driver-version": "378.09", "driver-major": "378"}),
    ("378.05.05.05", {"driver-version": "378.05.05.05", "driver-major": "378"}),
    ("13.0", {"driver-version": "13.0", "driver-major": "13"}),
    ("570.86.10-grid", {"driver-version": "570.86.10-grid", "driver-major": "570"}),
    ("r580", {"driver-version": "r580"}),
    ("", {}),
    (None, {}),
]


@pytest.mark.parametrize(("version", "expected"), VERSIONS, ids=[repr(version) for version, _ in VERSIONS])
def test_fr_061_a_driver_version_is_kept_as_given(version, expected):
    drivers = (Driver(name="nvidia", version=version),)
    found = plain(labels(h100(), drivers=drivers))
    assert {key: value for key, value in found.items() if key.startswith("driver")} == expected


def test_fr_078_a_mixed_node_claims_no_single_model_and_counts_each():
    found = labels(h100(0), h100(1), t4(2))
    assert plain(found).keys().isdisjoint({"class", "product", "family"})
    assert plain(found)["count"] == "3"
    assert plain(found)["memory-gib"] == "16"
    assert plain(found)["sm"] == "75"
    assert group(found, "class") == {}
    assert group(found, "count") == {"nvidia-h100-80gb": "2", "nvidia-t4-16gb": "1"}
    assert group(found, "precision") == dict.fromkeys(("fp16", "fp32", "int8"), "true")


def test_fr_078_three_cards_of_one_machine():
    found = labels_for(inventory_of(fake_facts("mixed-3080-3090-4090")))
    assert group(found, "class") == {}
    assert group(found, "count") == {
        "nvidia-rtx-3080-10gb": "1",
        "nvidia-rtx-3090-24gb": "1",
        "nvidia-rtx-4090-24gb": "1",
    }
    assert plain(found)["memory-gib"] == "10"


def test_fr_038_equal_names_of_different_memory_are_two_classes():
    found = labels_for(inventory_of(fake_facts("v100-mixed")))
    assert group(found, "count") == {"nvidia-v100-16gb": "2", "nvidia-v100-32gb": "2"}
    assert group(found, "class") == {}
    assert (plain(found)["memory-gib"], plain(found)["memory-mib"]) == ("16", "16384")
    assert plain(found)["family"] == "volta"


def test_fr_077_enumeration_in_any_order_gives_the_same_labels():
    machines = [labels_for(inventory_of(fake_facts("dgx-station", cycle))) for cycle in range(1, 11)]
    orders = {
        tuple(d.product for d in fake_facts("dgx-station", cycle).accelerators) for cycle in range(1, 11)
    }
    assert len(orders) > 1
    assert all(machine == machines[0] for machine in machines)
    assert plain(machines[0])["product"] == "NVIDIA-A100-SXM4-80GB"
    assert plain(machines[0])["count"] == "4"


def test_fr_026_027_unified_memory_gives_the_same_labels_whichever_way_the_driver_answers():
    one, other = (labels_for(inventory_of(fake_facts(name))) for name in ("gb10", "gb10-host-memory"))
    assert one == other
    assert plain(one)["memory-gib"] == "128"
    assert plain(one)["unified-memory"] == "true"
    assert plain(one)["count"] == "1"
    assert "memory-mib" not in plain(one)


def test_fr_029_zero_memory_gives_no_memory_label():
    found = labels_for(inventory_of(fake_facts("orin")))
    assert plain(found).keys().isdisjoint({"memory-gib", "memory-mib"})
    assert plain(found)["count"] == "1"
    assert plain(found)["product"].startswith("Orin-nvgpu-")


def test_fr_033_gib_and_mib_are_told_apart_by_key():
    found = plain(labels(h100(memory_bytes=85520809984)))
    assert (found["memory-gib"], found["memory-mib"]) == ("80", "81559")


def test_fr_075_a_virtual_gpu_is_marked_and_states_what_it_measures():
    found = labels_for(inventory_of(fake_facts("vgpu")))
    assert plain(found)["virtual"] == "true"
    assert plain(found)["memory-gib"] == "48"
    assert plain(found)["class"] == "nvidia-a40-48gb-vgpu-48q"


def test_fr_137_made_up_hardware_is_marked():
    assert plain(labels(h100(), simulated=True))["simulated"] == "true"
    assert "simulated" not in plain(labels(h100()))


# --- partitions


def test_fr_065_mig_without_partitions_keeps_the_product_and_counts_nothing():
    found = labels(h100(0, mig=mig()), h100(1))
    assert plain(found)["product"] == "NVIDIA-H100-80GB-HBM3"
    assert (plain(found)["count"], plain(found)["partitioning"]) == ("1", "mixed")
    assert group(found, "count") == {"nvidia-h100-80gb": "1"}
    alone = labels(h100(0, mig=mig()))
    assert (plain(alone)["count"], plain(alone)["partitioning"]) == ("0", "mig")
    assert group(alone, "count") == group(alone, "class") == {}
    assert plain(alone)["class"] == "nvidia-h100-80gb"


def test_fr_065_a_mode_that_waits_for_a_reset_is_pending():
    waiting = Mig(enabled=False, pending_enabled=True)
    found = plain(labels(h100(0, mig=waiting), h100(1, mig=Mig(enabled=False, pending_enabled=False))))
    assert (found["partitioning"], found["count"]) == ("pending", "2")


def test_fr_069_uneven_partitions_are_each_counted():
    whole = Mig(enabled=False, pending_enabled=False)
    found = labels(h100(0, mig=mig("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb")), h100(1, mig=whole))
    assert plain(found)["product"] == "NVIDIA-H100-80GB-HBM3"
    assert (plain(found)["count"], plain(found)["partitioning"]) == ("1", "mixed")
    assert group(found, "count") == {
        "nvidia-h100-80gb": "1",
        "nvidia-h100-80gb-mig-1g.10gb": "2",
        "nvidia-h100-80gb-mig-2g.20gb": "1",
        "nvidia-h100-80gb-mig-3g.40gb": "1",
    }
    assert group(found, "class") == dict.fromkeys(group(found, "count"), "true")


def test_fr_069_partitions_behind_the_whole_gpus_resource_promise_no_class():
    single = Options(mig_shared_resource=True)
    uneven = inventory_of(facts(h100(0, mig=mig("1g.10gb", "2g.20gb"))), options=single)
    even = inventory_of(facts(h100(0, mig=mig("1g.10gb", "1g.10gb"))), options=single)
    assert group(labels_for(uneven), "class") == {}
    assert group(labels_for(even), "class") == {"nvidia-h100-80gb-mig-1g.10gb": "true"}
    assert group(labels_for(uneven), "count").keys() == {
        "nvidia-h100-80gb-mig-1g.10gb",
        "nvidia-h100-80gb-mig-2g.20gb",
    }


IDENTITY = ("product", "family", "class", "vendor", "compute-capability", "memory-gib")


@pytest.mark.parametrize(
    "changed",
    [
        h100(0, mig=Mig(enabled=False, pending_enabled=True)),
        h100(0, mig=Mig(enabled=True, pending_enabled=True, partitions=None)),
        h100(0, mig=mig("1g.10gb")),
        failed(h100(0)),
        failed(h100(0), "needs-reset"),
        failed(h100(0), "no-answer"),
    ],
    ids=["pending", "unreadable", "cut", "lost", "needs reset", "no answer"],
)
def test_fr_070_a_change_of_state_changes_no_identity(changed):
    whole, now = plain(labels(h100(0), h100(1))), plain(labels(changed, h100(1)))
    assert {key: now.get(key) for key in IDENTITY} == {key: whole[key] for key in IDENTITY}


def test_fr_071_another_cut_takes_the_old_keys_away():
    layouts = [h100(0, mig=mig("1g.10gb")), h100(0, mig=mig("2g.20gb")), h100(0)]
    keys = [set(group(labels(layout), "count")) for layout in layouts]
    assert keys == [{"nvidia-h100-80gb-mig-1g.10gb"}, {"nvidia-h100-80gb-mig-2g.20gb"}, {"nvidia-h100-80gb"}]


def test_fr_073_partitions_that_may_not_be_read_cost_no_other_label():
    found = labels_for(inventory_of(fake_facts("mig-no-permission")))
    assert plain(found)["product"] == "NVIDIA-A100-SXM4-80GB"
    assert (plain(found)["count"], plain(found)["partitioning"]) == ("2", "mixed")
    assert group(found, "count") == {"nvidia-a100-80gb": "2"}


def test_a_node_whose_gpus_cannot_be_cut_has_no_partitioning():
    assert "partitioning" not in plain(labels(t4()))


# --- health


def test_a_lost_gpu_is_not_counted_and_changes_nothing_else():
    before, after = labels(h100(0), h100(1)), labels(h100(0), failed(h100(1)))
    changed = {key: after.get(key) for key in before | after if before.get(key) != after.get(key)}
    assert changed == {
        "accelerators.ome.io/count": "1",
        "accelerators.ome.io/health": "failed",
        "count.accelerators.ome.io/nvidia-h100-80gb": "1",
    }


def test_a_gpu_that_failed_before_it_told_its_name_takes_nothing_from_the_others():
    fabric = Fabric(state="completed", cluster_uuid="5f1c9b2e-7d34-4a51-9e0b-3c8d6a2f4e17", clique=3)
    sound = [h100(n, fabric=fabric) for n in range(2)]
    whole = labels(*sound)
    beside = labels(*sound, unread(2, pci=pci("2330", slot=2)))
    changed = {key: beside.get(key) for key in whole | beside if whole.get(key) != beside.get(key)}
    assert changed == {"accelerators.ome.io/health": "failed"}


def test_a_gpu_that_hangs_half_way_takes_nothing_from_the_others():
    whole, beside = (
        labels_for(inventory_of(fake_facts(name))) for name in ("h100x8", "h100x8-lost-after-handle")
    )
    assert {key for key in whole | beside if whole.get(key) != beside.get(key)} == {
        "accelerators.ome.io/count",
        "accelerators.ome.io/health",
        "count.accelerators.ome.io/nvidia-h100-80gb",
    }


def test_a_failed_gpu_of_another_class_claims_what_it_is_known_for():
    stranger = unread(1, pci=pci("1eb8", slot=1))
    found = labels(h100(0), stranger)
    assert plain(found).keys().isdisjoint({"class", "product", "family", "memory-mib"})
    assert plain(found)["memory-gib"] == "16"
    assert "nvlink" not in group(found, "feature")


def test_a_lost_gpu_of_another_model_still_makes_the_node_mixed():
    found = labels(h100(0), failed(t4(1)))
    assert "class" not in plain(found)
    assert group(found, "count") == {"nvidia-h100-80gb": "1"}
    assert group(found, "class") == {}


def test_fr_021_row_remapping_decides_health():
    def with_rows(**rows):
        told = {"corrected": 0, "uncorrectable": 4, "pending": False, "failed": False, **rows}
        return plain(labels(h100(health=Health(row_remapping=RowRemapping(**told)))))

    found = [with_rows(pending=True), with_rows(failed=True), with_rows()]
    assert [(one["health"], one["count"]) for one in found] == [
        ("degraded", "1"),
        ("failed", "0"),
        ("ok", "1"),
    ]


def test_fr_017_the_count_follows_the_truth_and_the_missing_one_is_told():
    clock = ManualClock()
    before = facts(*(h100(n) for n in range(8)))
    seven = facts(*(h100(n) for n in range(7)), verdict="partial", reason="DeviceMissing", pci=before.pci)
    now = remembered(seven, before)
    found = plain(labels_for(inventory_of(now, history=history_after(now, {}, clock()))))
    assert (found["count"], found["health"]) == ("7", "failed")
    assert found["product"] == "NVIDIA-H100-80GB-HBM3"


# --- the NVLink domain

FABRICS = [
    ("one domain", ("a.1", "a.1"), "a.1"),
    ("two cliques", ("a.1", "a.2"), None),
    ("one device outside", ("a.1", None), None),
    ("none", (None, None), None),
]


def _fabric(text):
    if text is None:
        return Fabric(state="completed")
    cluster, _, clique = text.partition(".")
    return Fabric(state="completed", cluster_uuid=cluster, clique=int(clique))


@pytest.mark.parametrize(("domains", "value"), [row[1:] for row in FABRICS], ids=[row[0] for row in FABRICS])
def test_the_fabric_is_the_domain_that_all_devices_are_in(domains, value):
    devices = [h100(number, fabric=_fabric(text)) for number, text in enumerate(domains)]
    assert plain(labels(*devices)).get("fabric") == value


def test_fr_025_a_fabric_that_is_not_up_is_no_domain_and_not_healthy():
    devices = [h100(n, fabric=Fabric(state="in-progress", cluster_uuid="a", clique=1)) for n in range(2)]
    found = plain(labels(*devices))
    assert "fabric" not in found
    assert (found["health"], found["count"]) == ("failed", "0")
    assert plain(labels(h100(fabric=Fabric(state="not-supported"))))["health"] == "ok"


def test_the_zero_uuid_is_no_domain():
    assert "fabric" not in plain(labels_for(inventory_of(fake_facts("h100x8"))))


# --- what Kubernetes refuses


def test_fr_042_an_unfit_key_or_value_is_left_out_and_the_rest_stays():
    sent = {
        "a.example/fit": "1",
        "a.example/unfit value": "1",
        "a.example/value": "(x)",
        "A.example/x": "1",
        "": "1",
    }
    assert valid_labels(sent) == {"a.example/fit": "1"}


def test_fr_042_a_class_name_that_cannot_be_a_key_costs_its_own_labels_only():
    options = Options(class_names=(("nvidia-h100-80gb", "no name"),))
    found = labels_for(inventory_of(facts(h100(0), h100(1)), options=options))
    missing = {
        "accelerators.ome.io/class",
        "class.accelerators.ome.io/nvidia-h100-80gb",
        "count.accelerators.ome.io/nvidia-h100-80gb",
    }
    assert found == {key: value for key, value in TWO_H100.items() if key not in missing}


def test_hostile_text_from_a_driver_never_becomes_an_unfit_label():
    nasty = h100(
        product="x\x00\n=;'\"<é🚀>" * 20,
        fabric=Fabric(state="completed", cluster_uuid="../ \x00", clique=1),
        mig=Mig(enabled=True, pending_enabled=True, partitions=mig("1g.10gb/../", "a" * 300).partitions),
    )
    drivers = (Driver(name="nvidia", version="1.2\n3", cuda_version="x y"),)
    found = labels(nasty, drivers=drivers)
    assert valid_labels(found) == found
    assert plain(found)["class"] == "nvidia-h100-80gb"


def test_memory_is_the_smallest_and_absent_where_one_is_not_known():
    small = h100(1, memory_bytes=78 * GIB)
    assert plain(labels(h100(0), small))["memory-mib"] == str(78 * GIB // MIB)
    silent = h100(1, memory_bytes=None)
    found = plain(labels(h100(0), silent))
    assert "memory-mib" not in found
    assert found["memory-gib"] == "80"


def test_history_decides_health_where_there_is_one():
    clock = ManualClock()
    bad, good = facts(failed(h100())), facts(h100())
    history = history_after(bad, {}, clock())
    history = history_after(good, history, Instant(wall=START, monotonic=1060.0))
    assert plain(labels_for(inventory_of(good, history=history)))["health"] == "failed"
    assert plain(labels_for(inventory_of(good)))["health"] == "ok"
