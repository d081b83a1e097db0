"""Facts → the labels of a Node.

Where devices differ, a number is the least that every device reaches and a text is left out. Identity is stated by the
devices that can be described, so a device that fails takes no label of the others with it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from agent.core.catalogue import MIB, PRECISIONS
from agent.core.devices import Description, capability_text
from agent.core.health import severity
from agent.core.inventory import ClassCount, Device, Inventory, class_counts
from agent.core.keys import DEFAULT_DOMAIN
from agent.core.label_text import MAX_LABEL_LENGTH, is_label_key, is_label_value, label_value

_Value = TypeVar("_Value")

Labeler = Callable[[Inventory], Mapping[str, str | None]]
"""One group of labels: names without the domain, `None` for a label that is absent."""


def labels_for(inventory: Inventory, *, domain: str = DEFAULT_DOMAIN) -> dict[str, str]:
    """Return all labels of the node, sorted by key; none where a successful probe found no accelerator."""
    if not inventory.devices:
        return {}
    labels: dict[str, str] = {}
    for labeler in _LABELERS:
        for name, value in labeler(inventory).items():
            if value is not None:
                labels[_key(name, domain)] = value
    return valid_labels(labels)


def valid_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return those that the API server takes, sorted by key: one that it refuses would cost the node all the others."""
    return {
        key: value for key, value in sorted(labels.items()) if is_label_key(key) and is_label_value(value)
    }


def class_label(class_name: str, *, domain: str = DEFAULT_DOMAIN) -> str:
    """Return the key by which a pod selects nodes that are sure to give it this class."""
    return f"class.{domain}/{class_name}"


def _key(name: str, domain: str) -> str:
    """Put the domain between a label's group and its name: `precision/fp8` is `precision.<domain>/fp8`."""
    group, separator, rest = name.partition("/")
    return f"{group}.{domain}/{rest}" if separator else f"{domain}/{name}"


def _identity(inventory: Inventory) -> dict[str, str | None]:
    described = _descriptions(inventory)
    products = (device.facts.product for device in _speakers(inventory))
    return {
        "present": "true",
        "vendor": _agreed(description.vendor for description in described),
        "family": _agreed(description.family for description in described),
        "product": _cleaned(_agreed(products)),
        "virtual": _true_if(all(description.virtual for description in described) and bool(described)),
        "unified-memory": _true_if(
            any("unified-memory" in description.features for description in described)
        ),
        "simulated": _true_if(inventory.facts.simulated),
    }


