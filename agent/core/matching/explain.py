"""Answers as text for people: tables without colour that read well at 80 columns, and every rule of one class."""

import textwrap
from collections.abc import Iterable, Sequence

from agent.core.matching.answer import Answer, ClassAnswer
from agent.core.matching.lint import LintReport
from agent.core.matching.node_answers import NodeAnswer
from agent.core.matching.ome import OmeAnswer
from agent.core.matching.verdicts import DOES_NOT_FIT, FITS, Finding, Verdict
from agent.core.text_table import text_table

WORDS: dict[Verdict, str] = {"fits": "fits", "does-not-fit": "does not fit", "cannot-tell": "cannot tell"}

_FEWEST_REASON_COLUMNS = 32
_MOST_NODES = 20


def answer_text(answer: Answer, *, width: int, nodes: bool = False, ome: OmeAnswer | None = None) -> str:
    """Return the answer: a line about the subject, the table of classes, the choice or the nearest miss, findings."""
    title = f"{answer.subject.title}: {WORDS[answer.verdict]}"
    parts = [_filled(f"{title} (hardware of {answer.source})", width), _classes(answer.classes, width)]
    parts.append(_conclusion(answer, width))
    if nodes:
        parts.append(node_table(answer.nodes, width=width))
    if ome is not None:
        parts.append(ome_text(answer, ome, width=width))
    parts.append(findings_text(answer.findings, width=width))
    return "\n\n".join(part for part in parts if part)


def explain_text(answer: Answer, name: str, *, width: int) -> str:
    """Return every rule of one class with what is required, what was found, where, and the nodes that have it."""
    one = next(found for found in answer.classes if found.facts.name == name)
    head = f"{answer.subject.title} on {name}: {WORDS[one.verdict]}, takes {one.need.text}"
    parts = [_filled(head, width)]
    for rule in one.rules:
        where = f" ({rule.path})" if rule.path else ""
        lines = [f"{rule.rule}: {WORDS[rule.verdict]}"]
        lines += _indented(f"required  {rule.required}{where}", width)
        lines += _indented(f"found     {rule.found} ({rule.source})", width)
        if rule.reason:
            lines += _indented(f"reason    {rule.reason}", width)
        parts.append("\n".join(lines))
    if not one.rules:
        parts.append("no rule applies: nothing is required")
    parts.append(node_table([node for node in answer.nodes if node.class_name == name], width=width))
    return "\n\n".join(part for part in parts if part)


def node_table(nodes: Sequence[NodeAnswer], *, width: int) -> str:
    """Return nodes one a row, those that do not fit first; a long list is cut and says so."""
    if not nodes:
        return ""
    ordered = sorted(nodes, key=lambda node: (node.verdict == FITS, node.name))
    rows = [
        (
            node.name,
            node.class_name,
            WORDS[node.verdict],
            _count(node.free),
            _count(node.usable),
            "; ".join(node.reasons),
        )
        for node in ordered[:_MOST_NODES]
    ]
    table = _table(("node", "class", "verdict", "free", "usable", "reasons"), rows, width)
    more = len(nodes) - _MOST_NODES
    return table if more <= 0 else f"{table}\n… and {more} more nodes; -o json has them all"


def ome_text(answer: Answer, ome: OmeAnswer, *, width: int) -> str:
    """Return what OME's selector does, and where the sound answer differs."""
    outcome = (
        f"chooses {ome.class_name}"
        if ome.class_name
        else {"panic": "panics", "error": "fails"}.get(ome.outcome, "chooses no class")
    )
    lines = [_filled(f"OME {outcome}: {ome.reason}.", width)]
    sound = answer.choice.class_name if answer.choice else None
    if sound != ome.class_name:
        lines.append(_filled(f"The sound choice differs: {sound or 'none'}.", width))
    by_name = {one.facts.name: one for one in answer.classes}
    for name, reason in ome.disqualified:
        found = by_name.get(name)
        if found is not None and found.verdict == FITS:
            lines.append(_filled(f"OME leaves {name} out ({reason}), though it fits.", width))
    taken = by_name.get(ome.class_name or "")
    if taken is not None and taken.verdict != FITS:
        lines.append(_filled(f"{taken.facts.name} {WORDS[taken.verdict]}: {_reason(taken)}.", width))
    return "\n".join(lines)


