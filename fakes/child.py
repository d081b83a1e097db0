"""The real probe host on fake hardware: `python -m fakes.child NAME|FILE`, in place of `python -m probes.child`.

Before each probe it writes the machine's files for that probe and sets the fake library under the binding.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from fakes import filesystem, nodes, nvml
from fakes.scenario import Scenario
from probes import child


def stage(scenario: Scenario, root: Path, *, journal: Path | None = None) -> Callable[[int], None]:
    """Return what makes ready the probe of a given number: files under `root`, library under the binding."""
    rendered: list[Scenario] = []

    def prepare(cycle: int) -> None:
        current = scenario.at(cycle)
        if rendered != [current]:
            filesystem.render(current, root)
            rendered[:] = [current]
        nvml.install(scenario, cycle, journal=journal)

    return prepare


def main(argv: Sequence[str] | None = None) -> int:
    """Serve probes of a fake machine; further arguments are those of `probes.child`."""
    parser = argparse.ArgumentParser(prog="fakes.child")
    parser.add_argument(
        "scenario", help="name of a fake machine, or a file: scenario, nvidia-smi -q, nvidia-smi -q -x"
    )
    parser.add_argument(
        "--journal", type=Path, help="append each NVML call: probe, process, function, return code"
    )
    given, rest = parser.parse_known_args(argv)
    scenario = nodes.load(given.scenario)
    with tempfile.TemporaryDirectory(prefix="accelerator-fake-") as folder:
        root = Path(folder)
        return child.main(rest, prepare=stage(scenario, root, journal=given.journal), root=root)


if __name__ == "__main__":
    sys.exit(main())
