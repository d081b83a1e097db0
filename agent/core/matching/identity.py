"""The rules about which class it is: names, families, partitions, resource names; and what all rules share."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from agent.core.matching.hardware import ClassFacts
from agent.core.matching.requirements import Requirements
from agent.core.matching.spelling import normal, same_name
from agent.core.matching.verdicts import CANNOT_TELL, DOES_NOT_FIT, FITS, RuleAnswer, Verdict

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


def unknown_fact(rule: str, required: str, source: str, path: str, name: str) -> RuleAnswer:
    """Return the answer of a rule whose fact the class does not state."""
    return RuleAnswer(
        rule=rule,
        verdict=CANNOT_TELL,
        required=required,
        found=NOT_KNOWN,
        source=source,
        path=path,
        reason=_reason(CANNOT_TELL, "", name),
    )


def joined(names: Iterable[str]) -> str:
    """Return names in one text."""
    return ", ".join(names)


def _stated(requirements: Requirements, facts: ClassFacts, _: Scope) -> Iterator[RuleAnswer]:
    """Promise nothing where nothing is required: there is nothing to compare."""
    if requirements.nothing_stated:
        yield RuleAnswer(
            rule="requirements",
            verdict=CANNOT_TELL,
            required="nothing is stated",
            found=facts.name,
            source=facts.where("metadata.name"),
            reason="nothing is required that hardware could be compared with",
        )


def _listed(requirements: Requirements, facts: ClassFacts, scope: Scope) -> Iterator[RuleAnswer]:
    stated = requirements.classes
    if stated is None or not scope.only_listed:
        return
    listed = same_name(facts.name, stated.value) is not None
    yield RuleAnswer(
        rule="acceleratorClasses",
        verdict=FITS if listed else DOES_NOT_FIT,
        required=joined(stated.value),
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
            required=f"none of {joined(stated.value)}",
            found=facts.name,
            source=facts.where("metadata.name"),
            path=stated.path,
            reason="the service excludes this class" if excluded else "",
            gap=0.5 if excluded else 0.0,
        )


def _partition(requirements: Requirements, facts: ClassFacts, scope: Scope) -> Iterator[RuleAnswer]:
    """Let a slice stand in for a whole device only where somebody said so."""
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


def _families(requirements: Requirements, facts: ClassFacts, _: Scope) -> Iterator[RuleAnswer]:
    for stated in requirements.families:
        found = facts.family or NOT_KNOWN
        verdict: Verdict = CANNOT_TELL
        if facts.family:
            verdict = FITS if any(_is_family(name, facts) for name in stated.value) else DOES_NOT_FIT
        yield RuleAnswer(
            rule="architectureFamilies",
            verdict=verdict,
            required=joined(stated.value),
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


def _reason(verdict: Verdict, failure: str, name: str) -> str:
    """Return the clause for people: the failure, or that a fact of the class is not known."""
    if verdict == DOES_NOT_FIT:
        return failure
    return f"{name} of the class is not known" if verdict == CANNOT_TELL else ""


IDENTITY_RULES: tuple[Rule, ...] = (_stated, _listed, _named, _excluded, _partition, _families, _resource)
