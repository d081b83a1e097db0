"""What the forked child does: read the machine's files and NVML once, tell what is found, and end."""

import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import CDLL
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from probes import findings, host, nvml, pci, xid
from probes.capture import Capture
from probes.facts import Accelerator
from probes.findings import Identity, Machine, Opened, Refused, Surroundings
from probes.lines import write_all
from probes.standing import Learned, Standing

_PROGRESS = struct.Struct("=di64s")
_NO_DEVICE = -1
_PR_SET_PDEATHSIG = 1
_prctl = CDLL(None).prctl


class Progress:
    """The call that a child is making, in memory shared with the host: a write costs about a microsecond.

    Two places take turns, and one byte counts the writes and so names the place that is whole: the host reads at any
    moment, and half a write would look like a call that has lasted for ever.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 2 * _PROGRESS.size + 1)
        self._writes = 0
        self.calls(None, "files")

    def calls(self, device: int | None, call: str) -> None:
        """Say which call starts now."""
        number = _NO_DEVICE if device is None else device
        writes = (self._writes + 1) & 0xFF
        place = writes % 2 * _PROGRESS.size
        _PROGRESS.pack_into(self._memory, place, time.monotonic(), number, call.encode("ascii", "replace"))
        self._memory[-1] = self._writes = writes

    def read(self) -> tuple[float, int | None, str]:
        """Return when the current call started (monotonic seconds), its device and its name."""
        told = self._whole()
        while told is None:
            told = self._whole()
        started, device, call = _PROGRESS.unpack(told)
        number = None if device == _NO_DEVICE else device
        return started, number, call.rstrip(b"\0").decode("ascii", "replace")

    def _whole(self) -> bytes | None:
        """Return the last write; `None` when another one began meanwhile."""
        writes = self._memory[-1]
        place = writes % 2 * _PROGRESS.size
        told = self._memory[place : place + _PROGRESS.size]
        return told if self._memory[-1] == writes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one child is to read."""

    root: Path
    leave_out: Collection[int]
    last: Sequence[int]
    with_surroundings: bool
    """False in a second child of one probe, where the files are read already."""
    everything: bool = False
    """Ask more than facts need, and tell every answer."""
    machine: Machine | None = None
    """What the machine's files said before, as far as it stands."""
    known: Mapping[int, Standing] = field(default_factory=dict)
    """What devices answered before, by index."""


def run_child(work: Callable[[], None]) -> NoReturn:
    """Do the work of a child and end the process, without what the host had planned for its own end."""
    status = 1
    try:
        # Should the host be killed, nobody would end a child that hangs.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # A child that cannot be killed must not keep the host's pipes open, nor may a library print into them.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - the last line of a process: whatever it is goes to the log
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def tell_events(leave_out: Collection[int], writer: int) -> None:
    """Listen for Xid events and tell each."""
    for event in xid.listen(leave_out=leave_out):
        write_all(writer, findings.encode(findings.EVENT, event))


def tell_all(task: Task, writer: int, progress: Progress) -> None:
    """Probe and tell what is found while it is found."""

    def tell(kind: bytes, value: object, index: int | None = None) -> None:
        write_all(writer, findings.encode(kind, value, index))

    if task.with_surroundings:
        machine = read_machine(task.root, before=task.machine)
        tell(findings.SURROUNDINGS, read_surroundings(task.root, machine))
        if task.machine is None or machine.census.addresses != task.machine.census.addresses:
            tell(findings.MACHINE, machine)
    capture = Capture(lambda answer: tell(findings.ANSWER, answer, answer.device))
    for found in nvml.probe_nvml(
        leave_out=task.leave_out,
        last=task.last,
        on_call=progress.calls,
        listener=capture if task.everything else None,
        known=task.known,
    ):
        match found:
            case Opened():
                tell(findings.OPENED, found)
            case Refused():
                opens = host.opens_control_device(task.root)
                tell(findings.REFUSED, replace(found, control_device_opens=opens))
            case Identity(device):
                tell(findings.IDENTITY, device, device.index)
            case Accelerator():
                tell(findings.DEVICE, found, found.index)
            case Learned(index, standing):
                tell(findings.LEARNED, standing, index)


def read_machine(root: Path, *, before: Machine | None = None) -> Machine:
    """Read what stays as it is while the machine runs, and the bus; what is known from `before` is not read again."""
    if before is None:
        return Machine(
            host=host.read_host(root),
            integrated_gpu=host.has_integrated_gpu(root),
            census=pci.read_census(root),
        )
    return replace(before, census=pci.read_census(root, before=before.census))


def read_surroundings(root: Path, machine: Machine | None = None) -> Surroundings:
    """Read what the machine's files say, NVML apart."""
    machine = machine or read_machine(root)
    return Surroundings(
        host=machine.host,
        pci=machine.census.functions,
        device_files=host.read_device_files(root),
        kernel_module_version=host.read_kernel_module_version(root),
        integrated_gpu=machine.integrated_gpu,
    )
