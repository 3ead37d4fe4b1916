"""The geometric mean over programs: against enumeration by hand, its duality, its edges, and known truths."""

from __future__ import annotations

from itertools import product
from math import comb, exp, log

import numpy as np
import pytest
from bench.coverage.sets import CELLS, Cell, ratios_of, simulate, truth
from hypothesis import given
from hypothesis import strategies as st

from pagelab import stats
from pagelab.stats.set_mean import DRAWN, EXACT_PROGRAMS, smallest_set_p

LOGS = st.lists(st.integers(-40, 40), min_size=1, max_size=9)


def naive_p(logs: list[float], centre: float) -> float:
    """Of "the ratio is exp(centre)": every choice of signs, its sum by hand."""
    apart = [d - centre for d in logs]
    observed, slack = sum(apart), 1e-9 * max(1.0, sum(map(abs, apart)))
    sums = [sum(s * d for s, d in zip(signs, apart, strict=True)) for signs in product((-1, 1), repeat=len(apart))]
    tails = sum(s >= observed - slack for s in sums), sum(s <= observed + slack for s in sums)
    return min(1.0, 2 * min(tails) / len(sums))


@given(LOGS)
def test_p_is_that_of_every_choice_of_signs(whole: list[int]) -> None:
    logs = [d / 100 for d in whole]
    found = stats.set_ratio(np.exp(logs))
    assert found.p == pytest.approx(naive_p(logs, 0.0))
    assert found.ratio == pytest.approx(exp(sum(logs) / len(logs)))
    assert (found.below, found.above) == (sum(d < 0 for d in whole), sum(d > 0 for d in whole))


@given(st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=6, max_size=9, unique=True))
def test_the_interval_holds_what_the_test_does_not_reject(logs: list[float]) -> None:
    found = stats.set_ratio(np.exp(logs))
    assert isinstance(found.interval, stats.Interval)
    low, high = log(found.interval.low), log(found.interval.high)
    step = 1e-6
    for inside in (low + step, high - step):
        if low + step < high - step:
            assert naive_p(logs, inside) > 0.05
    for outside in (low - step, high + step):
        assert naive_p(logs, outside) <= 0.05
    assert found.interval.low <= found.ratio <= found.interval.high


def test_known_values() -> None:
    """Seven programs that are all 10% slower: the least p of seven, and no width."""
    found = stats.set_ratio([1.1] * 7)
    assert found.p == 2 / 2**7
    assert found.ratio == pytest.approx(1.1)
    assert isinstance(found.interval, stats.Interval)
    assert (found.interval.low, found.interval.high) == pytest.approx((1.1, 1.1))
    assert found.interval.achieved == pytest.approx(1 - 2 * 3 / 2**7)
    assert stats.set_ratio([2.0, 0.5]).ratio == pytest.approx(1)
    assert stats.set_ratio([1.0] * 30).p == 1


def test_drawn_choices_agree_with_all_of_them() -> None:
    """One program more than are counted, in a binomial case: 12 of 15 equal ratios above 1."""
    n = EXACT_PROGRAMS + 1
    found = stats.set_ratio([1.1] * (n - 3) + [1 / 1.1] * 3)
    exact = 2 * sum(comb(n, k) for k in range(4)) / 2**n
    assert found.method == stats.PValueMethod.DRAWN
    assert found.p == pytest.approx(exact, abs=4 * (exact / DRAWN) ** 0.5)
    assert found == stats.set_ratio([1.1] * (n - 3) + [1 / 1.1] * 3)
    assert stats.set_ratio([1.1] * 40).p == pytest.approx(2 / (DRAWN + 1))


@pytest.mark.parametrize(("level", "comparisons"), [(0.95, 2), (0.99995, 1), (0.999, 12)])
def test_every_level_has_choices_in_its_tails(level: float, comparisons: int) -> None:
    """Regression: from level 0.9999 on the interval was an IndexError, and after Holm no p could be small enough."""
    found = stats.set_ratio([1.1, 1.2] * 9, level=level, comparisons=comparisons)
    assert isinstance(found.interval, stats.Interval)
    assert found.interval.low > 1
    assert found.interval.achieved == pytest.approx(level, abs=1e-9)
    assert found.p * comparisons <= 1 - level
    assert found.p >= float(smallest_set_p(18, level, comparisons))


def test_a_level_beyond_all_drawn_choices_has_no_interval() -> None:
    assert isinstance(stats.set_ratio([1.1] * 30, level=1 - 1e-7).interval, stats.NotAchievable)
    assert float(smallest_set_p(30, 1 - 1e-7)) > 1e-7


def test_exchanging_policy_and_baseline_exchanges_the_answer() -> None:
    ratios = np.exp(np.random.default_rng(3).normal(0.05, 0.2, 12))
    one, other = stats.set_ratio(ratios), stats.set_ratio(1 / ratios)
    assert other.ratio == pytest.approx(1 / one.ratio)
    assert other.p == one.p
    assert isinstance(one.interval, stats.Interval)
    assert isinstance(other.interval, stats.Interval)
    assert (other.interval.low, other.interval.high) == pytest.approx((1 / one.interval.high, 1 / one.interval.low))


def test_few_programs_have_no_interval_and_bad_ratios_are_refused() -> None:
    few = stats.set_ratio([1.1] * 5)
    assert isinstance(few.interval, stats.NotAchievable)
    assert few.interval.smallest_n == 6
    for bad, refusal in (([1.0, 0.0], "not-positive"), ([], "empty"), ([1.0, float("nan")], "not-finite")):
        with pytest.raises(stats.StatsRefusedError) as error:
            stats.set_ratio(bad)
        assert error.value.refusal == refusal


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_simulated_sets_of_known_truth(cell: Cell) -> None:
    """Small: 60 sets of 20 programs. The share of sets that miss is within four standard errors of 5%."""
    true = truth(cell, 6, programs=3_000)
    found = simulate(cell, programs=20, executions=6, experiments=60, seed=11, true=true)
    error = 4 * (0.05 * 0.95 / 60) ** 0.5
    for quantity in ("time", "spread"):
        assert found[quantity].covered >= 0.95 - error
        if true[quantity] == 1:
            assert found[quantity].rejected <= 0.05 + error


def test_a_simulated_set_is_what_it_says() -> None:
    """Twice the time and half the spread, without variety between programs."""
    cell = Cell("x", log(2), log(0.5))
    times, spreads = ratios_of(cell, np.random.default_rng(1), programs=400, executions=6)
    assert exp(np.log(times).mean()) == pytest.approx(2, rel=0.02)
    assert exp(np.log(spreads).mean()) == pytest.approx(0.5, rel=0.15)
