"""`labels` of eight GPUs as a whole process, which imports nothing of the Kubernetes client."""

from bench.figures import Result
from bench.row_probe import one_shot

WALL_SECONDS = 0.35


def measure() -> Result:
    return one_shot("labels", WALL_SECONDS)
