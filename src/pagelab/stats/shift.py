"""Hodges-Lehmann shift: the median of all pairwise differences, with its exact-order confidence interval."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.interval import Interval, IntervalMethod, NotAchievable
from pagelab.stats.rank_null import EXACT_LIMIT, order_index
from pagelab.stats.reach import smallest_equal_n, smallest_p
from pagelab.stats.refusal import Refusal, StatsRefusedError, error_rate, one_sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MOST_PAIRS = 50_000_000
"""n times m above this is refused: the differences are held in memory (8 bytes each)."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Treatment less baseline, in the unit of the data."""

    estimate: float
    interval: Interval | NotAchievable
    n_treatment: int
    n_baseline: int
    ties: bool
    """Equal values in the pooled sample: the interval's true level is then at least ``achieved``."""


@dataclass(frozen=True, slots=True)
class PairOrder:
    """Which ordered pairs (1-based, k-th from either end) bound the interval."""

    k: int
    achieved: float
    method: IntervalMethod


def hodges_lehmann(treatment: ArrayLike, baseline: ArrayLike, *, level: float = 0.95) -> Shift:
    """Estimate and interval for the shift d in "treatment is distributed as baseline + d" (Hodges and Lehmann 1963).

    The interval is [D_(k), D_(nm+1-k)] of the ordered differences D, with the largest k for which
    P(U <= k - 1) <= (1 - level) / 2 in the untied null of the rank sum; ``achieved`` is 1 - 2 P(U <= k - 1). That
    level is exact for continuous data under a pure shift and a lower bound with ties. Where the distributions differ
    in shape too, the estimate is still the median of "treatment less baseline" for a random pair, but the level is
    approximate (simulated in docs/method.md). ``NotAchievable`` when even k = 1 misses too often.
    """
    x, y = one_sample(treatment, "treatment"), one_sample(baseline, "baseline")
    refuse_too_many_pairs(x.size, y.size)
    with np.errstate(over="ignore"):
        differences = np.subtract.outer(x, y).ravel()
    if not np.isfinite(differences).all():
        raise StatsRefusedError(Refusal.OVERFLOW, "a pairwise difference exceeds the double range; rescale the unit")
    differences.sort()
    order = pair_order(x.size, y.size, level)
    interval: Interval | NotAchievable
    if isinstance(order, NotAchievable):
        interval = order
    else:
        low, high = float(differences[order.k - 1]), float(differences[-order.k])
        interval = Interval(low, high, level, order.achieved, order.method)
    pooled = np.concatenate([x, y])
    return Shift(middle(differences), interval, x.size, y.size, bool(np.unique(pooled).size < pooled.size))


def pair_order(n: int, m: int, level: float) -> PairOrder | NotAchievable:
    """The order statistics of the n * m pairs that bound an interval of at least ``level``.

    Beyond the exact limit, k comes from the normal approximation, and the result says so.
    """
    tail = error_rate(level) / 2
    if n + m <= EXACT_LIMIT:
        k, miss = order_index(n, m, tail)
        if k == 0:
            best = 1 - smallest_p(n, m)
            return NotAchievable(level, float(best), smallest_equal_n(2 * tail))
        return PairOrder(k, float(1 - 2 * miss), IntervalMethod.EXACT_ORDER)
    normal = NormalDist(n * m / 2, sqrt(n * m * (n + m + 1) / 12))
    k = floor(normal.inv_cdf(float(tail)) + 0.5)
    if k < 1:
        return NotAchievable(level, max(0.0, 1 - 2 * normal.cdf(0.5)), smallest_equal_n(2 * tail))
    return PairOrder(k, 1 - 2 * normal.cdf(k - 0.5), IntervalMethod.NORMAL_ORDER)


def middle(ordered: NDArray[np.float64]) -> float:
    """Median of sorted values, without overflow in the sum of the middle two."""
    low, high = float(ordered[(ordered.size - 1) // 2]), float(ordered[ordered.size // 2])
    return low if low == high else low / 2 + high / 2


def refuse_too_many_pairs(n: int, m: int) -> None:
    """Refuse before memory runs out."""
    if n * m > MOST_PAIRS:
        raise StatsRefusedError(
            Refusal.TOO_MANY_PAIRS,
            f"{n} times {m} pairs: more than {MOST_PAIRS:,}; the unit is the execution: pass execution means",
        )
