"""One subject against all hardware: an answer per class, the choice by policy, and what is worth knowing."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.core.matching.answer_findings import answer_findings
from agent.core.matching.counts import Need, need_on
from agent.core.matching.hardware import ClassFacts
from agent.core.matching.identity import Scope
from agent.core.matching.inventory_rule import Strangers, count_rule
from agent.core.matching.membership import Stranger, membership
from agent.core.matching.node_answers import NodeAnswer, NodeScope, node_answer
from agent.core.matching.nodes import NodeView
from agent.core.matching.policies import Candidate, picked
from agent.core.matching.precisions import chosen_precision
from agent.core.matching.question import Hardware, Options
from agent.core.matching.requirements import Requirements
from agent.core.matching.rules import class_rules
from agent.core.matching.spelling import normal, with_general
from agent.core.matching.subject import Subject
from agent.core.matching.verdicts import (
    CANNOT_TELL,
    DOES_NOT_FIT,
    FITS,
    Finding,
    RuleAnswer,
    Verdict,
    all_of,
    any_of,
)

DEFAULT_POLICY = "BestFit"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassAnswer:
    """How one class stands."""

    facts: ClassFacts
    verdict: Verdict
    need: Need
    precision: str | None
    rules: tuple[RuleAnswer, ...]
    now: Verdict
    """Whether a pod fits on any node now."""
    nodes_now: int | None
    """Nodes where a pod fits now; `None` where no nodes are known, or one of them cannot tell."""
    nodes_total: int | None
    """Nodes where it would fit were they empty; `None` as above."""

    @property
    def failures(self) -> tuple[RuleAnswer, ...]:
        """Return the rules that do not hold."""
        return tuple(rule for rule in self.rules if rule.verdict == DOES_NOT_FIT)

    @property
    def distance(self) -> tuple[int, float]:
        """Return how far from fitting: rules that do not hold, and by how much."""
        return len(self.failures), sum(rule.gap for rule in self.failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a policy takes."""

    policy: str
    class_name: str
    accelerators: int
    precision: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """All that is said of one subject."""

    subject: Subject
    verdict: Verdict
    choice: Choice | None
    classes: tuple[ClassAnswer, ...]
    """The fitting first, then those that cannot be told, then the nearest misses."""
    nodes: tuple[NodeAnswer, ...]
    findings: tuple[Finding, ...]
    source: str = field(default="")


def answer_for(subject: Subject, hardware: Hardware, options: Options) -> Answer:
    """Compare one subject with all hardware."""
    requirements = subject.requirements
    scope = _scope(hardware, options)
    node_scope = _node_scope(requirements, hardware, options)
    classes: list[ClassAnswer] = []
    nodes: list[NodeAnswer] = []
    fleet = _alike(hardware.nodes)
    for facts in hardware.classes:
        answer, found = _class_answer(requirements, facts, fleet, scope, node_scope)
        classes.append(answer)
        nodes += found
    ordered = _runtime_order(classes, requirements)
    choice, policy_findings = _choice(ordered, requirements, options)
    verdict = any_of(answer.verdict for answer in classes)
    if verdict == FITS and any(finding.id == "no-runtime" for finding in subject.findings):
        # What an unknown runtime requires may rule any class out.
        verdict = CANNOT_TELL
    findings = [*subject.findings, *answer_findings(requirements, hardware, options), *policy_findings]
    return Answer(
        subject=subject,
        verdict=verdict,
        choice=choice,
        classes=tuple(sorted(ordered, key=_rank)),
        nodes=tuple(nodes),
        findings=tuple(dict.fromkeys(findings)),
        source=hardware.source,
    )


def _scope(hardware: Hardware, options: Options) -> Scope:
    features = {feature for facts in hardware.classes for feature in facts.features or ()}
    return Scope(
        class_names=tuple(facts.name for facts in hardware.classes),
        known_features=tuple(sorted(features)),
        only_listed=options.only_listed,
        allow_partitions=options.allow_partitions,
    )


def _node_scope(requirements: Requirements, hardware: Hardware, options: Options) -> NodeScope:
    wanted = with_general(feature for stated in requirements.features for feature in stated.value)
    return NodeScope(
        placement=requirements.workload.placement,
        nvlink_required="nvlink" in wanted,
        allow_sharing=options.allow_sharing,
        now=options.now if hardware.live else None,
        domain=options.domain,
    )


