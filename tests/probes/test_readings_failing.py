"""Each function of NVML failing in each way: it costs what it was asked for, and nothing else."""

from dataclasses import fields
from typing import Any

import pytest

from fakes.functions import SINCE
from probes.facts import Accelerator, FieldProblem
from tests.probes.probing import devices, h100, h100_mig, machine, resolved_symbols

TOUCHES: dict[str, set[str]] = {
    "nvmlDeviceGetAttributes_v2": {"mig"},
    "nvmlDeviceGetC2cModeInfoV": {"link.c2c"},
    "nvmlDeviceGetComputeInstanceId": {"mig"},
    "nvmlDeviceGetCudaComputeCapability": {"compute_capability"},
    "nvmlDeviceGetCurrPcieLinkGeneration": {"link.pcie_generation"},
    "nvmlDeviceGetCurrPcieLinkWidth": {"link.pcie_width"},
    "nvmlDeviceGetCurrentClocksEventReasons": {"health.clock_event_reasons"},
    "nvmlDeviceGetEccMode": {"health.ecc_enabled"},
    "nvmlDeviceGetFieldValues": {"health.recovery_action"},
    "nvmlDeviceGetGpuFabricInfoV": {"fabric"},
    "nvmlDeviceGetGpuInstanceId": {"mig"},
    "nvmlDeviceGetMaxClockInfo": {"memory_clock_max_mhz", "sm_clock_max_mhz"},
    "nvmlDeviceGetMaxCustomerBoostClock": {"boost_clock_mhz"},
    "nvmlDeviceGetMaxMigDeviceCount": {"mig"},
    "nvmlDeviceGetMaxPcieLinkGeneration": {"link.pcie_generation_max"},
    "nvmlDeviceGetMaxPcieLinkWidth": {"link.pcie_width_max"},
    "nvmlDeviceGetMemoryBusWidth": {"memory_bus_bits"},
    "nvmlDeviceGetMemoryInfo": set(),  # its second source is the size in the attributes
    "nvmlDeviceGetMemoryInfo_v2": {"memory_bytes", "memory_reserved_bytes", "memory_used_bytes"},
    "nvmlDeviceGetMigDeviceHandleByIndex": {"mig"},
    "nvmlDeviceGetMigMode": {"mig"},
    "nvmlDeviceGetName": {"product"},  # profiles have a second source
    "nvmlDeviceGetNumGpuCores": {"cores"},
    "nvmlDeviceGetNumaNodeId": {"memory_numa_node"},
    "nvmlDeviceGetNvLinkState": {"link.nvlink_active", "link.nvlink_total", "link.nvlink_version"},
    "nvmlDeviceGetNvLinkVersion": {"link.nvlink_version"},
    "nvmlDeviceGetPciInfo_v3": {"pci"},
    "nvmlDeviceGetPersistenceMode": {"health.persistence_mode"},
    "nvmlDeviceGetPowerManagementDefaultLimit": {"power_limit_watts"},
    "nvmlDeviceGetRemappedRows": {"health.row_remapping"},
    "nvmlDeviceGetRetiredPagesPendingStatus": {"health.retired_pages_pending"},
    "nvmlDeviceGetRetiredPages_v2": {"health.retired_pages"},
    "nvmlDeviceGetTotalEccErrors": {
        "health.ecc_uncorrected_errors",
        "health.ecc_uncorrected_errors_lifetime",
    },
    "nvmlDeviceGetUUID": {"id", "mig"},
    "nvmlDeviceGetVirtualizationMode": {"virtualization"},
}
"""What is lost when a function of a device fails. Functions that only a fallback asks are tested apart."""

WHOLE_LIBRARY = {
    "nvmlInitWithFlags",
    "nvmlShutdown",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
}

SILENT = {3, 13}
WORDS = {
    4: "no-permission",
    10: "timeout",
    15: "gpu-lost",
    16: "reset-required",
    999: "unknown",
    20: "nvml-20",
}
SENTINELS = (0x7FFFFFFFFFFFFFF0, 2**63, 2**63 - 1, 2**64 - 1, 2**32 - 1)


def the_machine(**fields: Any):
    """Return a machine of one GPU in MIG mode, which has every reading, beside one that must not suffer."""
    extra = {
        "memory_numa_node": 2,
        "retired_pages": {"single_bit": [4096], "double_bit": [], "pending": False},
        "remapped_rows": {},
    }
    return machine(h100_mig(**extra), h100(), **fields)


def flat(device: Accelerator) -> dict[str, Any]:
    """Return the facts of a device by name, the groups link and health taken apart."""
    values: dict[str, Any] = {}
    for field in fields(device):
        value = getattr(device, field.name)
        if field.name in {"link", "health"} and value is not None:
            values.update({f"{field.name}.{part.name}": getattr(value, part.name) for part in fields(value)})
        elif field.name not in {"fault", "problems"}:
            values[field.name] = value
    return values


@pytest.fixture(scope="module")
def sound() -> list[Accelerator]:
    return devices(the_machine())


def lost(sound: Accelerator, found: Accelerator) -> set[str]:
    before, now = flat(sound), flat(found)
    return {name for name in before if before[name] != now[name]}


def test_the_tables_name_every_function_that_a_probe_resolves():
    assert resolved_symbols(the_machine()) == TOUCHES.keys() | WHOLE_LIBRARY


