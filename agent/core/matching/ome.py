"""What OME's own selector does with a service, defects included; its order of choice, and where it goes wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from agent.core.matching.ome_scores import Constraints, OmeClass, best_fit_score, capability_scores, eligible
from agent.core.quantity import parse_quantity

Outcome = Literal["chosen", "none", "error", "panic"]

ANNOTATION = "ome.io/accelerator-class"
NOT_COMPATIBLE = "runtime does not support the required accelerator class"

_TIERS = {"low": 1, "medium": 2, "high": 3}
_OTHER_TIER = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OmeAnswer:
    """What OME does for one component of a service."""

    outcome: Outcome
    class_name: str | None = None
    reason: str
    disqualified: tuple[tuple[str, str], ...] = ()
    """Classes that OME leaves out, and its own words for why."""


def ome_class(obj: Mapping[str, Any]) -> OmeClass:
    """Return what OME sees of an AcceleratorClass object."""
    return {"name": (obj.get("metadata") or {}).get("name"), **(obj.get("spec") or {})}


def ome_answer(
    runtime: Mapping[str, Any] | None,
    service: Mapping[str, Any] | None,
    component: str | None,
    classes: Mapping[str, OmeClass],
    *,
    policy: str | None = None,
) -> OmeAnswer:
    """Return what OME does with objects as they are; `policy` stands in for a service's where there is none."""
    if runtime is None:
        return OmeAnswer(outcome="none", reason="it is not known which runtime OME takes for the model")
    listed = runtime_classes(runtime)
    selector, override = _selectors(service, component)
    required = required_classes(service)
    if not runtime_compatible(listed, required):
        names = ", ".join(name for name in required if name not in listed)
        return OmeAnswer(outcome="error", reason=f"{NOT_COMPATIBLE} ({names} not in acceleratorClasses)")
    if not listed:
        return OmeAnswer(
            outcome="none", reason="the runtime lists no acceleratorClasses, so no class is selected"
        )
    named = override.get("acceleratorClass") or selector.get("acceleratorClass")
    if named:
        return _by_name(named, classes)
    chosen_policy = policy or override.get("policy") or selector.get("policy")
    if not chosen_policy:
        return OmeAnswer(
            outcome="none", reason="neither a class nor a policy is given, so no class is selected"
        )
    return _by_policy(chosen_policy, listed, classes, selector.get("constraints"))


def runtime_classes(runtime: Mapping[str, Any] | None) -> list[str]:
    """Return the runtime's list, without duplicates."""
    requirements = ((runtime or {}).get("spec") or {}).get("acceleratorRequirements") or {}
    return list(dict.fromkeys(requirements.get("acceleratorClasses") or ()))


def required_classes(service: Mapping[str, Any] | None) -> list[str]:
    """Return the classes that a service names anywhere, the annotation included."""
    annotations = ((service or {}).get("metadata") or {}).get("annotations") or {}
    names = [annotations.get(ANNOTATION), _selectors(service, None)[0].get("acceleratorClass")]
    names += [
        _selectors(service, component)[1].get("acceleratorClass") for component in ("engine", "decoder")
    ]
    return list(dict.fromkeys(name for name in names if name))


def runtime_compatible(listed: Sequence[str], required: Sequence[str]) -> bool:
    """Tell whether OME takes the runtime at all: its list must hold every class that the service names."""
    return all(name in listed for name in required)


def choose_by_name(
    listed: Sequence[str], selector_class: str | None, override_class: str | None
) -> str | None:
    """Return the class that is named for a component; neither constraints nor policy count then."""
    return (override_class or selector_class) if listed else None


