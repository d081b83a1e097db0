"""What an agent knows → metric families, from the last report and never from the hardware."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from agent.core.devices import capability_text
from agent.core.families import Family, Sample, counter, gauge, one
from agent.core.health import STATES
from agent.core.inventory import Device, Inventory
from agent.core.outcomes import NodeReport
from probes.facts import Health

BYTES_PER_GB = 10**9

Reading = Callable[[Device], float | None]


def node_families(
    report: NodeReport,
    *,
    monotonic: float,
    stale_after_seconds: float,
    stuck_children: int = 0,
    overruns: int = 0,
    gaps: int = 0,
) -> tuple[Family, ...]:
    """Return all families of an agent.

    When the last good probe is older than `stale_after_seconds` the device series are withdrawn: a number that may no
    longer be true is worse than none.
    """
    fresh = report.is_fresh(monotonic, stale_after_seconds)
    inventory = report.inventory if fresh else None
    return (
        *_device_families(inventory),
        *_node_families(report, inventory),
        *_probe_families(report, fresh=fresh, stuck_children=stuck_children, overruns=overruns, gaps=gaps),
        *_publish_families(report),
    )


def build_family(version: str, revision: str, python: str, nvml_binding: str) -> Family:
    """Return the family that says what is running."""
    labels = {"version": version, "revision": revision, "python": python, "nvml_binding": nvml_binding}
    return gauge(
        "accelerator_build_info",
        "Versions of the running program, always 1.",
        [Sample(value=1, labels=labels)],
    )


def _device_families(inventory: Inventory | None) -> Iterator[Family]:
    devices = inventory.devices if inventory else ()
    described = [device for device in devices if device.description is not None]
    yield gauge(
        "accelerator_device_info",
        "One accelerator and what it is, always 1.",
        (_info(device, _driver_version(inventory)) for device in devices),
    )
    yield gauge(
        "accelerator_device_memory_bytes",
        "Total memory that the driver reports.",
        _readings(devices, lambda device: device.facts.memory_bytes),
    )
    yield gauge(
        "accelerator_device_memory_bandwidth_bytes_per_second",
        "Peak memory bandwidth: the catalogue's, else the one that clock and bus width give.",
        _readings(described, _bandwidth),
    )
    yield gauge(
        "accelerator_device_peak_ops_per_second",
        "Dense peak rate by precision and by where the figure comes from.",
        (sample for device in described for sample in _peaks(device)),
    )
    yield gauge(
        "accelerator_device_state",
        "1 for the state that the device is in and 0 for the others.",
        (
            one(float(device.assessment.state == state), id=device.key, state=state)
            for device in devices
            for state in STATES
        ),
    )
    yield from _health_families(devices)


def _health_families(devices: Iterable[Device]) -> Iterator[Family]:
    devices = list(devices)
    yield gauge(
        "accelerator_device_rows_remapped",
        "Memory rows that were remapped, corrected and uncorrectable errors alike.",
        _readings(devices, _rows_remapped),
    )
    yield gauge(
        "accelerator_device_row_remap_pending",
        "1 while a row remapping waits for a reset of the device.",
        _readings(devices, _remap_pending),
    )
    yield counter(
        "accelerator_device_ecc_uncorrected_errors",
        "Uncorrected ECC errors since the driver was loaded.",
        _readings(devices, lambda device: _health(device).ecc_uncorrected_errors),
    )
    yield gauge(
        "accelerator_device_persistence_mode",
        "0 where persistence mode is off, so that each first query costs seconds.",
        _readings(devices, lambda device: _health(device).persistence_mode),
    )


def _node_families(report: NodeReport, inventory: Inventory | None) -> Iterator[Family]:
    devices = inventory.devices if inventory else ()
    known = Counter((_class_of(device), device.assessment.state) for device in devices)
    yield gauge(
        "accelerator_node_devices",
        "Accelerators by class and state; sums to the number that is known.",
        (one(count, **{"class": name}, state=state) for (name, state), count in sorted(known.items())),
    )
    partitions = Counter(
        description.class_name for device in devices for _, description in device.partitions if description
    )
    yield gauge(
        "accelerator_node_partitions",
        "Partitions by class.",
        (one(count, **{"class": name}) for name, count in sorted(partitions.items())),
    )
    yield gauge(
        "accelerator_node_devices_gone",
        "Accelerators that were here in the last seven days and that neither the driver nor the bus shows.",
        [one(len(inventory.gone))] if inventory else [],
    )
    functions = (report.facts.pci or ()) if report.facts else ()
    on_the_bus = Counter((function.identity.vendor_id, function.driver or "none") for function in functions)
    yield gauge(
        "accelerator_pci_devices",
        "Accelerators that the PCI bus shows, by vendor id and bound kernel driver.",
        (one(count, vendor=vendor, driver=driver) for (vendor, driver), count in sorted(on_the_bus.items())),
    )
    simulated = bool(report.facts and report.facts.simulated)
    yield gauge(
        "accelerator_simulated", "1 where the facts come from fake hardware.", [one(float(simulated))]
    )


def _probe_families(
    report: NodeReport, *, fresh: bool, stuck_children: int, overruns: int, gaps: int
) -> Iterator[Family]:
    facts = report.facts
    succeeded = fresh and facts is not None and facts.asked
    yield gauge(
        "accelerator_probe_success",
        "1 where the last probe could ask the hardware and is not stale.",
        [one(float(succeeded), probe="nvidia")] if facts else [],
    )
    verdict = facts.verdict if facts else ""
    yield gauge(
        "accelerator_probe_verdict",
        "1 for what the last probe came to, with the reason as a word.",
        [one(1, probe="nvidia", verdict=verdict, reason=facts.reason)] if facts else [],
    )
    duration = facts.duration_seconds if facts else None
    yield gauge(
        "accelerator_probe_duration_seconds",
        "How long the last probe took.",
        [] if duration is None else [one(duration, probe="nvidia")],
    )
    wall = report.inventory_wall
    yield gauge(
        "accelerator_probe_last_success_timestamp_seconds",
        "When the hardware last answered.",
        [] if wall is None else [one(wall.timestamp(), probe="nvidia")],
    )
    yield counter(
        "accelerator_probe_overruns",
        "Probes that outlasted the interval.",
        [one(overruns, probe="nvidia")],
    )
    yield counter(
        "accelerator_probe_gaps",
        "Times that no probe was made for more than two intervals: the process was suspended or had no time.",
        [one(gaps, probe="nvidia")],
    )
    yield gauge(
        "accelerator_probe_stuck_children",
        "Probe processes that could not be ended.",
        [one(stuck_children, probe="nvidia")],
    )
    yield counter(
        "accelerator_device_xid_errors",
        "Xid events by code since this process started.",
        (one(count, id=id_, xid=str(code)) for (id_, code), count in sorted(report.xid_errors.items())),
    )


def _publish_families(report: NodeReport) -> Iterator[Family]:
    tallies = sorted(report.tallies.items())
    yield counter(
        "accelerator_publish_writes",
        "Writes to the API server.",
        (one(tally.writes, target=target) for target, tally in tallies),
    )
    yield counter(
        "accelerator_publish_failures",
        "Times that something could not be published, by reason.",
        (
            one(count, target=target, reason=reason)
            for target, tally in tallies
            for reason, count in sorted(tally.failures.items())
        ),
    )
    yield gauge(
        "accelerator_publish_last_success_timestamp_seconds",
        "When a target was last found or made right.",
        (
            one(tally.last_success.timestamp(), target=target)
            for target, tally in tallies
            if tally.last_success is not None
        ),
    )
    rivals = Counter(manager for published in report.published for manager in published.rivals.values())
    yield gauge(
        "accelerator_publish_rival_keys",
        "Label keys of ours that another field manager owns.",
        (one(count, manager=manager) for manager, count in sorted(rivals.items())),
    )


def _driver_version(inventory: Inventory | None) -> str:
    drivers = inventory.facts.drivers if inventory else ()
    return (drivers[0].version or "") if drivers else ""


def _info(device: Device, driver_version: str) -> Sample:
    facts, description = device.facts, device.description
    capability = description.compute_capability if description else None
    labels = {
        "id": device.key,
        "index": str(facts.index),
        "pci_address": facts.pci.address if facts.pci else "",
        "vendor": facts.vendor,
        "product": facts.product or "",
        "class": _class_of(device),
        "family": (description.family if description else None) or "",
        "compute_capability": capability_text(capability) if capability else "",
        "driver_version": driver_version,
        "uuid_weak": "true" if facts.id is None else "false",
    }
    return Sample(value=1, labels=labels)


def _health(device: Device) -> Health:
    return device.facts.health or Health()


def _class_of(device: Device) -> str:
    return device.description.class_name if device.description else "unknown"


def _bandwidth(device: Device) -> int | None:
    bandwidth = device.description.bandwidth_gbps if device.description else None
    return None if bandwidth is None else bandwidth * BYTES_PER_GB


def _peaks(device: Device) -> Iterator[Sample]:
    for peak in device.description.peaks if device.description else ():
        precision = peak.precision.replace("_", "-")
        yield one(peak.tera_ops * 1e12, id=device.key, precision=precision, source=peak.source)


def _rows_remapped(device: Device) -> int | None:
    rows = _health(device).row_remapping
    return None if rows is None else rows.corrected + rows.uncorrectable


def _remap_pending(device: Device) -> bool | None:
    rows = _health(device).row_remapping
    return None if rows is None else rows.pending


def _readings(devices: Iterable[Device], reading: Reading) -> Iterator[Sample]:
    """Yield a sample for each device that has the reading: an absent one has no series, never a zero."""
    for device in devices:
        value = reading(device)
        if value is not None:
            yield one(float(value), id=device.key)
