"""Sizes of differences: relative overheads, their geometric mean, and the distribution of impact factors."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, sqrt
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.interval import Interval, IntervalMethod
from pagelab.stats.nondeterminism.comparison import beats
from pagelab.stats.nondeterminism.components import t_quantile
from pagelab.stats.nondeterminism.estimate import Estimate
from pagelab.stats.refusal import Refusal, StatsRefusedError, one_sample

LARGEST_LOG = 700.0
"""Largest log of a ratio in the double range."""

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from pagelab.stats.nondeterminism.comparison import Groups


@dataclass(frozen=True, slots=True)
class Overhead:
    """One condition of one group against the group's baseline."""

    group: str
    percent: float
    """100 (condition - baseline) / baseline: negative is a speed-up or a reduction (ALLOC 4.4)."""


@dataclass(frozen=True, slots=True)
class Overheads:
    """One condition against the baseline over all groups."""

    condition: str
    baseline: str
    significant: tuple[Overhead, ...]
    """Overheads of groups in which one beats the other, from the greatest reduction to the greatest increase."""
    mean_percent: Estimate
    """Geometric mean of all ratios, significant or not, less 1, in percent."""
    groups: int
    """Number of ratios in that mean."""
    zero: int
    """Number of groups without a ratio, since a value is 0; the mean excludes them."""


def overheads(groups: Groups, baseline: str, condition: str, *, level: float = 0.95) -> Overheads:
    """Relative overheads where the intervals do not overlap, and the geometric mean over all groups (ALLOC 4.4)."""
    for name in (baseline, condition):
        if name not in groups.conditions:
            raise StatsRefusedError(Refusal.NOTHING_TO_COMPARE, f"{name!r}: not one of {', '.join(groups.conditions)}")
    base, other = groups.conditions.index(baseline), groups.conditions.index(condition)
    won = beats(groups)
    apart = won[:, base, other] | won[:, other, base]
    values, bases = groups.value[:, other], groups.value[:, base]
    usable = (values > 0) & (bases > 0)
    percent = 100 * (values / np.where(bases > 0, bases, np.nan) - 1)
    named = [Overhead(groups.names[i], float(percent[i])) for i in np.flatnonzero(apart & (bases > 0))]
    named.sort(key=lambda one: one.percent)
    mean = geometric_mean(values[usable] / bases[usable], level=level)
    interval = mean.interval
    in_percent = Interval(100 * (interval.low - 1), 100 * (interval.high - 1), level, None, interval.method)
    return Overheads(
        condition=condition,
        baseline=baseline,
        significant=tuple(named),
        mean_percent=Estimate(100 * (mean.value - 1), in_percent),
        groups=int(usable.sum()),
        zero=int((~usable).sum()),
    )


def geometric_mean(ratios: ArrayLike, *, level: float = 0.95) -> Estimate:
    """exp(mean(log ratio)), with Student's interval of the mean of the logs.

    The ratios, one a group, are the sample: the groups stand for the applications one wants to speak about, and
    the error of each ratio is in their spread already. ALLOC gives no interval. One ratio is refused; so are ratios
    that are not positive.
    """
    sample = one_sample(ratios, "ratios")
    if sample.min() <= 0:
        raise StatsRefusedError(Refusal.NOT_POSITIVE, f"a ratio is {sample.min():g}: no geometric mean exists")
    if sample.size < 2:
        raise StatsRefusedError(Refusal.NOTHING_TO_COMPARE, "one ratio has no spread: compare at least 2 groups")
    logs = np.log(sample)
    mean = float(logs.mean())
    half = float(t_quantile(logs.size - 1, level)) * float(logs.std(ddof=1)) / sqrt(logs.size)
    if abs(mean) + half > LARGEST_LOG:
        raise StatsRefusedError(Refusal.OUT_OF_REACH, "the mean ratio could be any: compare more groups")
    return Estimate(exp(mean), Interval(exp(mean - half), exp(mean + half), level, None, IntervalMethod.LOG_T))


@dataclass(frozen=True, slots=True, eq=False)
class Ecdf:
    """Empirical cumulative distribution: ``fraction[i]`` of the values are at most ``value[i]``."""

    value: NDArray[np.float64]
    """Distinct values in rising order."""
    fraction: NDArray[np.float64]

    @property
    def log10(self) -> NDArray[np.float64]:
        """The values as ALLOC's Figure 9 has them; values must be positive."""
        return np.asarray(np.log10(self.value))


def ecdf(values: ArrayLike) -> Ecdf:
    """Share of values at or below each value, as R's ``ecdf`` (ALLOC's Figure 9, on impact factors)."""
    distinct, counts = np.unique(one_sample(values), return_counts=True)
    return Ecdf(distinct, np.cumsum(counts) / counts.sum())
