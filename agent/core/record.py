"""Facts → the `AcceleratorNode` record of a node, as its agent writes it (`recorded` reads it back).

Lists are bounded, texts are cut, empty lists are left out (the server would prune them, and each pass would write again).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent.core.conditions import conditions_of, dated, failure_conditions, timestamp
from agent.core.devices import capability_text
from agent.core.inventory import ClassCount, Device, Inventory, class_counts
from agent.core.past import Gone
from probes.facts import Accelerator, DeviceFault, Fabric, Link, NodeFacts, PciIdentity

API_VERSION = "accelerators.ome.io/v1alpha1"
KIND = "AcceleratorNode"

MAX_DEVICES = 64
MAX_PARTITIONS = 512
# Bounds of texts that come from hardware, as the CRD states them.
MAX_TEXT = 256
MAX_WORD = 63
MAX_SUMMARY = 1024

CONDITION_TYPES = ("ProbeSucceeded", "DriverReady", "AllDevicesHealthy", "InventoryComplete")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """The Node that owns the record."""

    name: str
    uid: str | None = None
    """`None` for a record that is only printed."""


def record_for(
    inventory: Inventory,
    node: NodeIdentity,
    *,
    now: datetime,
    agent_version: str,
    previous: Mapping[str, Any] | None = None,
    extra_conditions: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the record after a probe that could ask.

    `previous` is the record that the server holds: a condition that did not change keeps its transition time.
    """
    facts = inventory.facts
    devices = inventory.devices[:MAX_DEVICES]
    counts = class_counts(inventory)
    spec = _present(
        agentVersion=agent_version,
        simulated=True if facts.simulated else None,
        observedAt=timestamp(now),
        driver=_driver(facts),
        host=_host(facts),
        devices=_devices(devices, _since_before(previous)) or None,
        classes=[_class_entry(count) for count in counts] or None,
        pci=_census(facts) or None,
        gone=[_gone(one) for one in inventory.gone][:MAX_DEVICES] or None,
        partial=True if facts.verdict == "partial" else None,
    )
    usable = sum(device.assessment.usable for device in devices)
    summary = {
        "classes": _cut(",".join(count.name for count in counts), MAX_SUMMARY) or "none",
        "count": len(devices),
        "healthy": f"{usable}/{len(devices)}",
    }
    conditions = [*conditions_of(inventory), *extra_conditions]
    return _record(node, spec, {"summary": summary, "conditions": dated(conditions, previous, now)})


