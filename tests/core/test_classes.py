"""The content of an AcceleratorClass: canonical quantities, dense datasheet peaks, and what all devices promise."""

import json
from dataclasses import replace

import pytest

from agent.core.classes import (
    binary_quantity,
    content_of,
    decimal_quantity,
    merge_contents,
)
from probes.facts import Accelerator, Partition
from tests.hardware import DOMAIN, GIB, MIB, fake_facts, h100, mig, pci

FP16_OF_H100 = 989.4


def content(accelerator, **options):
    found = content_of(accelerator, **options)
    assert found is not None
    return found


def test_the_class_of_an_h100():
    assert content(fake_facts("h100x8").accelerators[0]).spec == {
        "vendor": "nvidia",
        "family": "hopper",
        "model": "h100",
        "discovery": {
            "nodeSelector": {"class.accelerators.ome.io/nvidia-h100-80gb": "true"},
            "pciVendorID": "10de",
            "deviceIDs": ["2330"],
        },
        "capabilities": {
            "memoryGB": "80Gi",
            "computeCapability": "9.0",
            "memoryBandwidthGBps": "3350",
            "clockSpeedMHz": 1980,
            "features": [
                *(
                    "bf16",
                    "confidential-computing",
                    "ecc",
                    "fabric",
                    "fp16",
                    "fp32",
                    "fp64",
                    "fp8",
                    "int8",
                    "mig",
                ),
                *("nvlink", "nvlink-4", "nvswitch", "structured-sparsity", "tensor-cores", "tf32"),
                "transformer-engine",
            ],
            "performance": {"fp32Tflops": 67, "fp16Tflops": 989, "int8Tops": 1979},
        },
    }


def test_what_the_schema_has_no_field_for_is_an_annotation():
    annotations = content(fake_facts("h100x8").accelerators[0]).annotations
    peaks = json.loads(annotations.pop(f"{DOMAIN}/peak-flops"))
    assert annotations == {
        f"{DOMAIN}/memory-bytes": "85520809984",
        f"{DOMAIN}/memory-bandwidth-gbps": '{"catalogued":3350,"derived":3352}',
        f"{DOMAIN}/product-names": "NVIDIA H100 80GB HBM3",
    }
    assert peaks["fp16"] == {"dense": FP16_OF_H100, "source": "datasheet"}
    assert peaks["fp64-tensor"] == {"dense": 67.0, "source": "datasheet"}


def test_fr_033_a_partition_states_what_it_measures_with_its_unit():
    parent = h100(mig=mig("1g.10gb"))
    part = content(parent, partition=Partition(profile="1g.10gb", memory_bytes=9856 * MIB + 5))
    assert part.spec["capabilities"]["memoryGB"] == "9856Mi"
    assert part.spec["discovery"]["nodeSelector"] == {
        "class.accelerators.ome.io/nvidia-h100-80gb-mig-1g.10gb": "true"
    }
    assert "performance" not in part.spec["capabilities"]
    assert "memoryBandwidthGBps" not in part.spec["capabilities"]


def test_a_partition_of_unknown_profile_is_no_class():
    assert content_of(h100(), partition=Partition(memory_bytes=GIB)) is None


def test_figures_that_no_datasheet_gives_stay_out_of_the_spec():
    unknown = Accelerator(
        index=0,
        vendor="nvidia",
        pci=pci("ffff"),
        compute_capability=(9, 0),
        cores=16896,
        boost_clock_mhz=1980,
    )
    found = content(unknown)
    assert "performance" not in found.spec["capabilities"]
    assert json.loads(found.annotations[f"{DOMAIN}/peak-flops"]) == {
        "fp32": {"dense": 66.9, "source": "derived"}
    }


def test_what_is_not_known_is_left_out_and_never_zero():
    bare = Accelerator(index=0, vendor="nvidia", pci=pci("ffff"))
    assert content(bare).spec == {
        "vendor": "nvidia",
        "discovery": {
            "nodeSelector": {"class.accelerators.ome.io/nvidia-ffff": "true"},
            "pciVendorID": "10de",
            "deviceIDs": ["ffff"],
        },
        "capabilities": {},
    }


def test_another_domain_names_the_selector_and_the_annotations():
    found = content(h100(), domain="gpu.example.com")
    assert found.spec["discovery"]["nodeSelector"] == {"class.gpu.example.com/nvidia-h100-80gb": "true"}
    assert all(key.startswith("gpu.example.com/") for key in found.annotations)


def test_a_merged_class_promises_what_all_of_its_devices_do():
    one = content(h100())
    other = replace(
        one,
        memory_bytes=None,
        measured_bytes=78 * GIB,
        family=None,
        bandwidth_gbps=3300,
        boost_clock_mhz=1755,
        features=one.features - {"mig"} | {"odd"},
        peaks=tuple(replace(peak, tera_ops=1.0) for peak in one.peaks if peak.precision == "fp16"),
        product_names=frozenset({"other name"}),
    )
    merged = merge_contents([one, other])
    assert merged == replace(
        one,
        memory_bytes=None,
        measured_bytes=78 * GIB,
        family=None,
        bandwidth_gbps=3300,
        derived_bandwidth_gbps=None,
        boost_clock_mhz=1755,
        features=one.features - {"mig"},
        peaks=other.peaks,
        product_names=frozenset({"NVIDIA H100 80GB HBM3", "other name"}),
    )
    assert merge_contents([other, one]) == merged
    assert merge_contents([one]) == one


def test_fr_032_devices_that_differ_by_driver_only_are_one_class():
    totals = (81251, 81920, 81559)
    contents = [content(h100(n, memory_bytes=total * MIB)) for n, total in enumerate(totals)]
    merged = merge_contents(contents)
    assert merged.spec == contents[0].spec
    assert merged.annotations[f"{DOMAIN}/memory-bytes"] == str(81251 * MIB)


QUANTITIES = [
    (80 * GIB, "80Gi"),
    (1024 * GIB, "1Ti"),
    (9856 * MIB, "9856Mi"),
    (81559 * MIB, "81559Mi"),
    (3 * 1024, "3Ki"),
    (1000, "1000"),
    (0, "0"),
]


@pytest.mark.parametrize(("count", "text"), QUANTITIES, ids=[text for _, text in QUANTITIES])
def test_bytes_have_the_largest_suffix_that_leaves_them_whole(count, text):
    assert binary_quantity(count) == text


@pytest.mark.parametrize(
    ("count", "text"), [(3350, "3350"), (8000, "8k"), (10**6, "1M"), (0, "0"), (1792, "1792")]
)
def test_counts_have_the_spelling_that_kubernetes_gives_back(count, text):
    assert decimal_quantity(count) == text
