"""How a figure grows with the number of nodes: a straight line through what was measured, and how well it fits."""

from collections.abc import Sequence
from dataclasses import dataclass

SIZES = (500, 1000, 2000, 5000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`fixed + per_thousand × nodes / 1000`, by least squares."""

    fixed: float
    per_thousand: float
    fit: float
    """R²: the share of the variation that the line explains."""
    largest: float
    """What was measured at the largest size."""

    def text(self, unit: str, digits: int = 2) -> str:
        """Return the line for people."""
        sign = "+" if self.per_thousand >= 0 else "−"
        slope = f"{sign} {abs(self.per_thousand):.{digits}f} {unit} per 1,000 nodes"
        fixed, largest = f"{self.fixed:.{digits}f} {unit}", f"{self.largest:.{digits}f} {unit}"
        return f"{fixed} {slope} (R² {self.fit:.3f}); {largest} at {SIZES[-1]:,}"


def line_through(sizes: Sequence[int], values: Sequence[float]) -> Line:
    """Return the straight line nearest to the values."""
    count = len(sizes)
    x = [size / 1000 for size in sizes]
    mean_x, mean_y = sum(x) / count, sum(values) / count
    spread = sum((one - mean_x) ** 2 for one in x)
    slope = sum((one - mean_x) * (value - mean_y) for one, value in zip(x, values, strict=True)) / spread
    fixed = mean_y - slope * mean_x
    off = sum((value - fixed - slope * one) ** 2 for one, value in zip(x, values, strict=True))
    whole = sum((value - mean_y) ** 2 for value in values)
    fit = 1.0 if whole == 0 else 1 - off / whole
    return Line(fixed=fixed, per_thousand=slope, fit=fit, largest=values[-1])
