"""One GPU of a report as fields of a fake device."""

from collections.abc import Mapping, Sequence
from typing import Any

from fakes import boards
from fakes.smi_partitions import Listed, layout_of
from fakes.smi_paths import PATHS
from fakes.smi_readings import ABSENT, GpuReport, error_code

ARCHITECTURES = {
    "Kepler": 2, "Maxwell": 3, "Pascal": 4, "Volta": 5, "Turing": 6, "Ampere": 7, "Ada Lovelace": 8, "Hopper": 9,
    "Blackwell": 10, "Rubin": 13,
}  # fmt: skip
BRANDS = {
    "Unknown": 0, "Quadro": 1, "Tesla": 2, "NVS": 3, "Grid": 4, "GeForce": 5, "Titan": 6, "NVIDIA vApps": 7,
    "NVIDIA Virtual PC": 8, "NVIDIA Virtual Compute Server": 9, "NVIDIA RTX Virtual Workstation": 10,
    "NVIDIA Cloud Gaming": 11, "Quadro RTX": 12, "NVIDIA RTX": 13, "NVIDIA": 14,
}  # fmt: skip
VIRTUALIZATIONS = {
    "None": "none", "Pass-Through": "passthrough", "VGPU": "vgpu", "Host VGPU": "host-vgpu", "Host VSGA": "host-vsga",
}  # fmt: skip
RECOVERY_ACTIONS = {
    "None": "none", "Reset": "reset", "GPU Reset": "reset", "Reboot": "reboot", "Node Reboot": "reboot",
    "Drain P2P": "drain-p2p", "Drain and Reset": "drain-and-reset",
}  # fmt: skip
COMPUTE_MODES = {
    "Default": "default", "Exclusive_Thread": "exclusive-thread", "Prohibited": "prohibited",
    "Exclusive_Process": "exclusive-process",
}  # fmt: skip
FABRIC_STATES = {"Not Started": "not-started", "In Progress": "in-progress", "Completed": "completed"}
SWITCH = {"Enabled": True, "Disabled": False, "Yes": True, "No": False}


def device_of(gpu: GpuReport, listed: Sequence[Listed]) -> dict[str, Any]:
    """Return the device; `listed` are its MIG devices as `nvidia-smi -L` prints them."""
    silicon = _silicon(gpu)
    fixed = ("compute_capability", "cores", "memory_bus_bits")
    return {
        **{key: silicon[key] for key in fixed if key in silicon},
        **_identity(gpu),
        **_state(gpu),
        **_electrics(gpu),
        **_health(gpu),
        "pci": _pci(gpu),
        "memory": _memory(gpu, "memory"),
        "bar1": _memory(gpu, "bar1"),
        "fabric": _fabric(gpu),
        "mig": _mig(gpu, silicon.get("mig", {}), listed),
    }


def _silicon(gpu: GpuReport) -> dict[str, Any]:
    """Return what the chip fixes: of the board with this PCI device id, else of the catalogue's product."""
    device_id = (gpu.raw("pci_device_id") or "").removeprefix("0x")[:4].lower()
    for name in boards.names():
        known = boards.board(name)
        same = known.get("pci", {}).get("device_id") == device_id
        if same and known.get("virtualization") == _virtualization_of_board(gpu):
            return known
    return _catalogued(device_id, gpu.word("architecture", ARCHITECTURES))


def _virtualization_of_board(gpu: GpuReport) -> str | None:
    """Return what a board file says where the report is of a virtual GPU: such boards name it, others do not."""
    return "vgpu" if gpu.word("virtualization", VIRTUALIZATIONS) == "vgpu" else None


