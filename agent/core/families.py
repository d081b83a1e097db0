"""Metric families as plain values; the edge that serves them turns them into exposition text."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One series: its labels and its value."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric with its samples, in base units."""

    name: str
    """Without the suffix that the exposition adds to a counter."""
    kind: Literal["gauge", "counter"]
    help: str
    samples: tuple[Sample, ...] = ()


def gauge(name: str, help_: str, samples: Iterable[Sample]) -> Family:
    """Return a gauge."""
    return Family(name=name, kind="gauge", help=help_, samples=tuple(samples))


def counter(name: str, help_: str, samples: Iterable[Sample]) -> Family:
    """Return a counter; `name` is without `_total`."""
    return Family(name=name, kind="counter", help=help_, samples=tuple(samples))


def one(value: float, **labels: str) -> Sample:
    """Return one sample."""
    return Sample(value=value, labels=labels)


class Kept:
    """Families that are made anew only where a part of what they are made of is another than before.

    For parts that are replaced and never changed.
    """

    def __init__(self) -> None:
        self._kept: tuple[tuple[object, ...], tuple[Family, ...]] | None = None

    def of(self, parts: tuple[object, ...], make: Callable[[], tuple[Family, ...]]) -> tuple[Family, ...]:
        """Return the families of these parts; the very same value as long as the parts are the same."""
        kept = self._kept
        if kept is None or parts != kept[0]:
            kept = self._kept = parts, make()
        return kept[1]


def merged(families: Iterable[Family]) -> tuple[Family, ...]:
    """Return one family per name, with all samples: an exposition may name each only once."""
    by_name: dict[str, Family] = {}
    for family in families:
        before = by_name.get(family.name)
        samples = (*(before.samples if before else ()), *family.samples)
        by_name[family.name] = replace(family, samples=samples)
    return tuple(by_name.values())
