"""Pairs: the test of signed ranks and its intervals, against scipy, R's published values and enumeration."""

from __future__ import annotations

from itertools import pairwise, product
from math import expm1, inf, log

import numpy as np
import pytest
from bench.coverage.machines import MACHINES, SHAPES, study
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from pagelab.stats import (
    Interval,
    NotAchievable,
    StatsRefusedError,
    blocks_pay,
    paired_ratio,
    paired_shift,
    pairs_of,
    rank_sum,
    relative_effect,
    signed_rank,
)
from pagelab.stats.wilcoxon import EXACT_PAIRS, untied_signed_cumulative, walsh_order

DEPRESSION = (
    (1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30),
    (0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29),
)
"""Hollander and Wolfe (1973), table 3.1: the example of R's ``?wilcox.test``."""
differences_with_ties = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=10)


def test_the_example_of_r() -> None:
    """R 4: wilcox.test(x, y, paired = TRUE, alternative = "greater"): V = 40, p-value = 0.01953."""
    apart = np.subtract(*map(np.array, DEPRESSION))
    found = signed_rank(apart, alternative="greater")
    assert (found.w, round(found.p, 5)) == (40.0, 0.01953)


@given(differences_with_ties)
def test_p_is_that_of_every_choice_of_signs(values: list[float]) -> None:
    differences = np.array(values)
    differ = differences != 0
    ranks = scipy_stats.rankdata(np.abs(differences))[differ]
    observed = float(ranks[differences[differ] > 0].sum())
    sums = [float(np.dot(ranks, signs)) for signs in product((0, 1), repeat=len(ranks))]
    middle = ranks.sum() / 2
    expected = {
        "two-sided": np.mean([abs(each - middle) >= abs(observed - middle) - 1e-9 for each in sums]),
        "greater": np.mean([each >= observed - 1e-9 for each in sums]),
        "less": np.mean([each <= observed + 1e-9 for each in sums]),
    }
    for side, p in expected.items():
        assert signed_rank(differences, alternative=side).p == pytest.approx(p)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [6, 11, 25, 50])
def test_p_is_scipy_s(size: int) -> None:
    differences = np.random.default_rng(size).normal(0.3, 1, size)
    for side in ("two-sided", "greater", "less"):
        expected = scipy_stats.wilcoxon(differences, alternative=side, method="exact").pvalue
        assert signed_rank(differences, alternative=side).p == pytest.approx(expected)  # type: ignore[arg-type]


def test_beyond_the_limit_the_normal_approximation_is_near_the_exact_p() -> None:
    differences = np.random.default_rng(3).normal(0.1, 1, EXACT_PAIRS)
    exact, normal = signed_rank(differences), signed_rank(differences, method="normal")
    assert (str(exact.method), str(normal.method)) == ("exact", "normal")
    assert normal.p == pytest.approx(exact.p, rel=0.02)
    more = np.append(differences, 0.01)
    assert str(signed_rank(more).method) == "normal"
    with pytest.raises(StatsRefusedError, match="counted exactly up to 300"):
        signed_rank(more, method="exact")


def test_swapping_the_conditions_mirrors_everything() -> None:
    random = np.random.default_rng(5)
    x, y = np.exp(random.normal(size=(2, 12)))
    blocks = np.arange(12)
    one, other = (pairs_of(a, b, treatment_blocks=blocks, baseline_blocks=blocks) for a, b in ((x, y), (y, x)))
    assert signed_rank(one.apart()).p == signed_rank(other.apart()).p
    first, second = paired_ratio(one), paired_ratio(other)
    assert isinstance(first.interval, Interval)
    assert isinstance(second.interval, Interval)
    assert 1 + first.percent / 100 == pytest.approx(1 / (1 + second.percent / 100))
    assert 1 + first.interval.low / 100 == pytest.approx(1 / (1 + second.interval.high / 100))