def findings_text(findings: Sequence[Finding], *, width: int) -> str:
    """Return findings, one after the other, each with its path."""
    lines: list[str] = []
    for finding in findings:
        where = f"{finding.path}: " if finding.path else ""
        lines += textwrap.wrap(
            f"{finding.severity}: {where}{finding.message} [{finding.id}]",
            width,
            subsequent_indent="    ",
            break_on_hyphens=False,
            break_long_words=False,
        )
    return "\n".join(lines)


def lint_text(reports: Sequence[LintReport], *, width: int) -> str:
    """Return the findings of each object under its name."""
    parts = []
    for report in reports:
        place = f"{report.namespace}/" if report.namespace else ""
        body = findings_text(report.findings, width=width) or "nothing found"
        parts.append(f"{report.kind} {place}{report.name}\n{body}")
    return "\n\n".join(parts)


def _classes(classes: Sequence[ClassAnswer], width: int) -> str:
    rows = [
        (
            one.facts.name,
            WORDS[one.verdict],
            str(one.need.accelerators),
            _count(one.nodes_now),
            _count(one.nodes_total),
            one.precision or "-",
            _reason(one),
        )
        for one in classes
    ]
    return (
        _table(("class", "verdict", "needs", "fit now", "if free", "precision", "reason"), rows, width)
        if rows
        else ""
    )


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Return a table; where the last column would be too narrow it goes under its row, indented."""
    table = text_table(headers, rows, width=width)
    fixed = sum(max(len(row[column]) for row in (headers, *rows)) + 2 for column in range(len(headers) - 1))
    longest = max(len(row[-1]) for row in rows)
    if width - fixed >= min(_FEWEST_REASON_COLUMNS, longest):
        return table
    lines = text_table(headers[:-1], [row[:-1] for row in rows]).splitlines()
    under = [lines[0]]
    for line, row in zip(lines[1:], rows, strict=True):
        under += [line, *(_indented(row[-1], width) if row[-1] else ())]
    return "\n".join(under)


def _reason(one: ClassAnswer) -> str:
    """Return what matters of a class: the first thing that fails and how many more, or what it offers."""
    failing = [rule.reason for rule in one.failures]
    unknown = [rule.reason for rule in one.rules if rule.verdict == "cannot-tell"]
    reasons = failing or unknown
    if not reasons:
        return f"takes {one.need.text}" if one.need.pods > 1 else ""
    # What the hardware is comes before where it stands.
    rest = len(reasons) - 1
    return reasons[0] + (f"; and {rest} more" if rest else "; all else holds")


def _conclusion(answer: Answer, width: int) -> str:
    choice = answer.choice
    if choice is not None:
        precision = f" at {choice.precision}" if choice.precision else ""
        noun = "accelerator" if choice.accelerators == 1 else "accelerators"
        return _filled(
            f"{choice.policy} takes {choice.class_name}, {choice.accelerators} {noun}{precision}: {choice.reason}.",
            width,
        )
    nearest = next((one for one in answer.classes if one.verdict == DOES_NOT_FIT), None)
    if nearest is None or answer.verdict != DOES_NOT_FIT:
        return ""
    reasons = "; ".join(rule.reason for rule in nearest.failures)
    return _filled(f"Nearest miss: {nearest.facts.name}: {reasons}; all else holds.", width)


def _count(count: int | None) -> str:
    return "?" if count is None else str(count)


def _filled(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_on_hyphens=False, break_long_words=False)


def _indented(text: str, width: int) -> Iterable[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent="    ",
        subsequent_indent="              " if text.startswith(("required", "found", "reason")) else "    ",
        break_on_hyphens=False,
        break_long_words=False,
    )
