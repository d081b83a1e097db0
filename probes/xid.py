"""The listener for Xid events, in a forked child of its own; holds NVML open for as long as it runs."""

from collections.abc import Callable, Collection, Iterator
from ctypes import c_void_p, cast
from typing import Any

import pynvml

from probes.facts import XidEvent

WAIT_MILLISECONDS = 60_000
"""How long one wait lasts; the call returns at once when something happens, and each return wakes an idle machine."""

_TIMEOUT = 10
_NO_INSTANCE = 0xFFFFFFFF


def listen(*, leave_out: Collection[int] = ()) -> Iterator[XidEvent]:
    """Yield events as they happen, until NVML ends the conversation: opens it, registers all devices and waits.

    Devices in `leave_out` are not touched. An error of the wait itself is yielded as an event without a code, since it
    is how NVML tells a listener that a GPU is gone; nothing more can be heard then.
    """
    if not _answers(pynvml.nvmlInit):
        return
    try:
        events = pynvml.nvmlEventSetCreate()
        names = dict(_registered(events, leave_out))
        yield from _heard(events, names)
    except pynvml.NVMLError:
        # No event set, no count, or the wait failed: without a listener the next probe sees what happened.
        return
    finally:
        _answers(pynvml.nvmlShutdown)


def _registered(events: object, leave_out: Collection[int]) -> Iterator[tuple[int, str]]:
    """Register each device for Xid events and yield its handle's number with its UUID; skip those that will not."""
    for index in range(pynvml.nvmlDeviceGetCount()):
        if index in leave_out:
            continue
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
            yield _number(handle), pynvml.nvmlDeviceGetUUID(handle)
        except (pynvml.NVMLError, UnicodeDecodeError):
            # Lost already, or a board without events (GeForce on some drivers): the others are still heard.
            continue


def _heard(events: object, names: dict[int, str]) -> Iterator[XidEvent]:
    while names:
        try:
            data = pynvml.nvmlEventSetWait_v2(events, WAIT_MILLISECONDS)
        except pynvml.NVMLError as error:
            if error.value == _TIMEOUT:
                continue
            yield XidEvent(device=None, xid=None)
            return
        yield XidEvent(
            # The device may no longer answer for its name, so it is known by the handle it was registered under.
            device=names.get(_number(data.device)),
            xid=int(data.eventData),
            gpu_instance_id=_instance(data.gpuInstanceId),
            compute_instance_id=_instance(data.computeInstanceId),
        )


def _number(handle: Any) -> int:  # noqa: ANN401 - a pointer of the binding
    return cast(handle, c_void_p).value or 0


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else number


def _answers(function: Callable[[], object]) -> bool:
    try:
        function()
    except pynvml.NVMLError:
        return False
    return True
