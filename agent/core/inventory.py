"""The devices of one node as everything else sees them: described, judged, and in an order that no driver decides."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agent.core.devices import Description, describe, describe_partition
from agent.core.health import Assessment, History, Instant, Track, judged, reading_of, with_xid
from probes.facts import Accelerator, DeviceFault, NodeFacts, Partition


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


def device_key(accelerator: Accelerator) -> str:
    """Return the UUID, else the PCI address, else the index of a device."""
    if accelerator.id is not None:
        return accelerator.id
    return accelerator.pci.address if accelerator.pci is not None else f"index-{accelerator.index}"


def inventory_of(
    facts: NodeFacts, *, options: Options = Options(), history: History | None = None
) -> Inventory:
    """Return the node's devices, judged by `history` where there is one, else by this probe's readings alone."""
    history = history or {}
    names = dict(options.class_names)
    devices = tuple(
        _device(accelerator, names, options, history.get(device_key(accelerator)))
        for accelerator in sorted(_told_apart(facts.accelerators), key=device_key)
        if not accelerator.display_only
    )
    return Inventory(facts=facts, devices=devices)


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


def remembered(facts: NodeFacts, previous: NodeFacts | None) -> NodeFacts:
    """Return `facts` with what a failed device could not say filled in from the probe before.

    A device that fails before it named itself is the one that sat at the same PCI address; where not even that could be
    asked, the one that had its index, provided that all others are where they were. One that the driver no longer shows
    although the bus does stays, as lost.
    """
    if previous is None:
        return facts
    accelerators = tuple(
        _identified(accelerator, facts, previous) if accelerator.fault else accelerator
        for accelerator in facts.accelerators
    )
    vanished = _vanished(accelerators, facts, previous) if facts.verdict == "partial" else ()
    return replace(facts, accelerators=(*accelerators, *vanished))


def class_counts(inventory: Inventory) -> tuple[ClassCount, ...]:
    """Return every class on the node, by name; a device that is cut counts for its partitions' classes only."""
    counts: dict[str, ClassCount] = {}
    for device in inventory.devices:
        members = (
            [description for _, description in device.partitions] if device.cut else [device.description]
        )
        for description in members:
            if description is None:
                continue
            name = description.class_name
            before = counts.get(name, ClassCount(name=name, resource=description.resource, total=0, usable=0))
            usable = before.usable + device.assessment.usable
            counts[name] = replace(before, total=before.total + 1, usable=usable)
    return tuple(counts[name] for name in sorted(counts))


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


def _identified(accelerator: Accelerator, facts: NodeFacts, previous: NodeFacts) -> Accelerator:
    known = _same_slot(accelerator, previous) or _same_index(accelerator, facts, previous)
    if known is None:
        return accelerator
    fault: DeviceFault | None = accelerator.fault
    return replace(known, index=accelerator.index, fault=fault, problems=accelerator.problems)


def _same_slot(accelerator: Accelerator, previous: NodeFacts) -> Accelerator | None:
    if accelerator.pci is None:
        return None
    slot = accelerator.pci.address, accelerator.pci.device_id
    return next((known for known in previous.accelerators if _slot(known) == slot), None)


def _slot(accelerator: Accelerator) -> tuple[str, str] | None:
    """Return where a device sits and what sits there: another card in the same place is another device."""
    return (accelerator.pci.address, accelerator.pci.device_id) if accelerator.pci else None


def _vanished(
    accelerators: Iterable[Accelerator], facts: NodeFacts, previous: NodeFacts
) -> tuple[Accelerator, ...]:
    """Return the devices of the probe before that the driver has dropped and the bus still shows with it."""
    if any(accelerator.pci is None for accelerator in accelerators):
        # A device that could not say where it sits may be one of them.
        return ()
    shown = {_slot(accelerator) for accelerator in accelerators}
    driven = {
        (function.identity.address, function.identity.device_id)
        for function in facts.pci or ()
        if function.driver == "nvidia"
    }
    return tuple(
        replace(known, fault=DeviceFault(kind="lost", error="not-found"), problems=())
        for known in previous.accelerators
        if _slot(known) in driven - shown
    )


def _same_index(accelerator: Accelerator, facts: NodeFacts, previous: NodeFacts) -> Accelerator | None:
    before = {known.index: known for known in previous.accelerators}
    others_unmoved = all(
        other.index in before and before[other.index].id == other.id
        for other in facts.accelerators
        if other.fault is None
    )
    return before.get(accelerator.index) if others_unmoved and accelerator.pci is None else None
