"""`AcceleratorClass` objects → what matching knows of them; a value that cannot be used is a problem, and not known."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from agent.core.catalogue import GIB, MIB, marketed_gib
from agent.core.keys import DEFAULT_DOMAIN
from agent.core.matching.fields import Fields
from agent.core.matching.verdicts import Problem
from agent.core.quantity import InvalidQuantityError, parse_quantity

# No accelerator has less memory; a smaller figure is one that lost its unit (`80` is 80 bytes).
LEAST_MEMORY_BYTES = 256 * MIB

# A measured total lies up to this share below the size the card is sold as: ECC takes a sixteenth, the driver its part.
# A decimal gigabyte is 0.931 GiB, so `80G` is the 80 GB card as well.
MEASURED_SHARE = Decimal("0.93")

VENDOR_RESOURCES = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "intel": "gpu.intel.com/xe",
    "google": "google.com/tpu",
    "aws": "aws.amazon.com/neuron",
}

_PERFORMANCE = {"fp32": "fp32Tflops", "fp16": "fp16Tflops", "int8": "int8Tops", "int4": "int4Tops"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of one accelerator of a class."""

    text: str
    """As the object has it."""
    bytes: Decimal
    nominal_gib: Decimal
    """Size the card is sold as; what it measures for a partition or a virtual share."""
    measured_bytes: int | None = None
    """The driver's total, from the class's annotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Prices per accelerator, in one currency. `None` is not known; 0 is taken as not known too."""

    per_hour: Decimal | None = None
    spot_per_hour: Decimal | None = None
    per_million_tokens: Decimal | None = None
    tier: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFacts:
    """One class as its object describes it; `None` and empty maps are "not known"."""

    name: str
    vendor: str | None = None
    family: str | None = None
    model: str | None = None
    memory: Memory | None = None
    capability: str | None = None
    bandwidth_gbps: Decimal | None = None
    features: tuple[str, ...] | None = None
    peaks: Mapping[str, float] = field(default_factory=dict)
    """Dense 10^12 operations a second by precision, all sources together."""
    peak_sources: Mapping[str, str] = field(default_factory=dict)
    cost: Cost = Cost()
    resources: Mapping[str, int] = field(default_factory=dict)
    """`spec.resources`: what OME writes over a pod's own requests."""
    device_ids: tuple[str, ...] = ()
    pci_vendor: str | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: Mapping[str, Any] = field(default_factory=dict)
    adopts: str | None = None
    """Canonical class whose devices count for this one."""
    product_names: tuple[str, ...] = ()
    total: int | None = None
    """`status.totalAccelerators`."""
    available: int | None = None
    partition: str | None = None
    """MIG profile of a partition's class, `None` for whole devices."""
    problems: tuple[Problem, ...] = ()

    @property
    def resource(self) -> str | None:
        """Return the extended resource by which a pod asks for it, `None` where nothing tells."""
        if self.resources:
            return next(iter(self.resources))
        if self.partition is not None:
            return f"nvidia.com/mig-{self.partition}"
        return VENDOR_RESOURCES.get((self.vendor or "").lower())

    def where(self, place: str) -> str:
        """Return object and field, for the source of a fact."""
        return f"AcceleratorClass/{self.name} {place}"


def class_facts(obj: Mapping[str, Any], *, domain: str = DEFAULT_DOMAIN) -> ClassFacts:
    """Return what an AcceleratorClass says; its `problems` name every value that could not be used."""
    root = Fields(obj, "")
    metadata, spec, status = root.inside("metadata"), root.inside("spec"), root.inside("status")
    discovery, capabilities = spec.inside("discovery"), spec.inside("capabilities")
    name = metadata.text("name") or ""
    annotations = metadata.pairs("annotations")
    resources = _resources(spec)
    features = capabilities.texts("features")
    whole = not _is_share(name, resources, features)
    peaks, peak_sources = _peaks(capabilities, annotations, domain)
    return ClassFacts(
        name=name,
        vendor=spec.text("vendor"),
        family=spec.text("family"),
        model=spec.text("model"),
        memory=_memory(capabilities, annotations.get(f"{domain}/memory-bytes"), whole=whole),
        capability=capabilities.text("computeCapability") or None,
        bandwidth_gbps=_amount(capabilities, "memoryBandwidthGBps"),
        features=features,
        peaks=peaks,
        peak_sources=peak_sources,
        cost=_cost(spec.inside("cost")),
        resources=resources,
        device_ids=tuple(text.lower() for text in discovery.texts("deviceIDs") or ()),
        pci_vendor=(discovery.text("pciVendorID") or "").lower() or None,
        node_selector=discovery.pairs("nodeSelector"),
        affinity=discovery.inside("affinity").value,
        adopts=annotations.get(f"{domain}/adopts") or None,
        product_names=_product_names(annotations.get(f"{domain}/product-names")),
        total=status.whole("totalAccelerators", unit="accelerators"),
        available=status.whole("availableAccelerators", unit="accelerators"),
        partition=_partition(name, resources),
        problems=tuple(root.problems),
    )


def gib_text(amount: Decimal | float) -> str:
    """Return GiB with at most two digits behind the point: `80 GiB`, `79.65 GiB`."""
    return f"{float(amount):.2f}".rstrip("0").rstrip(".") + " GiB"


