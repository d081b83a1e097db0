"""Turns the facts of a real node into a scenario that the fakes play, with what names the machine masked; pure.

Made from facts and not by asking again: what went wrong is then in it, and a call that hangs is not made twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from probes.facts import (
    Accelerator,
    DeviceFault,
    Driver,
    Fabric,
    FieldProblem,
    Health,
    Link,
    Mig,
    NodeFacts,
    Partition,
    PciFunction,
    PciIdentity,
)

Values = dict[str, Any]
"""Plain values in the scenario format."""

FUNCTIONS: Mapping[str, str] = {
    "id": "nvmlDeviceGetUUID",
    "product": "nvmlDeviceGetName",
    "pci": "nvmlDeviceGetPciInfo_v3",
    "compute_capability": "nvmlDeviceGetCudaComputeCapability",
    "cores": "nvmlDeviceGetNumGpuCores",
    "memory": "nvmlDeviceGetMemoryInfo*",
    "memory_bus": "nvmlDeviceGetMemoryBusWidth",
    "memory_clock": "nvmlDeviceGetMaxClockInfo",
    "sm_clock": "nvmlDeviceGetMaxClockInfo",
    "boost_clock": "nvmlDeviceGetMaxCustomerBoostClock",
    "power_limit": "nvmlDeviceGetPowerManagementDefaultLimit",
    "virtualization": "nvmlDeviceGetVirtualizationMode",
    "memory_numa_node": "nvmlDeviceGetNumaNodeId",
    "mig": "nvmlDeviceGetMigMode",
    "mig.partitions": "nvmlDeviceGetMigDeviceHandleByIndex",
    "pcie_generation": "nvmlDeviceGetCurrPcieLinkGeneration",
    "pcie_generation_max": "nvmlDeviceGetMaxPcieLinkGeneration",
    "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth",
    "pcie_width_max": "nvmlDeviceGetMaxPcieLinkWidth",
    "nvlink": "nvmlDeviceGetNvLinkState",
    "nvlink_version": "nvmlDeviceGetNvLinkVersion",
    "c2c": "nvmlDeviceGetC2cModeInfoV",
    "fabric": "nvmlDeviceGetGpuFabricInfo*",
    "ecc_enabled": "nvmlDeviceGetEccMode",
    "row_remapping": "nvmlDeviceGetRemappedRows",
    "retired_pages": "nvmlDeviceGetRetiredPages_v2",
    "retired_pages_pending": "nvmlDeviceGetRetiredPagesPendingStatus",
    "clock_event_reasons": "nvmlDeviceGetCurrentClocks*",
    "persistence_mode": "nvmlDeviceGetPersistenceMode",
    "recovery_action": "nvmlDeviceGetFieldValues",
}
"""Which function failed where a fact has a problem."""

CODES: Mapping[str, int] = {
    "no-permission": 4,
    "not-found": 6,
    "timeout": 10,
    "gpu-lost": 15,
    "reset-required": 16,
    "in-use": 19,
    "unknown": 999,
}
_HANDLE = "nvmlDeviceGetHandleByIndex"
_WITHOUT_LIBRARY = frozenset({"LibraryNotVisible", "DriverNotBound"})
_WITHOUT_LIBRARY_OR_GPU = _WITHOUT_LIBRARY | {"NoAccelerators", "PassedThrough"}
_MASKED_FABRIC = "00000000-0000-0000-0000-0000000000fa"


def scenario_of(facts: NodeFacts, *, name: str = "capture") -> Values:
    """Return a scenario in which a probe finds these facts again, with UUIDs and the fabric's name masked."""
    shown = {device.pci.address for device in facts.accelerators if device.pci}
    return _known(
        name=name,
        driver=_driver(facts),
        host=_known(
            machine=facts.host.machine,
            kernel=facts.host.kernel,
            memory_bytes=facts.host.memory_bytes,
            cpus=facts.host.cpus,
        ),
        device_files={"present": list(facts.device_files.present), "denied": list(facts.device_files.denied)},
        devices=[_device(device, facts.pci or ()) for device in facts.accelerators],
        other_pci=[_function(found) for found in facts.pci or () if found.identity.address not in shown],
        failures=[*_failures(facts.accelerators), *_failures_of_the_library(facts)],
    )


