"""Relative effect in percent: the shift on the ratio scale, which includes the baseline's uncertainty."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.any_shape import any_shape_of_many, any_shape_order
from pagelab.stats.interval import Interval, NotAchievable
from pagelab.stats.order_statistics import MOST_PAIRS, PairOrder, middle, pair_order
from pagelab.stats.refusal import Refusal, StatsRefusedError, one_sample
from pagelab.stats.selection import ratios as ratios_of
from pagelab.stats.shift import hodges_lehmann

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MOST_RATIO = 1e306
"""Largest ratio; in percent it is still in the double range."""


@dataclass(frozen=True, slots=True)
class RelativeEffect:
    """Treatment against baseline, in percent of baseline: -3 means "treatment takes 3% less"."""

    percent: float
    interval: Interval | NotAchievable
    """In percent, for ``percent``; exact order."""
    any_shape: Interval | NotAchievable
    """In percent, for ``percent``; never shorter, without the assumption of one shape."""
    shift_over_median_percent: float
    """The Hodges-Lehmann shift divided by the baseline's median: a description, without an interval of its own."""


def relative_effect(treatment: ArrayLike, baseline: ArrayLike, *, level: float = 0.95) -> RelativeEffect:
    """100 (R - 1), R the median of all pairwise ratios treatment / baseline, with its exact-order interval.

    This is the Hodges-Lehmann estimate on logarithms, transformed back. (With an even number of pairs, R is the
    geometric mean of the middle two, so that swapping the conditions gives 1 / R.) The interval uses the same order
    statistics as the shift's, so it excludes 0% exactly when the shift's interval excludes 0. Its level is exact under
    "treatment is distributed as baseline times R". The quotient shift / median(baseline) is given too, but without an
    interval: the shift's interval over the median would treat the median as known. Refused unless baseline > 0 and
    treatment >= 0.
    """
    x, y = one_sample(treatment, "treatment"), one_sample(baseline, "baseline")
    if y.min() <= 0:
        raise StatsRefusedError(
            Refusal.BASELINE_NOT_POSITIVE, f"baseline has {y.min():g}: no percentage of it exists; use the shift"
        )
    if x.min() < 0:
        raise StatsRefusedError(
            Refusal.TREATMENT_NEGATIVE, f"treatment has {x.min():g}: ratios need values of 0 or more; use the shift"
        )
    with np.errstate(over="ignore"):
        largest = x.max() / y.min()
    if not largest < MOST_RATIO:
        raise StatsRefusedError(Refusal.OVERFLOW, "a pairwise ratio exceeds the double range; use the shift")
    if x.size * y.size > MOST_PAIRS:
        return _of_many(x, y, level)
    unordered = np.divide.outer(x, y).ravel()
    pairs = np.argsort(unordered, kind="stable")
    ratios = unordered[pairs]
    central = _central(float(ratios[(ratios.size - 1) // 2]), float(ratios[ratios.size // 2]))
    percents = 100 * (ratios - 1)
    exact = pair_order(x.size, y.size, level)
    wider = any_shape_order(pairs, x.size, y.size, level)
    shift = hodges_lehmann(x, y, level=level).estimate
    return RelativeEffect(
        percent=100 * (central - 1),
        interval=exact.bound(percents, level) if isinstance(exact, PairOrder) else exact,
        any_shape=wider.bound(percents, level) if isinstance(wider, PairOrder) else wider,
        shift_over_median_percent=100 * shift / middle(np.sort(y)),
    )


def _central(lower: float, upper: float) -> float:
    """The middle of two ratios: their geometric mean, so that swapping the conditions gives its inverse."""
    return lower if lower == upper else sqrt(lower) * sqrt(upper)


def _of_many(x: NDArray[np.float64], y: NDArray[np.float64], level: float) -> RelativeEffect:
    """The same for more ratios than are stored: their order statistics are selected."""
    rows, exact = ratios_of(x, y), pair_order(x.size, y.size, level)
    central = _central(rows.value((rows.size - 1) // 2), rows.value(rows.size // 2))
    return RelativeEffect(
        percent=100 * (central - 1),
        interval=_in_percent(rows.bound(exact, level) if isinstance(exact, PairOrder) else exact),
        any_shape=_in_percent(any_shape_of_many(rows, x.size, y.size, level)),
        shift_over_median_percent=100 * hodges_lehmann(x, y, level=level).estimate / middle(np.sort(y)),
    )


def _in_percent(found: Interval | NotAchievable) -> Interval | NotAchievable:
    if isinstance(found, NotAchievable):
        return found
    return replace(found, low=100 * (found.low - 1), high=100 * (found.high - 1))
