"""What is asked of one GPU, one function per group of readings; asks by name and imports no binding."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from probes.facts import (
    Accelerator,
    Fabric,
    FabricState,
    Health,
    Link,
    PciIdentity,
    RowRemapping,
    Virtualization,
)
from probes.findings import Identity
from probes.nvml_mig import read_mig
from probes.questions import UNKNOWN_TO_DRIVER, Handle, Questions, Refusal
from probes.standing import Named

UNIFIED_MEMORY_CAPABILITIES = frozenset({(7, 2), (8, 7), (10, 1), (11, 0), (12, 1)})
"""Xavier, Orin, Thor (before and since CUDA 13) and GB10: no discrete card has one of these capabilities, and drivers
of these answer the memory query with NOT_SUPPORTED, with zero or with the host's own memory."""

DISPLAY_ONLY = {"1fb0": "NVIDIA DGX Display"}
"""Adapters that drive a screen and no workload, by PCI device id and exact name: a Quadro T1000 shares the id."""

COUNT_LIMIT = 1 << 40
MHZ_LIMIT = 20_000
MILLIWATT_LIMIT = 100_000_000
MAX_LINKS = 36
_LINKS_OF_THE_OLDEST = 4

SM_DOMAIN, MEMORY_DOMAIN = 1, 2
UNCORRECTED, VOLATILE, LIFETIME = 1, 0, 1
RECOVERY_ACTION_FIELD = 230

VIRTUALIZATIONS: Mapping[int, Virtualization] = {
    0: "none",
    1: "passthrough",
    2: "vgpu",
    3: "host-vgpu",
    4: "host-vsga",
}
FABRIC_STATES: Mapping[int, FabricState] = {
    0: "not-supported",
    1: "not-started",
    2: "in-progress",
    3: "completed",
}
NVLINK_MAJORS: Mapping[int, int] = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
RECOVERY_ACTIONS: Mapping[int, str] = {
    0: "none",
    1: "reset",
    2: "reboot",
    3: "drain-p2p",
    4: "drain-and-reset",
    5: "recover-imex-domain",
    6: "bus-reset",
    7: "system-reboot",
}
CLOCK_EVENT_REASONS: tuple[tuple[int, str], ...] = (
    (0x001, "gpu-idle"),
    (0x002, "applications-clocks-setting"),
    (0x004, "sw-power-cap"),
    (0x008, "hw-slowdown"),
    (0x010, "sync-boost"),
    (0x020, "sw-thermal-slowdown"),
    (0x040, "hw-thermal-slowdown"),
    (0x080, "hw-power-brake"),
    (0x100, "display-clock-setting"),
)


class PciReading(NamedTuple):
    """Fields of `nvmlPciInfo_t`."""

    domain: int
    bus: int
    device: int
    device_and_vendor: int
    subsystem: int


class FabricReading(NamedTuple):
    """Fields of `nvmlGpuFabricInfo`; `health_mask` is `None` from the old call."""

    cluster_uuid: bytes
    status: int
    clique: int
    state: int
    health_mask: int | None


def read_accelerator(
    index: int, handle: Handle, ask: Questions, *, recall: Callable[[Named], None] = lambda _: None
) -> Iterator[Identity | Accelerator]:
    """Yield what identifies the device, then everything; the fault and the problems are those known by then.

    `recall` is told who the device says it is, before anything is asked that may be known of just this one.
    """
    identity = Accelerator(
        index=index,
        vendor="nvidia",
        id=ask.text("id", "nvmlDeviceGetUUID", handle),
        pci=_read_pci(handle, ask),
        product=ask.text("product", "nvmlDeviceGetName", handle),
    )
    yield Identity(replace(identity, fault=ask.fault, problems=ask.problems) if ask.problems else identity)
    if _is_display(identity):
        yield replace(identity, fault=ask.fault, problems=ask.problems, display_only=True)
        return
    mig = read_mig(handle, ask)
    recall(
        Named(
            id=identity.id,
            address=identity.pci.address if identity.pci else None,
            product=identity.product,
            mig=(mig.enabled, mig.pending_enabled) if mig else None,
        )
    )
    capability = _read_capability(handle, ask)
    unified = capability in UNIFIED_MEMORY_CAPABILITIES
    facts: dict[str, Any] = {
        **({} if unified else _read_memory(handle, ask)),
        **_read_clocks(handle, ask),
        **_read_placement(handle, ask),
        "mig": mig,
        "link": _read_link(handle, ask),
        "fabric": _read_fabric(handle, ask),
        "health": _read_health(handle, ask),
    }
    yield replace(
        identity,
        compute_capability=capability,
        unified_memory=unified,
        **facts,
        fault=ask.fault,
        problems=ask.problems,
    )


def _is_display(device: Accelerator) -> bool:
    names = DISPLAY_ONLY.values() if device.pci is None else (DISPLAY_ONLY.get(device.pci.device_id),)
    return device.product is not None and device.product in names