def _catalogued(device_id: str, architecture: int | None) -> dict[str, Any]:
    from agent.core.catalogue import catalogue  # noqa: PLC0415 -- only for a board that the fakes lack

    products = catalogue().by_device_id.get(device_id, ())
    capabilities = {product.compute_capability for product in products}
    if len(capabilities) == 1:
        major, minor = capabilities.pop()
        buses = {product.memory_bus_bits for product in products}
        bus = {"memory_bus_bits": buses.pop()} if len(buses) == 1 else {}
        return {"compute_capability": f"{major}.{minor}", **bus}
    of_architecture = {5: "7.0", 6: "7.5", 8: "8.9", 9: "9.0"}
    if architecture in of_architecture:
        return {"compute_capability": of_architecture[architecture]}
    return {}


def _identity(gpu: GpuReport) -> dict[str, Any]:
    return {
        "name": gpu.text("name") or "",
        "uuid": gpu.text("uuid") or "",
        "serial": gpu.text("serial"),
        "brand": gpu.word("brand", BRANDS),
        "architecture": gpu.word("architecture", ARCHITECTURES),
        "minor_number": gpu.whole("minor_number"),
        "module_id": gpu.whole("module_id"),
        "board_part_number": gpu.text("board_part_number"),
        "vbios_version": gpu.text("vbios_version"),
        "gsp_firmware_version": gpu.text("gsp_firmware_version"),
    }


def _state(gpu: GpuReport) -> dict[str, Any]:
    mode = gpu.text("addressing_mode")
    return {
        "virtualization": gpu.word("virtualization", VIRTUALIZATIONS),
        "display_mode": gpu.word("display_mode", SWITCH),
        "display_active": gpu.word("display_active", SWITCH),
        "persistence_mode": gpu.word("persistence_mode", SWITCH),
        "compute_mode": gpu.word("compute_mode", COMPUTE_MODES),
        "addressing_mode": mode.lower() if mode else None,
        "c2c": gpu.word("c2c", SWITCH),
        "recovery_action": gpu.word("recovery_action", RECOVERY_ACTIONS),
    }


def _electrics(gpu: GpuReport) -> dict[str, Any]:
    utilization = [gpu.whole("utilization_gpu"), gpu.whole("utilization_memory")]
    return {
        "clocks_mhz": _clocks(gpu, "clock"),
        "max_clocks_mhz": _clocks(gpu, "max_clock"),
        "boost_clock_mhz": gpu.whole("boost_clock"),
        "power": {
            "usage_watts": gpu.number("power_usage"),
            "limit_watts": gpu.number("power_limit"),
            "default_limit_watts": gpu.number("power_default"),
            "min_limit_watts": gpu.number("power_min"),
            "max_limit_watts": gpu.number("power_max"),
        },
        "temperature_celsius": gpu.whole("temperature"),
        "utilization": None
        if None in utilization
        else dict(zip(("gpu_percent", "memory_percent"), utilization, strict=True)),
        "pcie": {
            "generation": gpu.whole("pcie_generation"),
            "generation_max": gpu.whole("pcie_generation_max"),
            "gpu_generation_max": gpu.whole("pcie_gpu_generation_max"),
            "width": gpu.whole("pcie_width"),
            "width_max": gpu.whole("pcie_width_max"),
        },
    }


def _clocks(gpu: GpuReport, prefix: str) -> dict[str, int | None]:
    return {domain: gpu.whole(f"{prefix}_{domain}") for domain in ("graphics", "sm", "memory", "video")}


def _memory(gpu: GpuReport, prefix: str) -> dict[str, int] | None:
    total = gpu.mebibytes(f"{prefix}_total")
    if total is None:
        return None
    fields = ("reserved", "used") if prefix == "memory" else ("used",)
    return {
        "total_bytes": total,
        **{f"{name}_bytes": gpu.mebibytes(f"{prefix}_{name}") or 0 for name in fields},
    }