def _memory(inventory: Inventory) -> dict[str, str | None]:
    """Return the sizes of the smallest device; of unified memory only what it is sold with."""
    described = _descriptions(inventory)
    measured = (
        None if "unified-memory" in description.features else description.memory_bytes
        for description in (device.description for device in _speakers(inventory))
        if description is not None
    )
    nominal = _least(
        description.nominal_gib if not description.virtual else _gib(description.memory_bytes)
        for description in described
    )
    least = _least(measured)
    return {
        "memory-gib": None if nominal is None else str(nominal),
        "memory-mib": None if least is None else str(least // MIB),
    }


def _capability(inventory: Inventory) -> dict[str, str | None]:
    lowest = _least(description.compute_capability for description in _descriptions(inventory))
    if lowest is None:
        return {}
    major, minor = lowest
    return {"compute-capability": capability_text(lowest), "sm": str(major * 10 + minor)}


def _versions(inventory: Inventory) -> dict[str, str | None]:
    driver = _agreed(driver.version for driver in inventory.facts.drivers)
    cuda = _agreed(driver.cuda_version for driver in inventory.facts.drivers)
    return {
        "driver-version": _cleaned(driver),
        "driver-major": _major(driver),
        "cuda-version": _cleaned(cuda),
        "cuda-major": _major(cuda),
    }


def _states(inventory: Inventory) -> dict[str, str | None]:
    whole = [device for device in inventory.devices if device.assessment.usable and not device.cut]
    worst = max((device.assessment.state for device in inventory.devices), key=severity)
    return {
        "count": str(len(whole)),
        "health": worst if worst in {"ok", "degraded"} else "failed",
        "partitioning": _partitioning(inventory.described),
        "fabric": _fabric(_speakers(inventory)),
    }


def _precisions(inventory: Inventory) -> dict[str, str | None]:
    shared = _intersection(description.precisions for description in _descriptions(inventory))
    return {f"precision/{name}": "true" for name in PRECISIONS if name in shared}


def _features(inventory: Inventory) -> dict[str, str | None]:
    shared = _intersection(
        device.description.features for device in _speakers(inventory) if device.description
    )
    return {f"feature/{name}": "true" for name in shared}


def _classes(inventory: Inventory) -> dict[str, str | None]:
    """Return the classes that a pod is sure of, and the counts of all.

    Two classes behind one resource name promise nothing: the device plugin hands out either.
    """
    counts = [count for count in class_counts(inventory) if len(count.name) <= MAX_LABEL_LENGTH]
    names_of: dict[str, set[str]] = {}
    for count in counts:
        names_of.setdefault(count.resource, set()).add(count.name)
    labels: dict[str, str | None] = {
        "class": _agreed(description.class_name for description in _descriptions(inventory))
    }
    for count in counts:
        if count.usable:
            labels[f"count/{count.name}"] = str(count.usable)
            labels[f"class/{count.name}"] = _true_if(_is_sure(count, names_of))
    return labels


def _is_sure(count: ClassCount, names_of: Mapping[str, set[str]]) -> bool:
    return names_of[count.resource] == {count.name}


_LABELERS: tuple[Labeler, ...] = (
    _identity,
    _memory,
    _capability,
    _versions,
    _states,
    _precisions,
    _features,
    _classes,
)


def _partitioning(devices: Iterable[Device]) -> str | None:
    """Return `none`, `mig`, `mixed` or `pending`; absent where no device can be cut.

    A whole device beside a cut one makes the node mixed, whether or not it could be cut itself.
    """
    devices = list(devices)
    modes = [
        device.facts.mig
        for device in devices
        if device.facts.mig is not None and device.description and "mig" in device.description.features
    ]
    if not modes:
        return None
    if any(mode.enabled != mode.pending_enabled for mode in modes):
        return "pending"
    cut = [device.cut for device in devices]
    return "mig" if all(cut) else "mixed" if any(cut) else "none"


def _fabric(devices: Iterable[Device]) -> str | None:
    """Return `<cluster>.<clique>` of the NVLink domain, where all devices are in one."""
    domains = {
        (fabric.cluster_uuid, fabric.clique) if fabric and fabric.state == "completed" else (None, None)
        for fabric in (device.facts.fabric for device in devices)
    }
    if len(domains) != 1:
        return None
    cluster, clique = domains.pop()
    return None if cluster is None or clique is None else f"{cluster}.{clique}"


def _descriptions(inventory: Inventory) -> list[Description]:
    return [device.description for device in inventory.devices if device.description is not None]


def _speakers(inventory: Inventory) -> list[Device]:
    """Return the devices that say what the node has: all but the failed ones whose class a sound one has.

    A device that fails may tell a part of what it is; the sound ones of its class tell the whole.
    """
    sound = {
        device.description.class_name
        for device in inventory.described
        if device.description and device.facts.fault is None
    }
    return [
        device
        for device in inventory.described
        if device.facts.fault is None or (device.description and device.description.class_name not in sound)
    ]


def _agreed(values: Iterable[str | None]) -> str | None:
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _least(values: Iterable[_Value | None]) -> _Value | None:
    """Return the smallest, `None` where one is not known or there is none."""
    known = list(values)
    if not known or None in known:
        return None
    return min(known)  # type: ignore[type-var]  # no None is left


def _intersection(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset.intersection(*known) if (known := list(sets)) else frozenset()


def _true_if(condition: bool) -> str | None:
    return "true" if condition else None


def _cleaned(text: str | None) -> str | None:
    return None if text is None else label_value(text)


def _major(version: str | None) -> str | None:
    """Return the leading number of a version, `None` for a text that has none."""
    head = (version or "").split(".")[0]
    return head if head.isdecimal() else None


def _gib(count: int | None) -> int | None:
    return None if count is None else count >> 30
