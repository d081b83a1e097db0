"""The process of a probe host and its pipes: started, spoken to in lines, dropped at any moment.

It knows bytes and no findings, and imports little: a command starts it before it imports what the answers are taken
apart with, which takes as long.
"""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from probes.lines import MAX_BYTES, whole_lines

_EXIT_SECONDS = 0.3
_SUSPENDED_SECONDS = 1.0


class HostGone(Exception):  # noqa: N818 - an event of the process, told apart by its kind
    """The host closed its end: it died or was dropped."""


class HostSilent(Exception):  # noqa: N818
    """The host itself did not answer in time."""


class SpawnedHost:
    """One process of a probe host at a time, and the pipe on which its listener tells events.

    Start it before the first thread. `start`, `write`, `lines` and `drop` belong to one thread at a time, `events` to
    another; `shut` and `kill` may be called from any.
    """

    def __init__(self, command: Sequence[str], *, timeout_seconds: float = 30.0) -> None:
        """`command` starts the host; `--timeout` and `--events-to` are added."""
        self._command = (*command, "--timeout", str(timeout_seconds))
        self.timeout_seconds = timeout_seconds
        """The probe timeout."""
        self._lock = threading.Lock()
        self._hearing = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._buffer = bytearray()
        self._events_from, self._events_to = os.pipe()
        self._events = bytearray()

    @property
    def pid(self) -> int | None:
        """Return the number of the process, `None` where there is none."""
        process = self._process
        return process.pid if process is not None else None

    @property
    def closed(self) -> bool:
        """Tell whether `shut` was called."""
        return self._closed

    def start(self) -> bool:
        """Start the process if there is none, and tell whether that was so; it gets ready meanwhile."""
        with self._lock:
            if self._closed or self._process is not None:
                return False
            self._buffer.clear()
            # Its own session: an interrupt from the keyboard is the parent's to handle.
            self._process = subprocess.Popen(  # noqa: S603 - the command is the composition root's
                (*self._command, "--events-to", str(self._events_to)),
                pass_fds=(self._events_to,),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
            return True

    def write(self, line: bytes) -> None:
        """Tell the host a line. Raises `HostGone` where there is none any more."""
        process = self._process
        if process is None or process.stdin is None:
            raise HostGone
        try:
            process.stdin.write(line)
        except OSError as error:
            raise HostGone from error

    def lines(self, seconds: float) -> Iterator[bytes]:
        """Yield the host's lines. Raises `HostGone` at their end, and `HostSilent` when it has been asked for too long."""
        process = self._process
        if process is None or process.stdout is None:
            raise HostGone
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        end = time.monotonic() + seconds
        while True:
            before = time.monotonic()
            if before >= end:
                raise HostSilent
            ready = poll.poll((end - before) * 1000)
            overslept = time.monotonic() - end
            if overslept > _SUSPENDED_SECONDS:
                # This process was stopped, and so was the host's time to answer.
                end += overslept + seconds
            if not ready:
                continue
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data or len(self._buffer) > MAX_BYTES:
                raise HostGone
            self._buffer += data
            yield from whole_lines(self._buffer)

    def events(self, timeout_seconds: float) -> Sequence[bytes]:
        """Wait for the listener's lines; none when there were none in time or this is shut."""
        with self._hearing:
            if self._closed:
                return ()
            poll = select.poll()
            poll.register(self._events_from, select.POLLIN)
            if not poll.poll(timeout_seconds * 1000) or self._closed:
                return ()
            self._events += os.read(self._events_from, 1 << 16)
            return whole_lines(self._events)

    def drop(self) -> int | None:
        """Forget the process, with its children killed; return how it ended, negative for a signal."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return None
        if process.stdin is not None:
            # Its sign to end by itself, which lets a fake machine clear its files away.
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_EXIT_SECONDS)
        _kill_group(process.pid)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_EXIT_SECONDS)
        if process.stdout is not None:
            process.stdout.close()
        return process.returncode

    def shut(self) -> None:
        """Start no process any more."""
        with self._lock:
            self._closed = True

    def kill(self) -> None:
        """Kill the process and its children; whoever reads its lines finds their end, and drops it."""
        pid = self.pid
        if pid is not None:
            _kill_group(pid)

    def hang_up(self) -> None:
        """Wake a thread that waits for events, and close the pipe when it has gone."""
        writer, self._events_to = self._events_to, -1
        if writer < 0:
            return
        os.close(writer)
        # A listener that cannot be killed holds the pipe open: better a lost descriptor than a close that hangs.
        if self._hearing.acquire(timeout=_EXIT_SECONDS):
            os.close(self._events_from)
            self._hearing.release()


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
