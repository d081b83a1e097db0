"""What a device is: its measurements and the catalogue put together.

Identity comes from ids and capability, never from text: the product's name is shown to people and decides only where the
catalogue says that two products share an id.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.core.catalogue import (
    GIB,
    Architecture,
    Peak,
    Product,
    catalogue,
    marketed_gib,
)
from agent.core.label_text import class_name_text, profile_text
from probes.facts import Accelerator, Partition

WHOLE_GPU_RESOURCE = "nvidia.com/gpu"

# Capabilities of the catalogue that are published under a word of their own.
_PUBLISHED_FEATURES = {
    "tensor-cores": "tensor-cores",
    "transformer-engine": "transformer-engine",
    "structured-sparsity": "structured-sparsity",
    "confidential-computing-capable": "confidential-computing",
}
_NEED_TENSOR_CORES = {"tensor-cores", "transformer-engine", "structured-sparsity"}

# A partition or a virtual share keeps these of its parent's features; links and re-partitioning are the parent's.
_FEATURES_OF_A_SHARE = {"tensor-cores", "transformer-engine", "structured-sparsity", "ecc"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One device, or one partition of it, as a class describes it."""

    class_name: str
    resource: str
    """Extended resource under which the device plugin offers it."""
    vendor: str
    family: str | None
    model: str | None
    compute_capability: tuple[int, int] | None
    precisions: frozenset[str]
    features: frozenset[str]
    nominal_gib: int | None
    """Size as sold; `None` for a partition or a virtual share, which are what they measure."""
    memory_bytes: int | None
    bandwidth_gbps: int | None
    """Whole 10^9 bytes per second; the catalogue's figure, else the derived one."""
    derived_bandwidth_gbps: int | None
    boost_clock_mhz: int | None
    peaks: tuple[Peak, ...]
    device_id: str | None
    product: Product | None
    virtual: bool


def describe(accelerator: Accelerator, *, names: Mapping[str, str] | None = None) -> Description:
    """Return what a whole device is; `names` maps a class name to the operator's own."""
    product = catalogue().product_of(accelerator)
    capability = accelerator.compute_capability or (product.compute_capability if product else None)
    architecture = catalogue().architecture_of(capability)
    virtual = accelerator.virtualization == "vgpu"
    tensor_cores = _has_tensor_cores(accelerator, product, architecture)
    features = _features(accelerator, product, architecture, tensor_cores=tensor_cores)
    name = _class_name(accelerator, product)
    derived = _derived_bandwidth_gbps(accelerator)
    catalogued = product.memory_bandwidth_gbps if product else None
    return Description(
        class_name=(names or {}).get(name, name),
        resource=WHOLE_GPU_RESOURCE,
        vendor=accelerator.vendor,
        family=product.family if product else architecture.family if architecture else None,
        model=product.model if product else None,
        compute_capability=capability,
        precisions=architecture.precisions(tensor_cores=tensor_cores) if architecture else frozenset(),
        features=_features_of_a_share(features) | {"virtual"} if virtual else features,
        nominal_gib=None if virtual else _nominal_gib(accelerator, product),
        memory_bytes=accelerator.memory_bytes,
        bandwidth_gbps=None if virtual else _rounded(catalogued) if catalogued else derived,
        derived_bandwidth_gbps=None if virtual else derived,
        boost_clock_mhz=product.boost_clock_mhz if product else accelerator.boost_clock_mhz,
        peaks=() if virtual else product.peaks if product else _derived_peaks(accelerator, architecture),
        device_id=accelerator.pci.device_id if accelerator.pci else None,
        product=product,
        virtual=virtual,
    )


def describe_partition(
    accelerator: Accelerator,
    partition: Partition,
    *,
    names: Mapping[str, str] | None = None,
    shared_resource: bool = False,
) -> Description | None:
    """Return what a partition is, `None` where its profile is not known.

    `shared_resource` is set where the device plugin offers partitions under the whole GPU's resource name (its
    `single` strategy).
    """
    if partition.profile is None:
        return None
    parent = describe(accelerator)
    profile = profile_text(partition.profile)
    name = f"{parent.class_name}-mig-{profile}"
    name = class_name_text(name) or name
    return Description(
        class_name=(names or {}).get(name, name),
        resource=WHOLE_GPU_RESOURCE if shared_resource else f"nvidia.com/mig-{profile}",
        vendor=parent.vendor,
        family=parent.family,
        model=parent.model,
        compute_capability=parent.compute_capability,
        precisions=parent.precisions,
        features=_features_of_a_share(parent.features),
        nominal_gib=None,
        memory_bytes=partition.memory_bytes,
        bandwidth_gbps=None,
        derived_bandwidth_gbps=None,
        boost_clock_mhz=parent.boost_clock_mhz,
        peaks=(),
        device_id=parent.device_id,
        product=parent.product,
        virtual=parent.virtual,
    )


def capability_text(capability: tuple[int, int]) -> str:
    """Return `major.minor`."""
    major, minor = capability
    return f"{major}.{minor}"


