"""Hodges-Lehmann shift: the median of all pairwise differences, with its exact-order confidence interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.any_shape import any_shape_order
from pagelab.stats.interval import Interval, NotAchievable
from pagelab.stats.order_statistics import PairOrder, middle, pair_order, refuse_too_many_pairs
from pagelab.stats.refusal import Refusal, StatsRefusedError, one_sample

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
    refuse_too_many_pairs(x.size, y.size)
    with np.errstate(over="ignore"):
        unordered = np.subtract.outer(x, y).ravel()
    if not np.isfinite(unordered).all():
        raise StatsRefusedError(Refusal.OVERFLOW, "a pairwise difference exceeds the double range; rescale the unit")
    pairs = np.argsort(unordered, kind="stable")
    differences = unordered[pairs]
    exact, wider = pair_order(x.size, y.size, level), any_shape_order(pairs, x.size, y.size, level)
    pooled = np.concatenate([x, y])
    return Shift(
        estimate=middle(differences),
        interval=exact.bound(differences, level) if isinstance(exact, PairOrder) else exact,
        any_shape=wider.bound(differences, level) if isinstance(wider, PairOrder) else wider,
        n_treatment=x.size,
        n_baseline=y.size,
        ties=bool(np.unique(pooled).size < pooled.size),
    )
