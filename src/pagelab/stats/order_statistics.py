"""Finds order statistics of the n * m pairs: the ranks that bound an interval of a given level."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import floor, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

from pagelab.stats.attainable_p import smallest_equal_n, smallest_p
from pagelab.stats.interval import Interval, IntervalMethod, NotAchievable
from pagelab.stats.rank_null import EXACT_LIMIT, order_index
from pagelab.stats.refusal import error_rate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_PAIRS = 2_000_000
"""So many pairs are stored, in about a dozen arrays (8 bytes each); of more, the order statistics are selected."""


@dataclass(frozen=True, slots=True)
class PairOrder:
    """The ordered pairs that bound an interval: the ``low``-th from below and the ``high``-th from above, from 1."""

    low: int
    high: int
    achieved: float | None
    method: IntervalMethod

    def bound(self, ordered: NDArray[np.float64], level: float) -> Interval:
        """The interval that these order statistics of ``ordered`` bound."""
        return Interval(float(ordered[self.low - 1]), float(ordered[-self.high]), level, self.achieved, self.method)


@lru_cache(maxsize=1024)
def pair_order(n: int, m: int, level: float) -> PairOrder | NotAchievable:
    """The order statistics of the n * m pairs that bound an interval of at least ``level``.

    Beyond the exact limit, k comes from the normal approximation, and the result's method says so.
    """
    tail = error_rate(level) / 2
    if n + m <= EXACT_LIMIT:
        k, miss = order_index(n, m, tail)
        if k == 0:
            best = 1 - smallest_p(n, m)
            return NotAchievable(level, float(best), smallest_equal_n(2 * tail))
        return PairOrder(k, k, float(1 - 2 * miss), IntervalMethod.EXACT_ORDER)
    normal = NormalDist(n * m / 2, sqrt(n * m * (n + m + 1) / 12))
    k = floor(normal.inv_cdf(float(tail)) + 0.5)
    if k < 1:
        return NotAchievable(level, max(0.0, 1 - 2 * normal.cdf(0.5)), smallest_equal_n(2 * tail))
    return PairOrder(k, k, 1 - 2 * normal.cdf(k - 0.5), IntervalMethod.NORMAL_ORDER)


def middle(ordered: NDArray[np.float64]) -> float:
    """Median of sorted values, without overflow in the sum of the middle two."""
    low, high = float(ordered[(ordered.size - 1) // 2]), float(ordered[ordered.size // 2])
    return low if low == high else low / 2 + high / 2


@lru_cache(maxsize=1024)
def sign_bound(n: int, level: float) -> NotAchievable | None:
    """None if n independent signs can give ``level``: [min, max] misses the median with probability at most 2^(1-n)."""
    error = error_rate(level)
    if Fraction(1, 2 ** (n - 1)) <= error:
        return None
    smallest = n
    while Fraction(1, 2 ** (smallest - 1)) > error:
        smallest += 1
    return NotAchievable(level, float(1 - Fraction(1, 2 ** (n - 1))), smallest)
