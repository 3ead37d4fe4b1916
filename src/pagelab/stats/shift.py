"""Hodges-Lehmann shift: the median of all pairwise differences, with its exact-order confidence interval."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.any_shape import any_shape_of_many, any_shape_order
from pagelab.stats.interval import Interval, NotAchievable
from pagelab.stats.order_statistics import MOST_PAIRS, PairOrder, middle, pair_order
from pagelab.stats.refusal import Refusal, StatsRefusedError, one_sample
from pagelab.stats.selection import differences

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True)
class Shift:
    """Treatment less baseline, in the unit of the data."""

    estimate: float
    interval: Interval | NotAchievable
    """Exact-order interval, as R's, for a pure shift."""
    any_shape: Interval | NotAchievable
    """Never shorter; also valid if the distributions differ in shape or spread (its level is approximate)."""
    n_treatment: int
    n_baseline: int
    ties: bool
    """Whether the pooled sample has equal values; the interval's true level is then at least ``achieved``."""


def hodges_lehmann(treatment: ArrayLike, baseline: ArrayLike, *, level: float = 0.95) -> Shift:
    """Estimate and intervals for the shift d in "treatment is distributed as baseline + d" (Hodges and Lehmann 1963).

    ``interval`` is [D_(k), D_(nm+1-k)] of the ordered differences D, with the largest k for which
    P(U <= k - 1) <= (1 - level) / 2 in the untied null of the rank sum; ``achieved`` is 1 - 2 P(U <= k - 1). That
    level is exact for continuous data under a pure shift and a lower bound with ties. If the distributions also differ
    in shape, the estimate is still the median of "treatment less baseline" for a random pair, but the exact-order
    interval can cover as little as 88%: ``any_shape`` is for that case (simulations in docs/method.md).
    ``NotAchievable`` if even the whole range misses too often.
    """
    x, y = one_sample(treatment, "treatment"), one_sample(baseline, "baseline")
    if not isfinite(float(x.max()) - float(y.min())) or not isfinite(float(x.min()) - float(y.max())):
        raise StatsRefusedError(Refusal.OVERFLOW, "a pairwise difference exceeds the double range; rescale the unit")
    pooled = np.concatenate([x, y])
    ties = bool(np.unique(pooled).size < pooled.size)
    if x.size * y.size > MOST_PAIRS:
        rows, order = differences(x, y), pair_order(x.size, y.size, level)
        return Shift(
            estimate=rows.median(),
            interval=rows.bound(order, level) if isinstance(order, PairOrder) else order,
            any_shape=any_shape_of_many(rows, x.size, y.size, level),
            n_treatment=x.size,
            n_baseline=y.size,
            ties=ties,
        )
    unordered = np.subtract.outer(x, y).ravel()
    pairs = np.argsort(unordered, kind="stable")
    ordered = unordered[pairs]
    exact, wider = pair_order(x.size, y.size, level), any_shape_order(pairs, x.size, y.size, level)
    return Shift(
        estimate=middle(ordered),
        interval=exact.bound(ordered, level) if isinstance(exact, PairOrder) else exact,
        any_shape=wider.bound(ordered, level) if isinstance(wider, PairOrder) else wider,
        n_treatment=x.size,
        n_baseline=y.size,
        ties=ties,
    )