def memory_text(memory: Memory) -> str:
    """Return the nominal size and beside it what was measured, or written, where that differs."""
    nominal = gib_text(memory.nominal_gib)
    if memory.measured_bytes is not None:
        return f"{nominal} ({gib_text(memory.measured_bytes / GIB)} measured, {memory.measured_bytes} bytes)"
    written = memory.bytes / GIB
    return nominal if written == memory.nominal_gib else f"{nominal} ({gib_text(written)} written)"


def _partition(name: str, resources: Mapping[str, int]) -> str | None:
    _, marker, profile = name.partition("-mig-")
    if marker:
        return profile
    shared = next((resource for resource in resources if resource.startswith("nvidia.com/mig-")), None)
    return shared.removeprefix("nvidia.com/mig-") if shared else None


def _is_share(name: str, resources: Mapping[str, int], features: tuple[str, ...] | None) -> bool:
    """Tell whether the class is a partition or a virtual share, whose memory is what it measures."""
    return (
        "-mig-" in name
        or "-vgpu-" in name
        or any("/mig-" in resource for resource in resources)
        or "virtual" in (features or ())
    )


def _memory(capabilities: Fields, measured: str | None, *, whole: bool) -> Memory | None:
    raw = capabilities.value.get("memoryGB")
    if raw is None:
        return None
    try:
        amount = parse_quantity(raw)
    except InvalidQuantityError as error:
        capabilities.refuse("memoryGB", _with_binary_unit(str(error)))
        return None
    if amount < LEAST_MEMORY_BYTES:
        lost = (
            f"; write {raw}Gi"
            if str(raw).isdigit() and int(raw)
            else "; write the size with its unit, such as 80Gi"
        )
        capabilities.refuse("memoryGB", f"{str(raw)!r} is {amount.normalize():f} bytes{lost}")
        return None
    return Memory(
        text=str(raw),
        bytes=amount,
        nominal_gib=nominal_gib(amount) if whole else amount / GIB,
        measured_bytes=int(measured) if measured and measured.isascii() and measured.isdigit() else None,
    )


def nominal_gib(amount: Decimal) -> Decimal:
    """Return the size a card with this total is sold as, or the total itself where no such size is near."""
    marketed = Decimal(marketed_gib(int(amount)))
    return marketed if amount / GIB >= marketed * MEASURED_SHARE else amount / GIB


def _with_binary_unit(message: str) -> str:
    """Advise GiB where decimal units were nearly written: the field's consumers read whole GiB."""
    head, advice, size = message.rpartition(": write ")
    return f"{head}{advice}{size}i" if advice and size[-1:] in {"K", "M", "G", "T"} else message


def _amount(fields: Fields, key: str) -> Decimal | None:
    """Return a quantity of more than 0; 0 stands for "not known", a negative or malformed one is a problem."""
    raw = fields.value.get(key)
    if raw is None:
        return None
    try:
        amount = parse_quantity(raw)
    except InvalidQuantityError as error:
        fields.refuse(key, str(error))
        return None
    if amount < 0:
        fields.refuse(key, f"{str(raw)!r} is negative")
        return None
    return amount or None


def _cost(cost: Fields) -> Cost:
    return Cost(
        per_hour=_amount(cost, "perHour"),
        spot_per_hour=_amount(cost, "spotPerHour"),
        per_million_tokens=_amount(cost, "perMillionTokens"),
        tier=cost.text("tier") or None,
    )


def _resources(spec: Fields) -> dict[str, int]:
    found = {}
    for entry in spec.entries("resources"):
        name, amount = entry.text("name"), _amount(entry, "quantity")
        if name:
            found[name] = 1 if amount is None else int(amount)
    return found


def _peaks(
    capabilities: Fields, annotations: Mapping[str, str], domain: str
) -> tuple[dict[str, float], dict[str, str]]:
    """Return dense peaks and where each stands: the schema's four, and the annotation's for the other precisions."""
    performance = capabilities.inside("performance")
    peaks: dict[str, float] = {}
    sources: dict[str, str] = {}
    for precision, figure in _annotated_peaks(annotations.get(f"{domain}/peak-flops")).items():
        peaks[precision] = figure
        sources[precision] = f"annotation {domain}/peak-flops"
    for precision, key in _PERFORMANCE.items():
        written = performance.whole(key, unit="TFLOPS or TOPS")
        if written:
            peaks[precision] = float(written)
            sources[precision] = f"spec.capabilities.performance.{key}"
    return peaks, sources


def _annotated_peaks(text: str | None) -> dict[str, float]:
    """Return the dense figures of the annotation; one that is not of our making says nothing."""
    try:
        document = json.loads(text or "{}")
    except (ValueError, RecursionError):
        # An annotation is free text: anyone may have written it.
        return {}
    found = {}
    for precision, entry in document.items() if isinstance(document, dict) else ():
        figure = entry.get("dense") if isinstance(entry, dict) else None
        if isinstance(figure, int | float) and not isinstance(figure, bool) and figure > 0:
            found[precision] = float(figure)
    return found


def _product_names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())
