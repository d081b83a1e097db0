"""Devices → the content of `AcceleratorClass` objects.

Quantities are written in the spelling that a typed Go client gives back, so that such a rewrite changes nothing.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from agent.core.catalogue import GIB, MIB, Peak
from agent.core.devices import Description, capability_text, describe, describe_partition
from agent.core.keys import DEFAULT_DOMAIN
from probes.facts import Accelerator, Partition

PCI_VENDOR_IDS = {"nvidia": "10de", "amd": "1002", "intel": "8086", "google": "1ae0", "aws": "1d0f"}

# The schema has room for these precisions alone; the annotation `peak-flops` holds them all.
_PERFORMANCE_FIELDS = {
    "fp32": "fp32Tflops",
    "fp16": "fp16Tflops",
    "int8": "int8Tops",
    "int4": "int4Tops",
}


_Ordered = TypeVar("_Ordered", int, tuple[int, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassContent:
    """What one class says of its hardware, from one device or from many that were merged."""

    name: str
    domain: str
    vendor: str
    resource: str
    family: str | None
    model: str | None
    compute_capability: tuple[int, int] | None
    device_ids: tuple[str, ...]
    memory_bytes: int | None
    """What is published as `memoryGB`: nominal for a whole device, measured (whole MiB) for a partition or a share."""
    measured_bytes: int | None
    """The smallest total that a driver reported; differs by driver, so it is an annotation and no disagreement."""
    bandwidth_gbps: int | None
    derived_bandwidth_gbps: int | None
    boost_clock_mhz: int | None
    features: frozenset[str]
    """Precisions and features alike, as the schema has one list."""
    peaks: tuple[Peak, ...]
    product_names: frozenset[str]
    hearsay: bool = False
    """Told by a device that failed, so that its readings are missing: it counts only where no sound device speaks."""

    @property
    def spec(self) -> dict[str, Any]:
        """Return the `spec` of the AcceleratorClass; what is not known is left out."""
        performance = {
            _PERFORMANCE_FIELDS[peak.precision]: _rounded(peak.tera_ops)
            for peak in self.peaks
            if peak.precision in _PERFORMANCE_FIELDS and peak.source == "datasheet"
        }
        bandwidth, capability = self.bandwidth_gbps, self.compute_capability
        capabilities = _known(
            memoryGB=None if self.memory_bytes is None else binary_quantity(self.memory_bytes),
            computeCapability=None if capability is None else capability_text(capability),
            memoryBandwidthGBps=None if bandwidth is None else decimal_quantity(bandwidth),
            clockSpeedMHz=self.boost_clock_mhz,
            features=sorted(self.features) or None,
            performance=performance or None,
        )
        discovery = _known(
            nodeSelector={f"class.{self.domain}/{self.name}": "true"},
            pciVendorID=PCI_VENDOR_IDS[self.vendor],
            deviceIDs=list(self.device_ids) or None,
        )
        identity = _known(vendor=self.vendor, family=self.family, model=self.model)
        return {**identity, "discovery": discovery, "capabilities": capabilities}

    @property
    def annotations(self) -> dict[str, str]:
        """Return the facts that the schema has no field for; the controller adds what it knows of drivers."""
        bandwidth = _known(catalogued=self.bandwidth_gbps, derived=self.derived_bandwidth_gbps)
        peaks = {
            peak.precision.replace("_", "-"): {
                "dense" if peak.dense else "sparse": peak.tera_ops,
                "source": peak.source,
            }
            for peak in self.peaks
        }
        facts = {
            "memory-bytes": None if self.measured_bytes is None else str(self.measured_bytes),
            "memory-bandwidth-gbps": _json(bandwidth) if bandwidth else None,
            "peak-flops": _json(peaks) if peaks else None,
            "product-names": ", ".join(sorted(self.product_names)) or None,
        }
        return {f"{self.domain}/{name}": text for name, text in facts.items() if text is not None}


def content_of(
    accelerator: Accelerator,
    *,
    partition: Partition | None = None,
    names: Mapping[str, str] | None = None,
    domain: str = DEFAULT_DOMAIN,
    shared_resource: bool = False,
) -> ClassContent | None:
    """Return the content of the class of a device, or of one of its partitions.

    `None` for a partition whose profile is not known.
    """
    if partition is None:
        description: Description | None = describe(accelerator, names=names)
    else:
        description = describe_partition(accelerator, partition, names=names, shared_resource=shared_resource)
    if description is None:
        return None
    content = content_from(description, accelerator.product, domain=domain)
    return replace(content, hearsay=accelerator.fault is not None)


def content_from(
    description: Description, product_name: str | None, *, domain: str = DEFAULT_DOMAIN
) -> ClassContent:
    """Return the content of a described device's class; `product_name` is the raw text that the driver gave."""
    product = description.product
    seen = (description.device_id,) if description.device_id else ()
    nominal = description.nominal_gib
    measured = description.memory_bytes
    return ClassContent(
        name=description.class_name,
        domain=domain,
        vendor=description.vendor,
        resource=description.resource,
        family=description.family,
        model=description.model,
        compute_capability=description.compute_capability,
        device_ids=tuple(sorted(product.device_ids)) if product and product.device_ids else seen,
        memory_bytes=nominal * GIB if nominal is not None else _whole_mib(measured),
        measured_bytes=measured,
        bandwidth_gbps=description.bandwidth_gbps,
        derived_bandwidth_gbps=description.derived_bandwidth_gbps,
        boost_clock_mhz=description.boost_clock_mhz,
        features=description.precisions | description.features,
        peaks=description.peaks,
        product_names=frozenset({product_name} if product_name else ()),
    )


