"""Columns of text for a terminal, without colour, and readable in a pipe."""

import textwrap
from collections.abc import Sequence

GAP = "  "
MIN_COLUMN = 10


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    """Return the rows under upper-case headers, each column as wide as its widest cell.

    Where the table is wider than `width` the last column is wrapped, down to a readable minimum.
    """
    cells = [[header.upper() for header in headers], *([cell or "-" for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    if width is not None:
        before = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
        widths[-1] = max(min(widths[-1], width - before), MIN_COLUMN)
    return "\n".join(line for row in cells for line in _lines(row, widths))


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    *fixed, last = row
    wrapped = textwrap.wrap(last, widths[-1], break_on_hyphens=False) or [""]
    start = GAP.join(cell.ljust(width) for cell, width in zip(fixed, widths, strict=False))
    indent = " " * len(start)
    return [
        f"{start if number == 0 else indent}{GAP if fixed else ''}{part}".rstrip()
        for number, part in enumerate(wrapped)
    ]
