"""The files of a fake machine: sysfs, proc and device files, written into a directory so that real readers read them.

Only paths that a reader of accelerators looks at; contents are worded as the kernel and the driver word them.
"""

import os
import shutil
from pathlib import Path

from fakes.hardware import Pci
from fakes.scenario import Driver, Scenario

_PCIE_GT_S = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
_REFUSES_WRITERS = Path("/sys/kernel/uevent_seqnum")
"""A file that even root may not open for writing; every Linux kernel has it."""


def render(scenario: Scenario, root: Path) -> None:
    """Write the machine's files under `root`, whose former `sys`, `proc` and `dev` are removed."""
    for part in ("sys", "proc", "dev"):
        shutil.rmtree(root / part, ignore_errors=True)
    _render_pci(scenario, root / "sys/bus/pci")
    _render_host(scenario, root)
    _render_driver(scenario.driver, root)
    _render_device_files(scenario, root / "dev")


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def _render_pci(scenario: Scenario, bus: Path) -> None:
    (bus / "devices").mkdir(parents=True)
    (bus / "drivers").mkdir()
    for device in scenario.devices:
        if device.pci is not None:
            pcie = device.pcie
            _render_function(device.pci, bus)
            _render_link(bus / "devices" / device.pci.address, "current", pcie.generation, pcie.width)
            _render_link(bus / "devices" / device.pci.address, "max", pcie.generation_max, pcie.width_max)
    for function in scenario.other_pci:
        _render_function(function, bus)


def _render_function(pci: Pci, bus: Path) -> None:
    if not pci.on_bus:
        return
    folder = bus / "devices" / pci.address
    for name, value in (
        ("vendor", f"0x{pci.vendor_id}"),
        ("device", f"0x{pci.device_id}"),
        ("subsystem_vendor", f"0x{pci.subsystem_vendor_id}"),
        ("subsystem_device", f"0x{pci.subsystem_id}"),
        ("class", f"0x{pci.class_code}"),
        ("numa_node", str(-1 if pci.numa_node is None else pci.numa_node)),
    ):
        _write(folder / name, f"{value}\n")
    if pci.driver is not None:
        (bus / "drivers" / pci.driver).mkdir(exist_ok=True)
        (folder / "driver").symlink_to(f"../../drivers/{pci.driver}")


def _render_link(folder: Path, which: str, generation: int | None, width: int | None) -> None:
    if not folder.is_dir():
        return
    if generation in _PCIE_GT_S:
        _write(folder / f"{which}_link_speed", f"{_PCIE_GT_S[generation]} GT/s PCIe\n")
    if width is not None:
        _write(folder / f"{which}_link_width", f"{width}\n")


def _render_host(scenario: Scenario, root: Path) -> None:
    host = scenario.host
    (root / "proc").mkdir(parents=True)
    if host.memory_bytes is not None:
        _render_memory(host.memory_bytes, host.memory_free_bytes, root)
    if host.kernel is not None:
        _write(root / "proc/sys/kernel/osrelease", f"{host.kernel}\n")
    if host.cpus is not None:
        _write(root / "proc/cpuinfo", "".join(f"processor\t: {number}\n\n" for number in range(host.cpus)))
    if host.machine is not None:
        _write(root / "sys/class/dmi/id/product_name", f"{host.machine}\n")
    if host.device_tree_model is not None:
        # Device tree texts end with a zero byte, and several stand behind each other.
        _write(root / "proc/device-tree/model", f"{host.device_tree_model}\0")
        _write(root / "proc/device-tree/compatible", "nvidia,tegra\0")


def _render_memory(total: int, free: int | None, root: Path) -> None:
    left = total // 4 * 3 if free is None else free
    _write(
        root / "proc/meminfo",
        f"MemTotal:       {total >> 10} kB\nMemFree:        {left >> 10} kB\nMemAvailable:   {left >> 10} kB\n"
        "Buffers:               0 kB\nCached:                0 kB\n",
    )


def kernel_module_version(driver: Driver) -> str | None:
    """Return the version of the loaded kernel module, `None` when none is loaded."""
    return (driver.kernel_module_version or driver.version) if driver.loaded else None


def _render_driver(driver: Driver, root: Path) -> None:
    version = kernel_module_version(driver)
    if version is None:
        return
    kind = "Open Kernel Module for x86_64" if driver.open_kernel_module else "x86_64 Kernel Module"
    _write(
        root / "proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX {kind}  {version}  Release Build  (builder@build)  Wed Sep 10 12:00:00 UTC 2025\n"
        "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n",
    )
    _write(root / "sys/module/nvidia/version", f"{version}\n")


def device_files(scenario: Scenario) -> tuple[str, ...]:
    """Return the device files in the container: those named, else what the nvidia runtime makes for the devices."""
    if scenario.device_files.present is not None:
        return scenario.device_files.present
    if not scenario.driver.loaded or not scenario.driver.library:
        return ()
    minors = [
        device.minor_number
        for device in scenario.devices
        if device.enumerated and device.minor_number is not None
    ]
    control = ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl") if minors else ()
    return (*(f"/dev/nvidia{minor}" for minor in minors), *control)


def _render_device_files(scenario: Scenario, folder: Path) -> None:
    folder.mkdir(parents=True)
    denied = scenario.device_files.denied
    for name in {*device_files(scenario), *denied}:
        path = folder / name.removeprefix("/dev/")
        if name in denied and os.geteuid() == 0:
            # Root passes a file's mode; this one refuses a writer all the same, as a device cgroup does.
            path.symlink_to(_REFUSES_WRITERS)
        else:
            path.touch()
            path.chmod(0o000 if name in denied else 0o666)
