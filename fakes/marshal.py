"""What a C library does with the arguments that `ctypes` hands it: read numbers, fill structures, refuse with a code."""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

SUCCESS: Final = 0
UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NOT_FOUND: Final = 6
INSUFFICIENT_SIZE: Final = 7
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
LIBRARY_NOT_FOUND: Final = 12
LIB_RM_VERSION_MISMATCH: Final = 18
ARGUMENT_VERSION_MISMATCH: Final = 25

MESSAGES: Final[Mapping[int, str]] = {
    SUCCESS: "Success",
    UNINITIALIZED: "Uninitialized",
    INVALID_ARGUMENT: "Invalid Argument",
    NOT_SUPPORTED: "Not Supported",
    4: "Insufficient Permissions",
    5: "Already Initialized",
    NOT_FOUND: "Not Found",
    INSUFFICIENT_SIZE: "Insufficient Size",
    8: "Insufficient External Power",
    DRIVER_NOT_LOADED: "Driver Not Loaded",
    TIMEOUT: "Timeout",
    11: "Interrupt Request Issue",
    LIBRARY_NOT_FOUND: "NVML Shared Library Not Found",
    13: "Function Not Found",
    14: "Corrupted infoROM",
    15: "GPU is lost",
    16: "GPU requires reset",
    17: "The operating system has blocked the request.",
    LIB_RM_VERSION_MISMATCH: "RM has detected an NVML/RM version mismatch.",
    19: "In use by another client",
    20: "Insufficient Memory",
    21: "No data",
    22: "vGPU ECC not supported",
    23: "Insufficient Resources",
    24: "Requested frequency not supported",
    ARGUMENT_VERSION_MISMATCH: "Argument version mismatch",
    26: "Requested functionality has been deprecated",
    27: "Not Ready",
    28: "GPU not found",
    29: "Invalid state",
    30: "Reset type not supported",
    999: "Unknown Error",
}


class Refusal(Exception):  # noqa: N818 -- an answer of the library, not an error of the fake
    """The call answers with `code` and writes nothing."""

    def __init__(self, code: int) -> None:
        super().__init__(MESSAGES.get(code, str(code)))
        self.code = code


def integer(argument: Any) -> int:  # noqa: ANN401 -- plain or a ctypes number
    """Return a number passed by value."""
    return int(getattr(argument, "value", argument))


def text(argument: Any) -> str:  # noqa: ANN401 -- bytes or c_char_p
    """Return a text passed in."""
    value = getattr(argument, "value", argument)
    if not isinstance(value, bytes):
        raise Refusal(INVALID_ARGUMENT)
    return value.decode("utf-8", "replace")


def pointee(argument: Any) -> Any:  # noqa: ANN401 -- byref, pointer or array
    """Return what an out-parameter points to; a null pointer is INVALID_ARGUMENT."""
    if hasattr(argument, "_obj"):
        return argument._obj  # noqa: SLF001 -- byref() hides its target there
    if isinstance(argument, ctypes.Array):
        return argument
    if argument is None or not argument:
        raise Refusal(INVALID_ARGUMENT)
    return argument.contents


def needed(value: Any) -> Any:  # noqa: ANN401 -- whatever the device has
    """Return a value, or answer NOT_SUPPORTED where the device has none."""
    if value is None:
        raise Refusal(NOT_SUPPORTED)
    return value


def write(argument: Any, value: Any) -> None:  # noqa: ANN401 -- any number
    """Write a number through an out-parameter, or answer NOT_SUPPORTED for `None`."""
    target = pointee(argument)
    target.value = needed(value)


def write_text(arguments: Sequence[Any], value: str | None) -> None:
    """Write a text with its closing zero into (buffer, size); too small a buffer is INSUFFICIENT_SIZE."""
    buffer, size = arguments
    target = pointee(buffer)
    encoded = str(needed(value)).encode("utf-8")
    if len(encoded) + 1 > integer(size):
        raise Refusal(INSUFFICIENT_SIZE)
    target.value = encoded


def fill(argument: Any, **fields: Any) -> None:  # noqa: ANN401 -- a structure and its fields
    """Write fields of a structure."""
    target = pointee(argument)
    for name, value in fields.items():
        setattr(target, name, value)


def structure_version(structure: ctypes.Structure, version: int) -> int:
    """Return the number that a caller puts into the version field."""
    return ctypes.sizeof(structure) | version << 24


def require_version(argument: Any, *versions: int) -> int:  # noqa: ANN401 -- a structure with a version field
    """Return which of the known versions the caller's structure is, or answer ARGUMENT_VERSION_MISMATCH."""
    structure = pointee(argument)
    for version in versions:
        if structure.version == structure_version(structure, version):
            return version
    raise Refusal(ARGUMENT_VERSION_MISMATCH)


def handle_token(handle: Any) -> int:  # noqa: ANN401 -- an opaque pointer
    """Return the number behind a handle, 0 for a null one."""
    try:
        return ctypes.cast(handle, ctypes.c_void_p).value or 0
    except ctypes.ArgumentError:
        return 0


def write_handle(argument: Any, token: int) -> None:  # noqa: ANN401 -- pointer to an opaque pointer
    """Write a handle through an out-parameter."""
    if argument is None:
        raise Refusal(INVALID_ARGUMENT)
    ctypes.cast(argument, ctypes.POINTER(ctypes.c_void_p))[0] = token


def override(arguments: tuple[Any, ...], value: Any) -> None:  # noqa: ANN401 -- what a scenario says
    """Write a scripted value into a call's out-parameters: numbers in order, a text, or fields of the structure."""
    targets = [pointee(argument) for argument in arguments if _is_out(argument)]
    if isinstance(value, Mapping):
        for name, content in value.items():
            setattr(targets[0], name, content.encode() if isinstance(content, str) else content)
        return
    values = value if isinstance(value, list) else [value]
    for target, content in zip(targets, values, strict=False):
        target.value = content.encode() if isinstance(content, str) else content


def override_bytes(arguments: tuple[Any, ...], content: bytes) -> None:
    """Write scripted bytes over a call's first out-parameter."""
    target = next(pointee(argument) for argument in arguments if _is_out(argument))
    length = min(len(content), ctypes.sizeof(target))
    ctypes.memmove(ctypes.addressof(target), content + b"\0", min(length + 1, ctypes.sizeof(target)))


def _is_out(argument: Any) -> bool:  # noqa: ANN401 -- any argument
    return hasattr(argument, "_obj") or isinstance(argument, ctypes.Array)
