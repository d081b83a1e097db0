"""What is known of a node's devices from before, where a probe does not tell it: over failures, and over restarts.

Pure. What a probe says counts; the past fills in only what it could not say.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from probes.facts import Accelerator, DeviceFault, Driver, Mig, NodeFacts

GONE_FOR = timedelta(days=7)
"""For so long a device that was taken off the bus is spoken of: it may have failed, or been taken out on purpose."""

_FACTS_OF_PROBLEMS: Mapping[str, str] = {
    "id": "id",
    "product": "product",
    "compute_capability": "compute_capability",
    "memory": "memory_bytes",
    "cores": "cores",
    "memory_bus": "memory_bus_bits",
    "memory_clock": "memory_clock_max_mhz",
    "sm_clock": "sm_clock_max_mhz",
    "boost_clock": "boost_clock_mhz",
    "virtualization": "virtualization",
    "memory_numa_node": "memory_numa_node",
    "mig": "mig",
    "fabric": "fabric",
}
"""Name of a reading that can fail → the fact that it is for; these stay as they were while the device is the same."""


_PASSING_ERRORS = frozenset({"timeout", "unknown"})
"""Unlike `in-use` and `reset-required`, which a GPU answers while it is being cut anew, and `no-permission`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """A device that was here, and that neither the driver nor the bus shows."""

    id: str
    since: datetime
    product: str | None = None
    address: str | None = None


def device_key(accelerator: Accelerator) -> str:
    """Return the UUID, else the PCI address, else the index of a device."""
    if accelerator.id is not None:
        return accelerator.id
    return accelerator.pci.address if accelerator.pci is not None else f"index-{accelerator.index}"


def remembered(facts: NodeFacts, previous: NodeFacts | None) -> NodeFacts:
    """Return `facts` with what a failed device could not say filled in from the probe before.

    A reading that failed on a sound device keeps its last value where that cannot change by itself: one error of one call
    must not make a device another. A device that fails before it named itself is the one that sat at the same PCI address;
    where not even that could be asked, the one that had its index, provided that all others are where they were. One that
    the driver no longer shows although the bus does stays, as lost.
    """
    if previous is None:
        return facts
    accelerators = tuple(
        _identified(accelerator, facts, previous) if accelerator.fault else _completed(accelerator, previous)
        for accelerator in facts.accelerators
    )
    vanished = _vanished(accelerators, facts, previous) if facts.verdict == "partial" else ()
    drivers = tuple(_told(driver, previous.drivers) for driver in facts.drivers)
    return replace(facts, accelerators=(*accelerators, *vanished), drivers=drivers)


def gone_after(
    facts: NodeFacts, previous: NodeFacts | None, gone: Iterable[Gone], now: datetime
) -> tuple[Gone, ...]:
    """Return which devices are missed after one more probe that could ask.

    Of the devices before, those are missed whose place on the bus is empty, and no more of them than the node has fewer
    devices now. One is missed until it comes back, another takes its place, or a week has passed.
    """
    missed = [one for one in gone if now - one.since < GONE_FOR and not _shows(facts, one.id, one.address)]
    known = {one.id for one in missed}
    before = [device for device in previous.accelerators if not device.display_only] if previous else []
    fewer = len(before) - sum(not device.display_only for device in facts.accelerators)
    left = [
        Gone(
            id=device_key(device),
            since=now,
            product=device.product,
            address=device.pci.address if device.pci else None,
        )
        for device in before
        if device_key(device) not in known
        and not _shows(facts, device_key(device), device.pci.address if device.pci else None)
    ]
    return (*missed, *left[: max(0, fewer)])


def _shows(facts: NodeFacts, key: str, address: str | None) -> bool:
    """Tell whether a device is there, or its place is taken, or nobody could look."""
    if facts.pci is None:
        return True
    places = {function.identity.address for function in facts.pci}
    places |= {device.pci.address for device in facts.accelerators if device.pci}
    return address is None or address in places or any(device_key(one) == key for one in facts.accelerators)


def _told(driver: Driver, before: Iterable[Driver]) -> Driver:
    """Return the driver with versions that it would not tell this time.

    A library that opened is of its kernel module's version, and one driver version supports one version of CUDA.
    """
    version = driver.version or driver.kernel_module_version
    cuda = next((one.cuda_version for one in before if one.version == version), None)
    return replace(driver, version=version, cuda_version=driver.cuda_version or cuda)


def _completed(accelerator: Accelerator, previous: NodeFacts) -> Accelerator:
    """Return a sound device with the facts whose reading failed as they were last read of the same device."""
    failed = {problem.field for problem in accelerator.problems}
    if not failed or accelerator.pci is None:
        return accelerator
    known = _same_slot(accelerator, previous)
    if known is None or (known.id != accelerator.id and "id" not in failed):
        return accelerator
    fields = {fact for field, fact in _FACTS_OF_PROBLEMS.items() if field in failed}
    kept = {fact: getattr(known, fact) for fact in fields if getattr(accelerator, fact) is None}
    link, health = accelerator.link, accelerator.health
    if "nvlink" in failed and link is not None and known.link is not None:
        was = known.link
        link = replace(
            link,
            nvlink_active=was.nvlink_active,
            nvlink_total=was.nvlink_total,
            nvlink_version=was.nvlink_version,
        )
    if "ecc_enabled" in failed and health is not None and known.health is not None:
        health = replace(health, ecc_enabled=known.health.ecc_enabled)
    completed = replace(accelerator, **kept, link=link, health=health)
    return replace(completed, mig=_mig(completed, known.mig))


def _mig(accelerator: Accelerator, known: Mig | None) -> Mig | None:
    """Return the partitions as they were where the calls failed for once; while the mode changes nothing is kept."""
    mig = accelerator.mig
    if mig is None or known is None or mig.partitions is not None:
        return mig
    errors = {problem.error for problem in accelerator.problems if problem.field == "mig.partitions"}
    unchanged = (mig.enabled, mig.pending_enabled) == (known.enabled, known.pending_enabled)
    passing = bool(errors & _PASSING_ERRORS) and errors <= _PASSING_ERRORS | {"implausible"}
    return replace(mig, partitions=known.partitions) if unchanged and passing else mig


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
        if function.driver in {"nvidia", None}
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