def _read_pci(handle: Handle, ask: Questions) -> PciIdentity | None:
    reading = ask.ask("pci", "nvmlDeviceGetPciInfo_v3", handle)
    if reading is None:
        return None
    vendor, device = reading.device_and_vendor & 0xFFFF, reading.device_and_vendor >> 16
    if vendor in {0, 0xFFFF} or reading.domain == 0xFFFFFFFF or reading.bus > 0xFF or reading.device > 0x1F:
        ask.doubt("pci")
        return None
    known = reading.subsystem not in {0, 0xFFFFFFFF}
    return PciIdentity(
        # NVML names no function: a GPU is function 0 of its slot, an SR-IOV share has a slot of its own.
        address=f"{reading.domain:04x}:{reading.bus:02x}:{reading.device:02x}.0",
        vendor_id=f"{vendor:04x}",
        device_id=f"{device:04x}",
        subsystem_vendor_id=f"{reading.subsystem & 0xFFFF:04x}" if known else None,
        subsystem_id=f"{reading.subsystem >> 16:04x}" if known else None,
    )


def _read_capability(handle: Handle, ask: Questions) -> tuple[int, int] | None:
    answer = ask.ask("compute_capability", "nvmlDeviceGetCudaComputeCapability", handle)
    if answer is None:
        return None
    major, minor = answer
    if 1 <= major < 100 and 0 <= minor < 100:
        return major, minor
    ask.doubt("compute_capability")
    return None


def _read_memory(handle: Handle, ask: Questions) -> dict[str, Any]:
    call = "nvmlDeviceGetMemoryInfo_v2"
    reading = ask.try_to_ask(call, handle)
    if isinstance(reading, Refusal) and reading.code in UNKNOWN_TO_DRIVER:
        call = "nvmlDeviceGetMemoryInfo"
        reading = ask.try_to_ask(call, handle)
    if isinstance(reading, Refusal):
        ask.note("memory", call, reading)
        return {}
    if not reading.possible:
        ask.doubt("memory")
        return {}
    return {
        "memory_bytes": reading.total,
        "memory_reserved_bytes": reading.reserved,
        "memory_used_bytes": None if reading.reserved is None else reading.used,
    }


def _read_clocks(handle: Handle, ask: Questions) -> dict[str, Any]:
    milliwatts = ask.positive(
        "power_limit", "nvmlDeviceGetPowerManagementDefaultLimit", handle, below=MILLIWATT_LIMIT
    )
    return {
        "cores": ask.positive("cores", "nvmlDeviceGetNumGpuCores", handle, below=1_000_000),
        "memory_bus_bits": ask.positive("memory_bus", "nvmlDeviceGetMemoryBusWidth", handle, below=1 << 16),
        "memory_clock_max_mhz": ask.positive(
            "memory_clock", "nvmlDeviceGetMaxClockInfo", handle, MEMORY_DOMAIN, below=MHZ_LIMIT
        ),
        "sm_clock_max_mhz": ask.positive(
            "sm_clock", "nvmlDeviceGetMaxClockInfo", handle, SM_DOMAIN, below=MHZ_LIMIT
        ),
        "boost_clock_mhz": ask.positive(
            "boost_clock", "nvmlDeviceGetMaxCustomerBoostClock", handle, SM_DOMAIN, below=MHZ_LIMIT
        ),
        "power_limit_watts": None if milliwatts is None else milliwatts / 1000,
    }


def _read_placement(handle: Handle, ask: Questions) -> dict[str, Any]:
    node = ask.ask("memory_numa_node", "nvmlDeviceGetNumaNodeId", handle)
    if node is not None:
        # -1 is the driver's "none", not nonsense.
        node = None if node == -1 else ask.plausible("memory_numa_node", node, below=1 << 16)
    return {
        "virtualization": ask.word(
            "virtualization", "nvmlDeviceGetVirtualizationMode", VIRTUALIZATIONS, handle
        ),
        "memory_numa_node": node,
    }


def _read_link(handle: Handle, ask: Questions) -> Link:
    active, total, version = _read_nvlink(handle, ask)
    return Link(
        pcie_generation=ask.positive(
            "pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", handle, below=32
        ),
        pcie_generation_max=ask.positive(
            "pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", handle, below=32
        ),
        pcie_width=ask.positive("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", handle, below=65),
        pcie_width_max=ask.positive("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", handle, below=65),
        nvlink_active=active,
        nvlink_total=total,
        nvlink_version=version,
        c2c=ask.switch("c2c", "nvmlDeviceGetC2cModeInfoV", handle),
    )


