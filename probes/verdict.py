"""Decides between "could not ask" and what was answered, and says why and who can mend it; pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from probes.facts import Accelerator, FaultKind, PciFunction, ProbeVerdict
from probes.findings import HOST, Attempt, Opened, Refused, Surroundings
from probes.questions import (
    DRIVER_NOT_LOADED,
    LIB_RM_VERSION_MISMATCH,
    NO_PERMISSION,
    Refusal,
)

PASS_THROUGH_DRIVERS = frozenset(
    {"vfio-pci", "nvgrace_gpu_vfio_pci", "nvidia_vgpu_vfio", "pci-stub", "pciback"}
)
"""Kernel drivers that hand a whole function to a guest: such a GPU is not this machine's to use."""

_FAULT_REASONS: dict[FaultKind, str] = {
    "lost": "DeviceLost",
    "needs-reset": "DeviceNeedsReset",
    "no-answer": "DeviceNoAnswer",
    "unreadable": "DeviceUnreadable",
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, its reason word, and the sentence for a person."""

    verdict: ProbeVerdict
    reason: str
    message: str


def judge(
    surroundings: Surroundings,
    *,
    opened: Opened | None,
    refused: Refused | None,
    attempts: Sequence[Attempt],
    accelerators: Sequence[Accelerator],
) -> Judgement:
    """Return the verdict on one probe."""
    if opened is not None:
        return _judge_opened(surroundings, opened, accelerators)
    if refused is not None:
        return _judge_refused(surroundings, refused)
    return _judge_silence(surroundings, attempts)


def _judge_opened(seen: Surroundings, opened: Opened, devices: Sequence[Accelerator]) -> Judgement:
    if opened.count is None:
        why = "named an impossible number" if opened.error is None else f"answered {_code(opened.error)}"
        return Judgement(
            "no-answer",
            "CountFailed",
            f"NVML opened but {why} when asked for the number of GPUs, and the bus shows {len(gpus_of(seen))}: "
            "the operator of this node should look at the driver's messages (dmesg, NVRM)",
        )
    if not devices:
        return _judge_no_devices(seen)
    sick = [device for device in devices if device.fault is not None]
    if len(sick) == len(devices):
        return Judgement(
            "no-answer",
            "EveryDeviceFailed",
            f"none of the {len(devices)} GPUs could be read: {_faults(sick)}; if the host still reads them, this "
            "container has lost its devices and only a new pod gets them back",
        )
    complaints = [*_fault_complaint(sick), *_missing_complaint(seen, devices), *_mig_complaint(devices)]
    if not complaints:
        read = "the one GPU was read" if len(devices) == 1 else f"all {len(devices)} GPUs read"
        return Judgement("complete", "AllDevicesRead", read)
    return Judgement("partial", complaints[0][0], "; ".join(message for _, message in complaints))


def _judge_no_devices(seen: Surroundings) -> Judgement:
    driven = driven_of(seen)
    if not driven:
        return _nothing_of_ours(seen) or _not_bound(seen)
    if not any(re.fullmatch(r"/dev/nvidia\d+", path) for path in seen.device_files.present):
        return Judgement(
            "not-in-container",
            "DeviceFilesMissing",
            f"the bus shows {_addresses(driven)} with the driver nvidia, but this container has no device file of a "
            "GPU: whoever deploys this agent must set NVIDIA_VISIBLE_DEVICES=all with the nvidia runtime class",
        )
    return Judgement(
        "no-answer",
        "EveryDeviceMissing",
        f"the driver shows no GPU although the bus shows {_addresses(driven)} bound to it: the operator of this node "
        "should look at the driver's messages (dmesg, NVRM)",
    )


def _fault_complaint(sick: Sequence[Accelerator]) -> list[tuple[str, str]]:
    if not sick or sick[0].fault is None:
        return []
    return [(_FAULT_REASONS[sick[0].fault.kind], f"{_faults(sick)}; the others were read")]


def _missing_complaint(seen: Surroundings, devices: Sequence[Accelerator]) -> list[tuple[str, str]]:
    """Complain of GPUs that the bus shows and the driver does not: one that it would not start may even be unbound."""
    driven = driven_of(seen)
    unbound = [gpu for gpu in gpus_of(seen) if gpu.driver is None]
    shown = {device.pci.address for device in devices if device.pci}
    hidden = (
        [gpu for gpu in driven if gpu.identity.address not in shown] if len(devices) < len(driven) else []
    )
    missing = [*hidden, *(gpu for gpu in unbound if gpu.identity.address not in shown)]
    if not missing:
        return []
    message = (
        f"the driver shows {len(devices)} of the {len(driven) + len(unbound)} GPUs on the bus, without "
        f"{_addresses(missing)}: it failed to start (the operator of this node: dmesg, NVRM) or this container "
        "was not given it (whoever deploys this agent: NVIDIA_VISIBLE_DEVICES=all)"
    )
    return [("DeviceMissing", message)]


def _mig_complaint(devices: Sequence[Accelerator]) -> list[tuple[str, str]]:
    errors = {
        problem.error
        for device in devices
        if device.mig and device.mig.enabled and device.fault is None
        for problem in device.problems
        if problem.field == "mig.partitions"
    }
    if not errors:
        return []
    mend = (
        "whoever deploys this agent: the mig overlay (CAP_SYS_ADMIN and NVIDIA_MIG_MONITOR_DEVICES=all)"
        if "no-permission" in errors
        else "the operator of this node: nvidia-smi mig -lgi, and dmesg"
    )
    return [
        ("MigNotReadable", f"partitions of a GPU in MIG mode could not be read ({_list(errors)}); {mend}")
    ]


def _judge_refused(seen: Surroundings, refused: Refused) -> Judgement:
    mismatch = _mismatch(seen, refused)
    if mismatch is not None:
        return mismatch
    match refused.code:
        case 12:
            return _judge_no_library(seen)
        case 9:
            return _judge_not_loaded(seen)
        case 4:
            return _denied(seen, NO_PERMISSION)
        case 28:
            return _nothing_of_ours(seen) or _init_failed(seen, refused.code)
        case code:
            return _init_failed(seen, code)


def _mismatch(seen: Surroundings, refused: Refused) -> Judgement | None:
    module = seen.kernel_module_version
    library = refused.library_version
    differ = module is not None and library is not None and module != library
    if refused.code != LIB_RM_VERSION_MISMATCH and not differ:
        return None
    return Judgement(
        "version-mismatch",
        "DriverLibraryMismatch",
        f"the kernel module is {module or 'of an unknown version'} and the library is {library or 'of another'}: the "
        "driver was upgraded without a reboot; the operator of this node must reboot it or reload the module",
    )


def _judge_no_library(seen: Surroundings) -> Judgement:
    driven = driven_of(seen)
    if not driven and not seen.device_files.present and not seen.integrated_gpu:
        return _nothing_of_ours(seen) or _not_bound(seen)
    there = _addresses(driven) if driven else "the GPU of this system on chip"
    return Judgement(
        "not-in-container",
        "LibraryNotVisible",
        f"libnvidia-ml.so.1 is not visible in this container, although the machine has {there} with the driver nvidia: "
        "whoever deploys this agent must give the pod runtimeClassName nvidia (or mount the driver's library)",
    )


def _judge_not_loaded(seen: Surroundings) -> Judgement:
    loaded = seen.kernel_module_version is not None
    if seen.device_files.denied:
        return _denied(seen, DRIVER_NOT_LOADED)
    if loaded and not seen.device_files.present:
        return Judgement(
            "not-in-container",
            "DeviceFilesMissing",
            f"the kernel module {seen.kernel_module_version} is loaded, but this container has no /dev/nvidia*: "
            "whoever deploys this agent must give the pod runtimeClassName nvidia or mount the device files",
        )
    nothing = None if loaded or seen.integrated_gpu else _nothing_of_ours(seen)
    return nothing or Judgement(
        "no-driver",
        "DriverNotLoaded",
        f"the NVIDIA kernel driver is not loaded, and the bus shows {_addresses(gpus_of(seen))}: the operator of this "
        "node must install or load it; it may still be starting",
    )


def _denied(seen: Surroundings, code: int) -> Judgement:
    files = _list(seen.device_files.denied) or "the driver's device files"
    return Judgement(
        "not-in-container",
        "DeviceFilesDenied",
        f"this process may not open {files} (EACCES or EPERM; NVML answered {_code(code)}): whoever deploys this agent "
        "must run it as a user that may, or give the pod runtimeClassName nvidia",
    )


def _init_failed(seen: Surroundings, code: int) -> Judgement:
    if seen.device_files.denied:
        return Judgement(
            "no-answer",
            "DevicesRevoked",
            f"NVML answered {_code(code)} and {_list(seen.device_files.denied)} may no longer be opened: the container "
            "has lost its devices (a systemd reload does that) and only a new pod gets them back",
        )
    return Judgement(
        "no-answer",
        "InitFailed",
        f"NVML would not open: {_code(code)}; the bus shows {_addresses(gpus_of(seen))}. If nvidia-smi works on the "
        "host, only a new pod helps; else the operator of this node should look at the driver's messages (dmesg, NVRM)",
    )


def _judge_silence(seen: Surroundings, attempts: Sequence[Attempt]) -> Judgement:
    last = attempts[-1] if attempts else Attempt(ended="crash")
    shown = f"the bus shows {_addresses(gpus_of(seen))}"
    call = last.call or "the probe"
    if last.ended == "not-started":
        return Judgement(
            "no-answer",
            "ProbesStuck",
            f"earlier probes hang in the driver and cannot even be killed, so no further one was started; {shown}. The "
            "operator of this node will have to reboot it",
        )
    if last.ended == "dropped":
        return Judgement("no-answer", "ProbeDropped", "the agent stops, and ended the probe")
    if last.ended == "crash":
        reason = "ProbeHostDied" if last.call == HOST else "ProbeCrashed"
        how = f"signal {last.signal}" if last.signal else f"status {last.exit_status}"
        return Judgement("no-answer", reason, f"the probe ended in {call} with {how}, see its log; {shown}")
    if last.ended == "oversize":
        return Judgement("no-answer", "AnswerTooLarge", "the probe told more than 1 MiB and was ended")
    return Judgement(
        "no-answer",
        "NoAnswer",
        f"{call} did not return in time; {shown}. The operator of this node should look at the driver's messages "
        "(dmesg, NVRM); with persistence mode off a longer probe timeout may do",
    )


def _nothing_of_ours(seen: Surroundings) -> Judgement | None:
    """Judge a machine whose bus shows no NVIDIA GPU, or only such as belong to guests; `None` for any other."""
    gpus = gpus_of(seen)
    if seen.pci is None:
        return Judgement(
            "no-answer",
            "BusNotReadable",
            "neither the NVIDIA library nor /sys/bus/pci can be read, so whether there are GPUs is not known: whoever "
            "deploys this agent must let it read /sys",
        )
    if not gpus:
        return Judgement("none", "NoAccelerators", "asked and none: the bus shows no NVIDIA GPU")
    if all(gpu.driver in PASS_THROUGH_DRIVERS for gpu in gpus):
        return Judgement(
            "none",
            "PassedThrough",
            f"{_addresses(gpus)} passed through to a VM (driver {_list({gpu.driver or '' for gpu in gpus})}): "
            "none for this machine's own workloads",
        )
    return None


def _not_bound(seen: Surroundings) -> Judgement:
    gpus = [gpu for gpu in gpus_of(seen) if gpu.driver not in PASS_THROUGH_DRIVERS]
    bound = _list({gpu.driver for gpu in gpus if gpu.driver}) or "no driver"
    return Judgement(
        "no-driver",
        "DriverNotBound",
        f"the bus shows {_addresses(gpus)} bound to {bound}, and the NVIDIA driver is not there: the operator of this "
        "node must install it; it may still be starting",
    )


def gpus_of(seen: Surroundings) -> tuple[PciFunction, ...]:
    """Return NVIDIA's functions on the bus, whoever drives them."""
    return tuple(found for found in seen.pci or () if found.identity.vendor_id == "10de")


def driven_of(seen: Surroundings) -> tuple[PciFunction, ...]:
    """Return those that the NVIDIA driver drives."""
    return tuple(gpu for gpu in gpus_of(seen) if gpu.driver == "nvidia")


def _faults(devices: Sequence[Accelerator]) -> str:
    return ", ".join(_fault(device) for device in devices)


def _fault(device: Accelerator) -> str:
    place = f" at {device.pci.address}" if device.pci else ""
    who = f"GPU {device.index}{place}{f' ({device.id})' if device.id else ''}"
    if device.fault is None:
        return who
    what = {
        "lost": "is lost (fell off the bus)",
        "needs-reset": "requires a reset",
        "no-answer": "did not answer",
        "unreadable": "could not be read",
    }[device.fault.kind]
    details = ": ".join(part for part in (device.fault.call, device.fault.error) if part)
    return f"{who} {what}{f' [{details}]' if details else ''}"


def _addresses(functions: Sequence[PciFunction]) -> str:
    if not functions:
        return "no NVIDIA GPU"
    return f"{len(functions)} NVIDIA GPU(s) ({_list(function.identity.address for function in functions)})"


def _list(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))


def _code(code: int) -> str:
    return f"{code} ({Refusal(code).word})"
