"""Asks NVML for more than facts need and passes every answer on in plain form; what is made of it is `captured`'s.

Serial numbers and board identities are never asked for, so that they can be in no capture.
"""

import ctypes
from collections.abc import Callable, Sequence

import pynvml

from probes.findings import Answer
from probes.nvml_mig import PROFILE_SLOTS
from probes.questions import Handle, Invoke, Refusal

Question = tuple[str, tuple[int, ...]]
"""A function of the binding and the arguments behind the handle."""

OF_THE_LIBRARY: tuple[Question, ...] = (
    ("nvmlSystemGetNVMLVersion", ()),
    ("nvmlSystemGetConfComputeState", ()),
)

OF_A_DEVICE: tuple[Question, ...] = (
    ("nvmlDeviceGetBrand", ()),
    ("nvmlDeviceGetArchitecture", ()),
    ("nvmlDeviceGetMinorNumber", ()),
    ("nvmlDeviceGetModuleId", ()),
    ("nvmlDeviceGetVbiosVersion", ()),
    ("nvmlDeviceGetGspFirmwareVersion", ()),
    ("nvmlDeviceGetBAR1MemoryInfo", ()),
    *(("nvmlDeviceGetClockInfo", (domain,)) for domain in range(4)),
    *(("nvmlDeviceGetMaxClockInfo", (domain,)) for domain in range(4)),
    ("nvmlDeviceGetPowerUsage", ()),
    ("nvmlDeviceGetPowerManagementLimit", ()),
    ("nvmlDeviceGetPowerManagementLimitConstraints", ()),
    ("nvmlDeviceGetTemperature", (0,)),
    ("nvmlDeviceGetUtilizationRates", ()),
    ("nvmlDeviceGetDisplayMode", ()),
    ("nvmlDeviceGetDisplayActive", ()),
    ("nvmlDeviceGetComputeMode", ()),
    ("nvmlDeviceGetAddressingMode", ()),
    ("nvmlDeviceGetGpuMaxPcieLinkGeneration", ()),
    ("nvmlDeviceGetMaxMigDeviceCount", ()),
    *(("nvmlDeviceGetTotalEccErrors", (0, counter)) for counter in range(2)),
    *(("nvmlDeviceGetGpuInstanceProfileInfo", (slot,)) for slot in range(PROFILE_SLOTS)),
)


class Capture:
    """Hears the answers of one child's probe."""

    def __init__(self, tell: Callable[[Answer], None]) -> None:
        """`tell` is given each answer at once: the next call may never return."""
        self._tell = tell
        self._parts: list[tuple[object, int]] = []

    def hear(self, device: int | None, call: str, arguments: Sequence[object], answer: object) -> None:
        """Pass an answer on."""
        if call == "nvmlDeviceGetMigDeviceHandleByIndex" and not isinstance(answer, Refusal):
            self._parts.append((answer, _number(arguments[-1])))
        part = next(
            (number for known, number in self._parts if any(known is given for given in arguments)), None
        )
        code, value = (answer.code, None) if isinstance(answer, Refusal) else (0, _plain(answer))
        numbers = tuple(given for given in arguments if isinstance(given, int))
        self._tell(Answer(device, part, call, numbers, code, value))

    def ask_more(self, handle: Handle | None, invoke: Invoke) -> None:
        """Ask what facts need not; a binding that is older than a function is not asked for it."""
        for call, arguments in OF_THE_LIBRARY if handle is None else OF_A_DEVICE:
            if hasattr(pynvml, call):
                invoke(call, *(() if handle is None else (handle,)), *arguments)


def _number(argument: object) -> int:
    return argument if isinstance(argument, int) else -1


def _plain(value: object) -> object:
    """Return an answer as JSON has it: structures by their fields, raw bytes in hex, and no handle."""
    match value:
        case int() | float() | str() | None:
            return value
        case bytes():
            return value.hex()
        case tuple() | list():
            return [_plain(item) for item in value]
        case ctypes.Structure():
            return {name: _text_or_number(getattr(value, name)) for name, *_ in value._fields_}
        case _:
            return None


def _text_or_number(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else _plain(value)
