"""Compares two sets of conditions in their means and in the spread between executions.

Arrays are conditions × blocks: one execution of every condition in each complete block of the schedule, in random
order. The tests rest on that order: under "it makes no difference" the labels within a block are exchangeable, whatever
the distribution of the times is and however the machine drifts. Spread is that of log times, so it is relative: a pin
that only makes every execution faster by the same factor does not change it. Formulas, choices and their simulated
error rates: docs/diagnose.md. Bad input raises ``StatsRefusedError``; nothing returns NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, expm1, inf, sqrt
from typing import TYPE_CHECKING, Literal

import numpy as np

from pagelab.stats.paired import Pairs
from pagelab.stats.paired_mean import paired_mean_ratio
from pagelab.stats.refusal import Refusal, StatsRefusedError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

SMALLEST_BLOCKS = 5
PERMUTATIONS = 4999
WHOLE_BLOCKS_FROM = 20
"""From this number of blocks on, the jackknife leaves out whole blocks, since executions of a block share the block
effect. With fewer blocks it leaves out single executions, since few blocks cost more power than sharing gains."""
FEWEST_OTHERS = 6
"""Fewest conditions for an estimate of a block's effect; with fewer, their own spread dominates."""
_CHUNK = 60_000
"""Elements of one batch of permutations: a batch that fits into a second-level cache takes half the time."""
RESOLUTION = 1e-18
"""Variances of log times below this come from the clock, and count as this."""
_LARGEST_LOG_VARIANCE = 700.0
"""exp() of a larger value overflows."""
_LONGEST_REACH = 300.0
"""Of an interval of logs: e to this power says no more than infinity, and its square does not overflow."""


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
    """Standard deviation of log times within the conditions ``pinned``, divided by that within ``control``."""

    log_ratio: Range
    log_deviation_ratio: Range
    """Log ratio of the mean absolute deviations from the medians, which a few extreme executions hardly affect."""
    p: float
    """Two-sided p of the permutation tests on both ratios; not adjusted for other sources."""
    joint_log_low: float
    """Lower end of the interval of ``log_ratio`` at the joint level of all sources."""
    sd_control: float
    sd_pinned: float
    error: float
    """Jackknife error of the log ratio."""
    direction: int = 0
    """-1 where both measures fall, 1 where both rise, 0 where they disagree, for the pair of measures behind ``p``."""
    beside: Range | None = None
    """``log_ratio`` of the times without the effects of the machine on whole blocks; None where these are not known."""
    rests_beside: bool = False
    """Whether ``p`` and ``direction`` rest on the times without block effects."""

    @property
    def ratio(self) -> Range:
        return _exponentials(self.log_ratio)

    @property
    def ratio_beside(self) -> Range | None:
        return None if self.beside is None else _exponentials(self.beside)

    @property
    def deviation_ratio(self) -> Range:
        return _exponentials(self.log_deviation_ratio)

    @property
    def removed(self) -> Range:
        """Share of the control's variance that pinning removes: 1 - ratio²; negative where it adds spread."""
        ratio = self.ratio
        return Range(1 - ratio.estimate**2, 1 - ratio.high**2, 1 - ratio.low**2, ratio.level)

    @property
    def most_removed(self) -> float:
        """The largest removed share that is compatible with the data, at the joint level of all sources."""
        return 1 - exp(2 * self.joint_log_low)


@dataclass(frozen=True, slots=True)
class Between:
    """The effect of the choice among several pinned values on the mean log time."""

    share: Range | None
    """Intraclass correlation: the share that the value makes of the variance over random values. None for fixed values,
    and where all executions took the same time.
    """
    p: float
    """p of the permutation F test of whether the values differ."""


@dataclass(frozen=True, slots=True)
class Group:
    """Times (conditions × blocks), and the weight of their variance in a sum."""

    rows: NDArray[np.float64]
    weight: float


def coefficient_of_variation(sd_log: float) -> float:
    """The CV of log-normal times whose logs have this standard deviation (geometric CV, Kirkwood 1979)."""
    return sqrt(expm1(min(sd_log**2, _LARGEST_LOG_VARIANCE)))


