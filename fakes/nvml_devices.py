"""Answers of the fake NVML about one device: identity, memory, clocks, power, modes.

A value that the device does not have is NOT_SUPPORTED, and then nothing is written, as with the real library.
"""

from collections.abc import Callable
from typing import Any

from fakes import marshal
from fakes.hardware import Clocks, Device, Memory, Pci
from fakes.nvml_calls import Answer, Call
from fakes.nvml_system import address_numbers

VIRTUALIZATION = {"none": 0, "passthrough": 1, "vgpu": 2, "host-vgpu": 3, "host-vsga": 4}
COMPUTE_MODE = {"default": 0, "exclusive-thread": 1, "prohibited": 2, "exclusive-process": 3}
ADDRESSING_MODE = {"none": 0, "hmm": 1, "ats": 2}
CLOCK_REASON_BITS = {
    "gpu-idle": 0x1,
    "applications-clocks-setting": 0x2,
    "sw-power-cap": 0x4,
    "hw-slowdown": 0x8,
    "sync-boost": 0x10,
    "sw-thermal-slowdown": 0x20,
    "hw-thermal-slowdown": 0x40,
    "hw-power-brake": 0x80,
    "display-clock-setting": 0x100,
}
_CLOCK_DOMAINS = ("graphics", "sm", "memory", "video")


def _number(read: Callable[[Device], int | None]) -> Answer:
    """Answer with one number through the only argument."""

    def run(call: Call) -> None:
        marshal.write(call.arguments[0], read(call.device))

    return Answer(run)


def _word(read: Callable[[Device], str | None], numbers: dict[str, int]) -> Answer:
    """Answer with the number of an enumeration's word."""

    def run(call: Call) -> None:
        word = read(call.device)
        marshal.write(call.arguments[0], None if word is None else numbers[word])

    return Answer(run)


def _text(read: Callable[[Device], str | None]) -> Answer:
    """Answer with a text into a buffer of the given size."""

    def run(call: Call) -> None:
        marshal.write_text(call.arguments, read(call.device))

    return Answer(run)


def _name(call: Call) -> None:
    name = call.device.name
    marshal.write_text(call.arguments, f"{name} MIG {call.mig.profile_name}" if call.mig else name)


def _uuid(call: Call) -> None:
    marshal.write_text(call.arguments, call.mig.uuid if call.mig else call.device.uuid)


def _index(call: Call) -> None:
    marshal.write(call.arguments[0], call.mig.index if call.mig else call.gpu.index)


def _gsp_firmware(call: Call) -> None:
    # The only text whose length the caller does not pass: the buffer is as long as the header says.
    marshal.write_text((call.arguments[0], 64), call.device.gsp_firmware_version)


def _capability(call: Call) -> None:
    major, minor = marshal.needed(call.device.compute_capability).split(".")
    marshal.write(call.arguments[0], int(major))
    marshal.write(call.arguments[1], int(minor))


def _pci_numbers(pci: Pci) -> dict[str, Any]:
    domain, bus, device, _ = address_numbers(pci.address)
    return {
        "domain": domain,
        "bus": bus,
        "device": device,
        "pciDeviceId": int(pci.device_id + pci.vendor_id, 16),
        "pciSubSystemId": int(pci.subsystem_id + pci.subsystem_vendor_id, 16),
    }


def bus_id(address: str, *, domain_digits: int = 8) -> str:
    """Return a PCI address as NVML prints it: upper case, `00000000:1B:00.0`."""
    domain, bus, device, _ = address_numbers(address)
    return f"{domain:0{domain_digits}X}:{bus:02X}:{device:02X}.0"


def _pci_info(call: Call) -> None:
    pci = marshal.needed(call.device.pci)
    marshal.fill(
        call.arguments[0],
        busId=bus_id(pci.address).encode(),
        busIdLegacy=bus_id(pci.address, domain_digits=4)[:15].encode(),
        **_pci_numbers(pci),
    )


