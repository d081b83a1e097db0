"""Checks of the machine and the container on it: bus, kernel module, library, device files, and whether NVML speaks."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from agent.core.doctor.check import DEPLOYER, NODE_OPERATOR, Check, finding, ok, skipped
from agent.core.doctor.words import cause_elsewhere, cause_of, listed
from probes.facts import NodeFacts, PciFunction

_NVIDIA = "10de"
_ALL = frozenset({"all"})
_NONE = frozenset({"", "void", "none"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the agent's own process says of the container that it runs in."""

    in_container: bool
    user: int
    """Numeric id of the user that it runs as."""
    system_administrator: bool
    """Whether it has CAP_SYS_ADMIN."""
    visible_devices: str | None = None
    """`NVIDIA_VISIBLE_DEVICES`; `None`: not set."""
    driver_capabilities: str | None = None


def machine_checks(facts: NodeFacts, surroundings: Surroundings | None) -> tuple[Check, ...]:
    """Return the checks of a machine, from the bus up; `surroundings` is `None` where the machine is a fake."""
    return (
        _bus(facts),
        _pass_through(facts),
        _kernel_module(facts),
        _driver_versions(facts),
        _container(facts, surroundings),
        _library(facts),
        _device_files(facts),
        _nvml(facts),
        _census(facts),
    )


def _gpus(facts: NodeFacts) -> tuple[PciFunction, ...]:
    return tuple(found for found in facts.pci or () if found.identity.vendor_id == _NVIDIA)


def _nothing_to_drive(facts: NodeFacts) -> str | None:
    if facts.reason == "NoAccelerators" or (facts.verdict == "none" and not _driven(facts)):
        return "the bus shows no NVIDIA GPU for this machine's workloads"
    return None


def _driven(facts: NodeFacts) -> tuple[PciFunction, ...]:
    return tuple(found for found in _gpus(facts) if found.driver == "nvidia")


def _bus(facts: NodeFacts) -> Check:
    found = cause_of(facts, "bus")
    if found:
        return found
    if not facts.pci:
        return ok("bus", "no accelerator on the PCI bus")
    counts = Counter((function.identity.vendor_id, function.driver or "no driver") for function in facts.pci)
    kinds = (
        f"{count} of vendor {vendor} with {driver}" for (vendor, driver), count in sorted(counts.items())
    )
    return ok("bus", "; ".join(kinds))


def _pass_through(facts: NodeFacts) -> Check:
    gpus = _gpus(facts)
    given_away = [
        gpu for gpu in gpus if "vfio" in (gpu.driver or "") or gpu.driver in {"pci-stub", "pciback"}
    ]
    found = cause_of(facts, "pass-through")
    if found:
        return found
    if not gpus:
        return skipped("pass-through", "the bus shows no NVIDIA GPU")
    if given_away:
        return ok("pass-through", f"given to virtual machines, and not counted: {_addresses(given_away)}")
    return ok("pass-through", "no GPU is given to a virtual machine")


def _kernel_module(facts: NodeFacts) -> Check:
    found = cause_of(facts, "kernel-module")
    nothing = _nothing_to_drive(facts)
    version = next((driver.kernel_module_version for driver in facts.drivers), None)
    if found:
        return found
    if version is not None:
        return ok("kernel-module", f"nvidia {version} is loaded")
    if nothing or not facts.drivers:
        return skipped("kernel-module", nothing or "no NVIDIA kernel module shows itself here")
    return ok("kernel-module", "the driver answers; /proc/driver/nvidia/version cannot be read here")


def _driver_versions(facts: NodeFacts) -> Check:
    found = cause_of(facts, "driver-versions")
    if found:
        return found
    driver = next(iter(facts.drivers), None)
    if driver is None or driver.version is None or driver.kernel_module_version is None:
        return skipped("driver-versions", "library and kernel module did not both tell their version")
    return ok("driver-versions", f"library and kernel module are {driver.version}")