def _known(**values: Any) -> Values:  # noqa: ANN401 - plain values of any kind
    return {key: value for key, value in values.items() if value is not None}


def _driver(facts: NodeFacts) -> Values:
    known = next((driver for driver in facts.drivers if driver.name == "nvidia"), Driver(name="nvidia"))
    module = known.kernel_module_version
    version = known.version or module
    if facts.verdict == "version-mismatch" and module is not None:
        # Any version other than the module's makes NVML refuse as it did.
        version = f"{module}.1"
    return _known(
        version=version,
        cuda_version=known.cuda_version,
        kernel_module_version=module,
        loaded=module is not None or known.version is not None,
        library=facts.reason not in (_WITHOUT_LIBRARY if facts.drivers else _WITHOUT_LIBRARY_OR_GPU),
    )


def _device(device: Accelerator, census: Sequence[PciFunction]) -> Values:
    capability = device.compute_capability
    return _known(
        name=device.product or "",
        uuid=f"GPU-00000000-0000-0000-0000-{device.index:012x}",
        pci=_pci(device.pci, census),
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        cores=device.cores,
        memory=_memory(device),
        memory_bus_bits=device.memory_bus_bits,
        max_clocks_mhz=_known(sm=device.sm_clock_max_mhz, memory=device.memory_clock_max_mhz),
        boost_clock_mhz=device.boost_clock_mhz,
        power=_known(default_limit_watts=device.power_limit_watts, limit_watts=device.power_limit_watts),
        memory_numa_node=device.memory_numa_node,
        mig=_mig(device.mig, device.index) if device.mig else None,
        fabric=_fabric(device.fabric) if device.fabric else None,
        **_link(device.link or Link()),
        **_health(device.health or Health()),
    ) | {"virtualization": device.virtualization}


def _memory(device: Accelerator) -> Values | None:
    if device.memory_bytes is None:
        return None
    return {
        "total_bytes": device.memory_bytes,
        "reserved_bytes": device.memory_reserved_bytes or 0,
        "used_bytes": device.memory_used_bytes or 0,
    }


def _pci(identity: PciIdentity | None, census: Sequence[PciFunction]) -> Values | None:
    if identity is None:
        return None
    found = next((function for function in census if function.identity.address == identity.address), None)
    if found is not None:
        return _function(found)
    return {**_identity(identity), "on_bus": False}


def _function(function: PciFunction) -> Values:
    return {
        **_identity(function.identity),
        "class_code": function.class_code,
        "driver": function.driver,
    }


def _identity(identity: PciIdentity) -> Values:
    return _known(
        address=identity.address,
        vendor_id=identity.vendor_id,
        device_id=identity.device_id,
        subsystem_vendor_id=identity.subsystem_vendor_id,
        subsystem_id=identity.subsystem_id,
        numa_node=identity.numa_node,
    )


def _fabric(fabric: Fabric) -> Values:
    return _known(
        state=fabric.state,
        status=fabric.status,
        cluster_uuid=_MASKED_FABRIC if fabric.cluster_uuid else None,
        clique=fabric.clique,
        health_mask=fabric.health_mask,
    )


def _link(link: Link) -> Values:
    pcie = _known(
        generation=link.pcie_generation,
        generation_max=link.pcie_generation_max,
        width=link.pcie_width,
        width_max=link.pcie_width_max,
    )
    nvlink = None
    if link.nvlink_total is not None:
        down = link.nvlink_total - (link.nvlink_active or 0)
        version = f"{link.nvlink_version or 1}.0"
        nvlink = {"links": link.nvlink_total, "version": version, "inactive": list(range(down))}
    return {"pcie": pcie, "nvlink": nvlink, "c2c": link.c2c}


def _health(health: Health) -> Values:
    rows = health.row_remapping
    return {
        "ecc": None
        if health.ecc_enabled is None
        else {
            "enabled": health.ecc_enabled,
            "volatile_uncorrected": health.ecc_uncorrected_errors or 0,
            "aggregate_uncorrected": health.ecc_uncorrected_errors_lifetime or 0,
        },
        "remapped_rows": rows
        and {
            "corrected": rows.corrected,
            "uncorrectable": rows.uncorrectable,
            "pending": rows.pending,
            "failed": rows.failed,
        },
        "retired_pages": None
        if health.retired_pages is None
        else {
            "double_bit": [page << 12 for page in range(health.retired_pages)],
            "pending": bool(health.retired_pages_pending),
        },
        "clock_event_reasons": None
        if health.clock_event_reasons is None
        else list(health.clock_event_reasons),
        "persistence_mode": health.persistence_mode,
        "recovery_action": health.recovery_action,
    }


