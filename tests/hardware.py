"""Facts for tests: devices written out, and those of the named fake machines as the real probe reads them."""

import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent.core.health import Instant
from agent.core.inventory import Inventory, inventory_of
from fakes import boards, nodes
from fakes.scenario import Scenario
from probes.facts import (
    Accelerator,
    DeviceFault,
    Driver,
    FaultKind,
    Mig,
    NodeFacts,
    Partition,
    PciFunction,
    PciIdentity,
)
from tests.probes import probing

GIB = 1 << 30
MIB = 1 << 20
DOMAIN = "accelerators.ome.io"
START = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)


class ManualClock:
    """Both clocks of an agent, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> Instant:
        return Instant(wall=START + timedelta(seconds=self.seconds - 1000.0), monotonic=self.seconds)

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


def pci(device_id: str = "2330", *, slot: int = 0, **fields: Any) -> PciIdentity:
    """Return a function of NVIDIA's in a slot of its own."""
    return PciIdentity(
        address=f"0000:{0x10 + slot:02x}:00.0", vendor_id="10de", device_id=device_id, **fields
    )


def h100(number: int = 0, **fields: Any) -> Accelerator:
    """Return an H100 SXM that answers everything a class or a label needs."""
    told: dict[str, Any] = {
        "index": number,
        "vendor": "nvidia",
        "id": f"GPU-h100-{number}",
        "product": "NVIDIA H100 80GB HBM3",
        "pci": pci("2330", slot=number),
        "compute_capability": (9, 0),
        "memory_bytes": 81559 * MIB,
    }
    return Accelerator(**{**told, **fields})


def t4(number: int = 0, **fields: Any) -> Accelerator:
    """Return a T4."""
    told: dict[str, Any] = {
        "index": number,
        "vendor": "nvidia",
        "id": f"GPU-t4-{number}",
        "product": "Tesla T4",
        "pci": pci("1eb8", slot=number),
        "compute_capability": (7, 5),
        "memory_bytes": 15360 * MIB,
    }
    return Accelerator(**{**told, **fields})


def unread(number: int, kind: FaultKind = "lost", **fields: Any) -> Accelerator:
    """Return a device that failed before it told anything but what is given."""
    return Accelerator(index=number, vendor="nvidia", fault=DeviceFault(kind=kind), **fields)


def failed(accelerator: Accelerator, kind: FaultKind = "lost") -> Accelerator:
    """Return the device with its identity known and everything else failing."""
    return replace(accelerator, fault=DeviceFault(kind=kind))


def mig(*profiles: str | None, gib: int = 10) -> Mig:
    """Return MIG mode with one partition for each profile."""
    return Mig(
        enabled=True,
        pending_enabled=True,
        partitions=tuple(
            Partition(id=f"MIG-{n}", profile=profile, memory_bytes=gib * GIB)
            for n, profile in enumerate(profiles)
        ),
    )


def on_the_bus(*accelerators: Accelerator, driver: str = "nvidia") -> tuple[PciFunction, ...]:
    """Return the census of a bus with these devices."""
    return tuple(
        PciFunction(identity=accelerator.pci, class_code="030200", driver=driver)
        for accelerator in accelerators
        if accelerator.pci
    )


def facts(*accelerators: Accelerator, **fields: Any) -> NodeFacts:
    """Return a complete probe of these devices; partial where one failed."""
    sick = any(accelerator.fault for accelerator in accelerators)
    told: dict[str, Any] = {
        "verdict": "partial" if sick else "complete" if accelerators else "none",
        "reason": "DeviceLost" if sick else "AllDevicesRead" if accelerators else "NoAccelerators",
        "message": "as the test says",
        "drivers": (Driver(name="nvidia", version="580.95.05", cuda_version="13.0"),),
        "pci": on_the_bus(*accelerators),
        "accelerators": accelerators,
    }
    return NodeFacts(**{**told, **fields})


def could_not_ask(verdict: str = "no-answer", reason: str = "NoAnswer", **fields: Any) -> NodeFacts:
    """Return a probe that could not ask."""
    return NodeFacts(verdict=verdict, reason=reason, message="nvmlInit did not return", **fields)  # type: ignore[arg-type]


def inventory(*accelerators: Accelerator, **fields: Any) -> Inventory:
    """Return the judged devices of one probe."""
    return inventory_of(facts(*accelerators, **fields))


def fake_facts(name: str, cycle: int = 1) -> NodeFacts:
    """Return what the real probe reads of a named fake machine, within this process.

    Machines whose library hangs or aborts need a process of their own: `needs_a_process` tells.
    """
    return _fake_facts(name, cycle)


@lru_cache(maxsize=256)
def _fake_facts(name: str, cycle: int) -> NodeFacts:
    return scenario_facts(nodes.node(name), cycle)


def scenario_facts(scenario: Scenario, cycle: int = 1) -> NodeFacts:
    """Return what the real probe reads of a fake machine."""
    with tempfile.TemporaryDirectory() as folder:
        return probing.facts(scenario, Path(folder), cycle)


def needs_a_process(name: str) -> bool:
    """Tell whether a fake machine would end or hang the process that probes it."""
    return any(failure.hang or failure.abort for failure in nodes.node(name).failures)


def readable_nodes() -> tuple[str, ...]:
    """Return the fake machines that can be probed within this process."""
    return tuple(name for name in nodes.names() if not needs_a_process(name))


def board_scenario(board: str, **device: Any) -> Scenario:
    """Return a machine with one board, under a driver that knows it."""
    entry = {"board": board, **device}
    return Scenario.from_data({"name": f"board-{board}", "devices": [entry]})


def board_names() -> tuple[str, ...]:
    """Return the names of all boards."""
    return boards.names()
