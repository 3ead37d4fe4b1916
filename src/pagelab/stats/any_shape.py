"""Interval for the Hodges-Lehmann shift that does not assume equally shaped distributions."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, sqrt
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.interval import IntervalMethod
from pagelab.stats.order import PairOrder, pair_order, sign_bound

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pagelab.stats.interval import NotAchievable


@dataclass(frozen=True, slots=True)
class PlacementVariance:
    """Variance of U / nm, and its degrees of freedom."""

    variance: float
    degrees: float


def any_shape_order(
    treatment: NDArray[np.float64], baseline: NDArray[np.float64], level: float
) -> PairOrder | NotAchievable:
    """Which ordered pairs bound the interval, given samples *aligned* on the estimate (treatment less the shift).

    The exact-order interval assumes a pure shift: where one condition is tight and the other wide or bimodal, the
    standard deviation of U is up to 1.22 times that of the untied null, and a nominal 95% covers 89%. Here it is
    estimated from the placements (Fligner and Policello 1981; Brunner and Munzel 2000), with Student's t at
    Satterthwaite's degrees of freedom. The wider of the two is taken, so this interval is never shorter than the
    exact-order one. The whole range (k = 1) misses with at most 2^(1 - min(n, m)) whatever the shapes, for min(n, m)
    disjoint pairs are independent signs: it is enough where that is, and nothing is where it is not.
    """
    exact = pair_order(treatment.size, baseline.size, level)
    short = sign_bound(min(treatment.size, baseline.size), level)
    if not isinstance(exact, PairOrder) or short is not None:
        return short if short is not None else exact
    spread = placement_variance(treatment, baseline)
    k = exact.k
    if spread is not None:
        from scipy.special import stdtrit  # heavy: only where it is needed

        quantile = float(stdtrit(spread.degrees, (1 - level) / 2))
        k = floor(treatment.size * baseline.size * (0.5 + quantile * sqrt(spread.variance)) + 0.5)
    return PairOrder(max(1, min(exact.k, k)), None, IntervalMethod.ANY_SHAPE_ORDER)


def placement_variance(treatment: NDArray[np.float64], baseline: NDArray[np.float64]) -> PlacementVariance | None:
    """S_x^2 / n + S_y^2 / m of the placements; None where it is 0 or a group has one value.

    A placement is the share of the other sample that lies below a value, ties counting half.
    """
    n, m = treatment.size, baseline.size
    if n < 2 or m < 2:
        return None
    of_treatment = _placements(treatment, baseline).var(ddof=1) / n
    of_baseline = _placements(baseline, treatment).var(ddof=1) / m
    variance = float(of_treatment + of_baseline)
    if variance == 0:
        return None
    degrees = variance**2 / (of_treatment**2 / (n - 1) + of_baseline**2 / (m - 1))
    return PlacementVariance(variance, float(degrees))


def _placements(values: NDArray[np.float64], among: NDArray[np.float64]) -> NDArray[np.float64]:
    ordered = np.sort(among)
    below = np.searchsorted(ordered, values, side="left")
    not_above = np.searchsorted(ordered, values, side="right")
    return np.asarray((below + not_above) / (2 * among.size), dtype=np.float64)