def _mig(mig: Mig, index: int) -> Values:
    parts = mig.partitions or ()
    whole = {_instance_profile(part): part for part in parts}
    instances: dict[int, Values] = {}
    for number, part in enumerate(parts):
        instance = number if part.gpu_instance_id is None else part.gpu_instance_id
        known = instances.setdefault(
            instance, {"profile": _instance_profile(part), "id": instance, "compute_instances": []}
        )
        known["compute_instances"].append(_compute_instance(part, index, number))
    return {
        "enabled": mig.enabled,
        "pending": mig.pending_enabled,
        "profiles": [_profile(name, slot, part) for slot, (name, part) in enumerate(whole.items())],
        "instances": list(instances.values()),
    }


def _instance_profile(part: Partition) -> str:
    """Return the profile of the GPU instance: `3g.71gb` of the compute instance `1c.3g.71gb`."""
    profile = part.profile or f"{part.gpu_instance_slices or 1}g.unknown"
    first, _, rest = profile.partition(".")
    return rest if first.endswith("c") else profile


def _profile(name: str, slot: int, part: Partition) -> Values:
    return {
        "name": name,
        "slot": slot,
        "id": slot,
        "slices": part.gpu_instance_slices or 1,
        "max_instances": 7,
        "memory_mib": (part.memory_bytes or 0) >> 20,
        "multiprocessors": part.multiprocessors or 0,
    }


def _compute_instance(part: Partition, index: int, number: int) -> Values:
    return _known(
        slices=part.compute_instance_slices,
        id=part.compute_instance_id,
        multiprocessors=part.multiprocessors,
        uuid=f"MIG-{number:08x}-0000-0000-0000-{index:012x}",
    )


def _failures(devices: Iterable[Accelerator]) -> list[Values]:
    found: list[Values] = []
    for device in devices:
        if device.fault is not None:
            found.append({"device": device.index, **_whole_device(device.fault)})
            continue
        for problem in device.problems:
            failure = _failure(problem)
            if failure is not None:
                found.append({"device": device.index, **failure})
    return found


def _whole_device(fault: DeviceFault) -> Values:
    """Return the failure that makes the device fail as a whole, as it did."""
    function = fault.call or _HANDLE
    if function == _HANDLE:
        function = f"{_HANDLE}_v2"
    if fault.kind == "no-answer":
        return {"function": function, **({"abort": True} if fault.error == "crash" else {"hang": True})}
    code = CODES.get(fault.error or "", 999)
    if function == f"{_HANDLE}_v2":
        return {"function": function, "code": code}
    return {"function": "nvmlDevice*", "but_not": f"{_HANDLE}_v2", "code": code}


def _failure(problem: FieldProblem) -> Values | None:
    function = FUNCTIONS.get(problem.field)
    if function is None:
        return None
    if problem.error == "undecodable":
        return {"function": function, "bytes": "f8ff"}
    if problem.error == "implausible":
        return None
    number = problem.error.removeprefix("nvml-")
    return {"function": function, "code": int(number) if number.isdigit() else CODES.get(problem.error, 999)}


def _failures_of_the_library(facts: NodeFacts) -> list[Values]:
    match facts.reason:
        case "InitFailed" | "DevicesRevoked":
            return [{"function": "nvmlInitWithFlags", "code": 999}]
        case "DeviceFilesDenied" | "DeviceFilesMissing":
            return [{"function": "nvmlInitWithFlags", "code": 9}]
        case "NoAnswer":
            return [{"function": "nvmlInitWithFlags", "hang": True}]
        case "ProbeCrashed":
            return [{"function": "nvmlInitWithFlags", "abort": True}]
        case "CountFailed":
            return [{"function": "nvmlDeviceGetCount_v2", "code": 999}]
        case _:
            return []
