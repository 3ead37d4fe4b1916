"""Effects within blocks: the treatment against the baseline of the same block, by Walsh averages of the pairs."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log, sqrt
from typing import TYPE_CHECKING, Literal

import numpy as np

from pagelab.stats.any_shape import earlier_in_group, leading, student_quantile
from pagelab.stats.interval import Interval, IntervalMethod, NotAchievable
from pagelab.stats.order_statistics import MOST_PAIRS, PairOrder, middle
from pagelab.stats.refusal import Refusal, StatsRefusedError, one_sample, unit_range
from pagelab.stats.selection import averages
from pagelab.stats.selection import differences as differences_of
from pagelab.stats.wilcoxon import walsh_order

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

FEWEST_PAIRS = 6
"""With fewer pairs no 95% interval exists and the least p is 0.0625."""
_ROUNDING = 1e-12
Scale = Literal["ratio", "difference"]


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs of executions of one block, one of each condition. ``inf``: the time limit ended the execution."""

    treatment: NDArray[np.float64]
    baseline: NDArray[np.float64]
    left_out_treatment: int
    """Executions of the treatment in blocks without one of the baseline (it failed)."""
    left_out_baseline: int

    def __len__(self) -> int:
        return int(self.treatment.size)

    @property
    def left_out(self) -> int:
        return self.left_out_treatment + self.left_out_baseline

    @property
    def finished(self) -> Pairs:
        """The pairs of which both sides have a time."""
        whole = np.isfinite(self.treatment) & np.isfinite(self.baseline)
        return Pairs(self.treatment[whole], self.baseline[whole], self.left_out_treatment, self.left_out_baseline)

    @property
    def scale(self) -> Scale:
        """Ratios if all values are positive, else differences."""
        return "ratio" if min(self.treatment.min(), self.baseline.min()) > 0 else "difference"

    def apart(self, scale: Scale | None = None, ratio: float = 1.0) -> NDArray[np.float64]:
        """Treatment less baseline of each pair; of logarithms, less that of ``ratio``, on the scale of ratios. Two
        time-outs differ by 0.
        """
        x, y = self.treatment, self.baseline
        both = np.isposinf(x) & np.isposinf(y)
        x, y = np.where(both, ratio, x), np.where(both, 1.0, y)
        if (scale or self.scale) == "ratio":
            # Times that are equal but for the rounding of their logarithms are equal: their sign means nothing. So are
            # those whose ratio is the limit that a gate compares them with.
            with np.errstate(invalid="ignore"):
                logs = np.log(x) - np.log(y) - log(ratio)
                return np.asarray(np.where(np.abs(logs) < _ROUNDING, 0.0, logs))
        with np.errstate(over="ignore"):
            found = x - y
        if (np.isinf(found) & np.isfinite(x) & np.isfinite(y)).any():
            raise StatsRefusedError(Refusal.OVERFLOW, "a difference exceeds the double range; rescale the unit")
        return np.asarray(found)


def pairs_of(
    treatment: ArrayLike, baseline: ArrayLike, *, treatment_blocks: ArrayLike, baseline_blocks: ArrayLike
) -> Pairs:
    """The pairs of two conditions, in the order of their blocks.

    A block that lacks one of the two is left out and counted. Refused are several executions of a condition in one
    block, and samples without a common block.
    """
    sides = [_labelled(treatment, treatment_blocks, "treatment"), _labelled(baseline, baseline_blocks, "baseline")]
    both = np.intersect1d(sides[0][1], sides[1][1])
    if both.size == 0:
        raise StatsRefusedError(Refusal.INCOMPLETE_BLOCKS, "no block has executions of both conditions")
    found = []
    for (values, blocks), what in zip(sides, ("treatment", "baseline"), strict=True):
        if np.unique(blocks).size < blocks.size:
            raise StatsRefusedError(Refusal.GROUP_SIZE, f"{what}: a block has several executions: these are no pairs")
        order = np.argsort(blocks, kind="stable")
        found.append(values[order][np.isin(blocks[order], both)])
    left = [values.size - both.size for values, _ in sides]
    return Pairs(found[0], found[1], left[0], left[1])


