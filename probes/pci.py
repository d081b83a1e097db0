"""The PCI census from sysfs: which accelerators the bus shows, whatever any driver or library says."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from probes.facts import PciFunction, PciIdentity

VENDORS = frozenset({"10de", "1002", "8086", "1d0f", "1ae0"})
"""NVIDIA, AMD, Intel, Amazon and Google; the display adapter of a BMC is made by none of these."""

CLASSES = frozenset({"0300", "0302", "0b40", "1200"})
"""VGA, 3D controller, co-processor, processing accelerator."""

_MAX_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """What the bus shows."""

    addresses: tuple[str, ...] = ()
    """Of every function, whoever made it."""
    functions: tuple[PciFunction, ...] | None = None
    """The accelerator-like ones by address; `None` where sysfs is not there to be read."""


def read_census(root: Path, *, before: Census | None = None) -> Census:
    """Read the bus; while it shows the addresses that it did `before`, only which drivers are bound is read again.

    A machine without a PCI bus has sysfs without `bus/pci`, and no functions. SR-IOV shares of a function of this same
    machine are left out: they are parts of a device that is counted already.
    """
    devices = f"{root}/sys/bus/pci/devices"
    try:
        addresses = tuple(sorted(os.listdir(devices)))  # noqa: PTH208 - names, not paths
    except FileNotFoundError:
        return Census(functions=() if (root / "sys/bus").is_dir() else None)
    except OSError:
        return Census()
    if before is not None and before.functions is not None and before.addresses == addresses:
        return replace(before, functions=tuple(_driven_now(devices, known) for known in before.functions))
    found = (_read_function(f"{devices}/{address}", address) for address in addresses)
    return Census(
        addresses=addresses, functions=tuple(function for function in found if function is not None)
    )


def read_pci_functions(root: Path) -> tuple[PciFunction, ...] | None:
    """Return the accelerator-like functions by address; `None` where sysfs is not there to be read."""
    return read_census(root).functions


def _driven_now(devices: str, known: PciFunction) -> PciFunction:
    driver = _driver(f"{devices}/{known.identity.address}")
    return known if driver == known.driver else replace(known, driver=driver)


def _read_function(folder: str, address: str) -> PciFunction | None:
    vendor = _hex(folder, "vendor", digits=4)
    if vendor not in VENDORS:
        return None
    class_code, device = _hex(folder, "class", digits=6), _hex(folder, "device", digits=4)
    if class_code is None or device is None or class_code[:4] not in CLASSES:
        return None
    if os.path.lexists(f"{folder}/physfn"):
        return None
    return PciFunction(
        identity=PciIdentity(
            address=address.lower(),
            vendor_id=vendor,
            device_id=device,
            subsystem_vendor_id=_hex(folder, "subsystem_vendor", digits=4),
            subsystem_id=_hex(folder, "subsystem_device", digits=4),
            numa_node=_numa_node(folder),
        ),
        class_code=class_code,
        driver=_driver(folder),
    )


def _hex(folder: str, name: str, *, digits: int) -> str | None:
    text = _text(folder, name)
    try:
        return f"{int(text, 16):0{digits}x}"
    except ValueError:
        return None


def _numa_node(folder: str) -> int | None:
    try:
        node = int(_text(folder, "numa_node"))
    except ValueError:
        return None
    return node if node >= 0 else None


def _driver(folder: str) -> str | None:
    try:
        return os.path.basename(os.readlink(f"{folder}/driver")) or None  # noqa: PTH115, PTH119 - hot path
    except OSError:
        return None


def _text(folder: str, name: str) -> str:
    """Return a sysfs attribute without blanks, empty where it cannot be read: functions vanish while one looks."""
    try:
        descriptor = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _MAX_BYTES).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)
