"""Which precisions a class computes in hardware, and how fast; fp8 is fp8, and neither int8 nor bf16 stands in for it."""

from dataclasses import dataclass
from typing import Literal

from agent.core.catalogue import PRECISIONS, Architecture, catalogue
from agent.core.matching.hardware import ClassFacts
from agent.core.matching.requirements import precision_word
from agent.core.matching.spelling import with_general
from agent.core.matching.versions import parse_version

Support = Literal["yes", "no", "not known"]

DEFAULT_FOR_COMPUTE = "fp16"
"""Precision at which compute is compared where none is preferred, or none of the preferred ones is there."""

# What a parameter takes in memory, in bytes.
BYTES_PER_PARAMETER = {
    "fp64": 8.0,
    "fp32": 4.0,
    "tf32": 4.0,
    "fp16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp6": 0.75,
    "fp4": 0.5,
    "int4": 0.5,
}


@dataclass(frozen=True, slots=True)
class PrecisionFact:
    """Whether a class has a precision, and where that stands."""

    support: Support
    source: str


def precision_fact(facts: ClassFacts, precision: str) -> PrecisionFact:
    """Return whether the hardware has a precision: by the class's features, its figures, then its capability."""
    features = with_general(facts.features or ())
    if precision in features:
        return PrecisionFact("yes", facts.where("spec.capabilities.features"))
    if precision in facts.peaks:
        return PrecisionFact("yes", facts.where(facts.peak_sources[precision]))
    architecture = _architecture(facts)
    if architecture is not None:
        source = facts.where("spec.capabilities.computeCapability")
        if precision in architecture.precisions(tensor_cores=not architecture.tensor_cores_by_product):
            return PrecisionFact("yes", source)
        if precision not in architecture.precisions(tensor_cores=True):
            return PrecisionFact("no", source)
    if features & frozenset(PRECISIONS):
        # A class that lists precisions lists them all.
        return PrecisionFact("no", facts.where("spec.capabilities.features"))
    return PrecisionFact("not known", facts.where("spec.capabilities.features"))


def chosen_precision(facts: ClassFacts, preferred: tuple[str, ...]) -> str | None:
    """Return the first preferred precision that the hardware is known to have, `None` where it has none for sure."""
    for word in preferred:
        precision = precision_word(word)
        if precision is not None and precision_fact(facts, precision).support == "yes":
            return precision
    return None


def peak_of(facts: ClassFacts, precision: str) -> tuple[float, str] | None:
    """Return the dense peak in 10^12 operations a second and its source, `None` where it is not known."""
    if precision in facts.peaks:
        return facts.peaks[precision], facts.where(facts.peak_sources[precision])
    if precision == "bf16" and "fp16" in facts.peaks and (facts.vendor or "").lower() == "nvidia":
        # Tensor cores of every generation that has bf16 run it at the rate of fp16.
        return facts.peaks["fp16"], facts.where(facts.peak_sources["fp16"])
    return None


def _architecture(facts: ClassFacts) -> Architecture | None:
    version = parse_version(facts.capability) if facts.capability else None
    if version is None or isinstance(version, str) or len(version) > 2:
        return None
    major, minor = (*version, 0)[:2]
    return catalogue().architecture_of((major, minor))
