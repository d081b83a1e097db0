"""What a row of the benchmarks says: budget, figure and floor, whether the budget holds, and what bounds it where not."""

from dataclasses import dataclass

NO_BUDGET = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure beside its budget."""

    what: str
    figure: str
    """With its unit."""
    budget: str = NO_BUDGET
    floor: str = ""
    """The least that physics and the platform allow: interpreter start, one round trip, the size of the JSON."""
    holds: bool | None = None
    """`None`: there is no budget to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All that one row measured."""

    row: str
    title: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()
    """How it was measured, and what bounds what did not hold."""
    profile: str = ""
    """Where the time went, as text; kept where a budget did not hold."""
    machine: str = ""
    versions: str = ""
    date: str = ""
    seconds: float = 0.0
    """How long the row took."""

    @property
    def holds(self) -> bool:
        """Tell whether every budget of the row holds."""
        return all(figure.holds is not False for figure in self.figures)


def limit(
    what: str, measured: float, budget: float, unit: str, *, floor: str = "", digits: int = 2
) -> Figure:
    """Return a figure that must not exceed its budget."""
    return Figure(
        what=what,
        figure=f"{measured:.{digits}f} {unit}",
        budget=f"≤ {budget:g} {unit}",
        floor=floor,
        holds=measured <= budget,
    )
