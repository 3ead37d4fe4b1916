"""How the spread between executions differs between two sets of conditions, and how a set's means differ.

Arrays are conditions × blocks: one execution of every condition in each complete block of the schedule, in random
order. That order is what the tests rest on: under "it makes no difference" the labels within a block are exchangeable,
whatever the distribution of the times is and however the machine drifts. Formulas, choices and their simulated error
rates: docs/diagnose.md. Bad input raises ``StatsRefusedError``; nothing returns NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, sqrt
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.refusal import Refusal, StatsRefusedError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

SMALLEST_BLOCKS = 5
PERMUTATIONS = 4999
_CHUNK = 1_000_000
"""Elements of one batch of permutations."""
_RESOLUTION = 1e-18
"""Variances below this share of the squared mean are the clock's, and count as this."""


@dataclass(frozen=True, slots=True)
class Range:
    """An estimate with its interval."""

    estimate: float
    low: float
    high: float
    level: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class SpreadRatio:
    """Standard deviation within the conditions ``pinned`` over that within ``default``."""

    log_ratio: Range
    log_deviation_ratio: Range
    """Of the mean absolute deviations from the medians: what typical executions do, hardly moved by a few extremes."""
    p: float
    """Of the permutation tests on both ratios, two-sided; not adjusted for other sources."""
    sd_default: float
    sd_pinned: float

    @property
    def ratio(self) -> Range:
        found = self.log_ratio
        return Range(exp(found.estimate), exp(found.low), exp(found.high), found.level)

    @property
    def deviation_ratio(self) -> Range:
        found = self.log_deviation_ratio
        return Range(exp(found.estimate), exp(found.low), exp(found.high), found.level)

    @property
    def removed(self) -> Range:
        """Share of the default's variance that is gone with X pinned: 1 - ratio²; negative where spread is added."""
        ratio = self.ratio
        return Range(1 - ratio.estimate**2, 1 - ratio.high**2, 1 - ratio.low**2, ratio.level)


@dataclass(frozen=True, slots=True)
class Between:
    """What the choice among several pinned values does to the mean (law of total variance)."""

    share: Range
    """Var(E[T|X]) / (Var(E[T|X]) + E[Var(T|X)]) over the values tried, each as often."""
    cv: float
    """Standard deviation of the values' means over their mean; noise of the means taken out."""
    p: float
    """Of the permutation F test: do the values differ?"""


def checked(rows: ArrayLike) -> NDArray[np.float64]:
    """Times as conditions × blocks. Refuses fewer than 5 blocks, and times that are not positive finite numbers."""
    found = np.atleast_2d(np.asarray(rows, dtype=np.float64))
    if found.ndim != 2 or found.size == 0:
        raise StatsRefusedError(Refusal.EMPTY, "there are no executions to compare")
    if not np.isfinite(found).all():
        raise StatsRefusedError(Refusal.NOT_FINITE, "a time is not a finite number")
    if (found <= 0).any():
        raise StatsRefusedError(Refusal.NOT_POSITIVE, "a time is zero or negative")
    if found.shape[1] < SMALLEST_BLOCKS:
        raise StatsRefusedError(
            Refusal.COUNT_OUT_OF_RANGE,
            f"{found.shape[1]} executions of each condition: a spread needs {SMALLEST_BLOCKS}",
        )
    return found


def spread_ratio(
    default: ArrayLike, pinned: ArrayLike, *, seed: int, level: float = 0.95, permutations: int = PERMUTATIONS
) -> SpreadRatio:
    """Log ratios of the standard deviations, and of the mean absolute deviations, within conditions.

    ``default``: copies × blocks; ``pinned``: values × blocks, of the same blocks. Statistics: difference of the logs
    over its error; of the pooled variances by the stratified jackknife (Miller 1968), of the mean absolute deviations
    from the medians by the delta method (Brown and Forsythe's scores). A statistic must be beyond two null
    distributions: of the times permuted within blocks, as the schedule did (exact where the source does nothing at
    all), and of the same after taking each condition's median out (where it moves the mean and not the spread).
    Intervals take the larger of the two quantiles in place of Student's. ``p`` is twice the smaller of the two p.
    """
    rows = np.concatenate([checked(default), checked(pinned)])
    copies = np.atleast_2d(np.asarray(default)).shape[0]
    floor = _RESOLUTION * float(rows.mean()) ** 2
    variances = [float(part.var(axis=1, ddof=1).mean()) for part in np.split(rows, [copies])]
    if max(variances) <= floor:
        raise StatsRefusedError(Refusal.NO_SPREAD, "every execution took the same time: there is no spread to compare")
    random = np.random.default_rng(seed)
    around = rows - np.median(rows, axis=1, keepdims=True)
    nulls = [_null(each, copies, floor, random, permutations) for each in (rows, around)]
    differences, errors = (each[:, 0] for each in _statistics(rows[None], copies, floor))
    ranges, p = [], 1.0
    for kind in range(2):
        observed = abs(differences[kind]) / errors[kind] if errors[kind] > 0 else inf
        beyond = [int((null[kind] >= observed * (1 - 1e-12)).sum()) for null in nulls]
        p = min(p, 2 * (1 + max(beyond)) / (1 + permutations))
        reach = max(float(np.quantile(null[kind], level, method="higher")) for null in nulls) * float(errors[kind])
        estimate = float(differences[kind])
        ranges.append(Range(estimate, estimate - reach, estimate + reach, level))
    return SpreadRatio(ranges[0], ranges[1], p, sqrt(variances[0]), sqrt(variances[1]))


