"""Checks of the devices that NVML showed: faults, readings, partitions, links, health."""

from collections.abc import Iterable, Mapping

from agent.core.doctor.check import DEPLOYER, NODE_OPERATOR, Check, finding, ok, skipped
from agent.core.doctor.words import cause_elsewhere, listed
from agent.core.inventory import Device, Inventory, class_counts
from probes.facts import Accelerator, NodeFacts

_SLOW_SECONDS = 10.0


def device_checks(inventory: Inventory) -> tuple[Check, ...]:
    """Return the checks of a node's devices."""
    checks = (_devices, _readings, _mig, _persistence, _fabric)
    return (*(check(inventory.facts) for check in checks), _health(inventory), _products(inventory))


def _devices(facts: NodeFacts) -> Check:
    """Name the devices that failed as a whole."""
    why = cause_elsewhere(facts)
    if why:
        return skipped("devices", why)
    sick = [device for device in facts.accelerators if device.fault is not None]
    if not sick:
        count = len(facts.accelerators)
        return ok("devices", "the one device was read" if count == 1 else f"all {count} devices were read")
    return finding(
        "devices",
        "; ".join(f"{_name(device)} {_fault(device)}" for device in sick),
        meaning="such a device is counted and not offered as usable; the others are labelled",
        mend="reset the GPU while nothing uses it (nvidia-smi --gpu-reset -i INDEX), else reboot the node; a GPU that "
        "is lost again needs its slot, power and board looked at",
        who=NODE_OPERATOR,
    )


def _readings(facts: NodeFacts) -> Check:
    """Name readings that failed on devices that answer otherwise; partitions have a check of their own."""
    why = cause_elsewhere(facts)
    if why:
        return skipped("readings", why)
    problems = [
        (f"{problem.field}: {problem.error}", device.index)
        for device in facts.accelerators
        if device.fault is None
        for problem in device.problems
        if not problem.field.startswith("mig")
    ]
    if not problems:
        return ok("readings", "every reading that a device has was told")
    return finding(
        "readings",
        _by_device(problems),
        meaning="what hangs on such a reading is absent from labels, record and class; the rest is right",
        mend="a newer driver, where it answers nonsense; more rights for the agent, where it answers no-permission; "
        "accelerator-agent capture FILE keeps the answers for a report",
        who=NODE_OPERATOR,
    )


def _mig(facts: NodeFacts) -> Check:
    why = cause_elsewhere(facts)
    if why:
        return skipped("mig", why)
    cut = [device for device in facts.accelerators if device.mig is not None]
    if not cut:
        return skipped("mig", "no GPU here can be cut into partitions, or is said to")
    for check in (_mig_unreadable, _mig_pending, _mig_empty):
        found = check(cut)
        if found:
            return found
    enabled = [device for device in cut if device.mig and device.mig.enabled]
    parts = sum(len(device.mig.partitions or ()) for device in enabled if device.mig)
    return ok("mig", f"{len(enabled)} of {len(facts.accelerators)} GPUs are cut, into {parts} partitions")


def _mig_unreadable(devices: Iterable[Accelerator]) -> Check | None:
    unread = [device for device in devices if device.mig and device.mig.partitions is None]
    refused = [device for device in devices if _problems_of_partitions(device)]
    if not unread and not refused:
        return None
    errors = sorted({error for device in refused for error in _problems_of_partitions(device)})
    return finding(
        "mig",
        f"partitions of GPU {_indices(unread or refused)} could not be read ({listed(errors) or 'not told'})",
        meaning="the GPU is known to be cut, and into what is not: its partitions are in no label and no class",
        mend="apply the mig overlay: it gives the agent CAP_SYS_ADMIN and NVIDIA_MIG_MONITOR_DEVICES=all",
        who=DEPLOYER,
    )


def _problems_of_partitions(device: Accelerator) -> list[str]:
    return [problem.error for problem in device.problems if problem.field.startswith("mig.")]


def _mig_pending(devices: Iterable[Accelerator]) -> Check | None:
    pending = [d for d in devices if d.mig and d.mig.enabled != d.mig.pending_enabled]
    if not pending:
        return None
    return finding(
        "mig",
        f"MIG mode of GPU {_indices(pending)} was changed and waits for a reset",
        meaning="until then the device plugin and the driver disagree about what the GPU is",
        mend="drain the node and reset the GPU (nvidia-smi --gpu-reset -i INDEX) or reboot",
        who=NODE_OPERATOR,
    )


def _mig_empty(devices: Iterable[Accelerator]) -> Check | None:
    empty = [d for d in devices if d.mig and d.mig.enabled and d.mig.partitions == ()]
    if not empty:
        return None
    return finding(
        "mig",
        f"GPU {_indices(empty)} is in MIG mode and cut into nothing",
        meaning="nobody can be given such a GPU, neither whole nor in part",
        mend="make partitions (nvidia-smi mig -cgi PROFILE -C) or switch MIG mode off and reset the GPU",
        who=NODE_OPERATOR,
    )


