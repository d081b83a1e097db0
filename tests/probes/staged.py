"""A probe host on a scenario file, for tests: `python -m tests.probes.staged FILE [--unkillable] …`."""

import sys
from pathlib import Path

from fakes.child import stage
from fakes.scenario import Scenario
from probes import child


def spare(_pid: int, _signal: int) -> None:
    """Kill nothing, as if the child were in uninterruptible sleep."""


def main() -> int:
    file, *rest = sys.argv[1:]
    unkillable = "--unkillable" in rest
    rest = [argument for argument in rest if argument != "--unkillable"]
    scenario = Scenario.from_yaml(Path(file).read_text(encoding="utf-8"))
    root = Path(file).parent / "root"
    kill = {"kill": spare} if unkillable else {}
    return child.main(
        rest, prepare=stage(lambda: scenario, root, journal=Path(file).parent / "journal"), root=root, **kill
    )


if __name__ == "__main__":
    sys.exit(main())