def _labelled(values: ArrayLike, blocks: ArrayLike, what: str) -> tuple[NDArray[np.float64], NDArray[np.generic]]:
    array = np.asarray(values, dtype=np.float64)
    one_sample(np.where(np.isposinf(array), 0.0, array), what)
    labels = np.asarray(blocks)
    if labels.shape != array.shape:
        raise StatsRefusedError(
            Refusal.LENGTHS_DIFFER, f"{what}: {labels.shape} block labels for {array.shape} executions"
        )
    return array, labels


@dataclass(frozen=True, slots=True)
class PairedShift:
    """Location of treatment minus baseline within a block, in the unit of the differences."""

    estimate: float
    """Hodges and Lehmann's estimate: the median of the Walsh averages."""
    interval: Interval | NotAchievable
    """The inverted signed-rank test's interval."""
    any_shape: Interval | NotAchievable
    """Never shorter; also valid for skewed differences of pairs (its level is approximate)."""
    n: int


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """Treatment over baseline within a block, in percent of the baseline: -3 means "takes 3% less"."""

    percent: float
    interval: Interval | NotAchievable
    any_shape: Interval | NotAchievable
    n: int


def paired_shift(differences: ArrayLike, *, level: float = 0.95) -> PairedShift:
    """Median of the n(n+1)/2 averages of two differences (Hodges and Lehmann 1963), with intervals.

    ``interval`` is [A_(k), A_(M+1-k)] of the M ordered averages, k by :func:`walsh_order`. The schedule draws the order
    within a block. So if the treatment moves every execution by d, a difference less d has either sign with probability
    1/2, *whatever the noise*: bursts, drift, two modes, other scales in other blocks. The level is then exact, and at
    least ``achieved`` with ties. If the treatment also changes the shape, differences are skewed; ``any_shape`` is for
    that case. It joins ``interval`` with all shifts that a studentised test does not reject; that test estimates, at
    each shift, the variance of the share of Walsh averages above it.
    """
    found = one_sample(differences, "differences")
    n = found.size
    if n * (n + 1) // 2 > MOST_PAIRS:
        return _of_many(found, level)
    first, second = np.triu_indices(n)
    averages = found[first] / 2 + found[second] / 2
    order = np.argsort(averages, kind="stable")
    averages = averages[order]
    exact = walsh_order(n, level)
    if isinstance(exact, NotAchievable):
        return PairedShift(middle(averages), exact, exact, n)
    wider = _any_shape(first[order], second[order], n, level, exact)
    return PairedShift(middle(averages), exact.bound(averages, level), wider.bound(averages, level), n)


def _of_many(values: NDArray[np.float64], level: float) -> PairedShift:
    """The same for more averages than are stored: their order statistics are selected."""
    n, rows, exact = values.size, averages(values), walsh_order(values.size, level)
    estimate = rows.median()
    if isinstance(exact, NotAchievable):
        return PairedShift(estimate, exact, exact, n)
    quantile = student_quantile(n - 1, level)

    def beyond(value: float, *, including: bool) -> tuple[float, float]:
        """How far the share of averages above is from a half, and how far it may be."""
        ends = rows.passed(value, including=including)
        steps = np.bincount(rows.first[ends > rows.first], minlength=n + 1)
        steps = steps - np.bincount(ends[ends > rows.first], minlength=n + 1)
        above = n - ((ends - rows.first) + np.cumsum(steps)[:n] - (ends > rows.first))
        total = int(above.sum())
        variance = max(0.0, float((above**2).sum()) - total**2 / n) / (n - 1) / n**2
        return total / n**2 - 0.5, quantile * 2 * sqrt(variance / n)

    return PairedShift(estimate, rows.bound(exact, level), rows.widened(exact, level, beyond), n)


