"""The exact rank-sum test against enumeration of every assignment, and its known values."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, rankdata

from pagelab import stats
from pagelab.stats.rank_null import SubsetSums, untied_cumulative
from pagelab.stats.rank_test import _count_tied, doubled_midranks

few_values = st.integers(0, 5)
small_samples = st.tuples(st.lists(few_values, min_size=1, max_size=5), st.lists(few_values, min_size=1, max_size=5))


def enumerated(x: list[int], y: list[int], side: str) -> Fraction:
    """By definition: every choice of n of the N midranks is equally likely."""
    ranks = [Fraction(str(rank)) for rank in rankdata(x + y)]
    n, size = len(x), len(x) + len(y)
    mean, observed = Fraction(n * (size + 1), 2), sum(ranks[:n])
    sums = [sum(chosen) for chosen in combinations(ranks, n)]
    extreme = {
        "two-sided": lambda w: abs(w - mean) >= abs(observed - mean),
        "greater": lambda w: w >= observed,
        "less": lambda w: w <= observed,
    }[side]
    return Fraction(sum(map(extreme, sums)), len(sums))


@pytest.mark.parametrize("side", ["two-sided", "greater", "less"])
@given(samples=small_samples)
def test_equals_enumeration_with_ties(side: str, samples: tuple[list[int], list[int]]) -> None:
    x, y = samples
    result = stats.rank_sum(x, y, alternative=side)
    assert result.count is not None
    assert Fraction(result.count, result.total) == enumerated(x, y, side)
    assert result.p == float(enumerated(x, y, side))


@given(scores=st.lists(st.integers(0, 30), min_size=2, max_size=11), data=st.data())
def test_subset_sums_equal_enumeration(scores: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(scores)))
    limit = data.draw(st.integers(-2, 31 * len(scores)))
    naive = sum(sum(chosen) <= limit for chosen in combinations(scores, k))
    assert SubsetSums(scores, k).at_most(limit) == naive


@given(n=st.integers(1, 12), m=st.integers(1, 12), data=st.data())
@settings(deadline=None)
def test_both_exact_counts_agree_without_ties(n: int, m: int, data: st.DataObject) -> None:
    """Gaussian binomials and the split shift algorithm share no code."""
    order = data.draw(st.permutations(range(n + m)))
    ranks = doubled_midranks(np.array(order, dtype=float))
    for side in stats.Alternative:
        assert stats.rank_sum(order[:n], order[n:], alternative=side).count == _count_tied(
            [int(r) for r in ranks], n, side
        )


def test_untied_counts_sum_to_all_assignments() -> None:
    for n, m in [(1, 1), (2, 3), (6, 6), (7, 5), (20, 20), (3, 90)]:
        cumulative, pairs = untied_cumulative(n, m), n * m
        below_half = cumulative[(pairs - 1) // 2]
        at_half = 0 if pairs % 2 else cumulative[pairs // 2] - below_half
        assert 2 * below_half + at_half == comb(n + m, n)


def test_prepage_page_w_400_p_1_451e_11() -> None:
    """PREPAGE's output: all 20 times without buffering above all 20 with it."""
    off, on = np.linspace(65.188, 102.644, 20), np.linspace(57.811, 61.919, 20)
    result = stats.rank_sum(off, on)
    assert (result.w, result.count, result.total) == (400.0, 2, comb(40, 20))
    assert result.p == 2 / comb(40, 20)
    assert f"{result.p:.3e}" == "1.451e-11"
    assert result.p == pytest.approx(1.4508889e-11, rel=1e-8)


