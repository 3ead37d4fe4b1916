"""Intervals: two ends and the achieved level, or the reason for their absence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class IntervalMethod(StrEnum):
    """The method of an interval's ends and achieved level."""

    EXACT_ORDER = "exact-order"
    """Order statistics; the level comes from an exact count."""
    NORMAL_ORDER = "normal-order"
    """Order statistics chosen by the normal approximation, where the exact count would take too long."""
    ANY_SHAPE_ORDER = "any-shape-order"
    """Order statistics found by inverting Brunner and Munzel's test; the level is approximate, whatever the shapes."""
    BOOTSTRAP_PERCENTILE = "bootstrap-percentile"
    """Percentiles of resampled statistics, widened for small n; the level is nominal."""
    PERCENTILE = "percentile"
    """Plain percentiles of resampled statistics; the level is nominal."""
    LOG_T = "log-t"
    """Student's t on the log scale, with the jackknife's standard error over executions; the level is nominal."""
    HIERARCHICAL_T = "hierarchical-t"
    """Student's t on the means of the highest level of repetition; the level is nominal."""
    SUBSET_MEANS = "subset-means"
    """Means of subsets of the sample (Hartigan's typical values); exact where it is symmetric about its centre."""
    FIELLER = "fieller"
    """All ratios of two means that a t test does not reject; the level is nominal."""
    FISHER_Z = "fisher-z"
    """Normal on the z scale of a correlation; exact only in the limit, for normal data."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed two-sided, equal-tailed confidence interval, in the unit of the data."""

    low: float
    high: float
    level: float
    """The requested level."""
    achieved: float | None
    """The level of this interval (at least ``level``), or None if it is only nominal."""
    method: IntervalMethod

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class NotAchievable:
    """Result for too few executions: no interval of this level exists."""

    level: float
    """The level asked for."""
    best: float
    """The highest level that this n can give (0 if no interval exists at all)."""
    smallest_n: int
    """The smallest sufficient number of executions (in each condition if there are two)."""

    def __str__(self) -> str:
        return (
            f"not achievable: the widest interval has level {self.best:.4g}, {self.level:.4g} needs at least "
            f"{self.smallest_n} executions"
        )