def _persistence(facts: NodeFacts) -> Check:
    """Judge persistence mode only where its want shows: without it the first call after idling starts every GPU."""
    why = cause_elsewhere(facts)
    if why:
        return skipped("persistence", why)
    told = [d for d in facts.accelerators if d.health and d.health.persistence_mode is not None]
    off = [d for d in told if d.health and not d.health.persistence_mode and not d.display_only]
    if not told:
        return skipped("persistence", "no device has such a mode")
    evidence = f"off on GPU {_indices(off)}" if off else f"on for {len(told)} GPUs"
    took = facts.duration_seconds or 0.0
    if not off or took < _SLOW_SECONDS:
        return ok("persistence", evidence)
    return finding(
        "persistence",
        f"{evidence}, and this probe took {took:.0f} s",
        meaning="the driver starts every GPU anew for each probe, and forgets error counts in between",
        mend="run nvidia-persistenced on the host (nvidia-smi -pm 1 until the next boot)",
        who=NODE_OPERATOR,
    )


def _fabric(facts: NodeFacts) -> Check:
    why = cause_elsewhere(facts)
    if why:
        return skipped("fabric", why)
    told = [d for d in facts.accelerators if d.fabric and d.fabric.state != "not-supported"]
    if not told:
        return skipped("fabric", "no GPU here registers with an NVLink fabric")
    waiting = [d for d in told if d.fabric and (d.fabric.state != "completed" or d.fabric.status)]
    if not waiting:
        return ok("fabric", f"{len(told)} GPUs are registered")
    states = [(f"{d.fabric.state}, status {d.fabric.status or 0}", d.index) for d in waiting if d.fabric]
    return finding(
        "fabric",
        _by_device(states),
        meaning="such a GPU cannot talk to the others over NVSwitch, and CUDA may not start on it (error 802)",
        mend="start nvidia-fabricmanager of the driver's own version on the host; on NVL racks also nvidia-imex",
        who=NODE_OPERATOR,
    )


def _health(inventory: Inventory) -> Check:
    """Name devices that answer and are not well."""
    why = cause_elsewhere(inventory.facts)
    if why:
        return skipped("health", why)
    sick = sorted(
        (d for d in inventory.devices if d.assessment.state != "ok" and d.facts.fault is None),
        key=lambda device: device.facts.index,
    )
    if not sick:
        return ok("health", "no device that was read is degraded or failed")
    return finding(
        "health",
        "; ".join(f"{_name(d.facts)} is {d.assessment.state}: {listed(d.assessment.reasons)}" for d in sick),
        meaning="a degraded device is still offered; one that needs a reset or has failed is not",
        mend=_mend_of(sick),
        who=NODE_OPERATOR,
    )


def _mend_of(devices: Iterable[Device]) -> str:
    words = {word for device in devices for word in device.assessment.reasons}
    found = [mend for word, mend in _MENDS.items() if any(reason.startswith(word) for reason in words)]
    return "; ".join(dict.fromkeys(found)) or "look up these words in the documentation of health"


_RESET = "reset the GPU while nothing uses it (nvidia-smi --gpu-reset -i INDEX)"
_MENDS: Mapping[str, str] = {
    "row-remap-failed": "replace the board: its spare rows are used up",
    "row-remap-pending": _RESET,
    "page-retirement-pending": "reboot the node",
    "recovery-": "do what the driver asks for (nvidia-smi -q shows it as GPU Recovery Action)",
    "nvlink-": "look at the links (nvidia-smi nvlink -s) and at nvidia-fabricmanager",
    "fabric-": "start nvidia-fabricmanager of the driver's own version",
    "pcie-": "seat the board anew, and look at the slot's width in the firmware",
    "hw-thermal": "look at the cooling",
    "sw-thermal": "look at the cooling",
    "hw-power": "look at the power supply",
    "xid-": "look up the Xid code in NVIDIA's list of them",
}
"""By the beginning of a reason."""


def _products(inventory: Inventory) -> Check:
    why = cause_elsewhere(inventory.facts)
    if why:
        return skipped("products", why)
    counts = class_counts(inventory)
    if not counts:
        return skipped("products", "no device told what it is")
    return ok("products", ", ".join(f"{count.total} × {count.name}" for count in counts))


def _name(device: Accelerator) -> str:
    place = f" at {device.pci.address}" if device.pci else ""
    return f"GPU {device.index}{place}"


def _fault(device: Accelerator) -> str:
    if device.fault is None:
        return ""
    words = {
        "lost": "is lost (off the bus)",
        "needs-reset": "needs a reset",
        "no-answer": "does not answer",
        "unreadable": "cannot be read",
    }
    call = f" [{device.fault.call}]" if device.fault.call else ""
    return words[device.fault.kind] + call


def _indices(devices: Iterable[Accelerator]) -> str:
    return ", ".join(str(device.index) for device in devices)


def _by_device(told: Iterable[tuple[str, int]]) -> str:
    """Return each text with the devices that it is said of."""
    devices: dict[str, list[str]] = {}
    for text, index in told:
        devices.setdefault(text, []).append(str(index))
    return "; ".join(f"{text} (GPU {', '.join(indices)})" for text, indices in devices.items())