def test_every_symbol_that_any_probe_resolves_exists_in_the_fake():
    oldest = machine(h100_mig(minimum_driver=None), driver={"version": "470.57.02", "cuda_version": "11.4"})
    unnamed = the_machine(failures=[{"function": "nvmlDeviceGetName", "code": 3}])
    resolved = resolved_symbols(the_machine()) | resolved_symbols(oldest) | resolved_symbols(unnamed)
    assert resolved <= SINCE.keys()
    assert {"nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlDeviceGetCurrentClocksThrottleReasons"} <= resolved


@pytest.mark.parametrize("code", [3, 4, 10, 13, 15, 16, 20, 999])
@pytest.mark.parametrize("function", sorted(TOUCHES))
def test_a_failing_function_costs_its_own_facts_only(sound, function, code):
    found = devices(the_machine(failures=[{"function": function, "device": 0, "code": code}]))
    assert found[1] == sound[1]
    assert lost(sound[0], found[0]) <= TOUCHES[function]
    if code in SILENT and function not in {
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex",
    }:
        assert found[0].problems == ()
    if code in WORDS:
        assert {problem.error for problem in found[0].problems} <= {WORDS[code], "implausible"}
        assert WORDS[code] in {problem.error for problem in found[0].problems}
    match code:
        case 15:
            assert found[0].fault is not None
            assert found[0].fault.kind == "lost"
        case 16 if function in {"nvmlDeviceGetUUID", "nvmlDeviceGetName"}:
            assert found[0].fault is not None
            assert found[0].fault.kind == "needs-reset"
        case 16 if TOUCHES[function] == {"mig"}:
            assert found[0].fault is None
        case 3 | 4 | 10 | 13 | 20 | 999:
            assert found[0].fault is None


@pytest.mark.parametrize("function", sorted(TOUCHES))
def test_fr_012_a_function_that_an_older_driver_lacks_costs_its_own_facts_only(sound, function, monkeypatch):
    monkeypatch.setitem(SINCE, function, 9999)
    found = devices(the_machine())
    assert [device.fault for device in found] == [None, None]
    for before, now in zip(sound, found, strict=True):
        assert lost(before, now) <= TOUCHES[function] | {"mig"}


STRUCTURES = {
    "nvmlDeviceGetAttributes_v2": (
        "multiprocessorCount",
        "gpuInstanceSliceCount",
        "computeInstanceSliceCount",
        "memorySizeMB",
    ),
    "nvmlDeviceGetC2cModeInfoV": ("isC2cEnabled",),
    "nvmlDeviceGetGpuFabricInfoV": ("cliqueId", "state"),
    "nvmlDeviceGetMemoryInfo": ("total", "free", "used"),
    "nvmlDeviceGetMemoryInfo_v2": ("total", "free", "used", "reserved"),
    "nvmlDeviceGetPciInfo_v3": ("domain", "bus", "device", "pciDeviceId", "pciSubSystemId"),
}
NOT_NUMBERS = {
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetRetiredPages_v2",
    "nvmlDeviceGetFieldValues",
}


@pytest.mark.parametrize("sentinel", SENTINELS, ids=hex)
@pytest.mark.parametrize("function", sorted(TOUCHES.keys() - NOT_NUMBERS))
def test_fr_035_a_sentinel_is_never_a_fact(sound, function, sentinel):
    """FR-035."""
    names = STRUCTURES.get(function)
    value: Any = dict.fromkeys(names, sentinel) if names else [sentinel] * 4
    found = devices(the_machine(failures=[{"function": function, "device": 0, "value": value}]))
    assert found[1] == sound[1]
    assert found[0].fault is None
    assert lost(sound[0], found[0]) <= TOUCHES[function]
    assert biggest(flat(found[0])) < 2**40


def biggest(value: Any) -> int:
    """Return the greatest number anywhere in the facts."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return 0
    if isinstance(value, int | float):
        return int(value)
    if isinstance(value, dict):
        return max(map(biggest, value.values()), default=0)
    if isinstance(value, tuple):
        return max(map(biggest, value), default=0)
    return max((biggest(getattr(value, field.name)) for field in fields(value)), default=0)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("nvmlDeviceGetName", FieldProblem(field="product", error="undecodable")),
        ("nvmlDeviceGetUUID", FieldProblem(field="id", error="undecodable")),
    ],
)
def test_fr_048_text_that_is_not_utf8_is_a_problem_of_that_text(sound, function, problem):
    """FR-048."""
    found = devices(the_machine(failures=[{"function": function, "device": 0, "bytes": "f8ff"}]))
    assert found[1] == sound[1]
    assert lost(sound[0], found[0]) <= TOUCHES[function]
    assert problem in found[0].problems


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"total": 0, "used": 0, "free": 0}, id="FR-029 zero total"),
        pytest.param({"total": 2**63}, id="FR-035 sentinel"),
        pytest.param({"total": 100, "used": 101, "free": 0}, id="used above total"),
        pytest.param({"total": 100, "used": 0, "free": 101}, id="free above total"),
    ],
)
def test_an_impossible_memory_answer_is_none(value):
    found = devices(
        the_machine(failures=[{"function": "nvmlDeviceGetMemoryInfo*", "device": 1, "value": value}])
    )
    assert (found[1].memory_bytes, found[1].memory_used_bytes) == (None, None)
    assert found[1].problems == (FieldProblem(field="memory", error="implausible"),)
    assert not found[1].unified_memory
