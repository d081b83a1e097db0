"""The rules that compare what a class can do with what is required; which class it is stands in `identity`."""

from collections.abc import Iterable, Iterator
from decimal import Decimal

from agent.core.matching.hardware import ClassFacts, gib_text, memory_text
from agent.core.matching.identity import IDENTITY_RULES, NOT_KNOWN, Rule, Scope, joined, unknown_fact
from agent.core.matching.precisions import DEFAULT_FOR_COMPUTE, chosen_precision, peak_of, precision_fact
from agent.core.matching.requirements import Requirements, Stated, precision_word
from agent.core.matching.spelling import did_you_mean, normal, same_name, with_general
from agent.core.matching.verdicts import CANNOT_TELL, DOES_NOT_FIT, FITS, RuleAnswer, Verdict
from agent.core.matching.versions import compare_versions, parse_version


def class_rules(requirements: Requirements, facts: ClassFacts, scope: Scope) -> tuple[RuleAnswer, ...]:
    """Return the answers of all rules about what the class is; counts and nodes are apart."""
    return tuple(answer for rule in RULES for answer in rule(requirements, facts, scope))


def _memory(requirements: Requirements, facts: ClassFacts, _: Scope) -> Iterator[RuleAnswer]:
    for stated in requirements.min_memory:
        yield _memory_answer("minMemory", stated, facts, at_least=True)
    for stated in requirements.max_memory:
        yield _memory_answer("maxMemory", stated, facts, at_least=False)


def _memory_answer(rule: str, stated: Stated[int], facts: ClassFacts, *, at_least: bool) -> RuleAnswer:
    source = facts.where("spec.capabilities.memoryGB")
    required = f"{'≥' if at_least else '≤'} {stated.value} GB"
    if facts.memory is None:
        return unknown_fact(rule, required, source, stated.path, "memory")
    nominal, limit = facts.memory.nominal_gib, Decimal(stated.value)
    holds = nominal >= limit if at_least else nominal <= limit
    verb = "needs" if at_least else "may have"
    return RuleAnswer(
        rule=rule,
        verdict=FITS if holds else DOES_NOT_FIT,
        required=required,
        found=memory_text(facts.memory),
        source=source,
        path=stated.path,
        reason="" if holds else f"{verb} {stated.value} GiB, has {gib_text(nominal)}",
        gap=0.0 if holds else float(1 - min(nominal, limit) / max(nominal, limit)),
    )


def _architecture(requirements: Requirements, facts: ClassFacts, _: Scope) -> Iterator[RuleAnswer]:
    for stated in requirements.min_architecture:
        source = facts.where("spec.capabilities.computeCapability")
        required = f"≥ {stated.value}"
        found, wanted = parse_version(facts.capability or ""), parse_version(stated.value)
        if found is None or wanted is None:
            yield unknown_fact("minArchitectureVersion", required, source, stated.path, "compute capability")
            continue
        outcome = compare_versions(found, wanted)
        verdicts: dict[str, Verdict] = {
            "reached": FITS,
            "below": DOES_NOT_FIT,
            "incomparable": CANNOT_TELL,
        }
        reasons = {
            "reached": "",
            "below": f"needs architecture {stated.value}, is {facts.capability}",
            "incomparable": f"architecture {facts.capability} cannot be compared with {stated.value}",
        }
        yield RuleAnswer(
            rule="minArchitectureVersion",
            verdict=verdicts[outcome],
            required=required,
            found=facts.capability or NOT_KNOWN,
            source=source,
            path=stated.path,
            reason=reasons[outcome],
            gap=1.0 if outcome == "below" else 0.0,
        )


