"""The real `accelerator-agent` as a process of its own, for tests that look at it from outside."""

import os
import re
import sys
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

from tests.cluster.processes import Process

_PORT = re.compile(rb"started .*port=(\d+)")


class AgentProcess:
    """`accelerator-agent node` (or another command) with its log and its port."""

    def __init__(self, *arguments: str, log: Path, environment: dict[str, str]) -> None:
        self._log = log
        self.process = Process(
            "accelerator-agent",
            [sys.executable, "-m", "agent", *arguments],
            log=log,
            env={**os.environ, **environment},
        )

    def __enter__(self) -> "AgentProcess":
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def port(self) -> int | None:
        """The port it says it listens on, `None` while it has not said so."""
        found = _PORT.search(self._log.read_bytes()) if self._log.exists() else None
        return int(found.group(1)) if found else None

    def get(self, path: str) -> tuple[int, str]:
        """Ask its port and return status and body; (0, "") while it does not listen."""
        if self.port is None:
            return 0, ""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, series: str) -> float | None:
        """Return the value of one series as the exposition writes it, `None` while it is absent."""
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(series + " "):
                return float(line.rsplit(" ", 1)[1])
        return None
