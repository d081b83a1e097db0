"""Where each answer of one GPU stands in a fake device; pure.

A taker puts an answer into the fields and says whether a fake with these fields answers the same.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from probes.nvml_readings import (
    CLOCK_EVENT_REASONS,
    FABRIC_STATES,
    MEMORY_DOMAIN,
    RECOVERY_ACTION_FIELD,
    RECOVERY_ACTIONS,
    SM_DOMAIN,
    VIRTUALIZATIONS,
)

Values = dict[str, Any]
"""Plain values in the scenario format."""

_UINT, _LONG = 1 << 32, 1 << 63

Take = Callable[[Values, Any], bool]
"""Puts a reading into the fields; False where they cannot hold it."""


def put(fields: Values, path: str, value: object) -> None:
    """Set a field; dots lead into a part."""
    *parts, name = path.split(".")
    for part in parts:
        fields = fields.setdefault(part, {})
    fields[name] = value


def _number(path: str) -> Take:
    def take(fields: Values, value: int) -> bool:
        if not 0 <= value < _UINT:
            return False
        put(fields, path, value)
        return True

    return take


def _watts(path: str) -> Take:
    def take(fields: Values, value: int) -> bool:
        put(fields, path, value / 1000)
        return 0 <= value < _UINT

    return take


def _text(path: str) -> Take:
    def take(fields: Values, value: str) -> bool:
        put(fields, path, value)
        return True

    return take


def _switch(path: str) -> Take:
    def take(fields: Values, value: int) -> bool:
        if value not in {0, 1}:
            return False
        put(fields, path, bool(value))
        return True

    return take


def _word(path: str, words: Mapping[int, str]) -> Take:
    def take(fields: Values, value: int) -> bool:
        if value not in words:
            return False
        put(fields, path, words[value])
        return True

    return take


def _capability(fields: Values, value: Sequence[int]) -> bool:
    major, minor = value
    fields["compute_capability"] = f"{major}.{minor}" if 0 <= major < 100 and 0 <= minor < 10 else None
    return fields["compute_capability"] is not None


def _memory(fields: Values, value: Sequence[int | None]) -> bool:
    total, free, used, reserved = ((part or 0) for part in value)
    if max(total, used, reserved) >= _LONG or free != total - used - reserved:
        return False
    fields["memory"] = {"total_bytes": total, "reserved_bytes": reserved, "used_bytes": used}
    return True


def _aperture(fields: Values, value: Mapping[str, int]) -> bool:
    total, used = value["bar1Total"], value["bar1Used"]
    if max(total, used) >= _LONG:
        return False
    fields["bar1"] = {"total_bytes": total, "used_bytes": used}
    return True


def _power_range(fields: Values, value: Sequence[int]) -> bool:
    put(fields, "power.min_limit_watts", value[0] / 1000)
    put(fields, "power.max_limit_watts", value[1] / 1000)
    return True


def _utilization(fields: Values, value: Mapping[str, int]) -> bool:
    fields["utilization"] = {"gpu_percent": value["gpu"], "memory_percent": value["memory"]}
    return True


def _fabric(fields: Values, value: Sequence[Any]) -> bool:
    uuid, status, clique, state, health_mask = value
    if state not in FABRIC_STATES:
        return False
    digits = str(uuid)
    fields["fabric"] = {
        "state": FABRIC_STATES[state],
        "status": status,
        "cluster_uuid": "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])),
        "clique": clique,
        "health_mask": health_mask or 0,
    }
    return True


def _ecc_mode(fields: Values, value: Sequence[int]) -> bool:
    enabled, pending = value
    fields["ecc"] = {"enabled": enabled == 1, "pending": pending == 1}
    return max(value) <= 1


def _ecc_errors(name: str) -> Take:
    def take(fields: Values, value: int) -> bool:
        ecc = fields.get("ecc")
        if ecc is None or not ecc["enabled"] or value >= _LONG:
            return False
        ecc[name] = value
        return True

    return take


def _remapped_rows(fields: Values, value: Sequence[int]) -> bool:
    corrected, uncorrectable, pending, failed = value
    fields["remapped_rows"] = {
        "corrected": corrected,
        "uncorrectable": uncorrectable,
        "pending": pending == 1,
        "failed": failed == 1,
    }
    # A GPU in MIG mode seldom tells, and its field would not either.
    return max(pending, failed) <= 1 and not (fields.get("mig") or {}).get("instances")


def _retired_pages(cause: str) -> Take:
    def take(fields: Values, value: int) -> bool:
        pages = [page << 12 for page in range(min(value, 1 << 10))]
        put(fields, f"retired_pages.{cause}", pages)
        return True

    return take


def _pages_pending(fields: Values, value: int) -> bool:
    # Without pages there is no field to say it in.
    return "retired_pages" in fields and _switch("retired_pages.pending")(fields, value)


def _clock_reasons(fields: Values, value: int) -> bool:
    words = [word for bit, word in CLOCK_EVENT_REASONS if value & bit]
    fields["clock_event_reasons"] = words
    return sum(bit for bit, _ in CLOCK_EVENT_REASONS if value & bit) == value


def _recovery_action(fields: Values, value: int) -> bool:
    if value > 4:
        fields["field_values"] = {RECOVERY_ACTION_FIELD: value}
    else:
        fields["recovery_action"] = RECOVERY_ACTIONS[value]
    return True


def _c2c(fields: Values, value: int) -> bool:
    return _switch("c2c")(fields, value)


def _numa_node(fields: Values, value: int) -> bool:
    fields["memory_numa_node"] = value
    return True


_DOMAINS = ((0, "graphics"), (SM_DOMAIN, "sm"), (MEMORY_DOMAIN, "memory"), (3, "video"))
_COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
_ADDRESSING_MODES = {0: "none", 1: "hmm", 2: "ats"}

TAKERS: Mapping[tuple[str, tuple[int, ...] | None], Take] = {
    ("nvmlDeviceGetBrand", None): _number("brand"),
    ("nvmlDeviceGetArchitecture", None): _number("architecture"),
    ("nvmlDeviceGetMinorNumber", None): _number("minor_number"),
    ("nvmlDeviceGetModuleId", None): _number("module_id"),
    ("nvmlDeviceGetVbiosVersion", None): _text("vbios_version"),
    ("nvmlDeviceGetGspFirmwareVersion", None): _text("gsp_firmware_version"),
    ("nvmlDeviceGetCudaComputeCapability", None): _capability,
    ("nvmlDeviceGetNumGpuCores", None): _number("cores"),
    ("nvmlDeviceGetMemoryInfo_v2", None): _memory,
    ("nvmlDeviceGetMemoryInfo", None): _memory,
    ("nvmlDeviceGetBAR1MemoryInfo", None): _aperture,
    ("nvmlDeviceGetMemoryBusWidth", None): _number("memory_bus_bits"),
    **{("nvmlDeviceGetClockInfo", (n,)): _number(f"clocks_mhz.{word}") for n, word in _DOMAINS},
    **{("nvmlDeviceGetMaxClockInfo", (n,)): _number(f"max_clocks_mhz.{word}") for n, word in _DOMAINS},
    ("nvmlDeviceGetMaxCustomerBoostClock", None): _number("boost_clock_mhz"),
    ("nvmlDeviceGetPowerUsage", None): _watts("power.usage_watts"),
    ("nvmlDeviceGetPowerManagementLimit", None): _watts("power.limit_watts"),
    ("nvmlDeviceGetPowerManagementDefaultLimit", None): _watts("power.default_limit_watts"),
    ("nvmlDeviceGetPowerManagementLimitConstraints", None): _power_range,
    ("nvmlDeviceGetTemperature", None): _number("temperature_celsius"),
    ("nvmlDeviceGetUtilizationRates", None): _utilization,
    ("nvmlDeviceGetVirtualizationMode", None): _word("virtualization", VIRTUALIZATIONS),
    ("nvmlDeviceGetDisplayMode", None): _switch("display_mode"),
    ("nvmlDeviceGetDisplayActive", None): _switch("display_active"),
    ("nvmlDeviceGetComputeMode", None): _word("compute_mode", _COMPUTE_MODES),
    ("nvmlDeviceGetPersistenceMode", None): _switch("persistence_mode"),
    ("nvmlDeviceGetNumaNodeId", None): _numa_node,
    ("nvmlDeviceGetAddressingMode", None): _word("addressing_mode", _ADDRESSING_MODES),
    ("nvmlDeviceGetC2cModeInfoV", None): _c2c,
    ("nvmlDeviceGetCurrPcieLinkGeneration", None): _number("pcie.generation"),
    ("nvmlDeviceGetMaxPcieLinkGeneration", None): _number("pcie.generation_max"),
    ("nvmlDeviceGetGpuMaxPcieLinkGeneration", None): _number("pcie.gpu_generation_max"),
    ("nvmlDeviceGetCurrPcieLinkWidth", None): _number("pcie.width"),
    ("nvmlDeviceGetMaxPcieLinkWidth", None): _number("pcie.width_max"),
    ("nvmlDeviceGetGpuFabricInfoV", None): _fabric,
    ("nvmlDeviceGetGpuFabricInfo", None): _fabric,
    ("nvmlDeviceGetEccMode", None): _ecc_mode,
    ("nvmlDeviceGetTotalEccErrors", (0, 0)): _ecc_errors("volatile_corrected"),
    ("nvmlDeviceGetTotalEccErrors", (1, 0)): _ecc_errors("volatile_uncorrected"),
    ("nvmlDeviceGetTotalEccErrors", (0, 1)): _ecc_errors("aggregate_corrected"),
    ("nvmlDeviceGetTotalEccErrors", (1, 1)): _ecc_errors("aggregate_uncorrected"),
    ("nvmlDeviceGetRemappedRows", None): _remapped_rows,
    ("nvmlDeviceGetRetiredPages_v2", (0,)): _retired_pages("single_bit"),
    ("nvmlDeviceGetRetiredPages_v2", (1,)): _retired_pages("double_bit"),
    ("nvmlDeviceGetRetiredPagesPendingStatus", None): _pages_pending,
    ("nvmlDeviceGetCurrentClocksEventReasons", None): _clock_reasons,
    ("nvmlDeviceGetCurrentClocksThrottleReasons", None): _clock_reasons,
    ("nvmlDeviceGetFieldValues", (RECOVERY_ACTION_FIELD,)): _recovery_action,
}
"""By function and, where they matter, the arguments behind the handle."""