def _class_answer(
    requirements: Requirements,
    facts: ClassFacts,
    fleet: Sequence[Sequence[NodeView]],
    scope: Scope,
    node_scope: NodeScope,
) -> tuple[ClassAnswer, list[NodeAnswer]]:
    preferred = requirements.precisions.value if requirements.precisions else ()
    precision = chosen_precision(facts, preferred)
    need, size_rules = need_on(requirements, facts, precision)
    rules = [*class_rules(requirements, facts, scope), *size_rules]
    found, strangers = _on_nodes(facts, fleet, need, node_scope)
    counted = count_rule(
        facts,
        need,
        found,
        strangers,
        any_nodes=bool(fleet),
        nvlink_required=node_scope.nvlink_required,
    )
    rules += counted
    answer = ClassAnswer(
        facts=facts,
        verdict=all_of(rule.verdict for rule in rules),
        need=need,
        precision=precision,
        rules=tuple(rules),
        now=any_of(one.verdict for one in found) if found or not fleet else DOES_NOT_FIT,
        nodes_now=_fitting([one.verdict for one in found]) if fleet else None,
        nodes_total=_fitting([one.when_free for one in found]) if fleet else None,
    )
    return answer, found


def _fitting(verdicts: Sequence[Verdict]) -> int | None:
    """Return how many fit; a count that leaves out those that cannot tell would read as theirs too."""
    return None if CANNOT_TELL in verdicts else verdicts.count(FITS)


def _on_nodes(
    facts: ClassFacts, fleet: Sequence[Sequence[NodeView]], need: Need, scope: NodeScope
) -> tuple[list[NodeAnswer], list[Strangers]]:
    """Return the answers of the nodes that have the class, and why the others have not.

    Simulated nodes never count beside real ones.
    """
    found: list[NodeAnswer] = []
    strangers: list[Strangers] = []
    for alike in fleet:
        # What one node of a group has of a class, all have.
        first = membership(facts, alike[0], domain=scope.domain)
        if isinstance(first, Stranger):
            strangers.append(Strangers(alike[0].name, first.reason, len(alike)))
        else:
            answers = (node_answer(facts, node, need, scope) for node in alike)
            found += [answer for answer in answers if isinstance(answer, NodeAnswer)]
    real = [answer for answer in found if not answer.simulated]
    return real or found, strangers


def _alike(nodes: Sequence[NodeView]) -> tuple[tuple[NodeView, ...], ...]:
    """Group the nodes whose records tell of the same classes and kinds of devices; one without a record is alone."""
    groups: dict[object, list[NodeView]] = {}
    for node in nodes:
        key = node.name if node.devices is None else (tuple(node.offers), node.kinds)
        groups.setdefault(key, []).append(node)
    return tuple(tuple(group) for group in groups.values())


def _runtime_order(answers: Sequence[ClassAnswer], requirements: Requirements) -> list[ClassAnswer]:
    """Return classes in the order in which the runtime lists them, then by name."""
    listed = [normal(name) for name in requirements.classes.value] if requirements.classes else []
    places = {name: place for place, name in reversed(list(enumerate(listed)))}
    return sorted(
        answers,
        key=lambda answer: (places.get(normal(answer.facts.name), len(listed)), answer.facts.name),
    )


def _rank(answer: ClassAnswer) -> tuple[int, tuple[int, float]]:
    return {FITS: 0, CANNOT_TELL: 1, DOES_NOT_FIT: 2}[answer.verdict], answer.distance


def _choice(
    answers: Sequence[ClassAnswer], requirements: Requirements, options: Options
) -> tuple[Choice | None, list[Finding]]:
    policy = options.policy or (requirements.policy.value if requirements.policy else None) or DEFAULT_POLICY
    candidates = [
        Candidate(
            facts=answer.facts,
            need=answer.need,
            precision=answer.precision,
            now=answer.now,
        )
        for answer in answers
        if answer.verdict == FITS
    ]
    pick = picked(policy, candidates, requirements)
    if pick.candidate is None:
        path = requirements.policy.path if requirements.policy else "--policy"
        finding = Finding(
            id="policy-cannot-choose", severity="warning", path=path, message=f"{policy}: {pick.reason}"
        )
        return None, [finding] if candidates else []
    chosen = pick.candidate
    return (
        Choice(
            policy=policy,
            class_name=chosen.facts.name,
            accelerators=chosen.need.accelerators,
            precision=chosen.precision,
            reason=pick.reason,
        ),
        [],
    )
