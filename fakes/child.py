"""The real probe host on fake hardware: `python -m fakes.child NAME|FILE`, in place of `python -m probes.child`.

Before each probe it writes the machine's files for that probe and sets the fake library under the binding. A scenario
file that was changed meanwhile is read again, so that hardware can be broken and mended under an agent that runs.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from fakes import filesystem, nodes, nvml
from fakes.scenario import Scenario
from fakes.strict import ScenarioError
from probes import child

_PREFIX = "accelerator-fake-"


def stage(
    machine: Callable[[], Scenario], root: Path, *, journal: Path | None = None
) -> Callable[[int], None]:
    """Return what makes ready the probe of a given number: files under `root`, library under the binding."""
    rendered: list[Scenario] = []

    def prepare(cycle: int) -> None:
        scenario = machine()
        current = scenario.at(cycle)
        if rendered != [current]:
            filesystem.render(current, root)
            rendered[:] = [current]
        nvml.install(scenario, cycle, journal=journal)

    return prepare


def current_scenario(source: str) -> Callable[[], Scenario]:
    """Return what gives the machine as its file says now; of a file that has become wrong, as it last was right."""
    scenario, seen = nodes.load(source), _version(source)

    def current() -> Scenario:
        nonlocal scenario, seen
        version = _version(source)
        if version == seen:
            return scenario
        seen = version
        try:
            scenario = nodes.load(source)
        except (ScenarioError, OSError) as error:
            sys.stderr.write(f"{source}: {error}\n")
        return scenario

    return current


def _version(source: str) -> tuple[int, int] | None:
    """Return what changes when a file does, `None` for a machine that is none."""
    try:
        stat = Path(source).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino


def main(argv: Sequence[str] | None = None) -> int:
    """Serve probes of a fake machine; further arguments are those of `probes.child`."""
    parser = argparse.ArgumentParser(prog="fakes.child")
    parser.add_argument(
        "scenario", help="name of a fake machine, or a file: scenario, nvidia-smi -q, nvidia-smi -q -x"
    )
    parser.add_argument(
        "--journal", type=Path, help="append each NVML call: probe, process, function, return code"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="leave it to the caller to say what is wrong with a machine"
    )
    given, rest = parser.parse_known_args(argv)
    try:
        machine = current_scenario(given.scenario)
    except (ScenarioError, OSError) as error:
        if given.quiet:
            return 2
        parser.error(str(error))
    remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as folder:
        root = Path(folder)
        return child.main(rest, prepare=stage(machine, root, journal=given.journal), root=root)


def remove_abandoned() -> None:
    """Remove files of fake machines whose host was killed, which is how the parent always ends one."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        host = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", host).exists():
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
