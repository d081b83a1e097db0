"""Child processes that end with the test run, whatever ends it."""

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
FIRST_PORT, LAST_PORT = 20000, 29999
"""Below the range that the kernel gives to outgoing connections, so that a port stays free over a restart."""


class ProcessEndedError(Exception):
    """A process ended, or did not become ready in time; the message has the end of its log."""


def free_port() -> int:
    """Return a TCP port on which nothing listens."""
    for _ in range(200):
        port = random.randint(FIRST_PORT, LAST_PORT)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:  # taken by another process: try the next
                continue
            return port
    raise ProcessEndedError(f"no free port between {FIRST_PORT} and {LAST_PORT}")


class Process:
    """One program that can be started, paused, stopped and started again on the same arguments."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """`folder` is where it runs; `env` is its whole environment, this process' own where absent."""
        self.name = name
        self.argv = list(argv)
        self.log = log
        self._env = dict(env) if env is not None else None
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    @property
    def returncode(self) -> int | None:
        """The exit status of the last run; negative for a signal, `None` while it runs."""
        return self._child.poll() if self._child is not None else None

    def start(self) -> None:
        """Start it; its output is appended to the log."""
        if self.pid is not None:
            return
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self._folder,
                preexec_fn=_die_with_parent(),  # noqa: PLW1509 - it makes one system call and takes no lock
                process_group=0,  # Ctrl-C reaches the test run alone, which then stops us in order
            )

    def wait_until(self, ready: Callable[[], bool], *, seconds: float = 60.0) -> None:
        """Wait until `ready()`; raise `ProcessEndedError` when the process ends first or `seconds` have passed."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self.pid is None:
                raise ProcessEndedError(f"{self.name} ended with status {self.returncode}: {self.log_tail()}")
            if time.monotonic() > deadline:
                raise ProcessEndedError(f"{self.name} was not ready after {seconds:.0f} s: {self.log_tail()}")
            time.sleep(0.05)

    def pause(self) -> None:
        """Stop it from running while its connections stay open (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._signal(signal.SIGCONT)

    def stop(self, *, seconds: float = 5.0) -> None:
        """End it: SIGTERM, and SIGKILL after `seconds`."""
        if self._child is None:
            return
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        try:
            self._child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def terminate(self) -> None:
        """Ask it to end (SIGTERM) and do not wait."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash of the machine would."""
        if self._child is not None:
            self._signal(signal.SIGKILL)
            self._child.wait()

    def log_tail(self, *, lines: int = 15) -> str:
        """Return the last lines of its output."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is not None and self._child is not None:
            self._child.send_signal(number)


def _die_with_parent() -> Callable[[], None] | None:
    """Return what makes a child die with the thread that started it, so that not even SIGKILL of the tests leaves one."""
    if sys.platform != "linux":
        return None
    # Loaded here: after the fork no library may be loaded.
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def ask_for_signal() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)

    return ask_for_signal