@given(st.integers(6, 14), st.integers(0, 2**32 - 1), st.sampled_from([0.8, 0.95, 0.99]))
def test_the_interval_holds_what_the_test_does_not_reject(size: int, seed: int, level: float) -> None:
    """Just inside either end the test of the shift accepts, just outside it rejects."""
    differences = np.random.default_rng(seed).normal(size=size)
    interval = paired_shift(differences, level=level).interval
    if isinstance(interval, NotAchievable):
        assert 2 / 2**size > 1 - level
        return
    for inside, end in ((1e-9, interval.low), (-1e-9, interval.high)):
        assert signed_rank(differences - end - inside).p > 1 - level - 1e-9
        assert signed_rank(differences - end + inside).p <= 1 - level + 1e-9


def test_the_estimate_is_the_median_of_all_averages() -> None:
    differences = np.array([1.0, 4.0, 2.5, -3.0, 0.5, 8.0, 2.0])
    averages = [(a + b) / 2 for i, a in enumerate(differences) for b in differences[i:]]
    assert paired_shift(differences).estimate == pytest.approx(np.median(averages))


def test_achieved_levels_are_those_of_the_tables() -> None:
    """Hollander and Wolfe's table: n = 6 gives 96.9% with the range, n = 10 k = 9 gives 95.1%."""
    six, ten = walsh_order(6, 0.95), walsh_order(10, 0.95)
    assert not isinstance(six, NotAchievable)
    assert not isinstance(ten, NotAchievable)
    assert (six.low, six.achieved) == (1, pytest.approx(0.96875))
    assert (ten.low, round(ten.achieved or 0, 3)) == (9, 0.951)
    assert walsh_order(5, 0.95) == NotAchievable(0.95, 0.9375, 6)
    assert untied_signed_cumulative(3) == (1, 2, 3, 5)


@given(st.integers(6, 30), st.integers(0, 2**32 - 1))
def test_the_any_shape_interval_is_never_shorter_and_agrees_with_a_plain_count(size: int, seed: int) -> None:
    differences = np.random.default_rng(seed).exponential(size=size)
    found = paired_shift(differences)
    assert isinstance(found.interval, Interval)
    assert isinstance(found.any_shape, Interval)
    assert found.any_shape.low <= found.interval.low <= found.estimate <= found.interval.high <= found.any_shape.high
    reach = float(scipy_stats.t.ppf(0.975, size - 1))

    def rejected(shift: float) -> bool:
        above = (differences[:, None] + differences[None, :] > 2 * shift).mean(axis=1)
        error = 2 * above.std(ddof=1) / np.sqrt(size)
        return bool(abs(above.mean() - 0.5) > reach * error)

    averages = np.sort((differences[:, None] + differences[None, :])[np.triu_indices(size)] / 2)
    below = [shift for shift in averages if shift < found.any_shape.low]
    assert all(rejected((a + b) / 2) for a, b in pairwise([*below, found.any_shape.low]) if b - a > 1e-9)


def test_blocks_that_lack_a_condition_are_counted_and_left_out() -> None:
    pairs = pairs_of([1.0, 2.0, 3.0], [5.0, 7.0], treatment_blocks=[0, 1, 2], baseline_blocks=[2, 1])
    assert (len(pairs), pairs.left_out_treatment, pairs.left_out_baseline) == (2, 1, 0)
    assert pairs.treatment.tolist() == [2.0, 3.0]
    assert pairs.baseline.tolist() == [7.0, 5.0]


def test_what_is_no_pair_is_refused() -> None:
    with pytest.raises(StatsRefusedError, match="several executions"):
        pairs_of([1.0, 2.0], [1.0], treatment_blocks=[0, 0], baseline_blocks=[0])
    with pytest.raises(StatsRefusedError, match="no block has executions of both"):
        pairs_of([1.0], [1.0], treatment_blocks=[0], baseline_blocks=[1])
    with pytest.raises(StatsRefusedError, match="block labels"):
        pairs_of([1.0], [1.0], treatment_blocks=[0, 1], baseline_blocks=[1])


