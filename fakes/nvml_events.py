"""Answers of the fake NVML about events: a listener's set gets the Xid errors that the scenario delivers."""

import ctypes
import time

from fakes import marshal
from fakes.nvml_calls import Answer, Call, EventSet, Gpu

XID_EVENT = 0x8
SUPPORTED = 0x1F
_NO_INSTANCE = 0xFFFFFFFF
_LONGEST_NAP_SECONDS = 0.02


def _create(call: Call) -> None:
    marshal.write_handle(call.arguments[0], call.session.token(EventSet()))


def _supported(call: Call) -> None:
    marshal.write(call.arguments[0], SUPPORTED)


def _register(call: Call) -> None:
    types, argument = call.arguments
    events = call.session.resolve(argument)
    if not isinstance(events, EventSet):
        raise marshal.Refusal(marshal.INVALID_ARGUMENT)
    if marshal.integer(types) & ~SUPPORTED:
        raise marshal.Refusal(marshal.NOT_SUPPORTED)
    events.registered[call.gpu.number] = (marshal.integer(types), time.monotonic())


def _wait(call: Call) -> None:
    data, timeout_ms = call.arguments
    deadline = time.monotonic() + marshal.integer(timeout_ms) / 1000
    while not _deliver(call, data):
        left = deadline - time.monotonic()
        if left <= 0:
            raise marshal.Refusal(marshal.TIMEOUT)
        time.sleep(min(left, _LONGEST_NAP_SECONDS))


def _deliver(call: Call, data: object) -> bool:
    """Write the next event that is due, and tell whether there was one."""
    if not isinstance(call.handle, EventSet):
        raise marshal.Refusal(marshal.INVALID_ARGUMENT)
    events = call.handle
    for position, event in enumerate(call.session.scenario.events):
        types, since = events.registered.get(event.device, (0, 0.0))
        due = types & XID_EVENT and time.monotonic() >= since + event.after_seconds
        gpu = next((gpu for gpu in call.session.gpus() if gpu.number == event.device), None)
        if due and gpu is not None and position not in events.delivered:
            events.delivered.add(position)
            _write(call, data, gpu, event.xid)
            return True
    return False


def _write(call: Call, data: object, gpu: Gpu, xid: int) -> None:
    target = marshal.pointee(data)
    target.device = ctypes.cast(call.session.token(gpu), type(target.device))
    target.eventType, target.eventData = XID_EVENT, xid
    target.gpuInstanceId = target.computeInstanceId = _NO_INSTANCE


def _free(call: Call) -> None:
    token = next(token for token, handle in call.session.handles.items() if handle is call.handle)
    del call.session.handles[token]


EVENT_ANSWERS: dict[str, Answer] = {
    "nvmlEventSetCreate": Answer(_create, on="nothing"),
    "nvmlDeviceGetSupportedEventTypes": Answer(_supported),
    "nvmlDeviceRegisterEvents": Answer(_register),
    "nvmlEventSetWait_v2": Answer(_wait, on="event-set"),
    "nvmlEventSetFree": Answer(_free, on="event-set"),
}
