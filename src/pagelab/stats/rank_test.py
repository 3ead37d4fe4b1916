"""Exact Wilcoxon rank-sum test, valid with ties: the permutation distribution of the observed midranks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import comb, erfc, gcd, sqrt
from typing import TYPE_CHECKING, Literal

import numpy as np

from pagelab.stats.rank_null import EXACT_LIMIT, SubsetSums, untied_cumulative
from pagelab.stats.refusal import Refusal, StatsRefusedError, one_sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class Alternative(StrEnum):
    """The departures from "labels are meaningless" that the test detects."""

    TWO_SIDED = "two-sided"
    GREATER = "greater"
    """Treatment tends to be larger."""
    LESS = "less"
    """Treatment tends to be smaller."""


class PValueMethod(StrEnum):
    """The method of the p-value; the tables of a report and its section on method tell it."""

    EXACT = "exact"
    NORMAL = "normal"
    """Normal approximation with tie and continuity correction."""
    DRAWN = "drawn"
    """The observed choice of signs among a seeded sample of all: an exact test for any sample."""


@dataclass(frozen=True, slots=True)
class RankSum:
    """Outcome of the test."""

    w: float
    """R's W: the treatment's rank sum less n(n+1)/2, the number of pairs with treatment above baseline (ties: half)."""
    p: float
    n_treatment: int
    n_baseline: int
    alternative: Alternative
    method: PValueMethod
    ties: bool
    count: int | None
    """Assignments at least as extreme as the one observed; None for the normal approximation."""
    total: int
    """C(n+m, n) assignments; p = count / total, correctly rounded."""


def rank_sum(
    treatment: ArrayLike,
    baseline: ArrayLike,
    *,
    alternative: Alternative | Literal["two-sided", "greater", "less"] = Alternative.TWO_SIDED,
    method: Literal["auto", "exact", "normal"] = "auto",
    timed_out: tuple[int, int] = (0, 0),
) -> RankSum:
    """Test "both conditions have one distribution" against ``alternative``, by the rank sum (Wilcoxon 1945).

    Given the pooled values, every choice of n of the N is equally likely, so p is a share of the C(N, n) assignments;
    two-sided it counts those with |W - E(W)| at least as large as observed. Ties get midranks, which does not affect
    the argument. Above n + m = 400, ``auto`` uses the normal approximation (the result says ``normal``) and ``exact``
    refuses. If all values are equal, p = 1.

    ``timed_out`` is the number of executions (of treatment, of baseline) that the time limit ended. The limit is above
    every given value, so they are tied at the top rank and count in n and m. Without them, a condition that is too slow
    to finish would look faster.
    """
    x = _with_slowest(treatment, timed_out[0], "treatment")
    y = _with_slowest(baseline, timed_out[1], "baseline")
    side = Alternative(alternative)
    n, m = x.size, y.size
    ranks = doubled_midranks(np.concatenate([x, y]))
    doubled_u = int(ranks[:n].sum()) - n * (n + 1)
    ties = bool(np.unique(ranks).size < n + m)
    exact = n + m <= EXACT_LIMIT
    if method == "exact" and not exact:
        raise StatsRefusedError(
            Refusal.TOO_LARGE_FOR_EXACT,
            f"{n} against {m} executions: counted exactly up to {EXACT_LIMIT} together; use method='auto'",
        )
    use_exact = exact and method != "normal"
    count = _count(ranks, n, doubled_u, side, ties) if use_exact else None
    total = comb(n + m, n)
    return RankSum(
        w=doubled_u / 2,
        p=count / total if count is not None else _normal_p(ranks, n, doubled_u, side),
        n_treatment=n,
        n_baseline=m,
        alternative=side,
        method=PValueMethod.EXACT if use_exact else PValueMethod.NORMAL,
        ties=ties,
        count=count,
        total=total,
    )


def _with_slowest(values: ArrayLike, count: int, what: str) -> NDArray[np.float64]:
    if count < 0:
        raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, f"{what}: {count} timed-out executions: not 0 or more")
    slowest = np.full(count, np.inf)
    if count and np.size(values) == 0:
        return slowest
    return np.concatenate([one_sample(values, what), slowest])


def doubled_midranks(pooled: NDArray[np.float64]) -> NDArray[np.int64]:
    """Twice the midranks (1-based): integers, also with ties."""
    _, inverse, counts = np.unique(pooled, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((2 * last - counts + 1)[inverse], dtype=np.int64)


def _count(ranks: NDArray[np.int64], n: int, doubled_u: int, side: Alternative, ties: bool) -> int:
    m = ranks.size - n
    if not ties:
        return _count_untied(n, m, doubled_u // 2, side)
    return _count_tied([int(rank) for rank in ranks], n, side)


def _count_untied(n: int, m: int, u: int, side: Alternative) -> int:
    """Counts by the lower half of the untied null, which is symmetric about nm / 2."""
    cumulative, total, pairs = untied_cumulative(n, m), comb(n + m, n), n * m

    def at_most(value: int) -> int:
        if value < 0:
            return 0
        return cumulative[value] if 2 * value <= pairs else total - at_most(pairs - value - 1)

    if side is Alternative.LESS:
        return at_most(u)
    if side is Alternative.GREATER:
        return at_most(pairs - u)
    return total if 2 * u == pairs else 2 * at_most(min(u, pairs - u))


def _count_tied(ranks: list[int], n: int, side: Alternative) -> int:
    """Counts over the observed midranks; distances from the mean, times N, are compared as integers."""
    size, least = len(ranks), min(ranks)
    step = gcd(*(rank - least for rank in ranks)) or 1
    scores = [(rank - least) // step for rank in ranks]
    observed, k = sum(scores[:n]), n
    if 2 * n > size:  # the smaller group's sum is equivalent, mirrored
        observed, k = sum(scores[n:]), size - n
        side = {Alternative.LESS: Alternative.GREATER, Alternative.GREATER: Alternative.LESS}.get(side, side)
    total, everything = comb(size, k), sum(scores)
    distance = abs(size * observed - k * everything)
    if side is Alternative.TWO_SIDED and distance == 0:
        return total
    sums = SubsetSums(scores, k)
    if side is Alternative.LESS:
        return sums.at_most(observed)
    if side is Alternative.GREATER:
        return total - sums.at_most(observed - 1)
    low = (k * everything - distance) // size
    high = -((-k * everything - distance) // size)
    return sums.at_most(low) + total - sums.at_most(high - 1)


def _normal_p(ranks: NDArray[np.int64], n: int, doubled_u: int, side: Alternative) -> float:
    size = ranks.size
    m = size - n
    _, counts = np.unique(ranks, return_counts=True)
    tied = float(np.sum(counts.astype(np.float64) ** 3 - counts)) / (size * (size - 1)) if size > 1 else 0.0
    deviation = sqrt(n * m / 12 * (size + 1 - tied))
    if deviation == 0:
        return 1.0
    distance = doubled_u / 2 - n * m / 2
    if side is Alternative.TWO_SIDED:
        return min(1.0, erfc(max(0.0, abs(distance) - 0.5) / deviation / sqrt(2)))
    toward = distance if side is Alternative.GREATER else -distance
    return erfc((toward - 0.5) / deviation / sqrt(2)) / 2
