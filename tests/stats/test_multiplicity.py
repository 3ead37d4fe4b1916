"""Holm's correction and what a design can reach."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagelab import stats

p_values = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@given(p=p_values, alpha=st.sampled_from([0.01, 0.05, 0.2]))
def test_holm_rejects_as_the_step_down_procedure_does(p: list[float], alpha: float) -> None:
    """The procedure in words: walk up the ordered p-values while p_(j) * (k - j + 1) <= alpha."""
    rejected = set()
    order = sorted(range(len(p)), key=lambda i: p[i])
    for step, index in enumerate(order):
        if (len(p) - step) * p[index] > alpha:
            break
        rejected.add(index)
    assert {i for i, r in enumerate(stats.holm(p, alpha=alpha).rejected) if r} == rejected


@given(p=p_values)
def test_adjusted_values_keep_the_order_and_never_shrink(p: list[float]) -> None:
    adjusted = stats.holm(p).adjusted
    for raw, shown in zip(p, adjusted, strict=True):
        assert shown is not None
        assert raw <= shown <= 1
    for i in range(len(p)):
        for j in range(len(p)):
            assert p[i] > p[j] or adjusted[i] <= adjusted[j]


def test_a_contrast_that_could_not_be_tested_still_counts() -> None:
    result = stats.holm([0.01, None, 0.02])
    assert result.adjusted == (0.03, None, 0.04)
    assert result.family == 3
    assert result.rejected == (True, False, True)


def test_holm_refuses_what_is_not_a_p_value() -> None:
    for bad in (-0.1, 1.1, float("nan")):
        with pytest.raises(stats.StatsRefusedError) as refused:
            stats.holm([0.5, bad])
        assert refused.value.refusal is stats.Refusal.P_OUT_OF_RANGE
    with pytest.raises(stats.StatsRefusedError) as empty:
        stats.holm([])
    assert empty.value.refusal is stats.Refusal.EMPTY


def test_five_against_five_is_lost_after_holm_over_seven() -> None:
    reach = stats.reachable(5, 5, contrasts=7)
    assert reach.smallest_p == pytest.approx(0.00794, rel=1e-3)
    assert reach.smallest_adjusted_p == pytest.approx(7 * 2 / 252)
    assert not reach.reachable
    assert reach.smallest_n == 6
    assert "cannot reach" in str(reach)
    assert "use at least 6 executions" in str(reach)
    assert stats.reachable(5, 5, contrasts=6).reachable


@given(contrasts=st.integers(1, 60), alpha=st.sampled_from([0.001, 0.01, 0.05, 0.1]))
def test_smallest_n_is_the_first_that_reaches(contrasts: int, alpha: float) -> None:
    n = stats.reachable(2, 2, contrasts=contrasts, alpha=alpha).smallest_n
    assert stats.reachable(n, n, contrasts=contrasts, alpha=alpha).reachable
    if n > 1:
        assert not stats.reachable(n - 1, n - 1, contrasts=contrasts, alpha=alpha).reachable


@given(n=st.integers(1, 12), m=st.integers(1, 12), contrasts=st.integers(1, 10))
def test_reachable_means_that_complete_separation_survives_holm(n: int, m: int, contrasts: int) -> None:
    p = stats.rank_sum(range(100, 100 + n), range(m)).p
    assert p == float(stats.smallest_p(n, m))
    survives = stats.holm([p] * contrasts).rejected[0]
    assert survives == stats.reachable(n, m, contrasts=contrasts).reachable


def test_smallest_p_one_sided_and_its_bounds() -> None:
    assert stats.smallest_p(20, 20) * comb(40, 20) == 2
    assert stats.smallest_p(5, 5, alternative="less") * 252 == 1
    assert stats.smallest_p(1, 1) == 1
    for n, m, contrasts in [(0, 5, 1), (5, 0, 1), (5, 5, 0)]:
        with pytest.raises(stats.StatsRefusedError) as refused:
            stats.reachable(n, m, contrasts=contrasts)
        assert refused.value.refusal is stats.Refusal.COUNT_OUT_OF_RANGE


def test_ties_can_halve_the_bound_only_with_unequal_groups() -> None:
    """The one case in which the planner's bound is not the smallest p: an extreme with no opposite."""
    assert stats.rank_sum([0.0], [1.0, 1.0]).p == pytest.approx(1 / 3)
    assert float(stats.smallest_p(1, 2)) == pytest.approx(2 / 3)
