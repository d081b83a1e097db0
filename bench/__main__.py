"""Runs rows of the benchmarks, each in a process of its own, and writes `docs/performance.md` from all results."""

import argparse
import importlib
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench import machine
from bench.figures import NO_BUDGET, Result
from bench.page import PAGE, page

RESULTS = Path(__file__).parent / "results"

ROWS = {
    "probe": 60,
    "labels": 60,
    "steady": 300,
    "scrape": 180,
    "calls": 120,
    "events": 180,
    "match": 180,
    "fold": 60,
    "controller": 360,
    "rollout": 1080,
    "soak": 960,
}
"""Row → the seconds after which it is ended, an hour in all; a row is the module `bench.row_<name>`.

They stand as the page shows them.
"""


def main() -> int:
    """Run the rows that were named, or all; the status is 1 when a budget does not hold, 2 when a row ended badly."""
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all where none is named"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    for row in given.rows:
        if row not in ROWS:
            parser.error(f"no row {row!r}; there are {', '.join(ROWS)}")
    if given.here:
        return _measure(given.rows[0])
    began = time.monotonic()
    ended = [_run(row) for row in given.rows or ROWS]
    results = [result for row in ROWS if (result := read(row)) is not None]
    PAGE.write_text(page(results), encoding="utf-8")
    print(f"{PAGE.name} written; {len(ended)} rows in {(time.monotonic() - began) / 60:.1f} minutes")
    return max(ended)


def _run(row: str) -> int:
    """Run one row in its own process, so that none finds what another left behind."""
    print(f"— {row}", flush=True)
    command = [sys.executable, "-m", "bench", "--here", row]
    try:
        return subprocess.run(command, cwd=machine.ROOT, timeout=ROWS[row], check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"{row}: not done after {ROWS[row]} s", flush=True)
        return 2


def _measure(row: str) -> int:
    began = time.monotonic()
    result: Result = importlib.import_module(f"bench.row_{row}").measure()
    result = replace(
        result,
        row=row,
        machine=machine.description(),
        versions=machine.versions(),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        seconds=round(time.monotonic() - began, 1),
    )
    RESULTS.mkdir(exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"
    (RESULTS / f"{row}.json").write_bytes(text)
    for figure in result.figures:
        budget = "" if figure.budget == NO_BUDGET else f" (budget {figure.budget})"
        floor = f"; floor {figure.floor}" if figure.floor else ""
        word = {True: "holds", False: "DOES NOT HOLD", None: ""}[figure.holds]
        print(f"{figure.what}: {figure.figure}{budget}{floor} {word}".rstrip(), flush=True)
    return 0 if result.holds else 1


def read(row: str) -> Result | None:
    """Return what a row measured last, `None` before its first run."""
    path = RESULTS / f"{row}.json"
    return msgspec.json.decode(path.read_bytes(), type=Result) if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