def record_after_failure(
    facts: NodeFacts,
    node: NodeIdentity,
    *,
    now: datetime,
    agent_version: str,
    previous: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the record after a probe that could not ask: the last devices and counts stay, the conditions tell."""
    kept = [
        entry
        for entry in (previous.get("status") or {}).get("conditions", ())
        if entry["type"] not in {"ProbeSucceeded", "DriverReady"}
    ]
    conditions = dated([*failure_conditions(facts), *kept], previous, now)
    spec = {**(previous.get("spec") or {}), "agentVersion": agent_version}
    if facts.simulated:
        spec["simulated"] = True
    return _record(node, spec, {**(previous.get("status") or {}), "conditions": conditions})


def is_of_former_node(record: Mapping[str, Any] | None, node: NodeIdentity) -> bool:
    """Tell whether a record is owned by a Node of the same name that is gone."""
    owners = ((record or {}).get("metadata") or {}).get("ownerReferences") or ()
    return bool(owners) and all(owner.get("uid") != node.uid for owner in owners)


def under_former_owner(
    record: Mapping[str, Any], live: Mapping[str, Any], node: NodeIdentity
) -> dict[str, Any]:
    """Return the record as it may be written over one of a former Node: the owner stays, and the content says whose it is.

    An owner's uid may not be changed by one who may not delete. Should the collector come after all, the next pass makes
    the record anew.
    """
    metadata = {**record["metadata"], "ownerReferences": live["metadata"]["ownerReferences"]}
    return {**record, "metadata": metadata, "spec": {**record["spec"], "nodeUID": node.uid}}


def _record(node: NodeIdentity, spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": node.name}
    if node.uid is not None:
        owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec, "status": status}


def _driver(facts: NodeFacts) -> dict[str, Any] | None:
    if not facts.drivers:
        return None
    driver = facts.drivers[0]
    return _present(name=driver.name, version=_cut(driver.version, MAX_WORD), cudaVersion=driver.cuda_version)


def _host(facts: NodeFacts) -> dict[str, Any] | None:
    host = facts.host
    return (
        _present(
            machine=_cut(host.machine, MAX_TEXT),
            kernel=_cut(host.kernel, MAX_TEXT),
            memoryBytes=host.memory_bytes,
            cpus=host.cpus,
        )
        or None
    )


def _census(facts: NodeFacts) -> list[dict[str, Any]]:
    """Return the functions on the bus that no library answered for."""
    answered = {accelerator.pci.address for accelerator in facts.accelerators if accelerator.pci}
    return [
        _present(
            address=function.identity.address,
            vendorID=function.identity.vendor_id,
            deviceID=function.identity.device_id,
            driver=function.driver,
            classCode=function.class_code,
        )
        for function in (facts.pci or ())
        if function.identity.address not in answered
    ][:MAX_DEVICES]


def _since_before(previous: Mapping[str, Any] | None) -> dict[tuple[str, str], str]:
    """Return (device id, state) → since when, as the record before says: a restart of the agent is no change of state."""
    devices = ((previous or {}).get("spec") or {}).get("devices", ())
    return {(device["id"], device["state"]): device["since"] for device in devices if "since" in device}


def _devices(devices: Iterable[Device], since: Mapping[tuple[str, str], str]) -> list[dict[str, Any]]:
    room = MAX_PARTITIONS
    entries = []
    for device in devices:
        entry = _device(device, room)
        known_since = since.get((entry["id"], entry["state"]))
        entries.append(entry if known_since is None else {**entry, "since": known_since})
        room -= len(device.partitions)
    return entries


def _device(device: Device, room: int) -> dict[str, Any]:
    facts, description = device.facts, device.description
    capability = facts.compute_capability
    return _present(
        id=device.key,
        uuidWeak=True if facts.id is None else None,
        index=facts.index,
        vendor=facts.vendor,
        product=_cut(facts.product, MAX_TEXT),
        **{"class": description.class_name if description else None},
        family=description.family if description else None,
        pci=_pci(facts.pci),
        computeCapability=capability_text(capability) if capability else None,
        cores=facts.cores,
        memoryBytes=facts.memory_bytes,
        memoryBusBits=facts.memory_bus_bits,
        clocks=_clocks(facts),
        unifiedMemory=facts.unified_memory,
        virtual=facts.virtualization == "vgpu",
        virtualization=facts.virtualization,
        ecc=facts.health.ecc_enabled if facts.health else None,
        state=device.assessment.state,
        reasons=list(device.assessment.reasons) or None,
        since=timestamp(device.assessment.since) if device.assessment.since else None,
        fault=_fault(facts.fault),
        problems=[{"field": problem.field, "error": problem.error} for problem in facts.problems][
            :MAX_DEVICES
        ]
        or None,
        link=_link(facts.link, device.widest_pcie),
        fabric=_fabric(facts.fabric),
        mig=_mig(device, room),
    )


def _pci(pci: PciIdentity | None) -> dict[str, Any] | None:
    if pci is None:
        return None
    return _present(
        address=pci.address,
        vendorID=pci.vendor_id,
        deviceID=pci.device_id,
        subsystemVendorID=pci.subsystem_vendor_id,
        subsystemID=pci.subsystem_id,
        numaNode=pci.numa_node,
    )


def _clocks(facts: Accelerator) -> dict[str, Any] | None:
    clocks = _present(
        memoryMHz=facts.memory_clock_max_mhz, smMHz=facts.sm_clock_max_mhz, boostMHz=facts.boost_clock_mhz
    )
    return clocks or None


def _fault(fault: DeviceFault | None) -> dict[str, Any] | None:
    return None if fault is None else _present(kind=fault.kind, call=fault.call, error=fault.error)


def _gone(one: Gone) -> dict[str, Any]:
    return _present(
        id=one.id, product=_cut(one.product, MAX_TEXT), address=one.address, since=timestamp(one.since)
    )


def _link(link: Link | None, widest: int | None) -> dict[str, Any] | None:
    """Return how the device is attached; the current PCIe generation is left out, since it drops at idle."""
    if link is None:
        return None
    return (
        _present(
            pcieGeneration=link.pcie_generation_max,
            pcieWidth=link.pcie_width,
            pcieWidthMax=link.pcie_width_max,
            # Only where it tells more than the present width does.
            pcieWidthSeen=widest if widest != link.pcie_width else None,
            nvlinkActive=link.nvlink_active,
            nvlinkTotal=link.nvlink_total,
            nvlinkVersion=link.nvlink_version,
            c2c=link.c2c,
        )
        or None
    )


def _fabric(fabric: Fabric | None) -> dict[str, Any] | None:
    if fabric is None or fabric.state == "not-supported":
        return None
    return _present(
        clusterUUID=fabric.cluster_uuid,
        clique=fabric.clique,
        state=fabric.state,
        status=fabric.status,
        healthMask=fabric.health_mask,
    )


def _mig(device: Device, room: int) -> dict[str, Any] | None:
    mig = device.facts.mig
    if mig is None:
        return None
    instances = [
        _present(
            id=partition.id,
            profile=partition.profile,
            memoryBytes=partition.memory_bytes,
            gpuInstance=partition.gpu_instance_id,
            computeInstance=partition.compute_instance_id,
            multiprocessors=partition.multiprocessors,
            gpuSlices=partition.gpu_instance_slices,
            computeSlices=partition.compute_instance_slices,
            **{"class": description.class_name if description else None},
        )
        for partition, description in device.partitions[: max(room, 0)]
    ]
    return _present(
        mode=_mode(enabled=mig.enabled),
        pending=_mode(enabled=mig.pending_enabled),
        instances=instances or None,
        notReadable=True if mig.partitions is None else None,
    )


def _mode(*, enabled: bool) -> str:
    return "enabled" if enabled else "disabled"


def _class_entry(count: ClassCount) -> dict[str, Any]:
    return {"name": count.name, "resource": count.resource, "total": count.total, "usable": count.usable}


def _cut(text: str | None, length: int) -> str | None:
    return None if text is None else text[:length]


def _present(**fields: Any) -> dict[str, Any]:  # noqa: ANN401  # any JSON value
    return {name: value for name, value in fields.items() if value is not None}
