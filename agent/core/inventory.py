"""The devices of one node as everything else sees them: described, judged, and in an order that no driver decides."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.core.devices import Description, describe, describe_partition
from agent.core.health import Assessment, History, Instant, Track, judged, reading_of, with_xid
from agent.core.past import Gone, device_key
from probes.facts import Accelerator, NodeFacts, Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an operator may decide about names and resources."""

    class_names: tuple[tuple[str, str], ...] = ()
    """(class name of ours, operator's own) pairs."""
    mig_shared_resource: bool = False
    """The device plugin offers partitions as `nvidia.com/gpu` (its `single` strategy)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One physical accelerator (or a guest's virtual one) with what it is and how it is."""

    facts: Accelerator
    description: Description | None
    """`None` for a device that told nothing of itself before it failed."""
    assessment: Assessment
    widest_pcie: int | None = None
    """Most lanes that the device was ever seen to run in its slot; `None` without a history."""
    partitions: tuple[tuple[Partition, Description | None], ...] = ()

    @property
    def key(self) -> str:
        """Return what identifies the device over probes: UUID, else PCI address, else its index."""
        return device_key(self.facts)

    @property
    def cut(self) -> bool:
        """Tell whether the device is in MIG mode, so that nobody gets it as a whole."""
        return self.facts.mig is not None and self.facts.mig.enabled


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """One successful or partial probe, judged. Display-only adapters are left out."""

    facts: NodeFacts
    devices: tuple[Device, ...]
    gone: tuple[Gone, ...] = ()
    """Devices that were here and that neither the driver nor the bus shows any more."""

    @property
    def described(self) -> tuple[Device, ...]:
        """Return the devices whose identity is known."""
        return tuple(device for device in self.devices if device.description is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCount:
    """How many devices or partitions of one class a node has."""

    name: str
    resource: str
    total: int
    usable: int


def inventory_of(
    facts: NodeFacts,
    *,
    options: Options = Options(),
    history: History | None = None,
    gone: tuple[Gone, ...] = (),
) -> Inventory:
    """Return the node's devices, judged by `history` where there is one, else by this probe's readings alone."""
    history = history or {}
    names = dict(options.class_names)
    devices = tuple(
        _device(accelerator, names, options, history.get(device_key(accelerator)))
        for accelerator in sorted(_told_apart(facts.accelerators), key=device_key)
        if not accelerator.display_only
    )
    return Inventory(facts=facts, devices=devices, gone=gone)


def history_after(
    facts: NodeFacts, history: History, now: Instant, xid_events: Iterable[tuple[str, int]] = ()
) -> dict[str, Track]:
    """Return the history after one more probe and the Xid events (device key, code) that came with it.

    A device that is gone is forgotten, but only when the probe was complete.
    """
    after = {} if facts.verdict in {"complete", "none"} else dict(history)
    for accelerator in _told_apart(facts.accelerators):
        key = device_key(accelerator)
        after[key] = judged(accelerator, history.get(key), now)
    for key, code in xid_events:
        if key in after:
            after[key] = with_xid(after[key], code, now)
    return after


def class_counts(inventory: Inventory) -> tuple[ClassCount, ...]:
    """Return every class on the node, by name; a device that is cut counts for its partitions' classes only."""
    counts: dict[str, list[Any]] = {}
    for device in inventory.devices:
        members = (
            [description for _, description in device.partitions] if device.cut else [device.description]
        )
        for description in members:
            if description is None:
                continue
            count = counts.setdefault(description.class_name, [description.resource, 0, 0])
            count[1] += 1
            count[2] += device.assessment.usable
    return tuple(
        ClassCount(name=name, resource=resource, total=total, usable=usable)
        for name, (resource, total, usable) in sorted(counts.items())
    )


def _told_apart(accelerators: Iterable[Accelerator]) -> list[Accelerator]:
    """Return the devices, without their UUID where two claim the same one: it identifies neither."""
    accelerators = list(accelerators)
    claims = Counter(accelerator.id for accelerator in accelerators)
    return [
        replace(accelerator, id=None) if claims[accelerator.id] > 1 else accelerator
        for accelerator in accelerators
    ]


def _device(
    accelerator: Accelerator, names: Mapping[str, str], options: Options, track: Track | None
) -> Device:
    unknown = accelerator.fault is not None and accelerator.product is None and accelerator.pci is None
    partitions = (accelerator.mig.partitions or ()) if accelerator.mig else ()
    return Device(
        facts=accelerator,
        description=None if unknown else describe(accelerator, names=names),
        assessment=track.assessment if track else reading_of(accelerator),
        widest_pcie=track.widest_pcie if track else None,
        partitions=tuple(
            (
                partition,
                describe_partition(
                    accelerator, partition, names=names, shared_resource=options.mig_shared_resource
                ),
            )
            for partition in partitions
        ),
    )