@pytest.mark.parametrize("n", [20, 60, 120])
def test_tiny_p_values_keep_every_digit_with_ties(n: int) -> None:
    """Ties inside each group leave complete separation the single most extreme assignment on either side."""
    low = np.repeat(np.arange(n // 2), 2)
    result = stats.rank_sum(low + n, low)
    assert result.ties
    assert result.count == 2
    assert result.p == 2 / comb(2 * n, n)


def test_large_samples_with_ties_agree_with_the_normal_approximation() -> None:
    random = np.random.default_rng(5)
    x, y = random.integers(0, 50, 110), random.integers(2, 52, 120)
    exact, normal = stats.rank_sum(x, y, method="exact"), stats.rank_sum(x, y, method="normal")
    assert exact.method is stats.PValueMethod.EXACT
    assert exact.p == pytest.approx(normal.p, rel=0.02)


def test_beyond_the_exact_limit_says_normal_or_refuses() -> None:
    x, y = np.arange(201.0), np.arange(200.0) + 0.5
    result = stats.rank_sum(x, y)
    assert result.method is stats.PValueMethod.NORMAL
    assert result.count is None
    with pytest.raises(stats.StatsRefusedError, match="counted exactly up to 400") as refused:
        stats.rank_sum(x, y, method="exact")
    assert refused.value.refusal is stats.Refusal.TOO_LARGE_FOR_EXACT


@given(samples=small_samples)
def test_swapping_the_groups_mirrors_the_test(samples: tuple[list[int], list[int]]) -> None:
    x, y = samples
    forward, back = stats.rank_sum(x, y), stats.rank_sum(y, x)
    assert forward.p == back.p
    assert forward.w + back.w == len(x) * len(y)
    assert stats.rank_sum(x, y, alternative="less").p == stats.rank_sum(y, x, alternative="greater").p


@given(samples=small_samples)
def test_only_ranks_matter(samples: tuple[list[int], list[int]]) -> None:
    x, y = samples
    stretched = stats.rank_sum(np.exp(np.array(x, dtype=float)), np.exp(np.array(y, dtype=float)))
    assert stretched == stats.rank_sum(x, y)


@given(
    n=st.integers(1, 15),
    m=st.integers(1, 15),
    seed=st.integers(0, 2**32 - 1),
    side=st.sampled_from(["two-sided", "greater", "less"]),
)
@settings(max_examples=50, deadline=None)
def test_scipy_agrees_without_ties(n: int, m: int, seed: int, side: str) -> None:
    values = np.random.default_rng(seed).permutation(n + m).astype(float)
    theirs = mannwhitneyu(values[:n], values[n:], alternative=side, method="exact")
    ours = stats.rank_sum(values[:n], values[n:], alternative=side)
    assert ours.w == theirs.statistic
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-12)


def test_all_values_equal_is_no_evidence() -> None:
    result = stats.rank_sum([3.0] * 6, [3.0] * 9)
    assert (result.p, result.ties, result.w) == (1.0, True, 27.0)
    assert stats.rank_sum([3.0] * 6, [3.0] * 9, method="normal").p == 1.0
    assert stats.rank_sum([3.0] * 6, [3.0] * 9, alternative="less").p == 1.0


@given(samples=small_samples, slow=st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_timed_out_executions_are_tied_above_everything(
    samples: tuple[list[int], list[int]], slow: tuple[int, int]
) -> None:
    x, y = samples
    result = stats.rank_sum(x, y, timed_out=slow)
    assert Fraction(result.count, result.total) == enumerated(x + [99] * slow[0], y + [99] * slow[1], "two-sided")
    assert (result.n_treatment, result.n_baseline) == (len(x) + slow[0], len(y) + slow[1])


def test_time_limits_do_not_flatter_the_slower_condition() -> None:
    """Without its ten timed-out executions the treatment would look significantly faster."""
    treatment, baseline = np.arange(10.0), np.arange(20.0) + 5.5
    assert stats.rank_sum(treatment, baseline).p < 0.01
    assert stats.rank_sum(treatment, baseline, timed_out=(10, 0)).p > 0.5
    assert stats.rank_sum([], baseline, timed_out=(20, 0)).p == 2 / comb(40, 20)
    with pytest.raises(stats.StatsRefusedError) as refused:
        stats.rank_sum(treatment, baseline, timed_out=(-1, 0))
    assert refused.value.refusal is stats.Refusal.COUNT_OUT_OF_RANGE
