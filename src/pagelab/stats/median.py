"""Confidence interval for the median from order statistics; its level is exact."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from math import floor
from typing import TYPE_CHECKING, Literal

import numpy as np

from pagelab.stats.interval import Interval, IntervalMethod, NotAchievable
from pagelab.stats.order_statistics import middle, sign_bound
from pagelab.stats.refusal import error_rate, one_sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True)
class Location:
    """The location of one condition, with an interval for display; in the unit of the data."""

    statistic: Literal["median", "mean"]
    estimate: float
    interval: Interval | NotAchievable
    n: int
    seed: int | None = None
    """Seed of the resampling, if there was any."""
    resamples: int | None = None


def median_interval(values: ArrayLike, *, level: float = 0.95) -> Location:
    """[x_(k), x_(n+1-k)] with the largest k for which P(Bin(n, 1/2) <= k - 1) <= (1 - level) / 2.

    ``achieved`` = 1 - 2 P(Bin(n, 1/2) <= k - 1): exact for any continuous distribution, a lower bound with ties
    (David and Nagaraja 2003, section 7.1). Needs n >= 6 for 95%: ``NotAchievable`` below.
    """
    ordered = np.sort(one_sample(values))
    n = ordered.size
    order = _median_order(n, level)
    interval: Interval | NotAchievable
    if isinstance(order, NotAchievable):
        interval = order
    else:
        k, achieved = order
        interval = Interval(float(ordered[k - 1]), float(ordered[n - k]), level, achieved, IntervalMethod.EXACT_ORDER)
    return Location("median", middle(ordered), interval, n)


_COUNTED = 10_000
"""Up to so many values binomial coefficients are summed in integers; of more, in double precision."""


@lru_cache(maxsize=1024)
def _median_order(n: int, level: float) -> tuple[int, float] | NotAchievable:
    """The order k and the level that it achieves."""
    short = sign_bound(n, level)
    if short is not None:
        return short
    if n > _COUNTED:
        return _order_of_many(n, level)
    choices = 2**n
    allowed = floor(error_rate(level) / 2 * choices)
    k, below, more = 0, 0, 1  # more: the binomial coefficient of n and k
    while k < (n + 1) // 2 and below + more <= allowed:
        below += more
        more = more * (n - k) // (k + 1)
        k += 1
    return k, (choices - 2 * below) / choices


def _order_of_many(n: int, level: float) -> tuple[int, float]:
    """The same by the incomplete beta function."""
    from scipy.special import bdtr  # heavy: only where it is needed

    tail = float(error_rate(level)) / 2
    k = bisect_right(range(n // 2), tail, key=lambda below: float(bdtr(below, n, 0.5)))
    return k, 1 - 2 * float(bdtr(k - 1, n, 0.5))
