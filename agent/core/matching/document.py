"""Answers as JSON values: the stable form, described in `docs/matching.md`."""

from collections.abc import Mapping, Sequence
from typing import Any

from agent.core.matching.answer import Answer, ClassAnswer
from agent.core.matching.lint import LintReport
from agent.core.matching.node_answers import NodeAnswer
from agent.core.matching.ome import OmeAnswer
from agent.core.matching.subject import Subject
from agent.core.matching.verdicts import Finding, RuleAnswer


def answer_document(answer: Answer, ome: OmeAnswer | None = None) -> dict[str, Any]:
    """Return one element of `match -o json`."""
    choice = answer.choice
    document = {
        "subject": _subject(answer.subject),
        "verdict": answer.verdict,
        "source": answer.source,
        "choice": None
        if choice is None
        else {
            "policy": choice.policy,
            "class": choice.class_name,
            "accelerators": choice.accelerators,
            "precision": choice.precision,
            "reason": choice.reason,
        },
        "classes": [_class(one) for one in answer.classes],
        "nodes": [_node(one) for one in answer.nodes],
        "findings": [_finding(one) for one in answer.findings],
    }
    if ome is not None:
        document["ome"] = {"outcome": ome.outcome, "class": ome.class_name, "reason": ome.reason}
    return document


def lint_document(reports: Sequence[LintReport]) -> list[dict[str, Any]]:
    """Return what `match lint -o json` prints."""
    return [
        {
            "subject": {"kind": report.kind, "namespace": report.namespace, "name": report.name},
            "findings": [_finding(one) for one in report.findings],
        }
        for report in reports
    ]


def _subject(subject: Subject) -> Mapping[str, Any]:
    document = {"kind": subject.kind, "namespace": subject.namespace, "name": subject.name}
    return document if subject.component is None else document | {"component": subject.component}


def _class(answer: ClassAnswer) -> dict[str, Any]:
    return {
        "name": answer.facts.name,
        "verdict": answer.verdict,
        "accelerators": answer.need.accelerators,
        "nodesNow": answer.nodes_now,
        "nodesTotal": answer.nodes_total,
        "precision": answer.precision,
        "rules": [_rule(rule) for rule in answer.rules],
    }


def _rule(rule: RuleAnswer) -> dict[str, Any]:
    return {
        "rule": rule.rule,
        "verdict": rule.verdict,
        "required": rule.required,
        "found": rule.found,
        "source": rule.source,
        "path": rule.path,
        "reason": rule.reason,
    }


def _node(answer: NodeAnswer) -> dict[str, Any]:
    return {
        "name": answer.name,
        "class": answer.class_name,
        "verdict": answer.verdict,
        "free": answer.free,
        "usable": answer.usable,
        "reasons": list(answer.reasons),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "severity": finding.severity,
        "path": finding.path,
        "message": finding.message,
    }
