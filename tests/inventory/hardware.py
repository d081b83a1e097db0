"""Devices and records of the inventory's tests: facts as a probe gives them, records as an agent writes them."""

from dataclasses import replace
from datetime import UTC, datetime

from agent.core.inventory import inventory_of
from agent.core.record import NodeIdentity, record_for
from probes.facts import (
    Accelerator,
    DeviceFault,
    Driver,
    Health,
    Link,
    Mig,
    NodeFacts,
    Partition,
    PciIdentity,
)

GIB = 1024**3
START = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)

H100 = "nvidia-h100-80gb"
L4 = "nvidia-l4-24gb"
A100 = "nvidia-a100-80gb"


def h100(index=0, *, lost=False, **changes):
    device = Accelerator(
        index=index,
        vendor="nvidia",
        id=f"GPU-aaaaaaaa-0000-0000-0000-{index:012d}",
        product="NVIDIA H100 80GB HBM3",
        pci=pci(index, "2330", "16c1"),
        compute_capability=(9, 0),
        memory_bytes=85520809984,
        health=Health(ecc_enabled=True),
        link=Link(nvlink_active=18, nvlink_total=18, nvlink_version=4),
        mig=Mig(enabled=False, pending_enabled=False),
        fault=DeviceFault(kind="lost") if lost else None,
    )
    return replace(device, **changes)


def l4(index=0, **changes):
    device = Accelerator(
        index=index,
        vendor="nvidia",
        id=f"GPU-bbbbbbbb-0000-0000-0000-{index:012d}",
        product="NVIDIA L4",
        pci=pci(index, "27b8", "16ca"),
        compute_capability=(8, 9),
        memory_bytes=24152899584,
        health=Health(ecc_enabled=True),
    )
    return replace(device, **changes)


def cut(device, *profiles, not_readable=False):
    """Return the device in MIG mode, cut into these (profile, GiB)."""
    partitions = tuple(
        Partition(id=f"MIG-{device.index}-{position}", profile=profile, memory_bytes=round(gib * GIB))
        for position, (profile, gib) in enumerate(profiles)
    )
    mig = Mig(enabled=True, pending_enabled=True, partitions=None if not_readable else partitions)
    return replace(device, mig=mig)


def pci(index, device_id, subsystem_id):
    return PciIdentity(
        address=f"0000:{index + 16:02x}:00.0",
        vendor_id="10de",
        device_id=device_id,
        subsystem_vendor_id="10de",
        subsystem_id=subsystem_id,
    )


def record(name, uid, devices, *, at=START, simulated=False, driver="580.95.05"):
    facts = NodeFacts(
        verdict="complete" if devices else "none",
        reason="AllDevicesRead",
        message="every device was read",
        accelerators=tuple(devices),
        drivers=(Driver(name="nvidia", version=driver, cuda_version="13.0"),),
        simulated=simulated,
    )
    return record_for(inventory_of(facts), NodeIdentity(name=name, uid=uid), now=at, agent_version="0.0.0")