def _pci_info_ext(call: Call) -> None:
    marshal.require_version(call.arguments[0], 1)
    pci = marshal.needed(call.device.pci)
    marshal.fill(
        call.arguments[0],
        busId=bus_id(pci.address).encode(),
        baseClass=int(pci.class_code[:2], 16),
        subClass=int(pci.class_code[2:4], 16),
        **_pci_numbers(pci),
    )


def _memory_of(call: Call) -> Memory:
    memory: Memory = call.mig.part.memory if call.mig else marshal.needed(call.device.memory)
    return memory


def _memory_v1(call: Call) -> None:
    out = marshal.pointee(call.arguments[0])
    memory = _memory_of(call)
    # Version 1 has no field for the driver's reservation and counts it as used.
    used = memory.used_bytes + memory.reserved_bytes
    out.total, out.used, out.free = memory.total_bytes, used, memory.total_bytes - used


def _memory_v2(call: Call) -> None:
    marshal.require_version(call.arguments[0], 2)
    memory = _memory_of(call)
    marshal.fill(
        call.arguments[0],
        total=memory.total_bytes,
        reserved=memory.reserved_bytes,
        used=memory.used_bytes,
        free=memory.total_bytes - memory.reserved_bytes - memory.used_bytes,
    )


def _bar1(call: Call) -> None:
    bar1 = marshal.needed(call.device.bar1)
    marshal.fill(
        call.arguments[0],
        bar1Total=bar1.total_bytes,
        bar1Used=bar1.used_bytes,
        bar1Free=bar1.total_bytes - bar1.used_bytes,
    )


def _clock(read: Callable[[Device], Clocks]) -> Answer:
    def run(call: Call) -> None:
        domain = marshal.integer(call.arguments[0])
        if domain >= len(_CLOCK_DOMAINS):
            raise marshal.Refusal(marshal.INVALID_ARGUMENT)
        marshal.write(call.arguments[1], getattr(read(call.device), _CLOCK_DOMAINS[domain]))

    return Answer(run)


def _boost_clocks(device: Device) -> Clocks:
    return Clocks(graphics=device.boost_clock_mhz, sm=device.boost_clock_mhz)


def _milliwatts(watts: float | None) -> int | None:
    return None if watts is None else round(watts * 1000)


def _power_constraints(call: Call) -> None:
    low, high = call.device.power.min_limit_watts, call.device.power.max_limit_watts
    marshal.needed(low)
    marshal.needed(high)
    marshal.write(call.arguments[0], _milliwatts(low))
    marshal.write(call.arguments[1], _milliwatts(high))


def _temperature(call: Call) -> None:
    if marshal.integer(call.arguments[0]) != 0:
        raise marshal.Refusal(marshal.INVALID_ARGUMENT)
    marshal.write(call.arguments[1], call.device.temperature_celsius)


def _temperature_v(call: Call) -> None:
    marshal.require_version(call.arguments[0], 1)
    marshal.fill(call.arguments[0], temperature=marshal.needed(call.device.temperature_celsius))


def _utilization(call: Call) -> None:
    use = marshal.needed(call.device.utilization)
    if call.device.mig is not None and call.device.mig.enabled:
        raise marshal.Refusal(marshal.NOT_SUPPORTED)
    marshal.fill(call.arguments[0], gpu=use.gpu_percent, memory=use.memory_percent)


def _addressing_mode(call: Call) -> None:
    marshal.require_version(call.arguments[0], 1)
    marshal.fill(call.arguments[0], value=ADDRESSING_MODE[marshal.needed(call.device.addressing_mode)])


def _c2c(call: Call) -> None:
    marshal.fill(call.arguments[0], isC2cEnabled=int(marshal.needed(call.device.c2c)))


def _clock_reasons(device: Device) -> int | None:
    if device.clock_event_reasons is None:
        return None
    return sum(CLOCK_REASON_BITS[reason] for reason in set(device.clock_event_reasons))


_POWER_LIMIT = _number(lambda device: _milliwatts(device.power.limit_watts))
_CLOCK_REASONS = _number(_clock_reasons)

