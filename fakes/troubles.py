"""Machines with something wrong, as values: what a driver, a device or a call then does."""

from collections.abc import Callable
from typing import Any

from fakes.machines import Data, a100_80_mig, eight, h100x8


def failing(number: int, code: int, function: str = "nvmlDevice*", **fields: Any) -> Data:  # noqa: ANN401
    """Return a script entry by which calls on one device answer with a code."""
    return {"function": function, "device": number, "code": code, **fields}


def _mig_empty() -> Data:
    """MIG switched on for one GPU of eight, and no instance made."""
    devices = eight("h100-sxm")
    devices[3]["mig"] = {"enabled": True}
    return h100x8(devices=devices)


def _mig_pending() -> Data:
    """MIG asked for on the first GPU, waiting for a reset."""
    devices = eight("h100-sxm")
    devices[0]["mig"] = {"enabled": False, "pending": True}
    return h100x8(devices=devices)


def _mig_no_permission() -> Data:
    """MIG partitions exist, and this process may not read them."""
    handles = "nvmlDeviceGetMigDeviceHandleByIndex"
    return {**a100_80_mig(), "failures": [{"function": handles, "device": n, "code": 4} for n in (2, 3)]}


def _unbound(devices: list[Data]) -> list[Data]:
    return [{**device, "pci": {**device["pci"], "driver": None}} for device in devices]


def _no_driver() -> Data:
    return h100x8(driver={"loaded": False}, devices=_unbound(eight("h100-sxm")))


def _no_answer() -> Data:
    return h100x8(failures=[{"function": "nvmlInitWithFlags", "hang": True}])


def _device_hangs() -> Data:
    """One of eight never answers a question about its memory (FR-008)."""
    return h100x8(failures=[{"function": "nvmlDeviceGetMemoryInfo*", "device": 3, "hang": True}])


def _crash() -> Data:
    return h100x8(failures=[{"function": "nvmlDeviceGetCount_v2", "abort": True}])


def _one_lost() -> Data:
    handles = failing(3, 15, "nvmlDeviceGetHandleByIndex_v2")
    return h100x8(failures=[handles])


def _lost_after_handle() -> Data:
    """Give the handle, and say on every question after it that the GPU is lost."""
    return h100x8(failures=[failing(3, 15, but_not="nvmlDeviceGetHandleBy*")])


def _all_lost() -> Data:
    return h100x8(failures=[{"function": "nvmlDeviceGetHandleByIndex_v2", "code": 15}])


def _needs_reset() -> Data:
    return h100x8(failures=[failing(2, 16, but_not="nvmlDeviceGetHandleBy*")])


def _container_lost_devices() -> Data:
    """From the fourth probe on everything answers 999, as after a reload of the service manager (FR-001)."""
    return h100x8(failures=[{"function": "*", "cycle": "4-", "code": 999}])


def _count_shrinks() -> Data:
    """From the second probe on the driver shows seven; the bus still shows eight (FR-017)."""
    return h100x8(changes=[{"cycle": "2-", "set": {"devices": {7: {"enumerated": False}}}}])


def _sick() -> Data:
    """Eight GPUs that answer, with one ailment each but the first."""
    devices = eight("h100-sxm")
    ailments: tuple[Data, ...] = (
        {"remapped_rows": {"uncorrectable": 4, "pending": True}},
        {"remapped_rows": {"uncorrectable": 4, "failed": True}},
        {"remapped_rows": {"uncorrectable": 4}},
        {"clock_event_reasons": ["hw-slowdown", "hw-thermal-slowdown"]},
        {"nvlink": {"inactive": [4, 5]}},
        {"recovery_action": "reset"},
        {"fabric": {"state": "in-progress"}},
    )
    for device, ailment in zip(devices[1:], ailments, strict=True):
        device.update(ailment)
    return h100x8(devices=devices)


TROUBLES: dict[str, Callable[[], Data]] = {
    "mig-empty": _mig_empty,
    "mig-pending": _mig_pending,
    "mig-no-permission": _mig_no_permission,
    "no-driver": _no_driver,
    "no-runtime": lambda: h100x8(driver={"library": False}),
    "version-mismatch": lambda: h100x8(driver={"kernel_module_version": "570.172.08"}),
    "no-answer": _no_answer,
    "device-hangs": _device_hangs,
    "crash": _crash,
    "h100x8-one-lost": _one_lost,
    "h100x8-lost-after-handle": _lost_after_handle,
    "h100x8-all-lost": _all_lost,
    "h100x8-needs-reset": _needs_reset,
    "h100x8-container-lost": _container_lost_devices,
    "h100x8-count-shrinks": _count_shrinks,
    "h100x8-sick": _sick,
}
