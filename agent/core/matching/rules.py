"""The rules that compare one class with what is required, each a function from both to its answers."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from agent.core.matching.hardware import ClassFacts, gib_text, memory_text
from agent.core.matching.precisions import DEFAULT_FOR_COMPUTE, chosen_precision, peak_of, precision_fact
from agent.core.matching.requirements import Requirements, Stated, precision_word
from agent.core.matching.spelling import did_you_mean, normal, same_name, with_general
from agent.core.matching.verdicts import CANNOT_TELL, DOES_NOT_FIT, FITS, RuleAnswer, Verdict
from agent.core.matching.versions import compare_versions, parse_version

NOT_KNOWN = "not known"

# Marketing spellings of a family that the class field writes in one word.
_FAMILY_ALIASES = {"adalovelace": "ada", "gracehopper": "hopper", "graceblackwell": "blackwell"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What rules need beside the class and the requirements."""

    class_names: tuple[str, ...] = ()
    """Of all classes there are."""
    known_features: tuple[str, ...] = ()
    only_listed: bool = True
    """Whether the runtime's list of classes counts; a patch leaves it out."""
    allow_partitions: bool = False


Rule = Callable[[Requirements, ClassFacts, Scope], Iterable[RuleAnswer]]


def class_rules(requirements: Requirements, facts: ClassFacts, scope: Scope) -> tuple[RuleAnswer, ...]:
    """Return the answers of all rules about what the class is; counts and nodes are apart."""
    return tuple(answer for rule in RULES for answer in rule(requirements, facts, scope))


def _listed(requirements: Requirements, facts: ClassFacts, scope: Scope) -> Iterator[RuleAnswer]:
    stated = requirements.classes
    if stated is None or not scope.only_listed:
        return
    listed = same_name(facts.name, stated.value) is not None
    yield RuleAnswer(
        rule="acceleratorClasses",
        verdict=FITS if listed else DOES_NOT_FIT,
        required=_joined(stated.value),
        found=facts.name,
        source=facts.where("metadata.name"),
        path=stated.path,
        reason="" if listed else "the runtime does not list this class",
        gap=0.0 if listed else 0.05,
    )


def _named(requirements: Requirements, facts: ClassFacts, _: Scope) -> Iterator[RuleAnswer]:
    for stated in requirements.named:
        same = same_name(facts.name, [stated.value]) is not None
        yield RuleAnswer(
            rule="acceleratorClass",
            verdict=FITS if same else DOES_NOT_FIT,
            required=stated.value,
            found=facts.name,
            source=facts.where("metadata.name"),
            path=stated.path,
            reason="" if same else f"the service names {stated.value}",
            gap=0.0 if same else 0.5,
        )


def _excluded(requirements: Requirements, facts: ClassFacts, _: Scope) -> Iterator[RuleAnswer]:
    for stated in requirements.excluded:
        excluded = same_name(facts.name, stated.value) is not None
        yield RuleAnswer(
            rule="excludedClasses",
            verdict=DOES_NOT_FIT if excluded else FITS,
            required=f"none of {_joined(stated.value)}",
            found=facts.name,
            source=facts.where("metadata.name"),
            path=stated.path,
            reason="the service excludes this class" if excluded else "",
            gap=0.5 if excluded else 0.0,
        )


def _families(requirements: Requirements, facts: ClassFacts, _: Scope) -> Iterator[RuleAnswer]:
    for stated in requirements.families:
        found = facts.family or NOT_KNOWN
        verdict: Verdict = CANNOT_TELL
        if facts.family:
            verdict = FITS if any(_is_family(name, facts) for name in stated.value) else DOES_NOT_FIT
        yield RuleAnswer(
            rule="architectureFamilies",
            verdict=verdict,
            required=_joined(stated.value),
            found=found,
            source=facts.where("spec.family"),
            path=stated.path,
            reason=_reason(verdict, f"needs family {' or '.join(stated.value)}, is {found}", "family"),
            gap=1.0 if verdict == DOES_NOT_FIT else 0.0,
        )


def _is_family(wanted: str, facts: ClassFacts) -> bool:
    family, vendor = normal(facts.family or ""), normal(facts.vendor or "")
    word = normal(wanted)
    without_vendor = word.removeprefix(vendor) if vendor else word
    return family in {
        word,
        without_vendor,
        _FAMILY_ALIASES.get(word),
        _FAMILY_ALIASES.get(without_vendor),
    } or _FAMILY_ALIASES.get(family) in {word, without_vendor}


def _memory(requirements: Requirements, facts: ClassFacts, _: Scope) -> Iterator[RuleAnswer]:
    for stated in requirements.min_memory:
        yield _memory_answer("minMemory", stated, facts, at_least=True)
    for stated in requirements.max_memory:
        yield _memory_answer("maxMemory", stated, facts, at_least=False)


