"""The probe host: a process of one thread that forks a child per probe and ends it when a call does not return.

It has imported the binding and never opens NVML itself, so a crash, a leak or a call that never returns stays in a
child. `python -m probes.child` reads requests from its standard input and writes findings to its standard output.
"""

import argparse
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from probes import findings, nvml
from probes.findings import Answered, Attempt, Listen, Machine, Ready, Request
from probes.forked import Progress, Task, run_child, tell_all, tell_events
from probes.lines import MAX_BYTES, whole_lines, write_all
from probes.standing import ASKED_ANEW_AFTER, Standing

DEVICE_CALL_SHARE = 0.5
"""Share of the probe timeout that one call on a device may take. Half: when one hangs, a second child still has time to
read the others within twice the timeout."""

LIBRARY_CALL_SHARE = 1.5
"""The same for calls on the library. With persistence mode off `nvmlInit` starts every GPU: 30 s were seen."""

PROBE_SHARE = 2.0
"""What a probe as a whole may take, all its children together."""

MAX_STUCK = 3
_REAP_SECONDS = 0.2
_GATHER_SECONDS = 0.001
_SUSPENDED_SECONDS = 1.0

Prepare = Callable[[int], None]
"""Called in the host before each fork with the number of the probe, to put a library under the binding."""

Kill = Callable[[int, int], None]


@dataclass(slots=True)
class _Child:
    pid: int
    pipe: int
    progress: Progress
    buffer: bytearray = field(default_factory=bytearray)
    received: int = 0


class _ParentGone(Exception):  # noqa: N818 - no error: the reason to stop
    """The process that started this one closed its end."""


def main(
    argv: Sequence[str] | None = None,
    *,
    prepare: Prepare | None = None,
    root: Path = Path("/"),
    kill: Kill = os.kill,
) -> int:
    """Serve probes until the parent closes standard input.

    `prepare` and `root` are for a fake: the library to stand under the binding, and the tree to read in place of `/`.
    `kill` stands for `os.kill`, to play a child that cannot be ended.
    """
    parser = argparse.ArgumentParser(prog="probes.child")
    parser.add_argument(
        "--root", type=Path, default=root, help="read /sys, /proc and /dev under this directory"
    )
    parser.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="probe timeout")
    parser.add_argument("--events-to", type=int, metavar="DESCRIPTOR", help="an open pipe for Xid events")
    given = parser.parse_args(argv)
    keeper = ChildKeeper(
        root=given.root, timeout_seconds=given.timeout, events_to=given.events_to, prepare=prepare, kill=kill
    )
    with suppress(_ParentGone, BrokenPipeError):
        keeper.serve()
    return 0


