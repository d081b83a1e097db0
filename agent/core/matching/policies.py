"""Which of the fitting classes a policy takes: OME's scores on sound figures, ties in the runtime's order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from agent.core.matching.counts import Need
from agent.core.matching.hardware import ClassFacts
from agent.core.matching.precisions import DEFAULT_FOR_COMPUTE, peak_of
from agent.core.matching.requirements import Requirements
from agent.core.matching.verdicts import DOES_NOT_FIT, FITS, Verdict

_TIERS = {"low": 1, "medium": 2, "high": 3}

Prices = Callable[["Candidate"], Decimal | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A class that fits."""

    facts: ClassFacts
    need: Need
    precision: str | None
    now: Verdict
    """Whether it fits on any node now; `cannot-tell` where no nodes are known."""


@dataclass(frozen=True, slots=True)
class Pick:
    """What a policy takes, `None` where it cannot choose, and why."""

    candidate: Candidate | None
    reason: str


def picked(policy: str, candidates: Sequence[Candidate], requirements: Requirements) -> Pick:
    """Return the class that a policy takes; `candidates` are in the runtime's order."""
    if not candidates:
        return Pick(None, "no class fits")
    match policy:
        case "Cheapest":
            return _cheapest(candidates)
        case "MostCapable":
            return _most_capable(candidates)
        case "FirstAvailable":
            return _first_available(candidates)
        case _:
            return _best_fit(candidates, requirements)


def _best_fit(candidates: Sequence[Candidate], requirements: Requirements) -> Pick:
    scores = [_fit_score(candidate, requirements) for candidate in candidates]
    best = max(range(len(scores)), key=scores.__getitem__)
    return Pick(candidates[best], f"best fit, score {scores[best]:.2f}")


def _fit_score(candidate: Candidate, requirements: Requirements) -> float:
    """Return 0.70 of how much of the memory is required and 0.30 of how much of the required compute there is."""
    required = max((stated.value for stated in requirements.min_memory), default=None)
    memory = candidate.facts.memory
    fit = 1.0
    if required is not None:
        fit = min(1.0, required / float(memory.nominal_gib)) if memory else 0.0
    return 0.70 * fit + 0.30 * _compute_score(candidate, requirements)


def _compute_score(candidate: Candidate, requirements: Requirements) -> float:
    """Return the share of the required rate at the chosen precision, halved for each one preferred before it."""
    precision = candidate.precision or DEFAULT_FOR_COMPUTE
    peak = peak_of(candidate.facts, precision)
    if peak is None:
        return 0.0
    required = max((stated.value for stated in requirements.min_tflops), default=0)
    share = min(1.0, peak[0] / required) if required else 1.0
    preferred = requirements.precisions.value if requirements.precisions else ()
    before = next((place for place, word in enumerate(preferred) if word.lower() == precision), 0)
    return share * 0.5**before


def _most_capable(candidates: Sequence[Candidate]) -> Pick:
    """Weigh memory 0.5, bandwidth 0.3 and rate 0.2, each against the best candidate."""
    figures = [_figures(candidate) for candidate in candidates]
    largest = [max(column) or 1.0 for column in zip(*figures, strict=True)]
    weights = (0.5, 0.3, 0.2)
    scores = [
        sum(weight * value / most for weight, value, most in zip(weights, row, largest, strict=True))
        for row in figures
    ]
    best = max(range(len(scores)), key=scores.__getitem__)
    return Pick(candidates[best], f"most capable, score {scores[best]:.2f}")


def _figures(candidate: Candidate) -> tuple[float, float, float]:
    facts = candidate.facts
    peak = peak_of(facts, candidate.precision or DEFAULT_FOR_COMPUTE)
    return (
        float(facts.memory.nominal_gib) if facts.memory else 0.0,
        float(facts.bandwidth_gbps or 0),
        peak[0] if peak else 0.0,
    )


def _cheapest(candidates: Sequence[Candidate]) -> Pick:
    """Compare hourly prices, else prices per token, else tiers; one kind is never compared with another."""
    for prices, kind in ((_hourly, "per hour"), (_per_token, "per million tokens"), (_tier, "tier")):
        priced = [(price, candidate) for candidate in candidates if (price := prices(candidate)) is not None]
        if priced:
            price, cheapest = min(priced, key=lambda pair: pair[0])
            shown = cheapest.facts.cost.tier if kind == "tier" else f"{price.normalize():f} {kind}"
            left_out = len(candidates) - len(priced)
            note = f"; {left_out} without such a price left out" if left_out else ""
            return Pick(cheapest, f"cheapest, {shown}{note}")
    return Pick(None, "no class that fits has a price")


def _hourly(candidate: Candidate) -> Decimal | None:
    cost = candidate.facts.cost
    return cost.spot_per_hour or cost.per_hour


def _per_token(candidate: Candidate) -> Decimal | None:
    return candidate.facts.cost.per_million_tokens


def _tier(candidate: Candidate) -> Decimal | None:
    tier = _TIERS.get((candidate.facts.cost.tier or "").lower())
    return None if tier is None else Decimal(tier)


def _first_available(candidates: Sequence[Candidate]) -> Pick:
    for candidate in candidates:
        if candidate.now == FITS:
            return Pick(candidate, "first of the runtime's order that fits now")
    note = "; none fits now" if all(candidate.now == DOES_NOT_FIT for candidate in candidates) else ""
    return Pick(candidates[0], f"first of the runtime's order{note}")
