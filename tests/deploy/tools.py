"""Finds Helm and promtool, or builds them once into the user's cache from the modules `helm/` and `promtool/`."""

import hashlib
import shutil
from pathlib import Path

from tests.cluster.go import GoBuild, GoUnavailableError, Say, cache_folder, go_build, only_one
from tests.cluster.program import ProgramUnavailableError

HELM = GoBuild(
    module=Path(__file__).parent / "helm",
    package="helm.sh/helm/v4/cmd/helm",
    what="Helm",
    cost="about 3 minutes on two cores the first time",
)
PROMTOOL = GoBuild(
    module=Path(__file__).parent / "promtool",
    package="github.com/prometheus/prometheus/cmd/promtool",
    what="promtool",
    cost="about 5 minutes on two cores the first time",
)


def helm(say: Say = print) -> Path:
    """Return Helm of the version that the module pins."""
    return _built(HELM, "helm", say)


def promtool(say: Say = print) -> Path:
    """Return the machine's promtool, such as that of Debian's package `prometheus`, else a built one."""
    found = shutil.which("promtool")
    return Path(found) if found else _built(PROMTOOL, "promtool", say)


def _built(build: GoBuild, name: str, say: Say) -> Path:
    pinned = b"".join((build.module / file).read_bytes() for file in ("go.mod", "go.sum"))
    target = cache_folder() / hashlib.sha256(pinned).hexdigest()[:16] / name
    with only_one(cache_folder()):
        if not target.exists():
            try:
                go_build(build, target, say)
            except GoUnavailableError as error:
                raise ProgramUnavailableError(str(error)) from error
    return target
