"""The three-valued answer and its parts, shared by all of matching."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["fits", "does-not-fit", "cannot-tell"]

FITS: Verdict = "fits"
DOES_NOT_FIT: Verdict = "does-not-fit"
CANNOT_TELL: Verdict = "cannot-tell"

Severity = Literal["error", "warning", "info"]

_BEST_FIRST: tuple[Verdict, ...] = (FITS, CANNOT_TELL, DOES_NOT_FIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleAnswer:
    """What one rule says of one class."""

    rule: str
    """Name of the field that states the requirement, or a word for a rule that has none (`count`, `modelSize`)."""
    verdict: Verdict
    required: str
    found: str
    """`not known` where the fact is missing."""
    source: str
    """Where the found fact stands: object and field."""
    path: str | None = None
    """Where the requirement stands; `None` for one that no field states."""
    reason: str = ""
    """One clause for people: `needs 80 GiB, has 48 GiB`. Empty for a rule that fits and needs no mention."""
    gap: float = 0.0
    """How far off a rule that does not fit is: near 0 for a sliver, 1 for something that is not there at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that the author of an object should know."""

    id: str
    severity: Severity
    path: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A value that cannot be used; its object is refused, or the fact counts as not known."""

    path: str
    message: str


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict of rules that must all hold: the worst, `fits` for none."""
    return max(verdicts, key=_BEST_FIRST.index, default=FITS)


def any_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict of candidates of which one is enough: the best, `cannot-tell` for none."""
    return min(verdicts, key=_BEST_FIRST.index, default=CANNOT_TELL)