def select(policy: str, candidates: Sequence[OmeClass], constraints: Constraints | None) -> OmeAnswer:
    """Return what a policy takes of fetched candidates. BestFit over two or more without constraints panics."""
    judged = [(facts, eligible(facts, constraints)) for facts in candidates]
    left_out = tuple((str(facts["name"]), answer.reason) for facts, answer in judged if not answer.ok)
    remaining = [facts for facts, answer in judged if answer.ok]
    if not remaining:
        return OmeAnswer(outcome="none", reason="no candidate is eligible", disqualified=left_out)
    if policy != "FirstAvailable" and policy in _CHOOSERS and len(remaining) == 1:
        return _taken(remaining[0], "the only eligible candidate", left_out)
    if policy == "BestFit" and constraints is None:
        return OmeAnswer(
            outcome="panic",
            reason="BestFit dereferences the constraints, and there are none",
            disqualified=left_out,
        )
    chooser = _CHOOSERS.get(policy)
    if chooser is None:
        return OmeAnswer(outcome="none", reason=f"{policy} is no policy", disqualified=left_out)
    chosen = chooser(remaining, constraints or {})
    if chosen is None:
        return OmeAnswer(outcome="none", reason="no candidate has a cost", disqualified=left_out)
    return _taken(chosen, f"{policy} of {len(remaining)} eligible", left_out)


def _by_name(name: str, classes: Mapping[str, OmeClass]) -> OmeAnswer:
    if name not in classes:
        return OmeAnswer(outcome="error", reason=f"class {name} does not exist")
    return OmeAnswer(
        outcome="chosen", class_name=name, reason="named; constraints and policy are not looked at"
    )


def _by_policy(
    policy: str, listed: Sequence[str], classes: Mapping[str, OmeClass], constraints: Constraints | None
) -> OmeAnswer:
    missing = [name for name in listed if name not in classes]
    if missing:
        # One failed look-up ends the choice, and nobody is told.
        return OmeAnswer(
            outcome="none", reason=f"listed class {missing[0]} does not exist, so none is chosen"
        )
    return select(policy, [classes[name] for name in listed], constraints)


def _taken(facts: OmeClass, reason: str, left_out: tuple[tuple[str, str], ...]) -> OmeAnswer:
    return OmeAnswer(outcome="chosen", class_name=str(facts["name"]), reason=reason, disqualified=left_out)


def _selectors(
    service: Mapping[str, Any] | None, component: str | None
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the service's selector and the component's override of it."""
    spec = (service or {}).get("spec") or {}
    override = ((spec.get(component) or {}).get("acceleratorOverride") or {}) if component else {}
    return spec.get("acceleratorSelector") or {}, override


def _best_fit(candidates: Sequence[OmeClass], constraints: Constraints) -> OmeClass:
    return max(candidates, key=lambda facts: best_fit_score(facts, constraints))


def _most_capable(candidates: Sequence[OmeClass], constraints: Constraints) -> OmeClass:
    scores = capability_scores(candidates, constraints)
    return candidates[scores.index(max(scores))]


def _first(candidates: Sequence[OmeClass], _: Constraints) -> OmeClass:
    return candidates[0]


def _cheapest(candidates: Sequence[OmeClass], _: Constraints) -> OmeClass | None:
    """Return the lowest hourly price, else price per token, else tier; a price of 0 wins."""
    for price in (_hourly, _per_token, _tier):
        priced = [
            (found, facts) for facts in candidates if (found := price(facts.get("cost") or {})) is not None
        ]
        if priced:
            return min(priced, key=lambda pair: pair[0])[1]
    return None


def _hourly(cost: Mapping[str, Any]) -> Decimal | None:
    raw = cost.get("spotPerHour", cost.get("perHour"))
    return None if raw is None else parse_quantity(raw)


def _per_token(cost: Mapping[str, Any]) -> Decimal | None:
    raw = cost.get("perMillionTokens")
    return None if raw is None else parse_quantity(raw)


def _tier(cost: Mapping[str, Any]) -> Decimal | None:
    tier = cost.get("tier")
    return Decimal(_TIERS.get(str(tier).lower(), _OTHER_TIER)) if tier else None


_CHOOSERS = {
    "BestFit": _best_fit,
    "Cheapest": _cheapest,
    "MostCapable": _most_capable,
    "FirstAvailable": _first,
}
