"""The labels of gpu-feature-discovery, for selectors that were written against them; off unless asked for."""

from agent.core.catalogue import MIB
from agent.core.inventory import Device, Inventory
from agent.core.label_text import label_value, profile_text
from agent.core.labels import valid_labels

PREFIX = "nvidia.com"


def gfd_labels(inventory: Inventory) -> dict[str, str]:
    """Return the `nvidia.com/gpu.*`, `cuda.*` and `mig-*` labels with gpu-feature-discovery's names and meanings.

    Its labels speak of one product: on a mixed node those that differ are left out rather than taken from one device.
    """
    devices = [device for device in inventory.described if device.facts.vendor == "nvidia"]
    if not devices:
        return {}
    facts = {
        "gpu.count": str(sum(device.assessment.usable for device in devices)),
        "gpu.product": _shared([_product(device) for device in devices]),
        "gpu.memory": _shared([_mib(device) for device in devices]),
        "gpu.family": _shared(
            [device.description.family if device.description else None for device in devices]
        ),
        "gpu.compute.major": _shared([_capability(device, 0) for device in devices]),
        "gpu.compute.minor": _shared([_capability(device, 1) for device in devices]),
        "mig.capable": "true" if any(device.facts.mig for device in devices) else "false",
        **_versions(inventory),
        **_partitions(devices),
    }
    return valid_labels({f"{PREFIX}/{name}": value for name, value in facts.items() if value is not None})


def _versions(inventory: Inventory) -> dict[str, str | None]:
    driver = next((driver for driver in inventory.facts.drivers if driver.name == "nvidia"), None)
    version = (driver.version or "" if driver else "").split(".")
    cuda = (driver.cuda_version or "" if driver else "").split(".")
    return {
        "cuda.driver.major": version[0] or None,
        "cuda.driver.minor": version[1] if len(version) > 1 else None,
        "cuda.driver.rev": version[2] if len(version) > 2 else None,
        "cuda.runtime.major": cuda[0] or None,
        "cuda.runtime.minor": cuda[1] if len(cuda) > 1 else None,
    }


def _partitions(devices: list[Device]) -> dict[str, str | None]:
    counts: dict[str, int] = {}
    for device in devices:
        for partition, _ in device.partitions:
            if partition.profile is not None and device.assessment.usable:
                name = f"mig-{profile_text(partition.profile)}.count"
                counts[name] = counts.get(name, 0) + 1
    return {name: str(count) for name, count in counts.items()}


def _product(device: Device) -> str | None:
    return label_value(device.facts.product) if device.facts.product else None


def _mib(device: Device) -> str | None:
    return None if device.facts.memory_bytes is None else str(device.facts.memory_bytes // MIB)


def _capability(device: Device, part: int) -> str | None:
    capability = device.facts.compute_capability
    return None if capability is None else str(capability[part])


def _shared(values: list[str | None]) -> str | None:
    return values[0] if len(set(values)) == 1 else None
