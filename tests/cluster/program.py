"""Finds the programs of the control plane, or builds them once.

`KUBEBUILDER_ASSETS` wins; else the Go module in `program/` is built into the user's cache, keyed by its checksum.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.go import GoBuild, GoUnavailableError, Say, cache_folder, go_build, only_one

MODULE = Path(__file__).parent / "program"


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
    with only_one(cache_folder()):
        if not target.exists():
            _build(target, say)
    return Program(target)


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


def _build(target: Path, say: Say) -> None:
    version = kubernetes_version()
    build = GoBuild(
        module=MODULE,
        package=".",
        what=f"the test control plane (etcd and Kubernetes {version})",
        cost="about 5 minutes on two cores the first time, about 0.8 GB of modules",
        linker_flags=_linker_flags(version),
    )
    try:
        go_build(build, target, say)
    except GoUnavailableError as error:
        raise ProgramUnavailableError(str(error)) from error


def _linker_flags(version: str) -> str:
    major, minor = version.removeprefix("v").split(".")[:2]
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return "-s -w " + " ".join(
        f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items()
    )