def _features(requirements: Requirements, facts: ClassFacts, scope: Scope) -> Iterator[RuleAnswer]:
    source = facts.where("spec.capabilities.features")
    present = with_general(facts.features or ())
    for stated in requirements.features:
        for position, wanted in enumerate(stated.value):
            path = f"{stated.path}[{position}]"
            precision = precision_word(wanted)
            if normal(wanted) in present:
                yield RuleAnswer(
                    rule="requiredFeatures",
                    verdict=FITS,
                    required=wanted,
                    found=_own_spelling(wanted, facts.features or ()),
                    source=source,
                    path=path,
                )
            elif precision is not None:
                # A precision is known by more than the list of features.
                yield _precision_answer("requiredFeatures", facts, (precision,), path)
            elif facts.features is None:
                yield unknown_fact("requiredFeatures", wanted, source, path, "list of features")
            else:
                hint = did_you_mean(wanted, scope.known_features) if _is_new(wanted, scope) else ""
                yield RuleAnswer(
                    rule="requiredFeatures",
                    verdict=DOES_NOT_FIT,
                    required=wanted,
                    found=joined(facts.features) or "none",
                    source=source,
                    path=path,
                    reason=f"lacks {wanted}{hint}",
                    gap=1.0,
                )


def _own_spelling(wanted: str, features: Iterable[str]) -> str:
    """Return the feature of the class that is written like `wanted`, else the first numbered one of it."""
    exact = same_name(wanted, features)
    return exact or next(one for one in features if normal(wanted) in with_general((one,)))


def _is_new(feature: str, scope: Scope) -> bool:
    return same_name(feature, scope.known_features) is None


def _precisions(requirements: Requirements, facts: ClassFacts, _: Scope) -> Iterator[RuleAnswer]:
    stated = requirements.precisions
    if stated is not None:
        yield _precision_answer("preferredPrecisions", facts, stated.value, stated.path)


def _precision_answer(rule: str, facts: ClassFacts, preferred: tuple[str, ...], path: str) -> RuleAnswer:
    chosen = chosen_precision(facts, preferred)
    known = [precision_fact(facts, word) for word in map(precision_word, preferred) if word is not None]
    required = " or ".join(preferred)
    if chosen is not None:
        source = precision_fact(facts, chosen).source
        return RuleAnswer(rule=rule, verdict=FITS, required=required, found=chosen, source=source, path=path)
    source = known[0].source if known else facts.where("spec.capabilities.features")
    if not known or len(known) < len(preferred) or any(fact.support == "not known" for fact in known):
        return unknown_fact(rule, required, source, path, f"whether it computes {required}")
    return RuleAnswer(
        rule=rule,
        verdict=DOES_NOT_FIT,
        required=required,
        found="none of these in hardware" if len(preferred) > 1 else "not in hardware",
        source=source,
        path=path,
        reason=f"has no {required} in hardware",
        gap=1.0,
    )


def _compute(requirements: Requirements, facts: ClassFacts, _: Scope) -> Iterator[RuleAnswer]:
    preferred = requirements.precisions.value if requirements.precisions else ()
    precision = chosen_precision(facts, preferred) or DEFAULT_FOR_COMPUTE
    for stated in requirements.min_tflops:
        required = f"≥ {stated.value} TFLOPS dense at {precision}"
        peak = peak_of(facts, precision)
        if peak is None:
            source = facts.where("spec.capabilities.performance")
            name = f"peak at {precision}"
            yield unknown_fact("minComputePerformanceTFLOPS", required, source, stated.path, name)
            continue
        figure, source = peak
        holds = figure >= stated.value
        yield RuleAnswer(
            rule="minComputePerformanceTFLOPS",
            verdict=FITS if holds else DOES_NOT_FIT,
            required=required,
            found=f"{figure:g} TFLOPS",
            source=source,
            path=stated.path,
            reason="" if holds else f"needs {stated.value} TFLOPS at {precision}, has {figure:g}",
            gap=0.0 if holds else 1 - figure / stated.value,
        )


RULES: tuple[Rule, ...] = (
    *IDENTITY_RULES,
    _memory,
    _architecture,
    _features,
    _precisions,
    _compute,
)