class ChildKeeper:
    """Forks children, passes their findings on, ends those that stop answering, counts those that cannot be ended."""

    def __init__(
        self,
        *,
        root: Path,
        timeout_seconds: float,
        events_to: int | None,
        prepare: Prepare | None,
        kill: Kill,
    ) -> None:
        self._root = root
        self._timeout = timeout_seconds
        self._prepare = prepare
        self._events_to = events_to
        self._listener: int | None = None
        self._cycle = 1
        self._kill = kill
        self._stuck: dict[int, str] = {}
        self._last_start_over_stuck = -float("inf")
        self._progress = Progress()
        self._requests = bytearray()
        self._known: dict[int, Standing] = {}
        self._machine: Machine | None = None
        self._told: list[bytes] = []
        self._probes_since_asked = 0

    def serve(self) -> None:
        """Answer requests one after the other, for ever."""
        problem = nvml.binding_problem()
        write_all(1, findings.encode(findings.READY, Ready(problem=problem)))
        while True:
            for line in self._read_requests():
                order = findings.decode(line)
                if isinstance(order, Listen) and not problem:
                    self._listen(order)
                if isinstance(order, Request):
                    # Nothing is asked through a binding that is not ours.
                    attempts = () if problem else self._probe(order)
                    answered = Answered(attempts=attempts, stuck=tuple(self._stuck.items()))
                    # Once a probe, not once a line: each would wake the parent.
                    write_all(1, b"".join((*self._told, findings.encode(findings.ANSWERED, answered))))
                    self._told.clear()

    def _read_requests(self) -> Sequence[bytes]:
        data = os.read(0, 1 << 16)
        if not data:
            raise _ParentGone
        self._requests += data
        return whole_lines(self._requests)

    def _probe(self, request: Request) -> tuple[Attempt, ...]:
        """Start children until all devices are read, leaving out those that did not answer or made one crash."""
        self._cycle = request.cycle
        self._forget_what_is_old(request)
        end = time.monotonic() + PROBE_SHARE * self._timeout
        done = set(request.leave_out)
        attempts: list[Attempt] = []
        while True:
            attempt = self._attempt(request, done, end, first=not attempts)
            attempts.append(attempt)
            if attempt.ended != "finished":
                self._forget()
            if attempt.device is None or time.monotonic() >= end:
                return tuple(attempts)
            done.add(attempt.device)

    def _forget_what_is_old(self, request: Request) -> None:
        """Have everything asked again where something happened, and every so often."""
        self._probes_since_asked += 1
        if request.fresh or request.everything or self._probes_since_asked >= ASKED_ANEW_AFTER:
            self._forget()

    def _forget(self) -> None:
        self._known.clear()
        self._machine = None
        self._probes_since_asked = 0

    def _attempt(self, request: Request, done: set[int], end: float, *, first: bool) -> Attempt:
        if not self._may_start(request.stuck_elsewhere):
            return Attempt(ended="not-started")
        self._make_ready()
        task = Task(
            root=self._root,
            leave_out=frozenset(done),
            last=request.last,
            with_surroundings=first,
            everything=request.everything,
            machine=self._machine,
            known=self._known,
        )
        child = self._fork(task)
        try:
            return self._attend(child, done, end)
        finally:
            os.close(child.pipe)

    def _may_start(self, stuck_elsewhere: int) -> bool:
        """Tell whether another child may start: on top of a stuck one only once per timeout, and never a fourth."""
        self._reap()
        stuck = len(self._stuck) + stuck_elsewhere
        if not stuck:
            return True
        now = time.monotonic()
        if stuck >= MAX_STUCK or now - self._last_start_over_stuck < self._timeout:
            return False
        self._last_start_over_stuck = now
        return True

    def _fork(self, task: Task) -> _Child:
        reader, writer = os.pipe()
        self._progress.calls(None, "files")
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            run_child(lambda: tell_all(task, writer, self._progress))
        os.close(writer)
        return _Child(pid=pid, pipe=reader, progress=self._progress)

    def _attend(self, child: _Child, done: set[int], end: float) -> Attempt:
        """Pass on what the child says until it ends or must be ended."""
        poll = select.poll()
        poll.register(child.pipe, select.POLLIN)
        poll.register(0, 0)  # only its closing
        at_least_until = 0.0
        while True:
            before = time.monotonic()
            wait = max(min(self._deadline(child), end), at_least_until) - before
            if wait <= 0:
                return self._end(child, "deadline")
            if child.received:
                # It says more in a moment: to be woken by each line costs more than to hear several at once.
                time.sleep(_GATHER_SECONDS)
            events = poll.poll(wait * 1000)
            # A machine or process that was stopped finds the deadline passed although the child had no time either.
            now = time.monotonic()
            if now - before - wait > _SUSPENDED_SECONDS:
                at_least_until = now + self._patience(child)
            if any(descriptor == 0 for descriptor, _ in events):
                self._kill(child.pid, signal.SIGKILL)
                raise _ParentGone
            if events and not self._receive(child, done):
                return self._end(child, "finished")
            if child.received > MAX_BYTES:
                return self._end(child, "oversize")

    def _deadline(self, child: _Child) -> float:
        started, _, _ = child.progress.read()
        return started + self._patience(child)

    def _patience(self, child: _Child) -> float:
        """Return for how many seconds the call that the child is making may last."""
        _, device, _ = child.progress.read()
        return self._timeout * (LIBRARY_CALL_SHARE if device is None else DEVICE_CALL_SHARE)

    def _receive(self, child: _Child, done: set[int]) -> bool:
        """Pass on complete lines; False at the end of what the child has to say."""
        data = os.read(child.pipe, 1 << 16)
        child.received += len(data)
        if child.received <= MAX_BYTES:
            child.buffer += data
            lines = whole_lines(child.buffer)
            done.update(findings.index_of(line) for line in lines if line[:1] == findings.DEVICE)
            self._told += (line for line in lines if not self._keeps(line))
        return bool(data)

    def _keeps(self, line: bytes) -> bool:
        """Keep what a device or the machine's files told that will stand; True for such a line."""
        if line[:1] not in {findings.LEARNED, findings.MACHINE}:
            return False
        match findings.decode(line):
            case Standing() as standing:
                self._known[findings.index_of(line)] = standing
            case Machine() as machine:
                self._machine = machine
            case _:
                pass
        return True

    def _end(self, child: _Child, ended: Literal["finished", "deadline", "oversize"]) -> Attempt:
        """End the child if it has not ended, and say how it did and what it was doing."""
        if ended != "finished":
            self._kill(child.pid, signal.SIGKILL)
        status = _wait(child.pid)
        if status is None:
            self._stuck[child.pid] = findings.start_time(child.pid)
            # The stuck child may come back and write where it is: the next one gets a place of its own.
            self._progress = Progress()
        if status == 0 and ended == "finished":
            return Attempt(ended="finished")
        _, device, call = child.progress.read()
        if status is None or ended != "finished":
            return Attempt(ended="deadline" if ended == "finished" else ended, device=device, call=call)
        if os.WIFSIGNALED(status):
            return Attempt(ended="crash", device=device, call=call, signal=os.WTERMSIG(status))
        return Attempt(ended="crash", device=device, call=call, exit_status=os.WEXITSTATUS(status))

    def _make_ready(self) -> None:
        if self._prepare is not None:
            self._prepare(self._cycle)

    def _listen(self, order: Listen) -> None:
        """Have a listener run or not. One that ended by itself, as it does when a GPU is lost, is started anew."""
        if self._listener is not None and _reaped(self._listener) is not None:
            self._listener = None
        if order.on and self._listener is None and self._events_to is not None:
            events_to = self._events_to
            self._make_ready()
            self._listener = os.fork()
            if self._listener == 0:
                run_child(lambda: tell_events(order.leave_out, events_to))
        if not order.on and self._listener is not None:
            self._kill(self._listener, signal.SIGKILL)
            if _wait(self._listener) is None:
                self._stuck[self._listener] = findings.start_time(self._listener)
            self._listener = None

    def _reap(self) -> None:
        for pid in list(self._stuck):
            if _reaped(pid) is not None:
                del self._stuck[pid]


def _wait(pid: int) -> int | None:
    """Return the child's status; `None` when it is still there after a moment (uninterruptible sleep)."""
    deadline = time.monotonic() + _REAP_SECONDS
    while (status := _reaped(pid)) is None and time.monotonic() < deadline:
        time.sleep(0.0002)
    return status


def _reaped(pid: int) -> int | None:
    reaped, status = os.waitpid(pid, os.WNOHANG)
    return status if reaped else None


if __name__ == "__main__":
    sys.exit(main())