def merge_contents(contents: Sequence[ClassContent]) -> ClassContent:
    """Return what every one of `contents` (one class, at least one) promises.

    Features are intersected, numbers are the smallest, texts on which they disagree are left out.
    """
    first = contents[0]
    return ClassContent(
        name=first.name,
        domain=first.domain,
        vendor=first.vendor,
        resource=first.resource,
        family=_agreed(content.family for content in contents),
        model=_agreed(content.model for content in contents),
        compute_capability=_least(content.compute_capability for content in contents),
        device_ids=tuple(sorted({id_ for content in contents for id_ in content.device_ids})),
        memory_bytes=_least(content.memory_bytes for content in contents),
        measured_bytes=_least_known(content.measured_bytes for content in contents),
        bandwidth_gbps=_least(content.bandwidth_gbps for content in contents),
        derived_bandwidth_gbps=_least(content.derived_bandwidth_gbps for content in contents),
        boost_clock_mhz=_least(content.boost_clock_mhz for content in contents),
        features=frozenset.intersection(*(content.features for content in contents)),
        peaks=_least_peaks(contents),
        product_names=frozenset().union(*(content.product_names for content in contents)),
    )


def binary_quantity(count: int) -> str:
    """Return bytes with the largest binary suffix that leaves a whole number: `80Gi`, `9856Mi`, `1000`."""
    for power, suffix in ((6, "Ei"), (5, "Pi"), (4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        unit = 1024**power
        if count and count % unit == 0:
            return f"{count // unit}{suffix}"
    return str(count)


def decimal_quantity(count: int) -> str:
    """Return a whole number with the largest decimal suffix that leaves it whole: `3350`, `8k`."""
    for power, suffix in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        unit = 10**power
        if count and count % unit == 0:
            return f"{count // unit}{suffix}"
    return str(count)


def _whole_mib(count: int | None) -> int | None:
    """Round down: a partition is never promised larger than it measures."""
    return None if count is None else count // MIB * MIB


def _least_peaks(contents: Sequence[ClassContent]) -> tuple[Peak, ...]:
    """Return for each precision that all have the lowest peak."""
    by_precision = [{peak.precision: peak for peak in content.peaks} for content in contents]
    return tuple(
        min((peaks[precision] for peaks in by_precision), key=lambda peak: peak.tera_ops)
        for precision in by_precision[0]
        if all(precision in peaks for peaks in by_precision)
    )


def _agreed(texts: Iterable[str | None]) -> str | None:
    distinct = set(texts)
    return distinct.pop() if len(distinct) == 1 else None


def _least(values: Iterable[_Ordered | None]) -> _Ordered | None:
    """Return the smallest, `None` where one is not known: nothing is promised that is not known of all."""
    known: list[_Ordered] = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return min(known)


def _least_known(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _known(**fields: object) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _rounded(figure: float) -> int:
    """Round half up, as datasheets do."""
    return int(figure + 0.5)
