"""Fake machines from what `nvidia-smi` printed on a real one, so that a person's report goes through the real probe.

A report holds what NVML answered; what the silicon fixes and nvidia-smi does not print (cores, bus width, the list of
MIG profiles) comes from the board or the catalogue entry of the same PCI device id. NVLink is not in it and stays unknown.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakes import boards
from fakes.marshal import MESSAGES
from fakes.report import Entry, is_report, is_xml, read_report
from fakes.scenario import Scenario
from fakes.smi_partitions import Listed, layout_of, read_list
from fakes.smi_paths import PATHS
from fakes.strict import ScenarioError

__all__ = ["is_report", "scenario_of_file", "scenario_of_report"]

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
_ABSENT = {"", "N/A", "[N/A]", "[Not Supported]", "Not Supported", MESSAGES[26]}
_FAILURE_CODES = {message: code for code, message in MESSAGES.items() if code not in {0, 3, 26}}
_FUNCTIONS = {
    "name": "nvmlDeviceGetName",
    "uuid": "nvmlDeviceGetUUID",
    "memory_total": "nvmlDeviceGetMemoryInfo*",
    "mig_current": "nvmlDeviceGetMigMode",
    "ecc_current": "nvmlDeviceGetEccMode",
}
"""Calls whose error, printed in place of the value, becomes a failure of the fake."""


@dataclass(frozen=True, slots=True)
class GpuReport:
    """One GPU of a report."""

    entry: Entry
    xml: bool

    def raw(self, name: str) -> str | None:
        """Return the text of a reading, the first of its known places; `None` where the report has none."""
        return value_at(self.entry, name, xml=self.xml)

    def text(self, name: str) -> str | None:
        """Return the text of a reading; `None` for N/A and for the words of an error."""
        value = self.raw(name)
        return None if value is None or value in _ABSENT or error_code(value) is not None else value

    def number(self, name: str) -> float | None:
        """Return the number before the unit."""
        match = re.match(r"-?\d+(\.\d+)?", self.text(name) or "")
        return float(match[0]) if match else None

    def whole(self, name: str) -> int | None:
        """Return the whole number before the unit."""
        number = self.number(name)
        return None if number is None else round(number)

    def mebibytes(self, name: str) -> int | None:
        """Return bytes of a reading in MiB."""
        number = self.whole(name)
        return None if number is None else number << 20

    def word(self, name: str, words: Mapping[str, Any]) -> Any:  # noqa: ANN401 -- what the table holds
        """Return what stands for a word, `None` for a word that the table lacks."""
        return words.get(self.text(name) or "")


def value_at(entry: Entry, name: str, *, xml: bool) -> str | None:
    """Return the text of a reading under an entry."""
    for path in PATHS[name][0 if xml else 1]:
        if (found := entry.find(path)) is not None:
            return found.value
    return None


def error_code(text: str) -> int | None:
    """Return the NVML code whose message nvidia-smi printed in place of a value."""
    return _FAILURE_CODES.get(text.strip("[]"))


def scenario_of_file(path: Path, text: str) -> Scenario:
    """Return the scenario of a report in a file; MIG names and UUIDs come from a `.L.txt` beside it, where there is one."""
    stem = path.name.removesuffix(".q.txt").removesuffix(".xml").removesuffix(".txt")
    beside = path.with_name(f"{stem}.L.txt")
    listed = beside.read_text(encoding="utf-8") if beside.is_file() and beside != path else ""
    return scenario_of_report(text, name=stem, listed=listed)


def scenario_of_report(text: str, *, name: str, listed: str = "") -> Scenario:
    """Return the scenario of a report; `listed` is what `nvidia-smi -L` printed."""
    root = read_report(text)
    xml = is_xml(text)
    reports = [GpuReport(entry, xml) for entry in root.all("gpu")]
    names = read_list(listed)
    version, cuda = (value_at(root, key, xml=xml) for key in ("driver_version", "cuda_version"))
    if version is None or version in _ABSENT:
        raise ScenarioError("the report has no driver version: it is not whole")
    devices = [_device(gpu, names[n] if n < len(names) else ()) for n, gpu in enumerate(reports)]
    uuids = [device["uuid"] for device in devices]
    for device in devices:
        if uuids.count(device["uuid"]) > 1:
            # Blanked out before publication: any others will do, as long as they differ.
            del device["uuid"]
    driver = {"version": version, **({"cuda_version": cuda} if cuda and cuda not in _ABSENT else {})}
    failures = [failure for number, gpu in enumerate(reports) for failure in _failures(number, gpu)]
    return Scenario.from_data({"name": name, "driver": driver, "devices": devices, "failures": failures})


def _failures(number: int, gpu: GpuReport) -> list[dict[str, Any]]:
    return [
        {"function": function, "device": number, "code": code}
        for reading, function in _FUNCTIONS.items()
        if (code := error_code(gpu.raw(reading) or "")) is not None
    ]


def _device(gpu: GpuReport, listed: tuple[Listed, ...]) -> dict[str, Any]:
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
        "status": 0 if status == "Success" or status in _ABSENT else error_code(status) or 999,
        **({"cluster_uuid": cluster} if cluster else {}),
        **({"clique": clique} if clique is not None else {}),
    }


def _mig(gpu: GpuReport, of_board: Mapping[str, Any], listed: tuple[Listed, ...]) -> dict[str, Any] | None:
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
