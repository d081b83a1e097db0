"""What the controller and the commands read back out of `AcceleratorNode` records."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from agent.core.catalogue import parse_capability
from agent.core.health import STATES, Assessment, State, Track
from agent.core.past import Gone
from probes.facts import (
    Accelerator,
    DeviceFault,
    Driver,
    Fabric,
    Health,
    Link,
    Mig,
    NodeFacts,
    Partition,
    PciIdentity,
)


def node_uid_of(record: Mapping[str, Any]) -> str | None:
    """Return the uid of the Node that a record is of, `None` where it does not tell.

    One that the collector left behind says itself which Node it is of; its owner is the former Node.
    """
    owners = record["metadata"].get("ownerReferences") or ()
    owner: str | None = next((entry.get("uid") for entry in owners if entry.get("kind") == "Node"), None)
    return (record.get("spec") or {}).get("nodeUID") or owner


def accelerator_of(device: Mapping[str, Any]) -> Accelerator:
    """Return the facts that a record's device states; readings that the record does not carry are absent."""
    capability = device.get("computeCapability")
    clocks = device.get("clocks", {})
    fault = device.get("fault")
    return Accelerator(
        index=device.get("index", 0),
        vendor=device["vendor"],
        id=None if device.get("uuidWeak") else device.get("id"),
        product=device.get("product"),
        pci=_identity_of(device.get("pci")),
        fault=DeviceFault(**fault) if fault else None,
        compute_capability=parse_capability(capability) if capability else None,
        cores=device.get("cores"),
        memory_bytes=device.get("memoryBytes"),
        unified_memory=device.get("unifiedMemory", False),
        memory_bus_bits=device.get("memoryBusBits"),
        memory_clock_max_mhz=clocks.get("memoryMHz"),
        sm_clock_max_mhz=clocks.get("smMHz"),
        boost_clock_mhz=clocks.get("boostMHz"),
        virtualization=device.get("virtualization", "vgpu" if device.get("virtual") else None),
        mig=_mig_of(device.get("mig")),
        link=_link_of(device.get("link")),
        fabric=_fabric_of(device.get("fabric")),
        health=Health(ecc_enabled=device["ecc"]) if "ecc" in device else None,
    )


def facts_of(record: Mapping[str, Any]) -> NodeFacts:
    """Return the devices of a record as facts, for a process that has no past of its own."""
    spec = record.get("spec") or {}
    devices, driver = spec.get("devices", ()), spec.get("driver")
    return NodeFacts(
        verdict="complete",
        reason="ReadFromRecord",
        message="read from the node's record",
        drivers=(_driver_of(driver),) if driver else (),
        accelerators=tuple(accelerator_of(device) for device in devices),
    )


def _driver_of(driver: Mapping[str, Any]) -> Driver:
    return Driver(name=driver["name"], version=driver.get("version"), cuda_version=driver.get("cudaVersion"))


def gone_of(record: Mapping[str, Any]) -> tuple[Gone, ...]:
    """Return the devices that a record misses."""
    return tuple(
        Gone(
            id=entry["id"],
            since=datetime.fromisoformat(entry["since"]),
            product=entry.get("product"),
            address=entry.get("address"),
        )
        for entry in (record.get("spec") or {}).get("gone", ())
    )


def history_of(record: Mapping[str, Any]) -> dict[str, Track]:
    """Return what a record tells of the past of its devices: how wide their links were, whatever the state is now."""
    return {
        device["id"]: Track(
            assessment=Assessment(),
            widest_pcie=width,
            slot=(device.get("pci") or {}).get("address"),
            judged=False,
        )
        for device in (record.get("spec") or {}).get("devices", ())
        if (width := _widest(device.get("link") or {})) is not None
    }


def _widest(link: Mapping[str, Any]) -> int | None:
    widest: int | None = link.get("pcieWidthSeen", link.get("pcieWidth"))
    return widest


def state_of(device: Mapping[str, Any]) -> State:
    """Return the state that a record's device is in; a word that is not known counts as unreadable."""
    state = device.get("state")
    return state if state in STATES else "unreadable"


def _identity_of(pci: Mapping[str, Any] | None) -> PciIdentity | None:
    if pci is None or not {"address", "vendorID", "deviceID"} <= pci.keys():
        return None
    return PciIdentity(
        address=pci["address"],
        vendor_id=pci["vendorID"],
        device_id=pci["deviceID"],
        subsystem_vendor_id=pci.get("subsystemVendorID"),
        subsystem_id=pci.get("subsystemID"),
        numa_node=pci.get("numaNode"),
    )


def _mig_of(mig: Mapping[str, Any] | None) -> Mig | None:
    if mig is None:
        return None
    partitions = tuple(
        Partition(
            id=instance.get("id"),
            profile=instance.get("profile"),
            gpu_instance_id=instance.get("gpuInstance"),
            compute_instance_id=instance.get("computeInstance"),
            memory_bytes=instance.get("memoryBytes"),
            multiprocessors=instance.get("multiprocessors"),
            gpu_instance_slices=instance.get("gpuSlices"),
            compute_instance_slices=instance.get("computeSlices"),
        )
        for instance in mig.get("instances", ())
    )
    return Mig(
        enabled=mig.get("mode") == "enabled",
        pending_enabled=mig.get("pending") == "enabled",
        partitions=None if mig.get("notReadable") else partitions,
    )


def _link_of(link: Mapping[str, Any] | None) -> Link | None:
    if link is None:
        return None
    return Link(
        pcie_generation_max=link.get("pcieGeneration"),
        pcie_width=link.get("pcieWidth"),
        pcie_width_max=link.get("pcieWidthMax"),
        nvlink_active=link.get("nvlinkActive"),
        nvlink_total=link.get("nvlinkTotal"),
        nvlink_version=link.get("nvlinkVersion"),
        c2c=link.get("c2c"),
    )


def _fabric_of(fabric: Mapping[str, Any] | None) -> Fabric | None:
    if fabric is None:
        return None
    return Fabric(
        state=fabric.get("state", "not-supported"),
        cluster_uuid=fabric.get("clusterUUID"),
        clique=fabric.get("clique"),
        status=fabric.get("status"),
        health_mask=fabric.get("healthMask"),
    )