def _read_nvlink(handle: Handle, ask: Questions) -> tuple[int | None, int | None, int | None]:
    """Return the active links, all links and their major version.

    A link that would not tell its state makes both counts unknown: calling it down would make a sound GPU degraded.
    """
    call = "nvmlDeviceGetNvLinkState"
    states: dict[int, int] = {}
    for link in range(MAX_LINKS):
        state = ask.try_to_ask(call, handle, link)
        if not isinstance(state, Refusal):
            states[link] = state
        elif state.code not in UNKNOWN_TO_DRIVER and (state.code != 2 or not link):
            ask.note("nvlink", call, state)
            return None, None, None
        elif state.code == 2 or (not states and link + 1 >= _LINKS_OF_THE_OLDEST):
            # Numbers above the library's own limit are invalid arguments; a GPU without the first four links has none.
            break
    if not states:
        return None, None, None
    if not set(states.values()) <= {0, 1}:
        ask.doubt("nvlink")
        return None, None, None
    first = max(states, key=lambda link: (states[link], -link))
    version = ask.word("nvlink_version", "nvmlDeviceGetNvLinkVersion", NVLINK_MAJORS, handle, first)
    return sum(states.values()), len(states), version


def _read_fabric(handle: Handle, ask: Questions) -> Fabric | None:
    call = "nvmlDeviceGetGpuFabricInfoV"
    reading = ask.try_to_ask(call, handle)
    if isinstance(reading, Refusal) and reading.code in UNKNOWN_TO_DRIVER:
        call = "nvmlDeviceGetGpuFabricInfo"
        reading = ask.try_to_ask(call, handle)
    if isinstance(reading, Refusal):
        ask.note("fabric", call, reading)
        return None
    state = FABRIC_STATES.get(reading.state)
    if state is None:
        ask.doubt("fabric")
        return None
    if state != "completed":
        return Fabric(state=state, health_mask=reading.health_mask)
    return Fabric(
        state=state,
        cluster_uuid=_uuid(reading.cluster_uuid) if any(reading.cluster_uuid) else None,
        clique=ask.plausible("fabric.clique", reading.clique, below=1 << 31),
        status=reading.status,
        health_mask=reading.health_mask,
    )


def _uuid(raw: bytes) -> str:
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _read_health(handle: Handle, ask: Questions) -> Health:
    ecc = ask.ask("ecc_enabled", "nvmlDeviceGetEccMode", handle)
    return Health(
        ecc_enabled=None
        if ecc is None or ask.plausible("ecc_enabled", ecc[0], below=2) is None
        else bool(ecc[0]),
        ecc_uncorrected_errors=_ecc_errors("ecc_uncorrected_errors", VOLATILE, handle, ask),
        ecc_uncorrected_errors_lifetime=_ecc_errors("ecc_uncorrected_errors_lifetime", LIFETIME, handle, ask),
        row_remapping=_read_row_remapping(handle, ask),
        retired_pages=_read_retired_pages(handle, ask),
        retired_pages_pending=ask.switch(
            "retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus", handle
        ),
        clock_event_reasons=_read_clock_event_reasons(handle, ask),
        persistence_mode=ask.switch("persistence_mode", "nvmlDeviceGetPersistenceMode", handle),
        recovery_action=ask.word(
            "recovery_action", "nvmlDeviceGetFieldValues", RECOVERY_ACTIONS, handle, RECOVERY_ACTION_FIELD
        ),
    )


def _ecc_errors(field: str, counter: int, handle: Handle, ask: Questions) -> int | None:
    return ask.number(field, "nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, counter, below=COUNT_LIMIT)


def _read_row_remapping(handle: Handle, ask: Questions) -> RowRemapping | None:
    answer = ask.ask("row_remapping", "nvmlDeviceGetRemappedRows", handle)
    if answer is None:
        return None
    corrected, uncorrectable, pending, failed = answer
    if max(corrected, uncorrectable) >= 1 << 24 or max(pending, failed) > 1:
        ask.doubt("row_remapping")
        return None
    return RowRemapping(
        corrected=corrected, uncorrectable=uncorrectable, pending=bool(pending), failed=bool(failed)
    )


def _read_retired_pages(handle: Handle, ask: Questions) -> int | None:
    causes = [
        ask.number("retired_pages", "nvmlDeviceGetRetiredPages_v2", handle, cause, below=COUNT_LIMIT)
        for cause in (0, 1)
    ]
    known = [count for count in causes if count is not None]
    return sum(known) if len(known) == len(causes) else None


def _read_clock_event_reasons(handle: Handle, ask: Questions) -> tuple[str, ...] | None:
    call = "nvmlDeviceGetCurrentClocksEventReasons"
    bits = ask.try_to_ask(call, handle)
    if isinstance(bits, Refusal) and bits.code in UNKNOWN_TO_DRIVER:
        call = "nvmlDeviceGetCurrentClocksThrottleReasons"
        bits = ask.try_to_ask(call, handle)
    if isinstance(bits, Refusal):
        ask.note("clock_event_reasons", call, bits)
        return None
    if ask.plausible("clock_event_reasons", bits, below=1 << 32) is None:
        return None
    return tuple(word for bit, word in CLOCK_EVENT_REASONS if bits & bit)