def _pci(gpu: GpuReport) -> dict[str, Any] | None:
    bus, ids, subsystem = gpu.text("pci_bus_id"), gpu.text("pci_device_id"), gpu.text("pci_subsystem_id")
    if bus is None or ids is None:
        return None
    ids, subsystem = ids.removeprefix("0x").lower(), (subsystem or "00000000").removeprefix("0x").lower()
    domain, _, rest = bus.lower().partition(":")
    classes = [int(text, 16) for key in ("pci_base_class", "pci_sub_class") if (text := gpu.text(key))]
    shows = gpu.text("display_active") == "Enabled" or gpu.text("brand") == "GeForce"
    return {
        "address": f"{int(domain, 16):04x}:{rest}",
        "device_id": ids[:4],
        "vendor_id": ids[4:],
        "subsystem_id": subsystem[:4],
        "subsystem_vendor_id": subsystem[4:],
        "class_code": f"{classes[0]:02x}{classes[1]:02x}00"
        if len(classes) == 2
        else "030000"
        if shows
        else "030200",
    }


def _health(gpu: GpuReport) -> dict[str, Any]:
    return {
        "ecc": _ecc(gpu),
        "remapped_rows": _remapped_rows(gpu),
        "retired_pages": _retired_pages(gpu),
        "clock_event_reasons": _clock_event_reasons(gpu),
    }


def _ecc(gpu: GpuReport) -> dict[str, Any] | None:
    enabled = gpu.word("ecc_current", SWITCH)
    if enabled is None:
        return None
    counters = {
        f"{span}_{kind}": sum(gpu.whole(f"ecc_{span}_{kind}_{n}") or 0 for n in range(4))
        for span in ("volatile", "aggregate")
        for kind in ("corrected", "uncorrected")
    }
    return {"enabled": enabled, "pending": gpu.word("ecc_pending", SWITCH), **counters}


def _remapped_rows(gpu: GpuReport) -> dict[str, Any] | None:
    corrected, uncorrectable = gpu.whole("rows_corrected"), gpu.whole("rows_uncorrectable")
    if corrected is None or uncorrectable is None:
        return None
    return {
        "corrected": corrected,
        "uncorrectable": uncorrectable,
        "pending": gpu.word("rows_pending", SWITCH) or False,
        "failed": gpu.word("rows_failed", SWITCH) or False,
    }


def _retired_pages(gpu: GpuReport) -> dict[str, Any] | None:
    single, double = gpu.whole("retired_single"), gpu.whole("retired_double")
    if single is None or double is None:
        return None
    pages = [number << 12 for number in range(single + double)]
    pending = gpu.word("retired_pending", SWITCH) or False
    return {"single_bit": pages[:single], "double_bit": pages[single:], "pending": pending}


def _clock_event_reasons(gpu: GpuReport) -> list[str] | None:
    reasons = [key.removeprefix("reason_") for key in PATHS if key.startswith("reason_")]
    told = {reason: gpu.text(f"reason_{reason}") for reason in reasons}
    if not any(told.values()):
        return None
    return [reason for reason, value in told.items() if value == "Active"]


def _fabric(gpu: GpuReport) -> dict[str, Any] | None:
    state = gpu.word("fabric_state", FABRIC_STATES)
    if state is None:
        return None
    status = gpu.raw("fabric_status") or "Success"
    cluster, clique = gpu.text("fabric_cluster"), gpu.whole("fabric_clique")
    return {
        "state": state,
        "status": 0 if status == "Success" or status in ABSENT else error_code(status) or 999,
        **({"cluster_uuid": cluster} if cluster else {}),
        **({"clique": clique} if clique is not None else {}),
    }


def _mig(gpu: GpuReport, of_board: Mapping[str, Any], listed: Sequence[Listed]) -> dict[str, Any] | None:
    enabled = gpu.word("mig_current", SWITCH)
    if enabled is None:
        return None
    profiles, instances = layout_of(gpu.entry, list(of_board.get("profiles", [])), listed, xml=gpu.xml)
    return {
        "enabled": enabled,
        "pending": gpu.word("mig_pending", SWITCH),
        "max_devices": of_board.get("max_devices", 7),
        "profiles": profiles,
        "instances": instances,
    }