def _container(facts: NodeFacts, surroundings: Surroundings | None) -> Check:
    """Judge what the container runtime was asked for, against what it gave."""
    if surroundings is None:
        return skipped("container", "the hardware is fake")
    if not surroundings.in_container:
        return skipped("container", "this process runs in no container")
    evidence = _asked_for(surroundings)
    wanted = frozenset((surroundings.visible_devices or "").split(","))
    capabilities = frozenset((surroundings.driver_capabilities or "utility").split(","))
    if not _driven(facts):
        return ok("container", evidence)
    if not capabilities & {"utility", "all"}:
        meaning = "the nvidia runtime leaves libnvidia-ml.so.1 out of this container"
    elif wanted == _ALL or (surroundings.visible_devices is None and facts.asked):
        return ok("container", evidence)
    elif wanted & _NONE:
        meaning = "the nvidia runtime gives this container nothing, although the machine has GPUs"
    else:
        meaning = "the nvidia runtime gives this container only some of the machine's GPUs"
    mend = "set NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility on the agent's container"
    return finding("container", evidence, meaning=meaning, mend=mend, who=DEPLOYER)


def _asked_for(surroundings: Surroundings) -> str:
    def told(value: str | None) -> str:
        return "not set" if value is None else repr(value)

    administrator = "with" if surroundings.system_administrator else "without"
    return (
        f"NVIDIA_VISIBLE_DEVICES is {told(surroundings.visible_devices)}, NVIDIA_DRIVER_CAPABILITIES is "
        f"{told(surroundings.driver_capabilities)}, user {surroundings.user} {administrator} CAP_SYS_ADMIN"
    )


def _library(facts: NodeFacts) -> Check:
    found = cause_of(facts, "library")
    if found:
        return found
    driver = next(iter(facts.drivers), None)
    if driver is None or (driver.version is None and driver.library_path is None):
        return skipped(
            "library", _nothing_to_drive(facts) or cause_elsewhere(facts) or "no library was loaded"
        )
    where = f" at {driver.library_path}" if driver.library_path else ""
    return ok("library", f"libnvidia-ml.so.1{where}, driver {driver.version or 'of unknown version'}")


def _device_files(facts: NodeFacts) -> Check:
    found = cause_of(facts, "device-files")
    if found:
        return found
    files = facts.device_files
    if files.denied:
        return finding(
            "device-files",
            f"{listed(files.denied)} may not be opened by this process",
            meaning="what needs these files fails, and devices may be missing or unreadable",
            mend="run the agent as a user or group that may open them, with the nvidia runtime class",
            who=DEPLOYER,
        )
    if not files.present:
        return skipped(
            "device-files", _nothing_to_drive(facts) or "no device file of a GPU is in this container"
        )
    return ok("device-files", f"{len(files.present)} may be opened: {listed(files.present)}")


def _nvml(facts: NodeFacts) -> Check:
    found = cause_of(facts, "nvml")
    if found:
        return found
    if not facts.asked or facts.verdict == "none":
        return skipped("nvml", cause_elsewhere(facts) or "nothing was asked")
    took = "" if facts.duration_seconds is None else f" in {facts.duration_seconds:.1f} s"
    return ok("nvml", f"NVML answered{took}: {len(facts.accelerators)} devices")


def _census(facts: NodeFacts) -> Check:
    """Compare what the bus shows with what the driver shows."""
    found = cause_of(facts, "census")
    why = cause_elsewhere(facts)
    if found or why:
        return found or skipped("census", why or "")
    if facts.pci is None:
        return skipped("census", "the PCI bus cannot be read here")
    shown = {device.pci.address for device in facts.accelerators if device.pci}
    missing = [gpu for gpu in _driven(facts) if gpu.identity.address not in shown]
    nameless = sum(device.pci is None for device in facts.accelerators)
    if len(missing) <= nameless:
        driven = len(_driven(facts))
        return ok(
            "census",
            f"devices shown by the driver: {len(facts.accelerators)}, by the bus as bound to it: {driven}",
        )
    return finding(
        "census",
        f"the driver shows {len(facts.accelerators)} GPUs, and the bus {len(_driven(facts))} bound to it; "
        f"without an answer: {_addresses(missing)}",
        meaning="a GPU failed to start or fell off, or this container was given only some",
        mend="look at the kernel's messages of the driver (dmesg | grep -e NVRM -e Xid); when nvidia-smi on the host "
        "shows the GPU, set NVIDIA_VISIBLE_DEVICES=all on the agent",
        who=NODE_OPERATOR,
    )


def _addresses(functions: Iterable[PciFunction]) -> str:
    return listed(function.identity.address for function in functions)