def permutations_for(level: float, tests: int) -> int:
    """A number of permutations of which ten lie beyond the level of each of ``tests`` alone; with too few permutations
    no p could reach that level.
    """
    return max(PERMUTATIONS, ceil(10 * tests / (1 - level)) - 1)


def checked(rows: ArrayLike) -> NDArray[np.float64]:
    """Checked times (conditions × blocks). Refuses fewer than 5 blocks, and times that are not positive and finite."""
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


def logs(rows: ArrayLike) -> NDArray[np.float64]:
    """Natural logarithms of :func:`checked` times."""
    return np.log(checked(rows))


def block_effects(others: ArrayLike) -> NDArray[np.float64] | None:
    """Effects of the machine on all executions of each block, in log times; None without an estimate.

    ``others``: times of conditions that are not compared (conditions × blocks), NaN where an execution failed. From
    each condition its median is subtracted; a block's effect is the mean of the middle half of its conditions, which a
    few slow executions do not move.
    """
    times = np.atleast_2d(np.asarray(others, dtype=np.float64))
    rows = np.log(np.where(times > 0, times, np.nan))
    rows = rows[np.isfinite(rows).any(axis=1)]
    if rows.size == 0 or np.isfinite(rows).sum(axis=0).min() < FEWEST_OTHERS:
        return None
    found = []
    for block in (rows - np.nanmedian(rows, axis=1, keepdims=True)).T:
        ordered = np.sort(block[np.isfinite(block)])
        cut = ordered.size // 4
        found.append(ordered[cut : ordered.size - cut].mean())
    return np.array(found)


def shared(rows: NDArray[np.float64], copies: int, block_effect: NDArray[np.float64]) -> NDArray[np.float64]:
    """The part of the block effects that control and pinned values have in common: batch × blocks.

    ``rows``: log times, batch × conditions × blocks. The slope, between 0 and 1, is the mean of the slopes of two
    regressions on the block effect: of the control's mean, and of the pinned values' mean. If only one of them follows
    the machine, both keep an equal part of its effect, and neither seems to have more spread. On a quiet machine the
    block effects themselves are nearly 0.
    """
    centred = block_effect - block_effect.mean()
    size = float((centred**2).sum())
    if size <= RESOLUTION:
        return np.zeros((rows.shape[0], rows.shape[2]))
    middles = (rows[:, :copies].mean(axis=1) + rows[:, copies:].mean(axis=1)) / 2
    return np.asarray(((middles @ centred) / size).clip(0, 1)[:, None] * centred)


def spread_ratio(
    control: ArrayLike,
    pinned: ArrayLike,
    *,
    seed: int,
    level: float = 0.95,
    tests: int = 1,
    permutations: int = PERMUTATIONS,
    block_effect: NDArray[np.float64] | None = None,
) -> SpreadRatio:
    """Log ratios of the standard deviations, and of the mean absolute deviations, of log times within conditions.

    ``control``: copies × blocks; ``pinned``: values × blocks, of the same blocks. A statistic is a difference of logs
    divided by its error. There are two: of the pooled variances, with the error of the jackknife (Miller 1968), and of
    the mean absolute deviations from the medians, with that of the delta method (Brown and Forsythe's scores). With
    ``block_effect`` (:func:`block_effects` of the same blocks, from other conditions) there are four: the same two also
    of the times minus its common part.

    All statistics are compared with two null distributions. One is of the log times permuted within blocks, as the
    schedule did; it is exact where the source has no effect at all. The other is of the same after subtracting each
    condition's median, for a source that changes the times by a factor and not their spread. ``p`` is the probability
    of the smallest of the statistics' p under the permutation distribution of that minimum (Westfall and Young 1993,
    min-P); the larger of the two nulls' counts. Intervals use the larger of the two quantiles in place of Student's.
    ``tests``: number of sources that are judged together, for ``joint_log_low``.
    """
    first, second = logs(control), logs(pinned)
    rows, copies = np.concatenate([first, second]), len(first)
    variances = [float(part.var(axis=1, ddof=1).mean()) for part in (first, second)]
    if max(variances) <= RESOLUTION:
        raise StatsRefusedError(Refusal.NO_SPREAD, "every execution took the same time: there is no spread to compare")
    random = np.random.default_rng(seed)
    around = rows - np.median(rows, axis=1, keepdims=True)
    differences, errors = (each[:, 0] for each in _all_statistics(rows[None], copies, block_effect))
    observed = _sizes(differences, errors)
    nulls = [_null(each, copies, random, permutations, block_effect) for each in (rows, around)]
    p, deciding = max((_smallest_p(observed, null) for null in nulls), key=lambda found: (found[0], -found[1]))

    def reach(kind: int, confidence: float) -> float:
        error = float(errors[kind])
        quantile = max(float(np.quantile(null[kind], confidence, method="higher")) for null in nulls)
        return min(quantile * error, _LONGEST_REACH) if error > 0 else 0.0

    ranges = [
        Range(float(middle), float(middle) - reach(kind, level), float(middle) + reach(kind, level), level)
        for kind, middle in enumerate(differences)
    ]
    joint = float(differences[0]) - reach(0, 1 - (1 - level) / tests)
    beside = deciding >= _KINDS
    signs = np.sign(differences[_KINDS:] if beside else differences[:_KINDS])
    return SpreadRatio(
        ranges[0],
        ranges[1],
        p,
        joint,
        sqrt(variances[0]),
        sqrt(variances[1]),
        float(errors[0]),
        int(signs[0]) if signs[0] == signs[1] else 0,
        ranges[_KINDS] if block_effect is not None else None,
        beside,
    )


