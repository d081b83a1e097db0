"""Checks as a person reads them: one line each, then what was found, what it means and how to mend it."""

import textwrap
from collections.abc import Sequence

from agent.core.doctor.check import Check, findings
from agent.core.text_table import text_table

_INDENT = "  "


def report(checks: Sequence[Check], *, width: int) -> str:
    """Return the checks as text."""
    rows = [
        (check.id, check.status, "see below" if check.status == "finding" else check.evidence)
        for check in checks
    ]
    parts = [text_table(("check", "status", "evidence"), rows, width=width)]
    found = findings(checks)
    parts += [_finding(check, width) for check in found]
    parts.append(_sum(checks, found))
    return "\n\n".join(parts)


def _finding(check: Check, width: int) -> str:
    lines = [f"{check.id}:"]
    who = f"{check.who}: " if check.who else ""
    for label, text in (("found", check.evidence), ("means", check.meaning), ("mend", who + check.mend)):
        start = f"{_INDENT}{label:<6}"
        lines += textwrap.wrap(
            text,
            width,
            initial_indent=start,
            subsequent_indent=" " * len(start),
            break_on_hyphens=False,
            break_long_words=False,
        )
    return "\n".join(lines)


def _sum(checks: Sequence[Check], found: Sequence[Check]) -> str:
    skips = sum(check.status == "skipped" for check in checks)
    made = len(checks) - skips
    if not found:
        return f"All well: {made} checks made, {skips} skipped."
    return f"{len(found)} of {made} checks found something, {skips} skipped."