def _null(
    rows: NDArray[np.float64], copies: int, floor: float, random: np.random.Generator, permutations: int
) -> NDArray[np.float64]:
    """|statistic| of the permuted data: 2 × ``permutations``.

    Never of residuals from means: a condition without any of the rare slow executions has residuals unlike those of one
    that has one, and where 1 in 10 executions is slow such a test raised 45% false alarms.
    """
    found = []
    batch = max(1, _CHUNK // rows.size)
    for start in range(0, permutations, batch):
        several = np.broadcast_to(rows, (min(batch, permutations - start), *rows.shape))
        differences, errors = _statistics(random.permuted(several, axis=1), copies, floor)
        found.append(np.divide(np.abs(differences), errors, out=np.full_like(errors, inf), where=errors > 0))
    return np.concatenate(found, axis=1)


def _statistics(
    rows: NDArray[np.float64], copies: int, floor: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Differences of the logs, pinned less default, and their errors; each 2 (SD, mean deviation) × batch.

    ``rows``: batch × conditions × blocks.
    """
    centred = rows - rows.mean(axis=2, keepdims=True)
    deviations = np.abs(rows - np.median(rows, axis=2, keepdims=True))
    found = [
        (_log_variance(centred[:, part], floor), _log_deviation(deviations[:, part], floor))
        for part in (slice(None, copies), slice(copies, None))
    ]
    differences = np.stack([(found[1][0][0] - found[0][0][0]) / 2, found[1][1][0] - found[0][1][0]])
    squares = np.stack([(found[1][0][1] + found[0][0][1]) / 4, found[1][1][1] + found[0][1][1]])
    return differences, np.sqrt(squares)


def _log_variance(residuals: NDArray[np.float64], floor: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log of the pooled variance, and the variance of that log: jackknife over executions, stratified by condition."""
    rows, blocks = residuals.shape[1:]
    squares = residuals**2
    total = squares.sum(axis=(1, 2))
    degrees = rows * (blocks - 1)
    pooled = np.log(np.maximum(total / degrees, floor))
    # Leaving x_i out of its condition takes n/(n-1) · (x_i - mean)² from the sum of squares.
    without = total[:, None, None] - squares * (blocks / (blocks - 1))
    logs = np.log(np.maximum(without / (degrees - 1), floor))
    apart = logs - logs.mean(axis=2, keepdims=True)
    return pooled, (blocks - 1) / blocks * (apart**2).sum(axis=(1, 2))


def _log_deviation(deviations: NDArray[np.float64], floor: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log of the mean absolute deviation, and the variance of that log by the delta method, stratified by condition."""
    rows, blocks = deviations.shape[1:]
    mean = np.maximum(deviations.mean(axis=(1, 2)), sqrt(floor))
    return np.log(mean), deviations.var(axis=2, ddof=1).sum(axis=1) / (blocks * rows**2) / mean**2


def log_sd(rows: NDArray[np.float64]) -> tuple[float, float]:
    """Log of the pooled standard deviation within conditions, and its jackknife error."""
    residuals = rows - rows.mean(axis=1, keepdims=True)
    floor = _RESOLUTION * float(rows.mean()) ** 2
    log, variance = _log_variance(residuals[None], floor)
    return float(log[0]) / 2, sqrt(float(variance[0])) / 2


def between_values(
    pinned: ArrayLike, *, drawn: bool, seed: int, level: float = 0.95, permutations: int = PERMUTATIONS
) -> Between:
    """Share of the variance that the choice among the values makes, for two values or more.

    ``drawn``: the values are a sample of many (seeds, environment sizes), so the variance of their means is divided by
    k - 1; else they are all there are, and it is divided by k. Interval: of the noncentrality of F (values fixed).
    """
    rows = checked(pinned)
    values, blocks = rows.shape
    if values < 2:
        raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, "one pinned value: a share of the variance needs two")
    random = np.random.default_rng(seed)
    within = float(rows.var(axis=1, ddof=1).mean())
    floor = _RESOLUTION * float(rows.mean()) ** 2
    if within <= floor and float(rows.var()) <= floor:
        raise StatsRefusedError(Refusal.NO_SPREAD, "every execution took the same time: there is nothing to share")
    observed = float(_f(rows[None], floor)[0])
    exceeding, batch = 0, max(1, _CHUNK // rows.size)
    for start in range(0, permutations, batch):
        several = np.broadcast_to(rows, (min(batch, permutations - start), *rows.shape))
        exceeding += int((_f(random.permuted(several, axis=1), floor) >= observed * (1 - 1e-12)).sum())
    divisor = values - 1 if drawn else values
    ends = _noncentrality(observed, values - 1, values * (blocks - 1), level)

    def share(noncentrality: float) -> float:
        of_means: float = max(0.0, noncentrality) / (blocks * divisor)
        return of_means / (1 + of_means)

    noncentrality = (observed - 1) * (values - 1)
    of_means = max(0.0, noncentrality) * max(within, floor) / (blocks * divisor)
    estimate = min(max(share(noncentrality), share(ends[0])), share(ends[1]))
    return Between(
        Range(estimate, share(ends[0]), share(ends[1]), level),
        sqrt(of_means) / float(rows.mean()),
        (1 + exceeding) / (1 + permutations),
    )


def _f(rows: NDArray[np.float64], floor: float) -> NDArray[np.float64]:
    """Mean square between conditions over that within, for a batch of conditions × blocks."""
    blocks = rows.shape[2]
    within = np.maximum(rows.var(axis=2, ddof=1).mean(axis=1), floor)
    return np.asarray(blocks * rows.mean(axis=2).var(axis=1, ddof=1) / within, dtype=np.float64)


def _noncentrality(f: float, numerator: int, denominator: int, level: float) -> tuple[float, float]:
    """The noncentralities at which F = f is the upper and the lower (1 - level) / 2 quantile (Steiger 2004)."""
    from scipy.optimize import brentq
    from scipy.special import fdtr, ncfdtr

    if f > 1e6:  # the incomplete beta functions lose themselves; the noncentrality is known to a part in 10³ anyway
        return numerator * f * 0.9, numerator * f * 1.1
    tail = (1 - level) / 2

    def solve(probability: float) -> float:
        if fdtr(numerator, denominator, f) <= probability:
            return 0.0
        top = 2.0 * numerator * (f + 10)
        while float(ncfdtr(numerator, denominator, top, f)) > probability:
            top *= 2

        def beyond(noncentrality: float) -> float:
            return float(ncfdtr(numerator, denominator, noncentrality, f)) - probability

        return float(brentq(beyond, 0, top))

    return solve(1 - tail), solve(tail)


def mean_shift(default: ArrayLike, pinned: ArrayLike, *, level: float = 0.95) -> Range:
    """Mean of the pinned values' means over the default's mean, less 1, with Fieller's interval.

    The degrees of freedom are Satterthwaite's at the estimated ratio. Executions of one block share the machine's mood,
    which is not taken out: the interval is then too long, not too short.
    """
    from scipy.special import stdtrit

    a, b = checked(default).ravel(), checked(pinned)
    mean_a, mean_b = float(a.mean()), float(b.mean())
    v_a = float(a.var(ddof=1)) / a.size
    v_b = float(b.var(axis=1, ddof=1).sum()) / (b.shape[0] ** 2 * b.shape[1])
    ratio = mean_b / mean_a
    parts = v_b, ratio**2 * v_a
    if sum(parts) == 0:
        return Range(ratio - 1, ratio - 1, ratio - 1, level)
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / (b.size - b.shape[0]) + parts[1] ** 2 / (a.size - 1))
    t2 = float(stdtrit(degrees, (1 + level) / 2)) ** 2
    denominator = mean_a**2 - t2 * v_a
    if denominator <= 0:
        raise StatsRefusedError(Refusal.OUT_OF_REACH, "the default's mean is not told from 0: run more executions")
    root = sqrt(max(0.0, t2 * (mean_a**2 * v_b + mean_b**2 * v_a - t2 * v_a * v_b)))
    return Range(
        ratio - 1, (mean_a * mean_b - root) / denominator - 1, (mean_a * mean_b + root) / denominator - 1, level
    )
