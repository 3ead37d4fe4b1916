"""Percentile bootstrap of executions for the mean, widened for small n."""

from __future__ import annotations

from math import ceil, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.interval import Interval, IntervalMethod, NotAchievable
from pagelab.stats.median import Location
from pagelab.stats.order_statistics import sign_bound
from pagelab.stats.refusal import Refusal, StatsRefusedError, error_rate, one_sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

BEYOND = 20
"""Least number of resamples beyond a percentile that bounds an interval."""
MOST = 4_000_000
_CHUNK = 4_000_000
"""Indices drawn at once, to bound memory. It is part of the method, since it decides where each draw is used."""


def mean_interval(values: ArrayLike, *, level: float = 0.95, seed: int, resamples: int = 10_000) -> Location:
    """Mean of executions, with the equal-tailed percentile bootstrap interval (Efron 1979; ALLOC section 4.2).

    ``resamples`` times (more if the level needs more: :func:`enough`) n executions are drawn with replacement (PCG64,
    ``seed``). The percentiles are those of Hesterberg (2015, section 4.2.1): tail Phi(-sqrt(n/(n-1)) t), with t the
    Student quantile of n - 1 degrees of freedom. Plain percentiles would shorten the interval by a factor of about
    sqrt((n-1)/n) z/t. The level is only nominal (``achieved`` is None): skewness and rare modes cost coverage at small
    n, see the table in docs/method.md. ``NotAchievable`` if not even [min, max] would have the level for symmetric data
    (n < 6 at 95%).
    """
    sample = one_sample(values)
    error = error_rate(level)
    if resamples < 999:
        raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, f"resamples = {resamples}: at least 999")
    n = sample.size
    short = sign_bound(n, level)
    with np.errstate(over="ignore"):
        mean = float(sample.mean())
    if not np.isfinite(mean):
        raise StatsRefusedError(Refusal.OVERFLOW, "the sum exceeds the double range; rescale the unit")
    interval: Interval | NotAchievable
    if short is not None:
        interval = short
    else:
        tail = widened_tail(n, float(error) / 2)
        resamples = enough(resamples, tail)
        means = np.sort(_resampled_means(sample, seed, resamples))
        k = max(1, int((resamples + 1) * tail))
        low, high = float(means[k - 1]), float(means[resamples - k])
        interval = Interval(low, high, level, None, IntervalMethod.BOOTSTRAP_PERCENTILE)
    return Location("mean", mean, interval, n, seed, resamples)


def enough(resamples: int, tail: float) -> int:
    """The larger of ``resamples`` and the number that leaves ``BEYOND`` of them in a tail; over ``MOST`` is refused.

    With fewer, a percentile is nearly the extreme of the resamples, and depends on their number.
    """
    needed = ceil(BEYOND / tail) if tail * MOST >= BEYOND else MOST + 1
    if needed > MOST:
        raise StatsRefusedError(
            Refusal.COUNT_OUT_OF_RANGE,
            f"the level needs percentiles at {tail:.1g}, more than {MOST:,} resamples can tell: lower it, or run more "
            "executions",
        )
    return max(resamples, needed)


def widened_tail(n: int, tail: float) -> float:
    """Tail probability at which the bootstrap distribution of a mean is cut, so that its width matches Student's t."""
    from scipy.special import stdtrit  # heavy: only where it is needed

    return NormalDist().cdf(sqrt(n / (n - 1)) * float(stdtrit(n - 1, tail)))


def _resampled_means(sample: NDArray[np.float64], seed: int, resamples: int) -> NDArray[np.float64]:
    generator = np.random.Generator(np.random.PCG64(seed))
    rows = max(1, _CHUNK // sample.size)
    parts = [
        sample[generator.integers(0, sample.size, (min(rows, resamples - start), sample.size))].mean(axis=1)
        for start in range(0, resamples, rows)
    ]
    return np.concatenate(parts)
