"""Columns of text for a terminal, without colour, and readable in a pipe."""

import textwrap
from collections.abc import Sequence

GAP = "  "
MIN_COLUMN = 10

Rows = Sequence[Sequence[str]]


def text_table(headers: Sequence[str], rows: Rows, *, width: int | None = None) -> str:
    """Return the rows under upper-case headers, each column as wide as its widest cell.

    Where the table is wider than `width` the last column is wrapped between words, down to a readable minimum.
    """
    cells = _cells(headers, rows)
    widths = _widths(cells)
    if width is not None:
        before = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
        widths[-1] = max(min(widths[-1], width - before), _least(cells))
    return "\n".join(line for row in cells for line in _lines(row, widths))


def fitting_table(headers: Sequence[str], rows: Rows, *, width: int, spare: Sequence[str]) -> str:
    """Return a table that leaves out columns of `spare`, the first of them first, until it fits, and names them below."""
    left_out: list[str] = []
    for header in spare:
        if _least_width(headers, rows) <= width:
            break
        place = headers.index(header)
        headers = [*headers[:place], *headers[place + 1 :]]
        rows = [[*row[:place], *row[place + 1 :]] for row in rows]
        left_out.append(header)
    table = text_table(headers, rows, width=width)
    if not left_out:
        return table
    note = f"{width} columns leave no room for {', '.join(left_out)}; a wider terminal shows them."
    return "\n".join([table, *textwrap.wrap(note, width)])


def _least_width(headers: Sequence[str], rows: Rows) -> int:
    """Return the columns that a table takes at least, with its last column wrapped."""
    cells = _cells(headers, rows)
    return sum(_widths(cells)[:-1]) + len(GAP) * (len(headers) - 1) + _least(cells)


def _cells(headers: Sequence[str], rows: Rows) -> list[list[str]]:
    return [[header.upper() for header in headers], *([cell or "-" for cell in row] for row in rows)]


def _widths(cells: Rows) -> list[int]:
    return [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]


def _least(cells: Rows) -> int:
    """Return the width of the longest word of the last column; no word is cut, so that it can be searched for."""
    return max(MIN_COLUMN, *(len(word) for row in cells for word in row[-1].split()))


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    *fixed, last = row
    wrapped = textwrap.wrap(last, widths[-1], break_on_hyphens=False, break_long_words=False) or [""]
    start = GAP.join(cell.ljust(width) for cell, width in zip(fixed, widths, strict=False))
    indent = " " * len(start)
    return [
        f"{start if number == 0 else indent}{GAP if fixed else ''}{part}".rstrip()
        for number, part in enumerate(wrapped)
    ]