DEVICE_ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetIndex": Answer(_index, on="any-device"),
    "nvmlDeviceGetName": Answer(_name, on="any-device"),
    "nvmlDeviceGetUUID": Answer(_uuid, on="any-device"),
    "nvmlDeviceGetSerial": _text(lambda device: device.serial),
    "nvmlDeviceGetBrand": _number(lambda device: device.brand),
    "nvmlDeviceGetArchitecture": _number(lambda device: device.architecture),
    "nvmlDeviceGetMinorNumber": _number(lambda device: device.minor_number),
    "nvmlDeviceGetModuleId": _number(lambda device: device.module_id),
    "nvmlDeviceGetBoardPartNumber": _text(lambda device: device.board_part_number),
    "nvmlDeviceGetVbiosVersion": _text(lambda device: device.vbios_version),
    "nvmlDeviceGetGspFirmwareVersion": Answer(_gsp_firmware),
    "nvmlDeviceGetCudaComputeCapability": Answer(_capability),
    "nvmlDeviceGetPciInfo_v3": Answer(_pci_info),
    "nvmlDeviceGetPciInfoExt": Answer(_pci_info_ext),
    "nvmlDeviceGetMemoryInfo": Answer(_memory_v1, on="any-device"),
    "nvmlDeviceGetMemoryInfo_v2": Answer(_memory_v2, on="any-device"),
    "nvmlDeviceGetBAR1MemoryInfo": Answer(_bar1),
    "nvmlDeviceGetMemoryBusWidth": _number(lambda device: device.memory_bus_bits),
    "nvmlDeviceGetClockInfo": _clock(lambda device: device.clocks_mhz),
    "nvmlDeviceGetMaxClockInfo": _clock(lambda device: device.max_clocks_mhz),
    "nvmlDeviceGetMaxCustomerBoostClock": _clock(_boost_clocks),
    "nvmlDeviceGetNumGpuCores": _number(lambda device: device.cores),
    "nvmlDeviceGetPowerUsage": _number(lambda device: _milliwatts(device.power.usage_watts)),
    "nvmlDeviceGetPowerManagementLimit": _POWER_LIMIT,
    "nvmlDeviceGetEnforcedPowerLimit": _POWER_LIMIT,
    "nvmlDeviceGetPowerManagementDefaultLimit": _number(
        lambda device: _milliwatts(device.power.default_limit_watts)
    ),
    "nvmlDeviceGetPowerManagementLimitConstraints": Answer(_power_constraints),
    "nvmlDeviceGetTemperature": Answer(_temperature),
    "nvmlDeviceGetTemperatureV": Answer(_temperature_v),
    "nvmlDeviceGetUtilizationRates": Answer(_utilization),
    "nvmlDeviceGetVirtualizationMode": _word(lambda device: device.virtualization, VIRTUALIZATION),
    "nvmlDeviceGetDisplayMode": _number(lambda device: device.display_mode),
    "nvmlDeviceGetDisplayActive": _number(lambda device: device.display_active),
    "nvmlDeviceGetComputeMode": _word(lambda device: device.compute_mode, COMPUTE_MODE),
    "nvmlDeviceGetPersistenceMode": _number(lambda device: device.persistence_mode),
    "nvmlDeviceGetNumaNodeId": _number(lambda device: device.memory_numa_node),
    "nvmlDeviceGetC2cModeInfoV": Answer(_c2c),
    "nvmlDeviceGetAddressingMode": Answer(_addressing_mode),
    "nvmlDeviceGetCurrPcieLinkGeneration": _number(lambda device: device.pcie.generation),
    "nvmlDeviceGetMaxPcieLinkGeneration": _number(lambda device: device.pcie.generation_max),
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": _number(lambda device: device.pcie.gpu_generation_max),
    "nvmlDeviceGetCurrPcieLinkWidth": _number(lambda device: device.pcie.width),
    "nvmlDeviceGetMaxPcieLinkWidth": _number(lambda device: device.pcie.width_max),
    "nvmlDeviceGetCurrentClocksEventReasons": _CLOCK_REASONS,
    "nvmlDeviceGetCurrentClocksThrottleReasons": _CLOCK_REASONS,
}
