"""Answers of `nvmlDeviceGetFieldValues`: readings by number, each with a return code of its own."""

from collections.abc import Callable
from typing import Any

from fakes import marshal
from fakes.functions import RECOVERY_ACTION_SINCE
from fakes.hardware import Device, Ecc
from fakes.nvml_calls import Call

RECOVERY_ACTION = {"none": 0, "reset": 1, "reboot": 2, "drain-p2p": 3, "drain-and-reset": 4}
RECOVERY_ACTION_FIELD = 230
_UNSIGNED_INT, _UNSIGNED_LONG_LONG = 1, 3


def _ecc(name: str) -> Callable[[Device], int | None]:
    def read(device: Device) -> int | None:
        return _counted(device.ecc, name)

    return read


def _counted(ecc: Ecc | None, name: str) -> int | None:
    return int(getattr(ecc, name)) if ecc is not None and ecc.enabled else None


def _rows(name: str) -> Callable[[Device], int | None]:
    def read(device: Device) -> int | None:
        return None if device.remapped_rows is None else int(getattr(device.remapped_rows, name))

    return read


def _retired(name: str) -> Callable[[Device], int | None]:
    def read(device: Device) -> int | None:
        return None if device.retired_pages is None else len(getattr(device.retired_pages, name))

    return read


def _recovery(device: Device) -> int | None:
    return None if device.recovery_action is None else RECOVERY_ACTION[device.recovery_action]


FIELDS: dict[int, Callable[[Device], int | None]] = {
    1: lambda device: None if device.ecc is None else int(device.ecc.enabled),
    3: _ecc("volatile_corrected"),
    4: _ecc("volatile_uncorrected"),
    5: _ecc("aggregate_corrected"),
    6: _ecc("aggregate_uncorrected"),
    29: _retired("single_bit"),
    30: _retired("double_bit"),
    31: lambda device: None if device.retired_pages is None else int(device.retired_pages.pending),
    91: lambda device: None if device.nvlink is None else device.nvlink.links,
    142: _rows("corrected"),
    143: _rows("uncorrectable"),
    144: _rows("pending"),
    145: _rows("failed"),
    RECOVERY_ACTION_FIELD: _recovery,
}
"""Readings that other fields of a device imply, by NVML's field id."""


def answer_field_values(call: Call) -> None:
    """Answer each field that the caller asks for; one that the device lacks has code NOT_SUPPORTED of its own."""
    count, values = call.arguments
    if marshal.integer(count) < 1:
        raise marshal.Refusal(marshal.INVALID_ARGUMENT)
    for value in list(marshal.pointee(values))[: marshal.integer(count)]:
        _answer_one(call, value)


def _answer_one(call: Call, value: Any) -> None:  # noqa: ANN401 -- a structure of the binding
    field = value.fieldId
    reading = call.device.field_values.get(field)
    known = field != RECOVERY_ACTION_FIELD or call.branch >= RECOVERY_ACTION_SINCE
    if reading is None and known and field in FIELDS:
        reading = FIELDS[field](call.device)
    if reading is None:
        value.nvmlReturn = marshal.NOT_SUPPORTED
        return
    value.nvmlReturn = marshal.SUCCESS
    value.valueType = _UNSIGNED_INT if reading < 1 << 32 else _UNSIGNED_LONG_LONG
    value.value.ullVal = reading
