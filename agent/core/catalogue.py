"""What is known of a product or an architecture before any device is asked: the catalogue and its look-ups.

The figures stand in `agent/core/data/*.toml` with their sources; nothing about a product is written in code. What is read
is `catalogue.json`, which `agent.core.data.pack` makes of them: it takes 1 ms where the tables take 60. A product is
found by PCI device id, then by subsystem id, exact driver name or measured memory where an id is shared, never by a part
of a name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import msgspec

from probes.facts import Accelerator

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8", "int4")

PeakSource = Literal["datasheet", "listed", "derived"]
"""Where a peak comes from: the vendor's own document, a published table that quotes no such document, or arithmetic."""

GIB = 1024**3
MIB = 1024**2

# A card whose measured memory lies outside this share of the catalogued size is another card under the same id.
MEASURED_TO_NOMINAL = (0.85, 1.05)

# compute capability 10.1 was renamed 11.0 with CUDA 13: the same part under either driver.
_RENAMED = {(10, 1): (11, 0)}

# Sizes that cards are sold with, in GiB; a measured total lies below one of them by a few per cent.
_MARKETED_GIB = (
    *(1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 16, 20, 22, 24, 32, 40, 48, 64, 72, 80, 94, 96, 120, 128),
    *(141, 144, 180, 186, 192, 256, 270, 279, 288, 384, 432, 512),
)


_TENSOR_CORES_BY_PRODUCT = frozenset({(7, 5)})
"""TU116 and TU117 have none (catalogue source wp-turing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What every part of one NVIDIA compute capability can do."""

    compute_capability: tuple[int, int]
    family: str | None
    """`None` where the name of the family is only inferred."""
    native_precisions: frozenset[str]
    """Those that ordinary cores compute at a rate worth having."""
    tensor_precisions: frozenset[str]
    features: frozenset[str]
    fp32_lanes_per_sm: int | None

    @property
    def tensor_cores_by_product(self) -> bool:
        """Tell whether some parts of this capability have tensor cores and others none, so that only the product tells."""
        return self.compute_capability in _TENSOR_CORES_BY_PRODUCT

    def precisions(self, *, tensor_cores: bool) -> frozenset[str]:
        """Return the precisions of a part of this capability, with or without tensor cores."""
        return self.native_precisions | self.tensor_precisions if tensor_cores else self.native_precisions


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Dense peak rate of one precision, in 10^12 operations per second."""

    precision: str
    tera_ops: float
    source: PeakSource
    dense: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One product as its vendor sells it; a field that is absent was not verified."""

    key: str
    class_name: str
    family: str
    model: str
    compute_capability: tuple[int, int]
    form_factor: str
    driver_names: frozenset[str]
    device_ids: frozenset[str]
    subsystems: frozenset[str]
    """`device:subvendor:subdevice`."""
    memory_gib: int | None
    memory_type: str | None
    memory_bus_bits: int | None
    memory_bandwidth_gbps: float | None
    boost_clock_mhz: int | None
    tensor_cores: bool | None
    """Set only where the compute capability alone would tell wrongly."""
    nvlink_gbps: float | None
    nvlink_generation: int | None
    unified_memory: bool
    mig_profiles: frozenset[str]
    peaks: tuple[Peak, ...]
    confidence: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The products and architectures, indexed for look-up."""

    products: tuple[Product, ...]
    architectures: Mapping[tuple[int, int], Architecture]
    by_device_id: Mapping[str, tuple[Product, ...]]
    by_driver_name: Mapping[str, tuple[Product, ...]]

    def product_of(self, accelerator: Accelerator) -> Product | None:
        """Return the product, `None` when the device is unknown or two products cannot be told apart."""
        pci = accelerator.pci
        if pci is not None:
            candidates = self.by_device_id.get(pci.device_id, ())
            subsystem = f"{pci.device_id}:{pci.subsystem_vendor_id}:{pci.subsystem_id}"
        elif accelerator.product is not None:
            candidates, subsystem = self.by_driver_name.get(accelerator.product, ()), ""
        else:
            return None
        candidates = _narrowed(candidates, accelerator, subsystem)
        if len(candidates) != 1 or not _memory_agrees(candidates[0], accelerator):
            return None
        return candidates[0]

    def architecture_of(self, compute_capability: tuple[int, int] | None) -> Architecture | None:
        """Return the architecture, `None` for a capability that is newer than the catalogue or not known."""
        if compute_capability is None:
            return None
        return self.architectures.get(_RENAMED.get(compute_capability, compute_capability))


def marketed_gib(memory_bytes: int) -> int:
    """Return the size a card with this measured total is sold as: the next size up, whole GiB beyond the known ones."""
    measured = memory_bytes / GIB
    for size in _MARKETED_GIB:
        if measured <= size:
            return size
    return -int(-measured // 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The catalogue as `agent/core/data/catalogue.json` holds it."""

    products: tuple[Product, ...]
    architectures: tuple[Architecture, ...]
    others_on_the_bus: tuple[tuple[str, str, str], ...]
    """PCI vendor id, device id and name of other vendors' products."""


@lru_cache(maxsize=1)
def catalogue() -> Catalogue:
    """Read the packaged catalogue; the same value at each call."""
    products = _packed().products
    return Catalogue(
        products=products,
        architectures={one.compute_capability: one for one in _packed().architectures},
        by_device_id=_index(products, lambda product: product.device_ids),
        by_driver_name=_index(products, lambda product: product.driver_names),
    )


@lru_cache(maxsize=1)
def names_on_the_bus() -> Mapping[tuple[str, str], str]:
    """Return (PCI vendor id, device id) → product name, for devices that are only seen on the bus."""
    names = {
        ("10de", device_id): " or ".join(
            sorted(min(product.driver_names, default=product.key) for product in products)
        )
        for device_id, products in catalogue().by_device_id.items()
    }
    return names | {(vendor, device): name for vendor, device, name in _packed().others_on_the_bus}


@lru_cache(maxsize=1)
def _packed() -> Packed:
    content = (files("agent.core.data") / "catalogue.json").read_bytes()
    return msgspec.json.decode(content, type=Packed)


def _narrowed(
    candidates: tuple[Product, ...], accelerator: Accelerator, subsystem: str
) -> tuple[Product, ...]:
    """Tell apart the products that share a PCI id: by subsystem, else by exact name, else by measured memory."""
    if len(candidates) < 2:
        return candidates
    for matches in (
        [product for product in candidates if subsystem in product.subsystems],
        [product for product in candidates if accelerator.product in product.driver_names],
        [
            product
            for product in candidates
            if accelerator.memory_bytes and _memory_agrees(product, accelerator)
        ],
    ):
        if len(matches) == 1:
            return tuple(matches)
    return candidates


def _memory_agrees(product: Product, accelerator: Accelerator) -> bool:
    """Tell whether the measured memory can be this product's; a virtual GPU has a share, so it always can."""
    if product.memory_gib is None or accelerator.memory_bytes is None or accelerator.virtualization == "vgpu":
        return True
    low, high = MEASURED_TO_NOMINAL
    return low * product.memory_gib <= accelerator.memory_bytes / GIB <= high * product.memory_gib


def _index(
    products: Iterable[Product], keys_of: Callable[[Product], frozenset[str]]
) -> dict[str, tuple[Product, ...]]:
    index: dict[str, tuple[Product, ...]] = {}
    for product in products:
        for key in keys_of(product):
            index[key] = (*index.get(key, ()), product)
    return index


def parse_capability(text: str) -> tuple[int, int]:
    """Return (major, minor) of a capability written `9.0`."""
    major, minor = text.split(".")
    return int(major), int(minor)
