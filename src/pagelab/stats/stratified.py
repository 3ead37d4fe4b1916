"""Rank-sum test within blocks: it exchanges executions of one block only, so drift between blocks has no effect."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, erfc, gcd, prod, sqrt
from typing import TYPE_CHECKING, Literal

import numpy as np

from pagelab.stats.rank_null import EXACT_LIMIT, BlockSums
from pagelab.stats.rank_test import Alternative, PValueMethod, doubled_midranks
from pagelab.stats.refusal import Refusal, StatsRefusedError, one_sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


MOST_CHOICES = 64
"""Largest C(N_b, n_b) of a block with which hundreds of blocks are counted in a second."""
MOST_EXECUTIONS = 100
"""Largest number of executions counted exactly in larger blocks."""


@dataclass(frozen=True, slots=True)
class StratifiedRankSum:
    """Outcome of the test; only blocks with both conditions are used."""

    w: float
    """R's W: the treatment's rank sum less n(n+1)/2, with n counted in those blocks."""
    w_expected: float
    """Mean of W over the assignments; if W is above it, treatment tends to be larger."""
    p: float
    n_treatment: int
    n_baseline: int
    blocks: int
    left_out: int
    """Number of executions in blocks with one condition only."""
    alternative: Alternative
    method: PValueMethod
    ties: bool
    count: int | None
    """Assignments at least as extreme as the one observed; None for the normal approximation."""
    total: int
    """Assignments: the product over blocks of C(n_b + m_b, n_b); p = count / total, correctly rounded."""


def stratified_rank_sum(
    treatment: ArrayLike,
    baseline: ArrayLike,
    *,
    treatment_blocks: ArrayLike,
    baseline_blocks: ArrayLike,
    alternative: Alternative | Literal["two-sided", "greater", "less"] = Alternative.TWO_SIDED,
    method: Literal["auto", "exact", "normal"] = "auto",
) -> StratifiedRankSum:
    """Test "within each block, labels are meaningless" against ``alternative``, by the rank sum over all blocks.

    The schedule draws the order again in each block. So given a block's values, every choice of its n_b treatments
    among its N_b executions is equally likely, *whatever drifts between blocks*, and p is a share of these choices (van
    Elteren 1960 for the conditioning; docs/method.md for why the ranks are not taken within blocks). Midranks are those
    of all executions together, in the blocks with both conditions. ``auto`` counts exactly up to 400 executions (100 if
    a block has more than 64 choices); above, it uses the normal approximation (the result says ``normal``).

    ``treatment_blocks`` and ``baseline_blocks`` give each value's block (any labels). ``inf`` stands for an execution
    that the time limit ended: slower than all others, tied with its like.
    """
    x, y = _slowest_last(treatment, "treatment"), _slowest_last(baseline, "baseline")
    own = _labels(treatment_blocks, x, "treatment"), _labels(baseline_blocks, y, "baseline")
    both = np.intersect1d(*own)
    if both.size == 0:
        raise StatsRefusedError(Refusal.INCOMPLETE_BLOCKS, "no block has executions of both conditions")
    kept = np.isin(own[0], both), np.isin(own[1], both)
    ranks = doubled_midranks(np.concatenate([x[kept[0]], y[kept[1]]]))
    n, side = int(kept[0].sum()), Alternative(alternative)
    blocks = _blocks(ranks, np.concatenate([own[0][kept[0]], own[1][kept[1]]]), n)
    choices = [comb(scores.size, k) for scores, k in blocks]
    limit = EXACT_LIMIT if max(choices) <= MOST_CHOICES else MOST_EXECUTIONS
    use_exact = ranks.size <= limit and method != "normal"
    if method == "exact" and not use_exact:
        raise StatsRefusedError(
            Refusal.TOO_LARGE_FOR_EXACT,
            f"{ranks.size} executions: in blocks like these, counted exactly up to {limit}; use method='auto'",
        )
    observed = int(ranks[:n].sum())
    expected = sum(k * float(scores.mean()) for scores, k in blocks)
    count = _count(blocks, observed, side) if use_exact else None
    total = prod(choices)
    return StratifiedRankSum(
        w=observed / 2 - n * (n + 1) / 2,
        w_expected=expected / 2 - n * (n + 1) / 2,
        p=count / total if count is not None else _normal_p(blocks, observed - expected, side),
        n_treatment=n,
        n_baseline=ranks.size - n,
        blocks=both.size,
        left_out=x.size + y.size - ranks.size,
        alternative=side,
        method=PValueMethod.EXACT if use_exact else PValueMethod.NORMAL,
        ties=bool(np.unique(ranks).size < ranks.size),
        count=count,
        total=total,
    )


def _slowest_last(values: ArrayLike, what: str) -> NDArray[np.float64]:
    """Infinite values stay; everything else must be a finite number."""
    array = np.asarray(values)
    late = np.isposinf(array) if array.dtype.kind == "f" else np.zeros(array.shape, dtype=bool)
    one_sample(np.where(late, 0.0, array) if late.any() else array, what)
    return np.asarray(array, dtype=np.float64)


def _labels(blocks: ArrayLike, values: NDArray[np.float64], what: str) -> NDArray[np.generic]:
    labels = np.asarray(blocks)
    if labels.shape != values.shape:
        raise StatsRefusedError(
            Refusal.LENGTHS_DIFFER, f"{what}: {labels.shape} block labels for {values.shape} executions"
        )
    return labels


def _blocks(ranks: NDArray[np.int64], labels: NDArray[np.generic], n: int) -> list[tuple[NDArray[np.int64], int]]:
    """(doubled midranks, number of treatments) of each block."""
    is_treatment = np.arange(ranks.size) < n
    members = [labels == label for label in np.unique(labels)]
    return [(ranks[mine], int(is_treatment[mine].sum())) for mine in members]


def _count(blocks: list[tuple[NDArray[np.int64], int]], observed: int, side: Alternative) -> int:
    """Assignments at least as extreme as the observed one; distances are compared as integers."""
    step = gcd(*(int(rank) - int(scores.min()) for scores, _ in blocks for rank in scores)) or 1
    least = sum(k * int(scores.min()) for scores, k in blocks)
    scaled = [([(int(rank) - int(scores.min())) // step for rank in scores], k) for scores, k in blocks]
    sums = BlockSums(scaled)
    total = BlockSums.total(scaled)
    place = (observed - least) // step
    if side is Alternative.LESS:
        return sums.at_most(place)
    if side is Alternative.GREATER:
        return total - sums.at_most(place - 1)
    # E(S) is a fraction whose denominator divides the product of the block sizes.
    common = prod({scores.size for scores, _ in blocks})
    mean = sum(k * sum(scores) * common // len(scores) for scores, k in scaled)
    distance = abs(common * place - mean)
    if distance == 0:
        return total
    low, high = (mean - distance) // common, -((-mean - distance) // common)
    return sums.at_most(low) + total - sums.at_most(high - 1)


def _normal_p(blocks: list[tuple[NDArray[np.int64], int]], distance: float, side: Alternative) -> float:
    """Normal p from the variance within blocks: the sum of n_b m_b / (N_b (N_b - 1)) times the squares about the
    block's mean; with a continuity correction of half a rank.
    """
    variance = sum(
        k * (scores.size - k) / (scores.size * (scores.size - 1)) * float(((scores - scores.mean()) ** 2).sum())
        for scores, k in blocks
    )
    if variance == 0:
        return 1.0
    deviation = sqrt(variance)
    if side is Alternative.TWO_SIDED:
        return min(1.0, erfc(max(0.0, abs(distance) - 1) / deviation / sqrt(2)))
    toward = distance if side is Alternative.GREATER else -distance
    return erfc((toward - 1) / deviation / sqrt(2)) / 2
