"""Why hardware could not be asked: for each reason of a probe the check that names it, what it means and how to mend it.

The words of `mend` stand on their own: the one who reads them may not know how this agent was deployed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.core.doctor.check import DEPLOYER, NODE_OPERATOR, Who


@dataclass(frozen=True, slots=True)
class Cause:
    """What stands behind one reason of a probe."""

    check: str
    meaning: str
    mend: str
    who: Who


_NEW_POD = "delete this pod: a new container gets its devices again"
_MESSAGES = "look at the kernel's messages of the driver: dmesg | grep -e NVRM -e Xid"
_RUNTIME = (
    "give the pod runtimeClassName: nvidia (or make nvidia the default runtime), with NVIDIA_VISIBLE_DEVICES=all and "
    "NVIDIA_DRIVER_CAPABILITIES=utility"
)

CAUSES: Mapping[str, Cause] = {
    "BusNotReadable": Cause(
        "bus",
        "whether the machine has GPUs is not known: neither the library nor the bus can be read",
        "let the container read the host's /sys",
        DEPLOYER,
    ),
    "PassedThrough": Cause(
        "pass-through",
        "every GPU of this machine belongs to a virtual machine; its own workloads get none",
        "nothing, when that is meant; else unbind the GPUs from the pass-through driver and load nvidia",
        NODE_OPERATOR,
    ),
    "DriverNotBound": Cause(
        "kernel-module",
        "the machine has GPUs that no NVIDIA driver drives",
        "install the NVIDIA driver, or wait when an operator is installing it now; nouveau must not be loaded",
        NODE_OPERATOR,
    ),
    "DriverNotLoaded": Cause(
        "kernel-module",
        "the NVIDIA kernel module is not loaded, so that nothing can reach the GPUs",
        "load it (modprobe nvidia) or install the driver; after a kernel upgrade its module must be built anew",
        NODE_OPERATOR,
    ),
    "DriverLibraryMismatch": Cause(
        "driver-versions",
        "the driver was upgraded without a reboot: no new process can open NVML until that is done",
        "drain the node and reboot it, or unload and load the kernel module while nothing uses the GPUs",
        NODE_OPERATOR,
    ),
    "LibraryNotVisible": Cause(
        "library",
        "the GPUs and their driver are there, and this container was started without them",
        _RUNTIME,
        DEPLOYER,
    ),
    "DeviceFilesMissing": Cause(
        "device-files",
        "the driver is loaded, and this container was given no device file of a GPU",
        _RUNTIME,
        DEPLOYER,
    ),
    "DeviceFilesDenied": Cause(
        "device-files",
        "the device files are there, and this process may not open them: their mode, or the container's device cgroup",
        "run the agent as a user or group that may open /dev/nvidia*, or " + _RUNTIME,
        DEPLOYER,
    ),
    "DevicesRevoked": Cause(
        "device-files",
        "this container had its devices and lost them, as a reload of systemd does (systemctl daemon-reload)",
        _NEW_POD,
        DEPLOYER,
    ),
    "BindingUnsuitable": Cause(
        "nvml",
        "another Python package shadows the binding of NVML, so that nothing was asked",
        "in the image: uninstall the distribution pynvml and install nvidia-ml-py again",
        DEPLOYER,
    ),
    "InitFailed": Cause(
        "nvml",
        "NVML is there and does not open; when nvidia-smi works on the host, this container has lost its devices",
        f"{_NEW_POD}; when nvidia-smi fails on the host too, {_MESSAGES}",
        NODE_OPERATOR,
    ),
    "CountFailed": Cause(
        "nvml", "NVML opened and would not say how many GPUs there are", _MESSAGES, NODE_OPERATOR
    ),
    "EveryDeviceFailed": Cause(
        "nvml",
        "the driver lists the GPUs and none of them could be read",
        f"{_MESSAGES}; when nvidia-smi reads them on the host, {_NEW_POD}",
        NODE_OPERATOR,
    ),
    "EveryDeviceMissing": Cause(
        "census",
        "the driver drives the GPUs of the bus and shows none: they failed to start",
        _MESSAGES,
        NODE_OPERATOR,
    ),
    "NoAnswer": Cause(
        "nvml",
        "a call into the driver did not come back",
        f"{_MESSAGES}; with persistence mode off a longer --probe-timeout may do, else the node needs a reboot",
        NODE_OPERATOR,
    ),
    "ProbesStuck": Cause(
        "nvml",
        "earlier calls hang in the kernel and cannot be ended, so that no further one is made",
        "drain the node and reboot it",
        NODE_OPERATOR,
    ),
    "ProbeCrashed": Cause(
        "nvml",
        "the library ended the process that asked it",
        f"{_MESSAGES}; a library of another version than the driver does this",
        NODE_OPERATOR,
    ),
    "ProbeHostDied": Cause(
        "nvml",
        "the process that asks the hardware was ended from outside, most often for want of memory",
        "raise the pod's memory limit, or look at what ended it",
        DEPLOYER,
    ),
    "AnswerTooLarge": Cause(
        "nvml", "the library told more than any machine has to say", _MESSAGES, NODE_OPERATOR
    ),
    "ProbeDropped": Cause("nvml", "the probe was ended before it was done", "run this again", ""),
}
"""By reason of a probe that could not ask, and of one that was told that there is nothing for this machine."""
