"""Runs the benchmarks that print their figures themselves, and takes the figures out of what they print."""

import re
import subprocess
import sys

from bench.machine import ROOT


def printed(module: str, *arguments: str) -> str:
    """Return what `python -m bench.<module>` printed; a budget that does not hold is no failure to run."""
    command = [sys.executable, "-m", f"bench.{module}", *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not result.stdout:
        raise SystemExit(f"{module} printed nothing: {result.stderr}")
    return result.stdout


def number(pattern: str, text: str) -> float:
    """Return the number that a pattern finds in what was printed."""
    found = re.search(pattern, text)
    if found is None:
        raise SystemExit(f"no {pattern!r} in:\n{text}")
    return float(found[1])