def test_a_time_out_is_beyond_every_finished_execution_and_two_are_equal() -> None:
    blocks = np.arange(7)
    pairs = pairs_of([inf] * 7, [1.0] * 6 + [inf], treatment_blocks=blocks, baseline_blocks=blocks)
    assert pairs.apart().tolist() == [inf] * 6 + [0.0]
    assert signed_rank(pairs.apart()).p == 2 / 2**6
    assert len(pairs.finished) == 0


def test_where_a_value_is_zero_differences_stand_in_for_ratios() -> None:
    blocks = np.arange(6)
    pairs = pairs_of([0.0, 1, 2, 3, 4, 5], [1.0] * 6, treatment_blocks=blocks, baseline_blocks=blocks)
    assert pairs.scale == "difference"
    assert pairs.apart().tolist() == [-1, 0, 1, 2, 3, 4]
    with pytest.raises(StatsRefusedError, match="use the shift"):
        paired_ratio(pairs)


def test_equal_times_are_no_difference_whatever_their_logarithms_round_to() -> None:
    times = np.array([0.1, 0.2, 0.3, 0.7, 1.1, 1.3])
    blocks = np.arange(6)
    pairs = pairs_of(times * (1 + 1e-15), times, treatment_blocks=blocks, baseline_blocks=blocks)
    assert signed_rank(pairs.apart()).p == 1.0


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("shape", SHAPES)
def test_false_alarms_and_coverage_are_as_said_on_every_machine(machine: str, shape: str) -> None:
    """400 studies of 12 blocks each: more than 8.3% would be three standard errors beyond 5%."""
    random = np.random.default_rng([7, *map(ord, machine + shape)])
    effect, alarms, covered, narrower = log(1.1), 0, 0, []
    for _ in range(400):
        one = study(random, MACHINES[machine], (SHAPES[shape], SHAPES[shape]), (0.0, effect), 12)
        baseline, treatment = one.times.T
        pairs = pairs_of(treatment, baseline, treatment_blocks=one.blocks, baseline_blocks=one.blocks)
        alarms += signed_rank(np.round(pairs.apart() - effect, 12)).p <= 0.05
        found = paired_ratio(pairs)
        loose = relative_effect(treatment, baseline)
        assert isinstance(found.interval, Interval)
        assert isinstance(loose.interval, Interval)
        covered += found.interval.low - 1e-9 <= 100 * expm1(effect) <= found.interval.high + 1e-9
        narrower.append(found.interval.half_width / loose.interval.half_width)
    assert alarms <= 33
    assert covered >= 400 - 33
    if machine in ("bursts", "drifting") and shape in ("steady", "heavy tails"):
        assert np.median(narrower) < 0.85


def test_pairs_find_what_drift_hides() -> None:
    baseline = np.linspace(10, 20, 12)
    treatment = baseline * 1.03
    blocks = np.arange(12)
    pairs = pairs_of(treatment, baseline, treatment_blocks=blocks, baseline_blocks=blocks)
    assert signed_rank(pairs.apart()).p == 2 / 2**12
    assert rank_sum(treatment, baseline).p > 0.5
    pay = blocks_pay(pairs)
    assert pay is not None
    assert (pay.pays, round(pay.correlation, 6)) == (True, 1.0)


def test_blocks_that_do_not_pay_are_told() -> None:
    """Slow against fast within every block, and the other way round in the next: negative correlation."""
    x = np.array([1.0, 2.0] * 6) + np.arange(12) / 100
    y = np.array([2.0, 1.0] * 6) + np.arange(12) / 100
    blocks = np.arange(12)
    pay = blocks_pay(pairs_of(x, y, treatment_blocks=blocks, baseline_blocks=blocks))
    assert pay is not None
    assert not pay.pays
    assert pay.correlation < 0
