"""What in a runtime, a service or a class will surprise its author on OME; `docs/matching.md` lists every id."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.core.keys import DEFAULT_DOMAIN
from agent.core.matching.hardware import class_facts
from agent.core.matching.lint_classes import class_findings
from agent.core.matching.lint_runtimes import runtime_findings
from agent.core.matching.lint_scope import LintScope
from agent.core.matching.lint_services import service_findings
from agent.core.matching.nodes import NodeView
from agent.core.matching.subject import RUNTIME_KINDS, SERVICE_KIND, runtime_subject, service_subjects
from agent.core.matching.verdicts import Finding, Problem, Severity

_ORDER: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """The findings of one object, the worst first."""

    kind: str
    namespace: str | None
    name: str
    findings: tuple[Finding, ...]


def lint_reports(
    objects: Iterable[Mapping[str, Any]],
    *,
    classes: Sequence[Mapping[str, Any]] | None,
    runtimes: Iterable[Mapping[str, Any]] = (),
    nodes: Sequence[NodeView] = (),
    domain: str = DEFAULT_DOMAIN,
) -> tuple[LintReport, ...]:
    """Return a report for each runtime, service and class among `objects`.

    `classes` are all that exist, `None` where that is not known: nothing is then said to be missing. `runtimes` are
    those that services may name.
    """
    scope = LintScope(
        classes=None if classes is None else {obj["metadata"]["name"]: obj for obj in classes},
        runtimes={
            (obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]): obj for obj in runtimes
        },
        nodes=tuple(nodes),
        domain=domain,
    )
    return tuple(_report(obj, scope) for obj in objects if obj.get("kind") in _LINTED)


_LINTED = (*RUNTIME_KINDS, SERVICE_KIND, "AcceleratorClass")


def _report(obj: Mapping[str, Any], scope: LintScope) -> LintReport:
    metadata = obj["metadata"]
    findings = sorted(
        dict.fromkeys(_findings(obj, scope)),
        key=lambda finding: (_ORDER.index(finding.severity), finding.path),
    )
    return LintReport(
        kind=str(obj["kind"]),
        namespace=metadata.get("namespace"),
        name=str(metadata["name"]),
        findings=tuple(findings),
    )


def _findings(obj: Mapping[str, Any], scope: LintScope) -> Iterable[Finding]:
    """Return what cannot be used; only an object whose values are of the right kinds is looked at further."""
    match obj["kind"]:
        case "AcceleratorClass":
            facts = class_facts(obj, domain=scope.domain)
            yield from map(_refused, facts.problems)
            yield from class_findings(obj, facts, scope)
        case "InferenceService":
            runtime = scope.runtime_of(obj)
            subjects = service_subjects(obj, runtime=runtime)
            problems = [problem for subject in subjects for problem in subject.problems]
            own = [problem for problem in problems if " " not in problem.path]
            yield from map(_refused, own)
            yield from (
                f
                for subject in subjects
                for f in subject.findings
                if " " not in f.path and f.id != "no-runtime"
            )
            if not problems:
                yield from service_findings(obj, runtime, scope)
        case _:
            subject = runtime_subject(obj)
            yield from map(_refused, subject.problems)
            yield from subject.findings
            if not subject.problems:
                yield from runtime_findings(obj, subject, scope)


def _refused(problem: Problem) -> Finding:
    return Finding(id="value-not-usable", severity="error", path=problem.path, message=problem.message)