def _memory_answer(rule: str, stated: Stated[int], facts: ClassFacts, *, at_least: bool) -> RuleAnswer:
    source = facts.where("spec.capabilities.memoryGB")
    required = f"{'≥' if at_least else '≤'} {stated.value} GB"
    if facts.memory is None:
        return _unknown(rule, required, source, stated.path, "memory")
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
            yield _unknown("minArchitectureVersion", required, source, stated.path, "compute capability")
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
                    found=wanted,
                    source=source,
                    path=path,
                )
            elif precision is not None:
                # A precision is known by more than the list of features.
                yield _precision_answer("requiredFeatures", facts, (precision,), path)
            elif facts.features is None:
                yield _unknown("requiredFeatures", wanted, source, path, "list of features")
            else:
                hint = did_you_mean(wanted, scope.known_features) if _is_new(wanted, scope) else ""
                yield RuleAnswer(
                    rule="requiredFeatures",
                    verdict=DOES_NOT_FIT,
                    required=wanted,
                    found=_joined(facts.features) or "none",
                    source=source,
                    path=path,
                    reason=f"lacks {wanted}{hint}",
                    gap=1.0,
                )


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
        return _unknown(rule, required, source, path, f"whether it computes {required}")
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
            yield _unknown("minComputePerformanceTFLOPS", required, source, stated.path, name)
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


def _resource(requirements: Requirements, facts: ClassFacts, _: Scope) -> Iterator[RuleAnswer]:
    work = requirements.workload
    if work.resource is None:
        return
    offered = facts.resource
    verdict = _resource_verdict(work.resource, offered)
    yield RuleAnswer(
        rule="resource",
        verdict=verdict,
        required=work.resource,
        found=offered or NOT_KNOWN,
        source=facts.where("spec.resources" if facts.resources else "spec.vendor"),
        path=work.path,
        reason=_reason(verdict, f"pods ask for {work.resource}, this is {offered}", "resource name"),
        gap=1.0 if verdict == DOES_NOT_FIT else 0.0,
    )


def _resource_verdict(asked: str, offered: str | None) -> Verdict:
    if offered is None:
        return CANNOT_TELL
    if asked == offered:
        return FITS
    both_known = {_kind_of(asked), _kind_of(offered)}
    return CANNOT_TELL if None in both_known else DOES_NOT_FIT


def _kind_of(resource: str) -> str | None:
    """Return a name that tells what is handed out; `None` for one that an operator made up within a vendor's domain."""
    domain, _, name = resource.partition("/")
    if domain == "nvidia.com" and name != "gpu" and not name.startswith("mig-"):
        return None
    return resource


def _partition(requirements: Requirements, facts: ClassFacts, scope: Scope) -> Iterator[RuleAnswer]:
    """A slice stands in for a whole device only where somebody said so."""
    if facts.partition is None:
        return
    names = [
        *(requirements.classes.value if requirements.classes else ()),
        *(s.value for s in requirements.named),
    ]
    asked_for = (requirements.workload.resource or "").startswith("nvidia.com/mig-")
    allowed = scope.allow_partitions or asked_for or same_name(facts.name, names) is not None
    yield RuleAnswer(
        rule="partition",
        verdict=FITS if allowed else DOES_NOT_FIT,
        required="a partition is allowed" if allowed else "a whole accelerator",
        found=f"a partition ({facts.partition})",
        source=facts.where("metadata.name"),
        reason="" if allowed else "is a partition; list it by name or pass --allow-partitions",
        gap=0.0 if allowed else 0.9,
    )


def _stated(requirements: Requirements, facts: ClassFacts, _: Scope) -> Iterator[RuleAnswer]:
    """Nothing required is nothing to compare: that is no promise."""
    if requirements.nothing_stated:
        yield RuleAnswer(
            rule="requirements",
            verdict=CANNOT_TELL,
            required="nothing is stated",
            found=facts.name,
            source=facts.where("metadata.name"),
            reason="nothing is required that hardware could be compared with",
        )


def _unknown(rule: str, required: str, source: str, path: str, name: str) -> RuleAnswer:
    return RuleAnswer(
        rule=rule,
        verdict=CANNOT_TELL,
        required=required,
        found=NOT_KNOWN,
        source=source,
        path=path,
        reason=_reason(CANNOT_TELL, "", name),
    )


def _reason(verdict: Verdict, failure: str, name: str) -> str:
    """Return the clause for people: the failure, or that a fact of the class is not known."""
    if verdict == DOES_NOT_FIT:
        return failure
    return f"{name} of the class is not known" if verdict == CANNOT_TELL else ""


def _joined(names: Iterable[str]) -> str:
    return ", ".join(names)


RULES: tuple[Rule, ...] = (
    _stated,
    _listed,
    _named,
    _excluded,
    _partition,
    _families,
    _memory,
    _architecture,
    _features,
    _precisions,
    _compute,
    _resource,
)