def _class_name(accelerator: Accelerator, product: Product | None) -> str:
    if product is not None:
        name = product.class_name
        if accelerator.virtualization == "vgpu":
            name = f"{name}-vgpu-{_virtual_profile(accelerator.product)}"
        return class_name_text(name) or name
    identity = (
        accelerator.pci.device_id
        if accelerator.pci
        else class_name_text(accelerator.product or "") or "unknown"
    )
    prefix = "" if identity.startswith(f"{accelerator.vendor}-") else f"{accelerator.vendor}-"
    size = "" if accelerator.memory_bytes is None else f"-{marketed_gib(accelerator.memory_bytes)}gb"
    share = "-vgpu" if accelerator.virtualization == "vgpu" else ""
    return class_name_text(f"{prefix}{identity}{size}{share}") or "unknown"


def _virtual_profile(product_name: str | None) -> str:
    """Return the profile of a virtual GPU: a guest's name is `<board>-<profile>`, as in `NVIDIA A40-48Q`."""
    _, _, profile = (product_name or "").rpartition(" ")[2].partition("-")
    return profile.lower() or "unknown"


def _nominal_gib(accelerator: Accelerator, product: Product | None) -> int | None:
    if product is not None:
        return product.memory_gib
    return None if accelerator.memory_bytes is None else marketed_gib(accelerator.memory_bytes)


def _has_tensor_cores(
    accelerator: Accelerator, product: Product | None, architecture: Architecture | None
) -> bool:
    """Tell whether a part is known to have what its capability allows."""
    if product is not None:
        return product.tensor_cores is not False
    device_id = accelerator.pci.device_id if accelerator.pci else None
    alike = catalogue().by_device_id.get(device_id, ()) if device_id else ()
    if alike:
        # Products that cannot be told apart: a guest's name is none of theirs.
        return all(one.tensor_cores is not False for one in alike)
    return architecture is not None and not architecture.tensor_cores_by_product


def _features(
    accelerator: Accelerator,
    product: Product | None,
    architecture: Architecture | None,
    *,
    tensor_cores: bool,
) -> frozenset[str]:
    """Return what the hardware has; a link that is down or a mode that is off is a state and removes nothing."""
    capable = architecture.features if architecture else frozenset()
    found = {word for feature, word in _PUBLISHED_FEATURES.items() if feature in capable}
    if not tensor_cores:
        found -= _NEED_TENSOR_CORES
    if accelerator.unified_memory or (product is not None and product.unified_memory):
        found.add("unified-memory")
    if _partitionable(accelerator, product):
        found.add("mig")
    if _has_ecc(accelerator, product):
        found.add("ecc")
    return frozenset(found | _link_features(accelerator, product))


def _partitionable(accelerator: Accelerator, product: Product | None) -> bool:
    """Tell whether the board can be cut; a driver that knows nothing of it is not asked where the catalogue knows."""
    if product is not None and product.mig_profiles:
        return True
    mig = accelerator.mig
    return mig is not None and (product is None or mig.enabled or mig.pending_enabled)


def _has_ecc(accelerator: Accelerator, product: Product | None) -> bool:
    if accelerator.health is not None and accelerator.health.ecc_enabled is not None:
        return True
    return product is not None and (product.memory_type or "").startswith("HBM")


def _link_features(accelerator: Accelerator, product: Product | None) -> frozenset[str]:
    """Return `nvlink` and what comes with it.

    A board that is soldered to its links has them whatever their state; a PCIe card has them only with a bridge on it,
    which shows in links that are up.
    """
    link = accelerator.link
    up = link is not None and bool(link.nvlink_active)
    wired = product is not None and bool(product.nvlink_gbps) and not product.form_factor.startswith("PCIe")
    found: set[str] = set()
    if up or wired:
        found.add("nvlink")
        generation = product.nvlink_generation if product else link.nvlink_version if link else None
        if generation is not None:
            found.add(f"nvlink-{generation}")
    if accelerator.fabric is not None and accelerator.fabric.state != "not-supported":
        # Only GPUs behind NVSwitches register with a fabric.
        found |= {"fabric", "nvswitch"}
    return frozenset(found)


def _features_of_a_share(features: frozenset[str]) -> frozenset[str]:
    return features & _FEATURES_OF_A_SHARE


def _derived_bandwidth_gbps(accelerator: Accelerator) -> int | None:
    """Return memory clock × 2 × bus width, which holds for memory of the device's own (double data rate) only."""
    clock, bus = accelerator.memory_clock_max_mhz, accelerator.memory_bus_bits
    if accelerator.unified_memory or not clock or not bus:
        return None
    return _rounded(clock * 2 * bus / 8 / 1000)


def _derived_peaks(accelerator: Accelerator, architecture: Architecture | None) -> tuple[Peak, ...]:
    """Return the fp32 rate of the ordinary cores of an unknown product.

    Tensor rates are not derived: export-limited and half-rate parts come out two to four times too high. The boost clock
    counts, not the highest clock that the driver names, which no load runs at.
    """
    if architecture is None or not accelerator.cores or not accelerator.boost_clock_mhz:
        return ()
    tera_ops = accelerator.cores * 2 * accelerator.boost_clock_mhz / 1e6
    return (Peak(precision="fp32", tera_ops=round(tera_ops, 1), source="derived"),)


def _rounded(figure: float) -> int:
    """Round half up, as datasheets do."""
    return int(figure + 0.5)


def nominal_bytes(description: Description) -> int | None:
    """Return the memory that a requirement is compared with: the nominal size, else what was measured."""
    if description.nominal_gib is not None:
        return description.nominal_gib * GIB
    return description.memory_bytes
