"""Wilcoxon's signed-rank test as a randomisation test of the schedule: it exchanges labels within a block."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import erfc, floor, gcd, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np

from pagelab.stats.interval import IntervalMethod, NotAchievable
from pagelab.stats.order_statistics import PairOrder, sign_bound
from pagelab.stats.rank_null import BlockSums, field_bytes, unpack
from pagelab.stats.rank_test import Alternative, PValueMethod
from pagelab.stats.refusal import Refusal, StatsRefusedError, error_rate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

EXACT_PAIRS = 300
"""Largest number of pairs that is counted exactly: a fraction of a second, with ties too."""


@dataclass(frozen=True, slots=True)
class SignedRank:
    """Outcome of the test."""

    w: float
    """Sum of the ranks of the positive differences (R's V where no difference is 0 and none are tied)."""
    w_expected: float
    """Mean of W over the assignments; if W is above it, treatment tends to be larger."""
    p: float
    pairs: int
    zeros: int
    """Number of pairs without a difference: they are ranked, then left out of the sum (Pratt 1959)."""
    alternative: Alternative
    method: PValueMethod
    ties: bool
    count: int | None
    """Assignments at least as extreme as the one observed; None for the normal approximation."""
    total: int
    """2 to the number of pairs that differ; p = count / total, correctly rounded."""


def signed_rank(
    differences: ArrayLike,
    *,
    alternative: Alternative | Literal["two-sided", "greater", "less"] = Alternative.TWO_SIDED,
    method: Literal["auto", "exact", "normal"] = "auto",
) -> SignedRank:
    """Test "within each pair, labels are meaningless" against ``alternative`` (Wilcoxon 1945).

    The schedule drew the order of each pair. So given the sizes of the differences, each of the 2^n choices of signs is
    equally likely, for any drift between pairs and any distribution; p is a share of these choices. Ties get midranks.
    Differences of 0 are ranked with the others and then left out (Pratt 1959), since their sign means nothing. ``inf``
    and ``-inf`` are differences to an execution that the time limit ended: larger than all others, tied with their
    like. Above 300 pairs, ``auto`` uses the normal approximation (the result says ``normal``). Without any difference,
    p = 1.
    """
    found = np.asarray(differences, dtype=np.float64)
    if found.ndim != 1 or found.size == 0:
        raise StatsRefusedError(Refusal.EMPTY, "no pairs")
    if np.isnan(found).any():
        raise StatsRefusedError(Refusal.NOT_FINITE, "a difference is not a number")
    side = Alternative(alternative)
    if method == "exact" and found.size > EXACT_PAIRS:
        raise StatsRefusedError(
            Refusal.TOO_LARGE_FOR_EXACT,
            f"{found.size} pairs: counted exactly up to {EXACT_PAIRS}; use method='auto'",
        )
    ranks = _doubled_midranks(np.abs(found))
    differ = found != 0
    scores = [int(rank) for rank in ranks[differ]]
    positive = int(ranks[found > 0].sum())
    everything = sum(scores)
    exact = found.size <= EXACT_PAIRS and method != "normal"
    count = _count(scores, positive, side) if exact else None
    total = 2 ** len(scores)
    return SignedRank(
        w=positive / 2,
        w_expected=everything / 4,
        p=count / total if count is not None else _normal_p(scores, positive - everything / 2, side),
        pairs=found.size,
        zeros=int(found.size - len(scores)),
        alternative=side,
        method=PValueMethod.EXACT if exact else PValueMethod.NORMAL,
        ties=len(set(scores)) < len(scores),
        count=count,
        total=total,
    )


def _doubled_midranks(sizes: NDArray[np.float64]) -> NDArray[np.int64]:
    _, inverse, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((2 * last - counts + 1)[inverse], dtype=np.int64)


def _count(scores: list[int], positive: int, side: Alternative) -> int:
    """Number of choices of signs at least as extreme; the distribution is symmetric about half of the total."""
    total, everything = int(2 ** len(scores)), sum(scores)
    if not scores or (side is Alternative.TWO_SIDED and 2 * positive == everything):
        return total
    step = gcd(*scores)
    sums = BlockSums([([0, score // step], 1) for score in scores])
    if side is Alternative.LESS:
        return sums.at_most(positive // step)
    if side is Alternative.GREATER:
        return sums.at_most((everything - positive) // step)
    return 2 * sums.at_most(min(positive, everything - positive) // step)


def _normal_p(scores: list[int], distance: float, side: Alternative) -> float:
    """Normal p: the variance is a quarter of the ranks' squares (with ties and zeros); continuity: half a rank."""
    deviation = sqrt(sum(score * score for score in scores)) / 2
    if deviation == 0:
        return 1.0
    if side is Alternative.TWO_SIDED:
        return min(1.0, erfc(max(0.0, abs(distance) - 1) / deviation / sqrt(2)))
    toward = distance if side is Alternative.GREATER else -distance
    return erfc((toward - 1) / deviation / sqrt(2)) / 2


@lru_cache(maxsize=64)
def untied_signed_cumulative(n: int) -> tuple[int, ...]:
    """Number of the 2^n choices of signs with W <= w, for w = 0 … floor(n(n+1)/4), of n different sizes.

    The generating function is the product over i = 1 … n of 1 + x^i.
    """
    fields = n * (n + 1) // 4 + 1
    width = field_bytes(2**n)
    mask = (1 << (8 * width * fields)) - 1
    packed = 1
    for i in range(1, n + 1):
        packed = (packed + (packed << (8 * width * i))) & mask
    return tuple(accumulate(unpack(packed, width, fields)))


@lru_cache(maxsize=1024)
def walsh_order(n: int, level: float) -> PairOrder | NotAchievable:
    """The ordered n(n+1)/2 Walsh averages that bound an interval of at least ``level``.

    k is the largest with P(W <= k - 1) <= (1 - level) / 2; beyond ``EXACT_PAIRS`` by the normal approximation.
    """
    short = sign_bound(n, level)
    if short is not None:
        return short
    tail = error_rate(level) / 2
    if n <= EXACT_PAIRS:
        cumulative = untied_signed_cumulative(n)
        allowed = tail * 2**n
        k = bisect_right(cumulative, allowed.numerator // allowed.denominator)
        miss = Fraction(cumulative[k - 1], 2**n)
        return PairOrder(k, k, float(1 - 2 * miss), IntervalMethod.EXACT_ORDER)
    normal = NormalDist(n * (n + 1) / 4, sqrt(n * (n + 1) * (2 * n + 1) / 24))
    k = floor(normal.inv_cdf(float(tail)) + 0.5)
    return PairOrder(k, k, 1 - 2 * normal.cdf(k - 0.5), IntervalMethod.NORMAL_ORDER)
