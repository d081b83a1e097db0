"""Whatever a scenario sets is answered: each field of a device is set to an odd value and read back."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec.structs
import pynvml
import pytest

from fakes import filesystem
from fakes.hardware import Device
from tests.fakes.bound import bound, machine

Read = Callable[[Any, Path], Any]

PCI = {"address": "00ab:c1:1d.0", "device_id": "beef", "vendor_id": "1234", "subsystem_id": "cafe"}
PROFILE = {
    "name": "3g.odd",
    "slot": 2,
    "id": 77,
    "slices": 3,
    "max_instances": 5,
    "memory_mib": 33,
    "multiprocessors": 21,
}
ENGINES = {"copy_engines": 4, "decoders": 6, "encoders": 8, "jpegs": 9, "ofas": 11}


def _call(name: str, *arguments: Any) -> Read:
    return lambda handle, _: getattr(pynvml, name)(handle, *arguments)


def _field(name: str, field: str, *arguments: Any) -> Read:
    return lambda handle, _: getattr(getattr(pynvml, name)(handle, *arguments), field)


def _item(name: str, index: int, *arguments: Any) -> Read:
    return lambda handle, _: getattr(pynvml, name)(handle, *arguments)[index]


def _sysfs(name: str) -> Read:
    return lambda _, root: (root / "sys/bus/pci/devices/00ab:c1:1d.0" / name).read_text().strip()


def _fabric(field: str) -> Read:
    def read(handle: Any, _: Path) -> Any:
        info = pynvml.c_nvmlGpuFabricInfo_v3_t()
        pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        value = getattr(info, field)
        return bytes(value).hex() if field == "clusterUuid" else value

    return read


def _part(read: Read) -> Read:
    return lambda handle, root: read(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0), root)


def _profile(field: str) -> Read:
    return _field("nvmlDeviceGetGpuInstanceProfileInfo", field, 2)


def _links(handle: Any, _: Path) -> list[int]:
    states = []
    while True:
        try:
            states.append(pynvml.nvmlDeviceGetNvLinkState(handle, len(states)))
        except pynvml.NVMLError_InvalidArgument:
            return states


def _mig(**instance: Any) -> dict[str, Any]:
    return {
        "mig": {
            "enabled": True,
            "profiles": [{**PROFILE, **ENGINES}],
            "instances": [{"profile": "3g.odd", **instance}],
        }
    }


V2 = pynvml.nvmlMemory_v2
MEMORY = {"total_bytes": 1001, "reserved_bytes": 101, "used_bytes": 11}

SHOWN: dict[str, tuple[dict[str, Any], Read, Any]] = {
    "name": ({"name": "Odd One"}, _call("nvmlDeviceGetName"), "Odd One"),
    "uuid": ({"uuid": "GPU-odd"}, _call("nvmlDeviceGetUUID"), "GPU-odd"),
    "pci.address": ({"pci": PCI}, _field("nvmlDeviceGetPciInfo_v3", "busId"), "000000AB:C1:1D.0"),
    "pci.device_id": ({"pci": PCI}, _field("nvmlDeviceGetPciInfo_v3", "pciDeviceId"), 0xBEEF1234),
    "pci.vendor_id": ({"pci": PCI}, _sysfs("vendor"), "0x1234"),
    "pci.subsystem_id": ({"pci": PCI}, _field("nvmlDeviceGetPciInfo_v3", "pciSubSystemId"), 0xCAFE10DE),
    "pci.subsystem_vendor_id": ({"pci": {**PCI, "subsystem_vendor_id": "4321"}}, _sysfs("subsystem_vendor"), "0x4321"),
    "pci.class_code": ({"pci": {**PCI, "class_code": "0b4001"}}, _sysfs("class"), "0x0b4001"),
    "pci.numa_node": ({"pci": {**PCI, "numa_node": 5}}, _sysfs("numa_node"), "5"),
    "pci.driver": (
        {"pci": {**PCI, "driver": "vfio-pci"}},
        lambda _, root: (root / "sys/bus/pci/devices/00ab:c1:1d.0/driver").readlink().name,
        "vfio-pci",
    ),
    "pci.on_bus": (
        {"pci": {**PCI, "on_bus": False}},
        lambda _, root: list((root / "sys/bus/pci/devices").iterdir()),
        [],
    ),
    "serial": ({"serial": "4711"}, _call("nvmlDeviceGetSerial"), "4711"),
    "brand": ({"brand": 17}, _call("nvmlDeviceGetBrand"), 17),
    "architecture": ({"architecture": 4294967295}, _call("nvmlDeviceGetArchitecture"), 4294967295),
    "compute_capability": ({"compute_capability": "13.7"}, _call("nvmlDeviceGetCudaComputeCapability"), (13, 7)),
    "minor_number": ({"minor_number": 9}, _call("nvmlDeviceGetMinorNumber"), 9),
    "module_id": ({"module_id": 6}, _call("nvmlDeviceGetModuleId"), 6),
    "board_part_number": ({"board_part_number": "odd-1"}, _call("nvmlDeviceGetBoardPartNumber"), "odd-1"),
    "vbios_version": ({"vbios_version": "odd-2"}, _call("nvmlDeviceGetVbiosVersion"), "odd-2"),
    "gsp_firmware_version": ({"gsp_firmware_version": "odd-3"}, _call("nvmlDeviceGetGspFirmwareVersion"), b"odd-3"),
    "cores": ({"cores": 13}, _call("nvmlDeviceGetNumGpuCores"), 13),
    "memory.total_bytes": ({"memory": MEMORY}, _field("nvmlDeviceGetMemoryInfo", "total", V2), 1001),
    "memory.reserved_bytes": ({"memory": MEMORY}, _field("nvmlDeviceGetMemoryInfo", "reserved", V2), 101),
    "memory.used_bytes": ({"memory": MEMORY}, _field("nvmlDeviceGetMemoryInfo", "used", V2), 11),
    "bar1.total_bytes": (
        {"bar1": {"total_bytes": 5, "used_bytes": 3}}, _field("nvmlDeviceGetBAR1MemoryInfo", "bar1Total"), 5,
    ),
    "bar1.used_bytes": (
        {"bar1": {"total_bytes": 5, "used_bytes": 3}}, _field("nvmlDeviceGetBAR1MemoryInfo", "bar1Used"), 3,
    ),
    "memory_bus_bits": ({"memory_bus_bits": 77}, _call("nvmlDeviceGetMemoryBusWidth"), 77),
    **{
        f"clocks_mhz.{domain}": ({"clocks_mhz": {domain: 501 + n}}, _call("nvmlDeviceGetClockInfo", n), 501 + n)
        for n, domain in enumerate(("graphics", "sm", "memory", "video"))
    },
    **{
        f"max_clocks_mhz.{domain}": ({"max_clocks_mhz": {domain: 601 + n}}, _call("nvmlDeviceGetMaxClockInfo", n), 601 + n)
        for n, domain in enumerate(("graphics", "sm", "memory", "video"))
    },
    "boost_clock_mhz": ({"boost_clock_mhz": 701}, _call("nvmlDeviceGetMaxCustomerBoostClock", 1), 701),
    "power.usage_watts": ({"power": {"usage_watts": 1.5}}, _call("nvmlDeviceGetPowerUsage"), 1500),
    "power.limit_watts": ({"power": {"limit_watts": 2.5}}, _call("nvmlDeviceGetEnforcedPowerLimit"), 2500),
    "power.default_limit_watts": (
        {"power": {"default_limit_watts": 3.5}}, _call("nvmlDeviceGetPowerManagementDefaultLimit"), 3500,
    ),
    "power.min_limit_watts": (
        {"power": {"min_limit_watts": 4.5, "max_limit_watts": 9.5}},
        _item("nvmlDeviceGetPowerManagementLimitConstraints", 0), 4500,
    ),
    "power.max_limit_watts": (
        {"power": {"min_limit_watts": 4.5, "max_limit_watts": 9.5}},
        _item("nvmlDeviceGetPowerManagementLimitConstraints", 1), 9500,
    ),
    "temperature_celsius": ({"temperature_celsius": 91}, _call("nvmlDeviceGetTemperatureV", 0), 91),
    "utilization.gpu_percent": (
        {"utilization": {"gpu_percent": 12, "memory_percent": 34}}, _field("nvmlDeviceGetUtilizationRates", "gpu"), 12,
    ),
    "utilization.memory_percent": (
        {"utilization": {"gpu_percent": 12, "memory_percent": 34}}, _field("nvmlDeviceGetUtilizationRates", "memory"), 34,
    ),
    "virtualization": ({"virtualization": "host-vsga"}, _call("nvmlDeviceGetVirtualizationMode"), 4),
    "display_mode": ({"display_mode": True}, _call("nvmlDeviceGetDisplayMode"), 1),
    "display_active": ({"display_active": True}, _call("nvmlDeviceGetDisplayActive"), 1),
    "compute_mode": ({"compute_mode": "exclusive-process"}, _call("nvmlDeviceGetComputeMode"), 3),
    "persistence_mode": ({"persistence_mode": True}, _call("nvmlDeviceGetPersistenceMode"), 1),
    "memory_numa_node": ({"memory_numa_node": 10}, _call("nvmlDeviceGetNumaNodeId"), 10),
    "addressing_mode": ({"addressing_mode": "ats"}, _call("nvmlDeviceGetAddressingMode"), 2),
    "c2c": ({"c2c": True}, _field("nvmlDeviceGetC2cModeInfoV", "isC2cEnabled"), 1),
    "mig.enabled": ({"mig": {"enabled": True}}, _call("nvmlDeviceGetMigMode"), [1, 1]),
    "mig.pending": ({"mig": {"pending": True}}, _call("nvmlDeviceGetMigMode"), [0, 1]),
    "mig.max_devices": ({"mig": {"enabled": True, "max_devices": 5}}, _call("nvmlDeviceGetMaxMigDeviceCount"), 5),
    "mig.profiles.name": (_mig(), _profile("name"), "MIG 3g.odd"),
    "mig.profiles.slot": (_mig(), _profile("sliceCount"), 3),
    "mig.profiles.id": (_mig(), _profile("id"), 77),
    "mig.profiles.slices": (_mig(), _profile("sliceCount"), 3),
    "mig.profiles.max_instances": (_mig(), _profile("instanceCount"), 5),
    "mig.profiles.memory_mib": (_mig(), _profile("memorySizeMB"), 33),
    "mig.profiles.multiprocessors": (_mig(), _profile("multiprocessorCount"), 21),
    "mig.profiles.copy_engines": (_mig(), _profile("copyEngineCount"), 4),
    "mig.profiles.decoders": (_mig(), _profile("decoderCount"), 6),
    "mig.profiles.encoders": (_mig(), _profile("encoderCount"), 8),
    "mig.profiles.jpegs": (_mig(), _profile("jpegCount"), 9),
    "mig.profiles.ofas": (_mig(), _profile("ofaCount"), 11),
    "mig.instances.profile": (_mig(), _part(_call("nvmlDeviceGetName")), "GPU MIG 3g.odd"),
    "mig.instances.id": (_mig(id=44), _part(_call("nvmlDeviceGetGpuInstanceId")), 44),
    "mig.instances.memory.total_bytes": (
        _mig(memory=MEMORY), _part(_field("nvmlDeviceGetMemoryInfo", "total", V2)), 1001,
    ),
    "mig.instances.memory.reserved_bytes": (
        _mig(memory=MEMORY), _part(_field("nvmlDeviceGetMemoryInfo", "reserved", V2)), 101,
    ),
    "mig.instances.memory.used_bytes": (
        _mig(memory=MEMORY), _part(_field("nvmlDeviceGetMemoryInfo", "used", V2)), 11,
    ),
    "mig.instances.compute_instances.slices": (
        _mig(compute_instances=[{"slices": 2}]), _part(_call("nvmlDeviceGetName")), "GPU MIG 2c.3g.odd",
    ),
    "mig.instances.compute_instances.id": (
        _mig(compute_instances=[{"id": 6}]), _part(_call("nvmlDeviceGetComputeInstanceId")), 6,
    ),
    "mig.instances.compute_instances.uuid": (
        _mig(compute_instances=[{"uuid": "MIG-odd"}]), _part(_call("nvmlDeviceGetUUID")), "MIG-odd",
    ),
    "mig.instances.compute_instances.multiprocessors": (
        _mig(compute_instances=[{"multiprocessors": 19}]),
        _part(_field("nvmlDeviceGetAttributes_v2", "multiprocessorCount")), 19,
    ),
    "nvlink.links": ({"nvlink": {"links": 3, "version": "6.0"}}, _links, [1, 1, 1]),
    "nvlink.version": ({"nvlink": {"links": 3, "version": "6.0"}}, _call("nvmlDeviceGetNvLinkVersion", 0), 8),
    "nvlink.inactive": ({"nvlink": {"links": 3, "version": "6.0", "inactive": [1]}}, _links, [1, 0, 1]),
    "pcie.generation": ({"pcie": {"generation": 6}}, _call("nvmlDeviceGetCurrPcieLinkGeneration"), 6),
    "pcie.generation_max": ({"pcie": {"generation_max": 7}}, _call("nvmlDeviceGetMaxPcieLinkGeneration"), 7),
    "pcie.gpu_generation_max": ({"pcie": {"gpu_generation_max": 8}}, _call("nvmlDeviceGetGpuMaxPcieLinkGeneration"), 8),
    "pcie.width": ({"pcie": {"width": 3}}, _call("nvmlDeviceGetCurrPcieLinkWidth"), 3),
    "pcie.width_max": ({"pcie": {"width_max": 5}, "pci": PCI}, _sysfs("max_link_width"), "5"),
    "fabric.state": ({"fabric": {"state": "in-progress"}}, _fabric("state"), 2),
    "fabric.status": ({"fabric": {"state": "completed", "status": 999}}, _fabric("status"), 999),
    "fabric.cluster_uuid": (
        {"fabric": {"state": "completed", "cluster_uuid": "00112233-4455-6677-8899-aabbccddeeff"}},
        _fabric("clusterUuid"), "00112233445566778899aabbccddeeff",
    ),
    "fabric.clique": ({"fabric": {"state": "completed", "clique": 9}}, _fabric("cliqueId"), 9),
    "fabric.health_mask": ({"fabric": {"state": "completed", "health_mask": 5}}, _fabric("healthMask"), 5),
    "fabric.health_summary": ({"fabric": {"state": "completed", "health_summary": 2}}, _fabric("healthSummary"), 2),
    "ecc.enabled": ({"ecc": {"enabled": True}}, _call("nvmlDeviceGetEccMode"), [1, 1]),
    "ecc.pending": ({"ecc": {"enabled": True, "pending": False}}, _call("nvmlDeviceGetEccMode"), [1, 0]),
    **{
        f"ecc.{span}_{kind}": (
            {"ecc": {"enabled": True, f"{span}_{kind}": 3}}, _call("nvmlDeviceGetTotalEccErrors", error, counter), 3,
        )
        for error, kind in enumerate(("corrected", "uncorrected"))
        for counter, span in enumerate(("volatile", "aggregate"))
    },
    "remapped_rows.corrected": ({"remapped_rows": {"corrected": 2}}, _call("nvmlDeviceGetRemappedRows"), (2, 0, 0, 0)),
    "remapped_rows.uncorrectable": (
        {"remapped_rows": {"uncorrectable": 4}}, _call("nvmlDeviceGetRemappedRows"), (0, 4, 0, 0),
    ),
    "remapped_rows.pending": ({"remapped_rows": {"pending": True}}, _call("nvmlDeviceGetRemappedRows"), (0, 0, 1, 0)),
    "remapped_rows.failed": ({"remapped_rows": {"failed": True}}, _call("nvmlDeviceGetRemappedRows"), (0, 0, 0, 1)),
    "retired_pages.single_bit": (
        {"retired_pages": {"single_bit": [7]}}, _call("nvmlDeviceGetRetiredPages", 0), [7],
    ),
    "retired_pages.double_bit": (
        {"retired_pages": {"double_bit": [8]}}, _call("nvmlDeviceGetRetiredPages", 1), [8],
    ),
    "retired_pages.pending": (
        {"retired_pages": {"pending": True}}, _call("nvmlDeviceGetRetiredPagesPendingStatus"), 1,
    ),
    "clock_event_reasons": (
        {"clock_event_reasons": ["hw-slowdown", "hw-power-brake"]},
        _call("nvmlDeviceGetCurrentClocksEventReasons"), 0x88,
    ),
    "recovery_action": (
        {"recovery_action": "drain-and-reset"},
        lambda handle, _: pynvml.nvmlDeviceGetFieldValues(handle, [230])[0].value.uiVal, 4,
    ),
    "field_values": (
        {"field_values": {91: 2**40}},
        lambda handle, _: pynvml.nvmlDeviceGetFieldValues(handle, [91])[0].value.ullVal, 2**40,
    ),
}  # fmt: skip

NOT_SHOWN = {
    "board": "where the figures come from",
    "minimum_driver": "checked when the scenario is read",
    "enumerated": "decides whether the device is there at all",
}


def leaves(structure: Any, prefix: str = "") -> set[str]:
    """Return the paths of all fields that hold no further structure."""
    found: set[str] = set()
    for field in msgspec.structs.fields(structure):
        part = _part_of(field.type)
        path = f"{prefix}{field.name}"
        found |= leaves(part, f"{path}.") if part else {path}
    return found


def _part_of(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    return next((part for choice in getattr(annotation, "__args__", ()) if (part := _part_of(choice))), None)


def test_the_table_below_covers_every_field_of_a_device():
    assert set(SHOWN) | set(NOT_SHOWN) == leaves(Device)


@pytest.mark.parametrize(("fields", "read", "expected"), SHOWN.values(), ids=SHOWN)
def test_fr_133_a_value_that_is_set_is_answered(fields, read, expected, tmp_path):
    scenario = machine({"name": "GPU", "uuid": "GPU-1", **fields})
    filesystem.render(scenario, tmp_path)
    with bound(scenario):
        assert read(pynvml.nvmlDeviceGetHandleByIndex(0), tmp_path) == expected


def test_a_device_without_a_figure_answers_not_supported_for_it():
    with bound(machine({"name": "GPU", "uuid": "GPU-1", "virtualization": None, "compute_mode": None})):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        answered = []
        for name, (_, read, _) in SHOWN.items():
            if not name.startswith(
                ("mig.", "name", "uuid", "pci.", "pcie.width_max", "field_values", "recovery")
            ):
                try:
                    answered.append((name, read(handle, Path("/nonexistent"))))
                except pynvml.NVMLError_NotSupported:
                    continue
        assert answered == [("minor_number", 0)]


def test_a_hidden_device_is_not_counted():
    with bound(machine({"name": "A", "enumerated": False}, {"name": "B"})):
        assert pynvml.nvmlDeviceGetCount() == 1
        assert pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)) == "B"
