"""Products are found by ids, exact names and measured memory; architectures by capability; neither by guessing."""

from importlib.resources import files

import msgspec
import pytest

from agent.core.catalogue import (
    GIB,
    MEASURED_TO_NOMINAL,
    PRECISIONS,
    Packed,
    catalogue,
    marketed_gib,
    names_on_the_bus,
    parse_capability,
)
from agent.core.data.pack import packed as made_of_the_tables
from agent.core.data.pack import text_of
from agent.core.devices import describe
from agent.core.label_text import is_label_value
from probes.facts import Accelerator
from tests.hardware import MIB, h100, pci, t4

PRODUCTS = catalogue().products


def named(product, device_id=None, **fields):
    return Accelerator(
        index=0, vendor="nvidia", product=product, pci=pci(device_id) if device_id else None, **fields
    )


def product_of(accelerator):
    product = catalogue().product_of(accelerator)
    return None if product is None else product.class_name


def as_sold(product, device_id):
    """A card of the product as its vendor's own board would show it."""
    subsystem = next((entry for entry in sorted(product.subsystems) if entry.startswith(device_id)), None)
    _, vendor, board = subsystem.split(":") if subsystem else (None, None, None)
    return Accelerator(
        index=0,
        vendor="nvidia",
        product=min(product.driver_names, default=None),
        pci=pci(device_id, subsystem_vendor_id=vendor, subsystem_id=board),
        memory_bytes=product.memory_gib and product.memory_gib * GIB,
    )


def test_every_product_is_found_by_each_of_its_ids():
    assert [
        (product.key, device_id)
        for product in PRODUCTS
        for device_id in product.device_ids
        if catalogue().product_of(as_sold(product, device_id)) is not product
    ] == []


def test_every_product_without_a_bus_is_found_by_its_exact_name():
    shared = {name for name, products in catalogue().by_driver_name.items() if len(products) > 1}
    assert [
        name
        for product in PRODUCTS
        for name in product.driver_names - shared
        if catalogue().product_of(named(name)) is not product
    ] == []


def test_fr_051_a_part_of_a_name_finds_nothing():
    names = {name for product in PRODUCTS for name in product.driver_names}
    parts = {name[:-1] for name in names} | {f"{name} X" for name in names} | {name.lower() for name in names}
    assert [part for part in sorted(parts - names) if product_of(named(part)) is not None] == []


FR_051 = [
    ("NVIDIA A10", "nvidia-a10-24gb"),
    ("NVIDIA A100-SXM4-40GB", "nvidia-a100-40gb"),
    ("NVIDIA A10G", "nvidia-a10g-24gb"),
    ("NVIDIA A16", "nvidia-a16-16gb"),
    ("NVIDIA A100X", "nvidia-a100x-80gb"),
    ("NVIDIA L4", "nvidia-l4-24gb"),
    ("NVIDIA L40", "nvidia-l40-48gb"),
    ("NVIDIA L40S", "nvidia-l40s-48gb"),
    ("Tesla T4", "nvidia-t4-16gb"),
    ("NVIDIA T4G", "nvidia-t4g-16gb"),
    ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb"),
    ("NVIDIA H100 NVL", "nvidia-h100-nvl-94gb"),
    ("NVIDIA H100 PCIe", "nvidia-h100-pcie-80gb"),
    ("NVIDIA GH200 480GB", "nvidia-gh200-96gb"),
    ("NVIDIA H200", "nvidia-h200-141gb"),
    ("NVIDIA H20", "nvidia-h20-96gb"),
    ("NVIDIA B200", "nvidia-b200-180gb"),
    ("NVIDIA GB200", "nvidia-gb200-186gb"),
    ("NVIDIA B300 SXM6 AC", "nvidia-b300-270gb"),
    ("NVIDIA GB300", "nvidia-gb300-279gb"),
    ("NVIDIA RTX A6000", "nvidia-rtx-a6000-48gb"),
    ("NVIDIA RTX 6000 Ada Generation", "nvidia-rtx-6000-ada-48gb"),
    ("Tesla V100-SXM2-16GB", "nvidia-v100-16gb"),
    ("Tesla V100S-PCIE-32GB", "nvidia-v100s-32gb"),
    ("NVIDIA A800-SXM4-80GB", "nvidia-a800-80gb"),
]


@pytest.mark.parametrize(("name", "class_name"), FR_051, ids=[name for name, _ in FR_051])
def test_fr_051_each_name_is_its_own_model(name, class_name):
    assert product_of(named(name)) == class_name


SHARED = [
    ("by subsystem", pci("25b6", subsystem_vendor_id="10de", subsystem_id="14a9"), {}, "nvidia-a16-16gb"),
    ("by exact name", pci("25b6"), {"product": "NVIDIA A2"}, "nvidia-a2-16gb"),
    ("by memory", pci("2bb3"), {"memory_bytes": 71 * GIB}, "nvidia-rtx-pro-5000-72gb"),
    ("not at all", pci("25b6"), {"product": "NVIDIA A", "memory_bytes": 15 * GIB}, None),
]


@pytest.mark.parametrize(
    ("identity", "fields", "class_name"), [row[1:] for row in SHARED], ids=[row[0] for row in SHARED]
)
def test_products_that_share_an_id_are_told_apart(identity, fields, class_name):
    assert product_of(Accelerator(index=0, vendor="nvidia", pci=identity, **fields)) == class_name


def test_an_id_that_is_not_known_is_no_product_whatever_the_name_says():
    assert product_of(named("NVIDIA H100 80GB HBM3", "ffff")) is None