_KINDS = 2
"""Number of statistics of one set of times: of the standard deviations, and of the mean absolute deviations."""


def _exponentials(found: Range) -> Range:
    return Range(exp(found.estimate), exp(found.low), exp(found.high), found.level)


def _smallest_p(observed: NDArray[np.float64], null: NDArray[np.float64]) -> tuple[float, int]:
    """Probability of a p as small as the smallest, over permutations and data; and the index of its statistic."""
    pool = np.concatenate([observed[:, None], null], axis=1)
    size = pool.shape[1]
    ranks = np.empty_like(pool)
    for kind, row in enumerate(pool):
        ranks[kind] = size - np.searchsorted(np.sort(row), row * (1 - 1e-12), side="left")
    smallest = ranks.min(axis=0)
    return float((smallest <= smallest[0]).mean()), int(ranks[:, 0].argmin())


def _null(
    rows: NDArray[np.float64],
    copies: int,
    random: np.random.Generator,
    permutations: int,
    block_effect: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """|statistic| of the permuted data: statistics × ``permutations``.

    Residuals from means are never permuted: a condition without rare slow executions has residuals unlike those of a
    condition with one. Where 1 in 10 executions was slow, such a test raised 45% false alarms.
    """
    found = []
    batch = max(1, _CHUNK // rows.size)
    for start in range(0, permutations, batch):
        several = np.broadcast_to(rows, (min(batch, permutations - start), *rows.shape))
        found.append(_sizes(*_all_statistics(random.permuted(several, axis=1), copies, block_effect)))
    return np.concatenate(found, axis=1)


def _sizes(differences: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Differences divided by their errors, as absolute values."""
    return np.divide(np.abs(differences), errors, out=np.full_like(errors, inf), where=errors > 0)


def _all_statistics(
    rows: NDArray[np.float64], copies: int, block_effect: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """:func:`_statistics` of the times; with known block effects, also of the times without their common part.

    The common part is computed again from permuted times, since it belongs to the statistic.
    """
    found = _statistics(rows, copies)
    if block_effect is None:
        return found
    beside = _statistics(rows - shared(rows, copies, block_effect)[:, None, :], copies)
    return np.concatenate([found[0], beside[0]]), np.concatenate([found[1], beside[1]])


def _statistics(rows: NDArray[np.float64], copies: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Differences of the logs, pinned less control, and their errors; each 2 (SD, mean deviation) × batch.

    ``rows``: log times, batch × conditions × blocks.
    """
    squares = (rows - rows.mean(axis=2, keepdims=True)) ** 2
    deviations = np.abs(rows - _medians(rows))
    parts = (slice(None, copies), slice(copies, None))
    of_variance = _by_blocks if rows.shape[2] >= WHOLE_BLOCKS_FROM else _by_executions
    first, second = (_log_variance(squares[:, part]) for part in parts)
    spread = of_variance([squares[:, part] for part in parts])
    means = [np.maximum(deviations[:, part].mean(axis=(1, 2)), sqrt(RESOLUTION)) for part in parts]
    typical = _of_means([deviations[:, part] / mean[:, None, None] for part, mean in zip(parts, means, strict=True)])
    differences = np.stack([(second - first) / 2, np.log(means[1]) - np.log(means[0])])
    return differences, np.sqrt(np.stack([spread, typical]))


def _medians(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Medians over the last axis, which is kept; for a few dozen values this takes a fifth of np.median's time."""
    ordered, middle = np.sort(rows, axis=-1), rows.shape[-1] // 2
    return np.asarray(ordered[..., [-1 - middle, middle]].mean(axis=-1, keepdims=True))


def _log_variance(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    rows, blocks = squares.shape[1:]
    return np.asarray(np.log(np.maximum(squares.sum(axis=(1, 2)) / (rows * (blocks - 1)), RESOLUTION)))


def _by_executions(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Variance of half the difference of the parts' log variances, by a jackknife stratified by condition."""
    return np.asarray(sum(_executions_left_out(part) for part in parts) / 4)


def _executions_left_out(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    rows, blocks = squares.shape[1:]
    total = np.maximum(squares.sum(axis=(1, 2)), RESOLUTION * rows * (blocks - 1))
    # Leaving x_i out of its condition reduces the sum of squares by n/(n-1) · (x_i - mean)².
    logarithms = _left(squares * (blocks / (blocks - 1) / total[:, None, None]))
    apart = logarithms - logarithms.mean(axis=2, keepdims=True)
    return np.asarray((blocks - 1) / blocks * (apart**2).sum(axis=(1, 2)))


def _by_blocks(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Like :func:`_by_executions`, but leaving out whole blocks: effects that the parts of a block share cancel."""
    first, second = (_blocks_left_out(part) for part in parts)
    halves = (second - first) / 2
    blocks = halves.shape[1]
    return np.asarray((blocks - 1) / blocks * ((halves - halves.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))


def _blocks_left_out(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log variance with each block left out in turn, but for a constant: batch × blocks."""
    rows, blocks = squares.shape[1:]
    each = squares.sum(axis=1)
    total = np.maximum(each.sum(axis=1, keepdims=True), RESOLUTION * rows * (blocks - 1))
    return _left(each * (blocks / (blocks - 1) / total))


def _left(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logs of what remains of the sum of squares without these shares of it.

    A share of (nearly) all would leave the rounding of the clock, whose log has no bound; so each change is limited to
    twice its first-order one, which matters from a share of 80% on.
    """
    return np.asarray(np.maximum(np.log(1 - np.minimum(shares, 0.9)), -2 * shares))


def _of_means(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Variance of the difference of the parts' means: from blocks, or from executions where blocks are few."""
    blocks = parts[0].shape[2]
    if blocks >= WHOLE_BLOCKS_FROM:
        return np.asarray((parts[1].mean(axis=1) - parts[0].mean(axis=1)).var(axis=1, ddof=1) / blocks)
    return np.asarray(sum(each.var(axis=2, ddof=1).sum(axis=1) / (blocks * each.shape[1] ** 2) for each in parts))


def log_sd(rows: NDArray[np.float64]) -> tuple[float, float]:
    """Log of the pooled standard deviation of log times within conditions, and its jackknife error."""
    values = np.log(rows)
    squares = (values - values.mean(axis=1, keepdims=True))[None] ** 2
    return float(_log_variance(squares)[0]) / 2, sqrt(float(_executions_left_out(squares)[0])) / 2


def weighted_variances(groups: Sequence[Group], *, level: float, scale: Literal["log", "time"] = "log") -> Range:
    """Σ weight · (pooled variance of the group's times), with a jackknife interval; groups have the same blocks.

    ``scale``: variances of log times, or of times divided by the mean of the first group.

    The jackknife leaves out whole blocks, or single executions where blocks are few. The quantile is Student's, with
    the degrees of freedom of the blocks.
    """
    from scipy.special import stdtrit

    estimate, square, blocks = 0.0, 0.0, groups[0].rows.shape[1]
    mean = float((groups[0].rows / groups[0].rows.max()).mean()) * float(groups[0].rows.max())
    left_out = np.zeros(blocks)
    for group in groups:
        values = logs(group.rows) if scale == "log" else checked(group.rows) / mean
        squares = (values - values.mean(axis=1, keepdims=True)) ** 2
        rows = len(values)
        total, degrees = float(squares.sum()), rows * (blocks - 1)
        estimate += group.weight * total / degrees
        left_out += group.weight * (total - squares.sum(axis=0) * (blocks / (blocks - 1))) / (rows * (blocks - 2))
        without = group.weight * (total - squares * (blocks / (blocks - 1))) / (degrees - 1)
        square += float(((without - without.mean(axis=1, keepdims=True)) ** 2).sum())
    if blocks >= WHOLE_BLOCKS_FROM:
        square = float(((left_out - left_out.mean()) ** 2).sum())
    reach = float(stdtrit(blocks - 1, (1 + level) / 2)) * sqrt((blocks - 1) / blocks * square)
    return Range(estimate, estimate - reach, estimate + reach, level)


def between_values(
    pinned: ArrayLike, *, drawn: bool, seed: int, level: float = 0.95, permutations: int = PERMUTATIONS
) -> Between:
    """A test of whether the values have different mean log times; for values drawn at random, also their share of the
    variance.

    The share is the intraclass correlation of a one-way random-effects model, σ²(values) / (σ²(values) + σ²(within)),
    with the interval of F (Searle 1971, *Linear Models*, 9.9), exact for normal times and normal effects of the values.
    Fixed values (page sizes, CPUs) are not a sample: they have a test and no share.
    """
    rows = logs(pinned)
    values, blocks = rows.shape
    if values < 2:
        raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, "one pinned value: a share of the variance needs two")
    random = np.random.default_rng(seed)
    if float(rows.var()) <= RESOLUTION:  # the values do not differ, and of no variance there is no share
        return Between(None, 1.0)
    observed = float(_f(rows[None])[0])
    exceeding, batch = 0, max(1, _CHUNK // rows.size)
    for start in range(0, permutations, batch):
        several = np.broadcast_to(rows, (min(batch, permutations - start), *rows.shape))
        exceeding += int((_f(random.permuted(several, axis=1)) >= observed * (1 - 1e-12)).sum())
    share = _intraclass(observed, values, blocks, level) if drawn else None
    return Between(share, (1 + exceeding) / (1 + permutations))


def _f(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """F: the mean square between conditions divided by that within, for a batch of conditions × blocks."""
    blocks = rows.shape[2]
    within = np.maximum(rows.var(axis=2, ddof=1).mean(axis=1), RESOLUTION)
    return np.asarray(blocks * rows.mean(axis=2).var(axis=1, ddof=1) / within, dtype=np.float64)


def _intraclass(f: float, values: int, blocks: int, level: float) -> Range:
    from scipy.special import fdtri

    degrees = values - 1, values * (blocks - 1)
    tail = (1 - level) / 2

    def share(quotient: float) -> float:
        return max(0.0, quotient - 1) / (max(0.0, quotient - 1) + blocks)

    ends = [share(f / float(fdtri(*degrees, probability))) for probability in (1 - tail, tail)]
    return Range(min(max(share(f), ends[0]), ends[1]), ends[0], ends[1], level)


def mean_shift(control: ArrayLike, pinned: ArrayLike, *, level: float = 0.95) -> Range:
    """Mean of the pinned values' means divided by the control's mean, less 1, with Fieller's interval (1954) of pairs.

    A pair is a block: the mean of its pinned values, and that of its copies of the control. Effects of the machine on
    both cancel. The means are of times, not of their logs: the cost of a program is the sum of its times.
    """
    first, second = checked(control), checked(pinned)
    scale = max(float(first.max()), float(second.max()))
    first, second = first / scale, second / scale
    pairs = Pairs(second.mean(axis=0), first.mean(axis=0), 0, 0)
    found = paired_mean_ratio(pairs, level=level)
    return Range(found.percent / 100, found.interval.low / 100, found.interval.high / 100, level)
