"""`labels` of eight GPUs as a whole process, which imports nothing of the Kubernetes client."""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench import machine
from bench.figures import Figure, Result
from bench.row_probe import one_shot

WALL_SECONDS = 0.35


def measure() -> Result:
    result = one_shot("labels", WALL_SECONDS)
    return replace(result, figures=(*result.figures, _client()))


def _client() -> Figure:
    """Return what the import alone of the Kubernetes client takes, which a labeller that uses it pays first."""
    with tempfile.TemporaryDirectory() as name:
        environment = machine.compiled(Path(name))
        line = [sys.executable, "-c", "import kubernetes.client"]
        machine.spent(line, environment, times=2)
        runs = machine.spent(line, environment, times=10)
    return Figure(
        what="beside it, the import alone of the Kubernetes client, wall, least of 10",
        figure=f"{min(run.wall for run in runs):.3f} s",
    )
