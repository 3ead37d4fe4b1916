"""Five-number summary as R's ``boxplot.stats(range = 0)``, with mean, standard deviation and CV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.refusal import Refusal, StatsRefusedError, one_sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True)
class Summary:
    """Box (hinges, median), whiskers at the extremes, and moments; in the unit of the data."""

    n: int
    minimum: float
    lower_hinge: float
    median: float
    upper_hinge: float
    maximum: float
    mean: float
    sd: float | None
    """Sample standard deviation, divisor n - 1; None for one value."""
    cv: float | None
    """sd / mean; None where sd is, and where the mean is not positive (the ratio would mean nothing)."""

    @property
    def five(self) -> tuple[float, float, float, float, float]:
        return (self.minimum, self.lower_hinge, self.median, self.upper_hinge, self.maximum)


def summarize(values: ArrayLike) -> Summary:
    """Tukey's five numbers (1977, ch. 2): hinges are the medians of the halves, each including the middle value.

    That is R's ``fivenum``: with d = floor((n + 3) / 2) / 2, the hinges are the means of order statistics floor(d)
    and ceil(d) from either end. They differ from R's default ``quantile`` (type 7) for most n.
    """
    ordered = np.sort(one_sample(values))
    n = ordered.size
    depth = ((n + 3) // 2) / 2

    def at(rank: float) -> float:
        below, above = ordered[int(np.floor(rank)) - 1], ordered[int(np.ceil(rank)) - 1]
        return float(below / 2 + above / 2) if below != above else float(below)

    # By a power of two, which changes no digit: squares of very small and very large values leave the double range.
    exponent = int(np.frexp(np.abs(ordered).max())[1])
    scaled = np.ldexp(ordered, -exponent)
    with np.errstate(over="ignore"):
        mean = float(np.ldexp(scaled.mean(), exponent))
        sd = float(np.ldexp(scaled.std(ddof=1), exponent)) if n > 1 else None
    if not np.isfinite(mean) or (sd is not None and not np.isfinite(sd)):
        raise StatsRefusedError(Refusal.OVERFLOW, "the spread exceeds the double range; rescale the unit")
    if ordered[0] == ordered[-1]:
        mean, sd = float(ordered[0]), (0.0 if n > 1 else None)  # a constant has no rounding noise
    cv = sd / mean if sd is not None and mean > 0 else None
    return Summary(
        n=n,
        minimum=float(ordered[0]),
        lower_hinge=at(depth),
        median=at((n + 1) / 2),
        upper_hinge=at(n + 1 - depth),
        maximum=float(ordered[-1]),
        mean=mean,
        sd=sd,
        cv=cv,
    )
