"""Results → `docs/performance.md`."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.figures import Result

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"

HEAD = """# Cost and speed, measured

`make bench` wrote this page; `make bench ROW=name` measures one row again. Times of processor are user and system time of
every process of the program, taken from `/proc`; a floor is the least that the platform allows. The fleet beyond one
machine is [reckoned](scale.md) from these figures.
"""


def page(results: Sequence[Result]) -> str:
    """Return the page: all budgets in one table, then each row with how it was measured."""
    return "\n".join([HEAD, *_summary(results), *(line for result in results for line in _section(result))])


def _summary(results: Iterable[Result]) -> list[str]:
    lines = ["| row | what | figure | budget | floor | holds |", "| --- | --- | --- | --- | --- | --- |"]
    for result in results:
        for figure in result.figures:
            if figure.holds is not None:
                word = "yes" if figure.holds else "**no**"
                # Of what must not happen at all the floor is the budget.
                floor = figure.floor or ("0" if figure.budget.startswith("≤ 0 ") else "")
                cells = (result.row, figure.what, figure.figure, figure.budget, floor, word)
                lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _section(result: Result) -> list[str]:
    lines = [f"## {result.row}: {result.title}", ""]
    lines += [f"- {figure.what}: {figure.figure}" for figure in result.figures if figure.holds is None]
    lines += [f"- {note}" for note in result.notes]
    lines += ["", f"{result.date}, {result.seconds:.0f} s. {result.machine}. {result.versions}.", ""]
    if result.profile:
        lines += ["```text", result.profile.rstrip(), "```", ""]
    return lines
