"""Time against cache misses of executions, within a strategy (ALLOC 6, Figure 10)."""

from __future__ import annotations

from dataclasses import dataclass
from math import atanh, sqrt, tanh
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.interval import Interval, IntervalMethod, NotAchievable
from pagelab.stats.mean import enough
from pagelab.stats.refusal import Refusal, StatsRefusedError, error_rate, one_sample, unit_range

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

FEWEST = 5
"""With fewer executions resampled correlations are mostly ±1 or do not exist."""


@dataclass(frozen=True, slots=True)
class Correlation:
    """Correlation of two values per execution, with intervals."""

    n: int
    pearson: float
    interval: Interval | NotAchievable
    """Percentile bootstrap over executions."""
    fisher: Interval | NotAchievable
    """Fisher's z, the well-known interval for normal data, for comparison."""
    spearman: float
    """Correlation of midranks, which one outlier hardly affects."""


def correlation(
    time: ArrayLike, misses: ArrayLike, *, seed: int, level: float = 0.95, resamples: int = 9999
) -> Correlation:
    """Pearson's r of ``time`` and ``misses``, one value of each per execution, with two intervals; and Spearman's rho.

    Resampled are executions, pairs together (PCG64, ``seed``); a resample in which either does not vary has no r and is
    drawn again. Refused where either does not vary at all.
    """
    x, y = one_sample(time, "time"), one_sample(misses, "cache misses")
    if x.size != y.size:
        raise StatsRefusedError(Refusal.LENGTHS_DIFFER, f"{x.size} times for {y.size} counts of cache misses")
    for name, values in (("time", x), ("cache misses", y)):
        if values.min() == values.max():
            raise StatsRefusedError(
                Refusal.NO_SPREAD, f"{name} is {values[0]:g} in all {values.size} executions: nothing to correlate"
            )
    tail = float(error_rate(level) / 2)
    resamples = enough(resamples, tail)
    x, y = unit_range(x), unit_range(y)
    r = _pearson(x[None], y[None])[0]
    short = NotAchievable(level, 0.0, FEWEST)
    many = x.size >= FEWEST
    return Correlation(
        n=x.size,
        pearson=float(r),
        interval=_bootstrap(x, y, seed, level, tail, resamples) if many else short,
        fisher=_fisher(float(r), x.size, level, tail) if many else short,
        spearman=float(_pearson(_midranks(x)[None], _midranks(y)[None])[0]),
    )


def within_strategies(
    data: Mapping[str, tuple[ArrayLike, ArrayLike]], *, seed: int, level: float = 0.95, resamples: int = 9999
) -> dict[str, Correlation | StatsRefusedError]:
    """The correlation within each strategy (name → times and misses); for a strategy without spread, its refusal.

    ALLOC looked at one point a strategy; over executions within a strategy, a difference between strategies' code or
    overhead cannot pass for an effect of misses.
    """
    found: dict[str, Correlation | StatsRefusedError] = {}
    for name, (time, misses) in data.items():
        try:
            found[name] = correlation(time, misses, seed=seed, level=level, resamples=resamples)
        except StatsRefusedError as error:
            found[name] = error
    return found


def normalized(values: ArrayLike) -> NDArray[np.float64]:
    """Centred on the mean, scaled to a largest absolute value of 1: the axis of ALLOC's Figure 10. A constant is 0."""
    sample = one_sample(values)
    sample = unit_range(sample)
    centred = sample - sample.mean()
    largest = float(np.abs(centred).max())
    if sample.min() == sample.max() or largest == 0:
        return np.zeros_like(sample)
    return np.asarray(centred / largest)


def _pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """r of each row; NaN where either does not vary."""
    x, y = x - x[:, :1], y - y[:, :1]  # so that a constant row is exactly 0
    flat = (x == 0).all(axis=1) | (y == 0).all(axis=1)
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    scale = np.abs(x).max(axis=1, keepdims=True), np.abs(y).max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        x, y = x / scale[0], y / scale[1]
        r = (x * y).sum(axis=1) / np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
    return np.where(flat, np.nan, np.clip(r, -1, 1))


def _bootstrap(
    x: NDArray[np.float64], y: NDArray[np.float64], seed: int, level: float, tail: float, resamples: int
) -> Interval:
    generator = np.random.Generator(np.random.PCG64(seed))
    rows = max(1, 1_000_000 // x.size)
    found: list[NDArray[np.float64]] = []
    missing = resamples
    while missing > 0:
        chosen = generator.integers(0, x.size, (min(rows, missing), x.size))
        r = _pearson(x[chosen], y[chosen])
        found.append(r[~np.isnan(r)])
        missing -= found[-1].size
    return Interval(*percentile_ends(np.concatenate(found), tail), level, None, IntervalMethod.PERCENTILE)


def _fisher(r: float, n: int, level: float, tail: float) -> Interval:
    if abs(r) == 1:
        return Interval(r, r, level, None, IntervalMethod.FISHER_Z)
    half = NormalDist().inv_cdf(1 - tail) / sqrt(n - 3)
    return Interval(tanh(atanh(r) - half), tanh(atanh(r) + half), level, None, IntervalMethod.FISHER_Z)


def _midranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse])


def percentile_ends(resampled: NDArray[np.float64], tail: float) -> tuple[float, float]:
    """The k-th smallest and the k-th largest, k the whole part of (count + 1) tail, at least 1."""
    ordered = np.sort(resampled)
    k = max(1, int((ordered.size + 1) * tail + 1e-9))
    return float(ordered[k - 1]), float(ordered[-k])
