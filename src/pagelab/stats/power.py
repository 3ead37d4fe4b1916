"""The change that a test of ranks finds in four of five studies, and the median width of its interval.

Both are in standard deviations of normal data. A test rejects where an interval of its own level excludes 0, so both
are quantiles of the same order statistics: those of the Walsh averages, or of the differences between two samples.
"""

from __future__ import annotations

from functools import lru_cache
from math import pi, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np

from pagelab.stats.interval import NotAchievable
from pagelab.stats.order_statistics import PairOrder, pair_order
from pagelab.stats.refusal import Refusal, StatsRefusedError
from pagelab.stats.wilcoxon import walsh_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

POWER = 0.8
"""Probability with which a change "would be seen"."""
Test = Literal["pairs", "rank-sum", "stratified"]
_SIMULATED = 40
"""Up to this many pairs (executions of each condition) the quantiles are simulated; few pairs need far more than the
normal approximation says. Beyond, its shortfall at this number is continued as 1 / n."""
_STUDIES = 2000
_SEED = 1
_AT_ONCE = 1_000_000
_EFFICIENCY = 3 / pi
"""Asymptotic efficiency of tests of ranks for normal data (Hodges and Lehmann 1956)."""


def shift_seen(n: int, alpha: float, test: Test = "pairs") -> float:
    """The shift that n pairs show at the two-sided ``alpha`` with probability :data:`POWER`.

    In standard deviations of a pair's difference; for ``rank-sum`` and ``stratified`` in those of an execution, of
    which there are n of each condition. Refused where no data of that size would be enough.
    """
    if test == "stratified":  # exchanges the two executions of a block, as the test of pairs does
        return sqrt(2) * shift_seen(n, alpha)
    normal, at = NormalDist(), min(n, _enough(alpha, test))
    simulated = float(np.quantile(-_ends(at, alpha, test)[0], POWER))
    return _continued(n, normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(POWER), test, simulated, at)


def median_half_width(n: int, level: float, test: Test = "pairs") -> float:
    """Median half-width of the interval of the shift, in the unit of :func:`shift_seen`."""
    test = "pairs" if test == "pairs" else "rank-sum"
    at = min(n, _enough(1 - level, test))
    lows, highs = _ends(at, 1 - level, test)
    return _continued(n, NormalDist().inv_cdf((1 + level) / 2), test, float(np.median(highs - lows)) / 2, at)


def _enough(alpha: float, test: Test) -> int:
    """The number from which the normal approximation is continued: where even that is too few, the fewest that do."""
    n = _SIMULATED
    while isinstance(_order(n, alpha, test), NotAchievable):
        n += 1
    return n


def _continued(n: int, z: float, test: Test, simulated: float, at: int) -> float:
    """The value for n from that simulated ``at`` n or fewer: its ratio to the normal one approaches 1 as 1 / n."""

    def normal(number: int) -> float:
        return z * sqrt((1 if test == "pairs" else 2) / number / _EFFICIENCY)

    return normal(n) * (1 + (simulated / normal(at) - 1) * at / n)


@lru_cache(maxsize=4096)
def _ends(n: int, alpha: float, test: Test) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the interval of level 1 - alpha in studies of standard normal data, drawn from one seed."""
    order = _order(n, alpha, test)
    if isinstance(order, NotAchievable):
        raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, str(order))
    random = np.random.Generator(np.random.PCG64([_SEED, n]))
    first, second = np.triu_indices(n)
    size = first.size if test == "pairs" else n * n
    lows, highs = [], []
    for start in range(0, _STUDIES, max(1, _AT_ONCE // size)):
        count = min(max(1, _AT_ONCE // size), _STUDIES - start)
        drawn = random.standard_normal((count, n))
        if test == "pairs":
            values = (drawn[:, first] + drawn[:, second]) / 2
        else:
            values = (drawn[:, :, None] - random.standard_normal((count, n))[:, None, :]).reshape(count, size)
        places = [order.low - 1, size - order.high]
        values = np.partition(values, places, axis=1)
        lows.append(values[:, places[0]].copy())
        highs.append(values[:, places[1]].copy())
    return np.concatenate(lows), np.concatenate(highs)


def _order(n: int, alpha: float, test: Test) -> PairOrder | NotAchievable:
    return walsh_order(n, 1 - alpha) if test == "pairs" else pair_order(n, n, 1 - alpha)