def test_fr_038_a_card_of_twice_the_memory_is_another_card():
    ordinary = named(
        "NVIDIA GeForce RTX 2080 Ti", "1e07", memory_bytes=11264 * MIB, compute_capability=(7, 5)
    )
    doubled = named("NVIDIA GeForce RTX 2080 Ti", "1e07", memory_bytes=22528 * MIB, compute_capability=(7, 5))
    assert [describe(card).class_name for card in (ordinary, doubled)] == [
        "nvidia-rtx-2080-ti-11gb",
        "nvidia-1e07-22gb",
    ]
    assert [describe(card).nominal_gib for card in (ordinary, doubled)] == [11, 22]


@pytest.mark.parametrize("share", MEASURED_TO_NOMINAL)
def test_measured_memory_agrees_up_to_the_bounds(share):
    inside = h100(memory_bytes=int(80 * GIB * share))
    outside = h100(memory_bytes=int(80 * GIB * (share - 0.01 if share < 1 else share + 0.01)))
    assert [product_of(card) for card in (inside, outside)] == ["nvidia-h100-80gb", None]


def test_a_share_of_a_gpu_may_have_any_memory():
    share = t4(memory_bytes=1 * GIB, virtualization="vgpu")
    assert product_of(share) == "nvidia-t4-16gb"


FAMILIES = [
    ((7, 0), "volta"),
    ((7, 5), "turing"),
    ((8, 0), "ampere"),
    ((8, 6), "ampere"),
    ((8, 9), "ada"),
    ((9, 0), "hopper"),
    ((10, 0), "blackwell"),
    ((10, 1), "blackwell"),
    ((10, 3), "blackwell"),
    ((11, 0), "blackwell"),
    ((12, 0), "blackwell"),
    ((12, 1), "blackwell"),
]


@pytest.mark.parametrize(("capability", "family"), FAMILIES, ids=str)
def test_fr_057_a_capability_names_its_family(capability, family):
    architecture = catalogue().architecture_of(capability)
    assert architecture is not None
    assert architecture.family == family


@pytest.mark.parametrize("capability", [(13, 0), (9, 9), (0, 0), (100, 0), None], ids=str)
def test_fr_057_a_capability_that_is_not_known_is_no_neighbour(capability):
    assert catalogue().architecture_of(capability) is None


def test_fr_057_a_thor_is_the_same_under_its_old_capability():
    assert catalogue().architecture_of((10, 1)) == catalogue().architecture_of((11, 0))


TENSOR = {
    (6, 1): {"fp32"},
    (7, 0): {"fp64", "fp32", "fp16"},
    (7, 5): {"fp32", "fp16", "int8", "int4"},
    (8, 0): {"fp64", "fp32", "tf32", "fp16", "bf16", "int8", "int4"},
    (8, 6): {"fp32", "tf32", "fp16", "bf16", "int8", "int4"},
    (8, 9): {"fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4"},
    (9, 0): {"fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"},
    (10, 0): {"fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8"},
    (12, 0): {"fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8"},
}


@pytest.mark.parametrize(("capability", "precisions"), TENSOR.items(), ids=str)
def test_a_precision_counts_when_tensor_cores_or_good_ordinary_cores_compute_it(capability, precisions):
    architecture = catalogue().architecture_of(capability)
    assert architecture is not None
    assert architecture.precisions(tensor_cores=True) == precisions


def test_a_part_without_tensor_cores_has_the_precisions_of_ordinary_cores_only():
    turing = catalogue().architecture_of((7, 5))
    assert turing is not None
    assert turing.precisions(tensor_cores=False) == {"fp32", "fp16"}


MARKETED = [
    ("H100", 81559 * MIB, 80),
    ("A100 80, ECC on", 81251 * MIB, 80),
    ("A100 80", 81920 * MIB, 80),
    ("A100 40", 40536 * MIB, 40),
    ("T4", 15360 * MIB, 16),
    ("T4, ECC on", 15109 * MIB, 16),
    ("L4", 23034 * MIB, 24),
    ("A16", 16376 * MIB, 16),
    ("RTX PRO 6000", 97887 * MIB, 96),
    ("RTX PRO 6000, older driver", 97871 * MIB, 96),
    ("larger than any that is sold", 600 * GIB + 1, 601),
]


@pytest.mark.parametrize(
    ("measured", "sold_as"), [row[1:] for row in MARKETED], ids=[row[0] for row in MARKETED]
)
def test_fr_032_a_measured_total_is_the_size_that_is_sold(measured, sold_as):
    assert marketed_gib(measured) == sold_as


def test_every_product_speaks_of_known_precisions_and_has_a_name_that_is_a_label():
    odd = [
        product.key
        for product in PRODUCTS
        if not is_label_value(product.class_name)
        or "-" in product.family
        or not {peak.precision.split("_")[0] for peak in product.peaks} <= set(PRECISIONS)
    ]
    assert odd == []


def test_every_class_name_means_one_product():
    assert len({product.class_name for product in PRODUCTS}) == len(PRODUCTS)


def test_a_product_of_a_library_that_is_not_there_is_named_from_the_bus():
    names = names_on_the_bus()
    assert names["8086", "0bd5"] == "Intel(R) Data Center GPU Max 1550"
    assert names["10de", "25b6"] == "NVIDIA A16 or NVIDIA A2"


@pytest.mark.parametrize(("text", "capability"), [("9.0", (9, 0)), ("10.3", (10, 3)), ("12.1", (12, 1))])
def test_fr_059_a_capability_is_read_by_its_parts(text, capability):
    assert parse_capability(text) == capability


def test_what_programs_read_is_what_the_tables_say():
    """`make catalogue` makes it so."""
    packed = (files("agent.core.data") / "catalogue.json").read_text(encoding="utf-8")
    assert packed == text_of(made_of_the_tables())
    assert msgspec.json.decode(packed, type=Packed) == made_of_the_tables()
