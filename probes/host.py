"""The machine around the accelerators and what its files say of the NVIDIA driver; the only importer of `psutil`."""

import errno
import os
import re
from pathlib import Path

import psutil

from probes.facts import DeviceFiles, Host

_MAX_BYTES = 1 << 16
_MAX_CPUINFO_BYTES = 1 << 22
_MODULE_VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")


def read_host(root: Path) -> Host:
    """Read the machine's facts under `root`; what a file does not tell is `None`."""
    here = root == Path("/")
    return Host(
        machine=_first(root, ("sys/class/dmi/id/product_name", "proc/device-tree/model")),
        kernel=_first(root, ("proc/sys/kernel/osrelease",)),
        # A container's own limits do not count: these are the machine's.
        memory_bytes=psutil.virtual_memory().total if here else _memory_bytes(root),
        cpus=psutil.cpu_count() if here else _cpus(root),
    )


def read_kernel_module_version(root: Path) -> str | None:
    """Return the version of the loaded NVIDIA kernel module, `None` when none is loaded."""
    match = _MODULE_VERSION.search(_text(root / "proc/driver/nvidia/version"))
    return match[1] if match else _first(root, ("sys/module/nvidia/version",))


def has_integrated_gpu(root: Path) -> bool:
    """Tell whether the device tree is that of an NVIDIA system on chip, whose GPU is on no PCI bus."""
    return "nvidia,tegra" in _text(root / "proc/device-tree/compatible")


def read_device_files(root: Path) -> DeviceFiles:
    """List the driver's device files and those that this process may not open; opens none."""
    folder = f"{root}/dev"
    try:
        names = sorted(name for name in os.listdir(folder) if _is_nvidia(name))  # noqa: PTH208 - names, not paths
    except OSError:
        names = []
    denied = [name for name in names if not os.access(f"{folder}/{name}", os.R_OK | os.W_OK)]
    return DeviceFiles(present=_paths(names), denied=_paths(denied))


def opens_control_device(root: Path) -> bool:
    """Tell whether `/dev/nvidiactl` opens, for after NVML refused: a device cgroup denies what the file's mode allows.

    Only that one is tried: opening a GPU's own file can start it up, which takes seconds.
    """
    try:
        descriptor = os.open(root / "dev/nvidiactl", os.O_RDWR | os.O_NONBLOCK)
    except OSError as error:
        return error.errno not in {errno.EACCES, errno.EPERM}
    os.close(descriptor)
    return True


def _is_nvidia(name: str) -> bool:
    return (name.startswith("nvidia") and name != "nvidia-caps") or name in {"nvmap", "dxg"}


def _paths(names: list[str]) -> tuple[str, ...]:
    return tuple(f"/dev/{name}" for name in names)


def _memory_bytes(root: Path) -> int | None:
    match = re.search(r"^MemTotal:\s+(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _cpus(root: Path) -> int | None:
    return (
        len(re.findall(r"^processor\s*:", _text(root / "proc/cpuinfo", _MAX_CPUINFO_BYTES), re.MULTILINE))
        or None
    )


def _first(root: Path, paths: tuple[str, ...]) -> str | None:
    return next((text for path in paths if (text := _text(root / path).strip(" \n\t\0"))), None)


def _text(path: Path, most: int = _MAX_BYTES) -> str:
    """Return the file's beginning, empty where it cannot be read: most machines lack some of these files."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return _read_up_to(descriptor, most).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _read_up_to(descriptor: int, most: int) -> bytes:
    """Read so much or to the end: files under /proc give what they have in pieces."""
    found = b""
    while len(found) < most and (piece := os.read(descriptor, most - len(found))):
        found += piece
    return found
