"""The rule of counts: enough whole, usable devices on one node, by the nodes, else by the class's own total."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from agent.core.matching.counts import Need
from agent.core.matching.hardware import ClassFacts
from agent.core.matching.node_answers import NodeAnswer
from agent.core.matching.verdicts import CANNOT_TELL, DOES_NOT_FIT, FITS, RuleAnswer, Verdict

_RULE = "count"

_WITHOUT_ACCELERATORS = {"offers no accelerator", "has no accelerator"}


class Strangers(NamedTuple):
    """Nodes that have nothing of a class: the first one's name, why, and how many there are."""

    name: str
    reason: str
    nodes: int


def count_rule(
    facts: ClassFacts,
    need: Need,
    nodes: Sequence[NodeAnswer],
    strangers: Sequence[Strangers],
    *,
    any_nodes: bool,
    nvlink_required: bool,
) -> list[RuleAnswer]:
    """Return the rule's answers; none where neither nodes nor totals are known and one accelerator is enough.

    A class answer uses what nodes have in total, a node answer what is free.
    """
    if not any_nodes:
        return _by_total(facts, need)
    rules = [_by_nodes(facts, need, nodes, strangers)]
    if need.tensor_parallel > need.per_pod:
        rules.append(_spanning(facts, need, nodes, nvlink_required=nvlink_required))
    return rules


def _by_total(facts: ClassFacts, need: Need) -> list[RuleAnswer]:
    total = facts.total
    if total is None and need.accelerators == 1:
        return []
    verdict: Verdict = CANNOT_TELL
    reason = f"how many of the {total} are on one node is not known"
    if total is None:
        reason = "no nodes are known, so how many are on one node is not known"
    elif total < need.accelerators:
        verdict, reason = DOES_NOT_FIT, f"needs {need.accelerators}, there are {total} in all"
    elif need.per_pod == 1:
        verdict, reason = FITS, ""
    return [
        RuleAnswer(
            rule=_RULE,
            verdict=verdict,
            required=need.text,
            found="not known" if total is None else f"{total} in all",
            source=facts.where("status.totalAccelerators"),
            reason=reason,
            gap=_gap(total or 0, need.accelerators) if verdict == DOES_NOT_FIT else 0.0,
        )
    ]


def _by_nodes(
    facts: ClassFacts, need: Need, nodes: Sequence[NodeAnswer], strangers: Sequence[Strangers]
) -> RuleAnswer:
    sure = sum((one.usable or 0) // need.per_pod for one in nodes if one.when_free == FITS)
    perhaps = sum(one.when_free == CANNOT_TELL for one in nodes)
    largest = max((one.usable or 0 for one in nodes), default=0)
    verdict: Verdict = DOES_NOT_FIT
    if sure >= need.pods:
        verdict = FITS
    elif perhaps:
        # A node of unknown size may hold any number of pods.
        verdict = CANNOT_TELL
    return RuleAnswer(
        rule=_RULE,
        verdict=verdict,
        required=need.text,
        found=_found(nodes, largest),
        source=_source(nodes),
        reason="" if verdict == FITS else _why(facts, need, nodes, strangers, verdict),
        gap=_gap(largest, need.per_pod) if verdict == DOES_NOT_FIT else 0.0,
    )


def _spanning(
    facts: ClassFacts, need: Need, nodes: Sequence[NodeAnswer], *, nvlink_required: bool
) -> RuleAnswer:
    """Answer for a tensor-parallel group larger than a pod: it must lie within one NVLink domain over nodes."""
    domains: Counter[str] = Counter()
    for one in nodes:
        if one.fabric and one.when_free == FITS:
            domains[one.fabric] += one.usable or 0
    largest = max(domains.values(), default=0)
    fits = nvlink_required and largest >= need.tensor_parallel
    return RuleAnswer(
        rule="parallelism",
        verdict=FITS if fits else DOES_NOT_FIT,
        required=f"a tensor-parallel group of {need.tensor_parallel} on one node or in one NVLink domain",
        found=f"{need.per_pod} a pod; {largest} in the largest NVLink domain",
        source=_source(nodes) if nodes else facts.where("metadata.name"),
        reason="" if fits else _spanning_reason(need, largest, nvlink_required=nvlink_required),
        gap=0.0 if fits else _gap(max(largest, need.per_pod), need.tensor_parallel),
    )


def _spanning_reason(need: Need, largest: int, *, nvlink_required: bool) -> str:
    group = f"a tensor-parallel group of {need.tensor_parallel} spans pods of {need.per_pod}"
    if not nvlink_required:
        return f"{group}; only one that requires nvlink is looked for over nodes"
    return f"{group}, and the largest NVLink domain has {largest}"


def _found(nodes: Sequence[NodeAnswer], largest: int) -> str:
    if not nodes:
        return "no node has it"
    count = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}"
    return f"{count}, the largest with {largest} usable"


def _source(nodes: Sequence[NodeAnswer]) -> str:
    if not nodes:
        return "the nodes"
    return f"Node/{nodes[0].name}" + (f" and {len(nodes) - 1} more" if len(nodes) > 1 else "")


def _why(
    facts: ClassFacts,
    need: Need,
    nodes: Sequence[NodeAnswer],
    strangers: Sequence[Strangers],
    verdict: Verdict,
) -> str:
    """Return the reason of the node that is nearest; for a class that no node has, what a node has instead."""
    if not nodes:
        # The first that has accelerators says more than the first of the CPU nodes.
        telling = [group for group in strangers if group.reason not in _WITHOUT_ACCELERATORS]
        first = (telling or list(strangers))[0]
        others = sum(group.nodes for group in strangers) - 1
        more = f" (and so on, {others} more nodes)" if others > 2 else ""
        return f"no node has it: {first.name} {first.reason}{more}"
    near = [one for one in nodes if one.when_free == verdict] or list(nodes)
    best = max(near, key=lambda one: one.usable or 0)
    if best.when_free == FITS:
        pods = sum((one.usable or 0) // need.per_pod for one in nodes if one.when_free == FITS)
        return f"needs {need.pods} pods of {need.per_pod}, nodes hold {pods}"
    return (
        f"{best.name} {'; '.join(best.reasons)}"
        if best.reasons
        else f"{best.name} does not hold {facts.name}"
    )


def _gap(found: int, needed: int) -> float:
    return max(0.0, 1 - found / needed)
