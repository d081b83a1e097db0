"""What a probe's child tells while it works, one line each, and how the host says that a child ended.

A line is a letter, a device index (or `-`), a blank and JSON, so that the host can pass it on without reading it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from probes.facts import Accelerator, DeviceFiles, Driver, Host, PciFunction, XidEvent
from probes.pci import Census
from probes.standing import Standing

HOST = "probe host"
"""Stands for a call in an attempt where the host itself died or fell silent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What files say, whether or not NVML answers."""

    host: Host = field(default_factory=Host)
    pci: tuple[PciFunction, ...] | None = None
    device_files: DeviceFiles = field(default_factory=DeviceFiles)
    kernel_module_version: str | None = None
    integrated_gpu: bool = False
    """The device tree is an NVIDIA system on chip's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The part of the surroundings that the host keeps for the next child."""

    host: Host
    integrated_gpu: bool
    census: Census


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """NVML is open: the driver, and how many devices it says it has."""

    driver: Driver
    count: int | None
    """`None`: it would not say, or named a number that no machine has."""
    error: int | None = None
    """NVML code of the count where that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """NVML did not open."""

    code: int
    library_path: str | None = None
    """Where the library lies that refused; `None` when there is none."""
    library_version: str | None = None
    """Driver version that the library is of."""
    control_device_opens: bool = True
    """False: this process may not open `/dev/nvidiactl`, whatever its mode says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How one child ended."""

    ended: Literal["finished", "deadline", "crash", "oversize", "not-started", "dropped"]
    """`not-started`: too many children that cannot be killed are still there. `dropped`: the agent itself stops."""
    device: int | None = None
    """The device that was being asked; `None`: the library as a whole, or the machine's files."""
    call: str | None = None
    """The function that did not return."""
    signal: int | None = None
    """That ended it, for a crash."""
    exit_status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One probe, as the parent asks for it."""

    cycle: int
    leave_out: tuple[int, ...] = ()
    """Devices that did not answer before."""
    last: tuple[int, ...] = ()
    """Devices to try again, after the others."""
    stuck_elsewhere: int = 0
    """Children of an earlier host that could not be killed and are still there."""
    everything: bool = False
    """Ask more than facts need, and tell every answer as it came."""
    fresh: bool = False
    """Something happened since the last probe: nothing that is known counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Whether Xid events shall be listened for."""

    on: bool
    leave_out: tuple[int, ...] = ()
    """Devices that do not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The end of a probe: its attempts in order, and the children that could not be killed."""

    attempts: tuple[Attempt, ...]
    stuck: tuple[tuple[int, str], ...] = ()
    """Process id and start time, which together name a process for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The host's first line."""

    problem: str | None = None
    """What is wrong with the binding of NVML; nothing is probed then."""


class Answer(NamedTuple):
    """One call of NVML and what came of it, told where everything is asked for."""

    device: int | None
    """Index; `None`: the library as a whole."""
    part: int | None
    """Number of the MIG device that was asked, `None` for a GPU."""
    call: str
    arguments: tuple[int, ...]
    """Those behind the handle."""
    code: int
    value: Any
    """In its JSON form; `None` for a handle and for a call that was refused."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A device of which only the identity is read so far."""

    device: Accelerator


Finding = (
    Surroundings
    | Opened
    | Refused
    | Accelerator
    | Identity
    | Answer
    | Answered
    | Ready
    | Request
    | Listen
    | XidEvent
    | Standing
    | Machine
)
"""What a line can hold: the child's and the host's findings, the parent's orders, the listener's events."""

SURROUNDINGS, OPENED, REFUSED, DEVICE, IDENTITY = b"s", b"o", b"r", b"d", b"i"
ANSWERED, READY = b"a", b"h"
REQUEST, LISTEN = b"p", b"l"
EVENT = b"x"
ANSWER = b"n"
LEARNED, MACHINE = b"k", b"m"
"""What the host keeps for the next child and does not pass on."""
_DECODERS: dict[bytes, msgspec.json.Decoder[Finding]] = {
    SURROUNDINGS: msgspec.json.Decoder(Surroundings),
    OPENED: msgspec.json.Decoder(Opened),
    REFUSED: msgspec.json.Decoder(Refused),
    DEVICE: msgspec.json.Decoder(Accelerator),
    ANSWERED: msgspec.json.Decoder(Answered),
    READY: msgspec.json.Decoder(Ready),
    REQUEST: msgspec.json.Decoder(Request),
    LISTEN: msgspec.json.Decoder(Listen),
    EVENT: msgspec.json.Decoder(XidEvent),
    ANSWER: msgspec.json.Decoder(Answer),
    LEARNED: msgspec.json.Decoder(Standing),
    MACHINE: msgspec.json.Decoder(Machine),
}
_ENCODER = msgspec.json.Encoder()


def encode(kind: bytes, value: object, index: int | None = None) -> bytes:
    """Return the line for a finding, its newline included."""
    label = b"-" if index is None else b"%d" % index
    return kind + label + b" " + _ENCODER.encode(value) + b"\n"


def decode(line: bytes) -> Finding:
    """Return the finding of a line. Raises `ValueError` for one that no child writes."""
    kind, (_, _, body) = line[:1], line.partition(b" ")
    if kind == IDENTITY:
        return Identity(_DECODERS[DEVICE].decode(body))  # type: ignore[arg-type]
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise ValueError(f"unknown kind of line {kind!r}")
    return decoder.decode(body)


def index_of(line: bytes) -> int:
    """Return the device index of a device's line."""
    return int(line[1 : line.index(b" ")])


def start_time(pid: int) -> str:
    """Return when a process started, in the kernel's ticks; empty when there is none of that number.

    Process numbers come round again; with its start time one names a process for good.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
