"""OME's eligibility and scores as its code has them, defects included; `ome` has the order in which it chooses.

A class is here what OME sees of it: the fields of `spec`, and `name`.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from agent.core.catalogue import GIB
from agent.core.quantity import InvalidQuantityError, parse_quantity, whole_value

OmeClass = Mapping[str, Any]
Constraints = Mapping[str, Any]

_FIGURES = ("fp32Tflops", "fp16Tflops", "int8Tops", "int4Tops")

# fp8 is read from the figure of int8; bf16, tf32 and fp4 have none.
_FIGURE_OF = {
    "fp32": "fp32Tflops",
    "fp16": "fp16Tflops",
    "int8": "int8Tops",
    "fp8": "int8Tops",
    "int4": "int4Tops",
}


class Eligibility(NamedTuple):
    """Whether OME takes a class into account, and its own words for why not."""

    ok: bool
    reason: str


def eligible(facts: OmeClass, constraints: Constraints | None) -> Eligibility:
    """Return OME's eligibility; the first check that fails wins. Capability is compared as text."""
    if constraints is None:
        return Eligibility(ok=True, reason="")
    for check in (_excluded, _family, _memory, _features, _capability):
        reason = check(facts, constraints)
        if reason:
            return Eligibility(ok=False, reason=reason)
    return Eligibility(ok=True, reason="")


def _excluded(facts: OmeClass, constraints: Constraints) -> str:
    return "explicitly excluded" if facts.get("name") in (constraints.get("excludedClasses") or ()) else ""


def _family(facts: OmeClass, constraints: Constraints) -> str:
    allowed = constraints.get("architectureFamilies") or ()
    family = str(facts.get("family") or "").lower()
    with_vendor = f"{str(facts.get('vendor') or '').lower()}-{family}"
    if not allowed or any((with_vendor if "-" in entry else family) == entry.lower() for entry in allowed):
        return ""
    return f"architecture family {family} not in allowed list"


def _memory(facts: OmeClass, constraints: Constraints) -> str:
    least, most = constraints.get("minMemory"), constraints.get("maxMemory")
    if least is None and most is None:
        return ""
    size = memory_as_gib(_capabilities(facts).get("memoryGB"))
    if size is None:
        return "missing memory specification for memory check"
    if least is not None and size < least:
        return f"memory {size}GB < required {least}GB"
    if most is not None and size > most:
        return f"memory {size}GB > max allowed {most}GB"
    return ""


def _features(facts: OmeClass, constraints: Constraints) -> str:
    present = {feature.lower() for feature in _capabilities(facts).get("features") or ()}
    for feature in constraints.get("requiredFeatures") or ():
        if feature.lower() not in present:
            return f"missing required feature: {feature}"
    return ""


def _capability(facts: OmeClass, constraints: Constraints) -> str:
    required = constraints.get("minArchitectureVersion")
    if required is None:
        return ""
    found = _capabilities(facts).get("computeCapability") or ""
    if not found:
        return "missing compute capability for architecture version check"
    # Byte strings, not numbers: 10.0 is below 9.0.
    if found.encode() < required.encode():
        return f"compute capability {found} < required {required}"
    return ""


def memory_as_gib(quantity: object) -> int | None:
    """Return the whole GiB that OME compares, rounded down; `None` where there is no quantity."""
    if quantity is None:
        return None
    try:
        return whole_value(quantity) // GIB
    except InvalidQuantityError:
        # The API server stores none; in a file it has no meaning for OME.
        return None


def score_from_tflops(found: float, required: float) -> float:
    """Return the share of the required rate, at most 1."""
    if found == 0:
        return 0.0
    return 1.0 if required == 0 else min(1.0, found / required)


def tflops_for_precision(performance: Mapping[str, Any] | None, precision: str) -> int:
    """Return the figure that OME reads for a precision, 0 where it has none."""
    key = _FIGURE_OF.get(precision.lower())
    return int((performance or {}).get(key) or 0) if key else 0


def max_tflops(performance: Mapping[str, Any] | None) -> int:
    """Return the largest of the four figures."""
    return max(int((performance or {}).get(key) or 0) for key in _FIGURES)


def memory_fit_score(quantity: object, least: int | None) -> float:
    """Return how much of the memory is required; here GiB are not rounded."""
    if least is None:
        return 1.0
    size = _gib(quantity)
    return 0.0 if size is None or size < least else float(least / size)


def compute_score(performance: Mapping[str, Any] | None, constraints: Constraints) -> float:
    """Return the score of the first preferred precision with a figure, halved for each one before it."""
    if performance is None:
        return 0.0
    required = constraints.get("minComputePerformanceTFLOPS") or 0
    preferred = constraints.get("preferredPrecisions") or ()
    if not preferred:
        return score_from_tflops(max_tflops(performance), required)
    for place, precision in enumerate(preferred):
        figure = tflops_for_precision(performance, precision)
        if figure > 0:
            return score_from_tflops(figure, required) * 0.5**place
    fallback = tflops_for_precision(performance, "fp16")
    if fallback > 0 and "fp16" not in {precision.lower() for precision in preferred}:
        return score_from_tflops(fallback, required) * 0.5 ** len(preferred)
    return 0.0


def best_fit_score(facts: OmeClass, constraints: Constraints) -> float:
    """Return 0.70 of the memory's score and 0.30 of the compute's."""
    capabilities = _capabilities(facts)
    memory = memory_fit_score(capabilities.get("memoryGB"), constraints.get("minMemory"))
    return 0.70 * memory + 0.30 * compute_score(capabilities.get("performance"), constraints)


def capability_scores(classes: Sequence[OmeClass], constraints: Constraints | None) -> list[float]:
    """Return 0.5 memory, 0.3 bandwidth and 0.2 rate of each class, each over the largest among them."""
    rows = [_raw_capability(facts, constraints or {}) for facts in classes]
    largest = [max(column, default=0.0) for column in zip(*rows, strict=True)]
    return [
        sum(
            weight * (value / most if most else 0.0)
            for weight, value, most in zip((0.2, 0.5, 0.3), row, largest, strict=True)
        )
        for row in rows
    ]


def _raw_capability(facts: OmeClass, constraints: Constraints) -> tuple[float, float, float]:
    capabilities = _capabilities(facts)
    bandwidth = capabilities.get("memoryBandwidthGBps")
    return (
        float(_rate(capabilities.get("performance"), constraints.get("preferredPrecisions") or ("fp16",))),
        float(_gib(capabilities.get("memoryGB")) or 0),
        float(0 if bandwidth is None else whole_value(bandwidth)),
    )


def _rate(performance: Mapping[str, Any] | None, preferred: Sequence[str]) -> int:
    figures = (tflops_for_precision(performance, precision) for precision in preferred)
    return next((figure for figure in figures if figure > 0), 0)


def _gib(quantity: object) -> Decimal | None:
    if quantity is None:
        return None
    try:
        return parse_quantity(quantity) / GIB
    except InvalidQuantityError:
        # As in `memory_as_gib`.
        return None


def _capabilities(facts: OmeClass) -> Mapping[str, Any]:
    return facts.get("capabilities") or {}