def _any_shape(first: NDArray[np.intp], second: NDArray[np.intp], n: int, level: float, exact: PairOrder) -> PairOrder:
    """Inverts the studentised test along all shifts: c_i, the number of averages of difference i above, has mean n/2 at
    the true shift.

    The share of averages above is a U statistic, with standard error 2 sd(c_i / n) / sqrt(n) (Hoeffding 1948). Passing
    an average reduces the counts of both its differences by 1, so that all sums follow from the order, in integers.
    """
    apart = first != second
    touched = np.stack([first, second], axis=1).ravel()
    counted = np.stack([np.ones_like(apart), apart], axis=1).ravel()
    events = touched[counted]
    steps = np.zeros(touched.size, dtype=np.int64)
    steps[counted] = 1 - 2 * (n - earlier_in_group(events, n, n))
    squares = n**3 + np.concatenate([[0], np.cumsum(steps.reshape(-1, 2).sum(axis=1))])
    total = n * n - np.concatenate([[0], np.cumsum(1 + apart.astype(np.int64))])
    variance = np.maximum(squares - total**2 / n, 0.0) / (n - 1) / n**2
    reach = student_quantile(n - 1, level) * 2 * np.sqrt(variance / n)
    share = total / n**2
    return PairOrder(
        low=min(exact.low, max(1, leading(share - 0.5 > reach))),
        high=min(exact.high, max(1, leading((0.5 - share > reach)[::-1]))),
        achieved=None,
        method=IntervalMethod.ANY_SHAPE_ORDER,
    )


def paired_ratio(pairs: Pairs, *, level: float = 0.95) -> PairedRatio:
    """100 (R - 1), with R the Hodges-Lehmann estimate of the pairs' log ratios, transformed back; needs values > 0."""
    if pairs.scale != "ratio":
        raise StatsRefusedError(
            Refusal.NOT_POSITIVE, "a value is zero or negative: no percentage of it exists; use the shift"
        )
    shift = paired_shift(pairs.apart("ratio"), level=level)
    return PairedRatio(_percent(shift.estimate), _in_percent(shift.interval), _in_percent(shift.any_shape), shift.n)


def _percent(logarithm: float) -> float:
    try:
        found = 100 * (exp(logarithm) - 1)
    except OverflowError:
        found = inf
    if found == inf:
        raise StatsRefusedError(Refusal.OVERFLOW, "a ratio exceeds the double range; use the shift")
    return found


def _in_percent(found: Interval | NotAchievable) -> Interval | NotAchievable:
    if isinstance(found, NotAchievable):
        return found
    return Interval(_percent(found.low), _percent(found.high), found.level, found.achieved, found.method)


@dataclass(frozen=True, slots=True)
class BlocksPay:
    """The effect of pairing on the spread."""

    narrower: float
    """Spread of the pairs' differences over that of differences between executions of different blocks; 0.5: half."""
    correlation: float
    """Rank correlation (Spearman) of the two executions of a block."""

    @property
    def pays(self) -> bool:
        return self.narrower < 1


def blocks_pay(pairs: Pairs) -> BlocksPay | None:
    """Describes whether executions of a block are alike; it does not affect the choice of the test.

    It uses ranks, and the mean absolute deviation from the median, which a few slow executions hardly move. None with
    fewer than six pairs, or if nothing varies.
    """
    if len(pairs) < FEWEST_PAIRS:
        return None
    logs = pairs.scale == "ratio"
    x, y = (np.log(side) if logs else side for side in (pairs.treatment, pairs.baseline))
    ranks = [np.searchsorted(np.sort(side), side) + np.searchsorted(np.sort(side), side, "right") for side in (x, y)]
    if any(np.ptp(each) == 0 for each in ranks):
        return None
    correlation = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    if not logs:  # keeps the sum of large differences in range
        both = unit_range(np.concatenate([x, y]))
        x, y = both[: x.size], both[x.size :]
    within = _deviation(x - y)
    if len(pairs) ** 2 > MOST_PAIRS:
        between = _deviation_between(x, y)
    else:
        between = _deviation(np.subtract.outer(x, y)[~np.eye(len(pairs), dtype=bool)])
    return BlocksPay(within / between if between > 0 else 1.0, correlation)


def _deviation_between(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """As :func:`_deviation` of all differences of different pairs, from sums over the sorted values."""
    n = x.size
    shifted, ordered = x - differences_of(x, y).median(), np.sort(y)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    below = np.searchsorted(ordered, shifted)
    every = shifted * (2 * below - n) + sums[-1] - 2 * sums[below]
    return float((every - np.abs(shifted - y)).sum()) / (n * (n - 1))


def _deviation(values: NDArray[np.float64]) -> float:
    return float(np.abs(values - np.median(values)).mean())
