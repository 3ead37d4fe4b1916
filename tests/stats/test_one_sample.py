"""Summary, intervals for one condition, aggregation to executions, and what is refused."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binom, t

from pagelab import stats
from pagelab.stats import median

finite = st.floats(-1e6, 1e6)


@given(values=st.lists(finite, min_size=1, max_size=40))
def test_five_numbers_are_ordered_and_from_the_data(values: list[float]) -> None:
    five = stats.summarize(values).five
    assert list(five) == sorted(five)
    assert (five[0], five[4]) == (min(values), max(values))
    assert five[2] == pytest.approx(np.median(values), rel=1e-12, abs=1e-9)


def test_hinges_include_the_middle_value_in_both_halves() -> None:
    """Tukey's hinges of 1 … 9 are 3 and 7; R's default quartiles of 1 … 8 differ from the hinges."""
    assert stats.summarize(range(1, 10)).five == (1, 3, 5, 7, 9)
    assert stats.summarize(range(1, 9)).five == (1, 2.5, 4.5, 6.5, 8)
    assert tuple(np.quantile(np.arange(1, 9), [0.25, 0.75])) == (2.75, 6.25)


def test_what_does_not_exist_is_none() -> None:
    one = stats.summarize([4.0])
    assert (one.sd, one.cv, one.five) == (None, None, (4.0,) * 5)
    assert stats.summarize([-1.0, 1.0]).cv is None
    assert stats.summarize([-3.0, -1.0]).cv is None
    constant = stats.summarize([0.1] * 3)
    assert (constant.mean, constant.sd, constant.cv) == (0.1, 0.0, 0.0)


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ([], stats.Refusal.EMPTY),
        ([[1.0, 2.0]], stats.Refusal.NOT_ONE_DIMENSIONAL),
        (3.0, stats.Refusal.NOT_ONE_DIMENSIONAL),
        ([1.0, float("nan")], stats.Refusal.NOT_FINITE),
        ([1.0, float("inf")], stats.Refusal.NOT_FINITE),
        ([1.0, None], stats.Refusal.NOT_FINITE),
        (["fast", "slow"], stats.Refusal.NOT_NUMERIC),
    ],
)
@pytest.mark.parametrize(
    "statistic",
    [
        stats.summarize,
        stats.median_interval,
        lambda v: stats.mean_interval(v, seed=1),
        lambda v: stats.rank_sum(v, [1.0]),
        lambda v: stats.rank_sum([1.0], v),
        lambda v: stats.hodges_lehmann(v, [1.0]),
        lambda v: stats.relative_effect([1.0], v),
    ],
)
def test_bad_samples_are_refused_by_name(statistic, values: object, refusal: stats.Refusal) -> None:
    with pytest.raises(stats.StatsRefusedError) as refused:
        statistic(values)
    assert refused.value.refusal is refusal


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 95, float("nan")])
def test_levels_outside_0_and_1_are_refused(level: float) -> None:
    for call in (
        lambda: stats.median_interval([1.0], level=level),
        lambda: stats.mean_interval([1.0], level=level, seed=1),
        lambda: stats.hodges_lehmann([1.0], [2.0], level=level),
        lambda: stats.reachable(5, 5, contrasts=1, alpha=level),
        lambda: stats.holm([0.1], alpha=level),
        lambda: stats.PrecisionPlan((20, 40), 0.02, level=level),
    ):
        with pytest.raises(stats.StatsRefusedError) as refused:
            call()
        assert refused.value.refusal is stats.Refusal.LEVEL_OUT_OF_RANGE


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_median_interval_has_its_level_and_is_the_shortest_that_has(level: float) -> None:
    for n in range(1, 60):
        values = np.arange(n, dtype=float)
        interval = stats.median_interval(values, level=level).interval
        if isinstance(interval, stats.NotAchievable):
            assert interval.best == pytest.approx(1 - 2 * 0.5**n)
            assert interval.best < level
            assert n < interval.smallest_n
            continue
        k = round(interval.low) + 1
        assert interval.high == n - k
        assert interval.achieved == pytest.approx(1 - 2 * binom.cdf(k - 1, n, 0.5), rel=1e-12)
        assert interval.achieved >= level
        shorter_exists = k < (n + 1) // 2
        assert not shorter_exists or 1 - 2 * binom.cdf(k, n, 0.5) < level + 1e-12


@pytest.mark.parametrize("level", [0.9, 0.95, 0.9875, 0.999])
def test_the_median_of_many_has_the_order_that_is_counted(level: float) -> None:
    """Regression: 10,000 values took 14 s, and 100,000 two hours."""
    for n in (11, 500, 3001, 10_000):
        k, achieved = median._median_order(n, level)  # type: ignore[misc]
        assert median._order_of_many(n, level) == (k, pytest.approx(achieved, abs=1e-11))
    interval = stats.median_interval(np.arange(100_000), level=level).interval
    assert isinstance(interval, stats.Interval)
    assert interval.low + interval.high == 99_999
    assert level <= interval.achieved <= level + 0.001  # type: ignore[operator]


def test_median_interval_at_the_smallest_n() -> None:
    assert isinstance(stats.median_interval(range(5)).interval, stats.NotAchievable)
    six = stats.median_interval(range(6)).interval
    assert isinstance(six, stats.Interval)
    assert (six.low, six.high, six.achieved) == (0, 5, 1 - 2 / 64)


def test_mean_interval_is_reproducible_and_seeded() -> None:
    values = np.random.default_rng(1).lognormal(size=15)
    first, again = stats.mean_interval(values, seed=7), stats.mean_interval(values, seed=7)
    other = stats.mean_interval(values, seed=8)
    assert first == again
    assert first.interval != other.interval
    assert (first.seed, first.resamples) == (7, 10_000)
    assert first.estimate == values.mean()


@pytest.mark.parametrize("n", [10, 20, 40])
def test_mean_interval_has_the_width_of_student_t_on_regular_data(n: int) -> None:
    """On equally spaced values the bootstrap distribution is nearly normal; from ten
    executions on, the widened percentiles give t's width (below, no resample reaches beyond the extremes)."""
    values = np.linspace(-1, 1, n)
    interval = stats.mean_interval(values, seed=3, resamples=100_000).interval
    assert isinstance(interval, stats.Interval)
    half_width = t.ppf(0.975, n - 1) * values.std(ddof=1) / sqrt(n)
    assert interval.half_width == pytest.approx(half_width, rel=0.05)
    assert interval.achieved is None


def test_mean_interval_memory_is_bounded_by_chunks_without_changing_the_recipe(monkeypatch) -> None:
    from pagelab.stats import mean

    values = np.random.default_rng(2).normal(size=10)
    whole = stats.mean_interval(values, seed=1, resamples=1000)
    monkeypatch.setattr(mean, "_CHUNK", 970)
    assert stats.mean_interval(values, seed=1, resamples=1000) == whole


def test_mean_interval_of_too_few_is_not_achievable() -> None:
    for n in range(1, 6):
        interval = stats.mean_interval(np.arange(n), seed=1).interval
        assert isinstance(interval, stats.NotAchievable)
        assert interval.smallest_n == 6
    assert isinstance(stats.mean_interval(range(6), seed=1).interval, stats.Interval)
    with pytest.raises(stats.StatsRefusedError) as refused:
        stats.mean_interval(range(6), seed=1, resamples=10)
    assert refused.value.refusal is stats.Refusal.COUNT_OUT_OF_RANGE


@given(data=arrays(np.float64, st.integers(1, 30), elements=finite), seed=st.integers(0, 1000))
def test_execution_means_do_not_depend_on_how_rows_are_interleaved(data: np.ndarray, seed: int) -> None:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 5, data.size)
    result = stats.execution_means(labels, data)
    for execution, mean, count in zip(result.execution, result.mean, result.measurements, strict=True):
        assert mean == pytest.approx(data[labels == execution].mean(), rel=1e-12, abs=1e-12)
        assert count == (labels == execution).sum()
    assert list(result.execution) == list(dict.fromkeys(labels))


def test_execution_means_weigh_executions_alike_and_drop_warm_ups() -> None:
    result = stats.execution_means(["b", "a", "b", "b"], [100.0, 1.0, 2.0, 4.0], drop_first=0)
    assert list(result.execution) == ["b", "a"]
    warm = stats.execution_means(["b", "b", "b", "a", "a"], [100.0, 2.0, 4.0, 50.0, 1.0], drop_first=1)
    assert list(warm.mean) == [3.0, 1.0]
    assert list(warm.measurements) == [2, 1]
    with pytest.raises(stats.StatsRefusedError, match="execution a: 1 measurements, none left") as refused:
        stats.execution_means(["b", "b", "a"], [1.0, 2.0, 3.0], drop_first=1)
    assert refused.value.refusal is stats.Refusal.EMPTY
    with pytest.raises(stats.StatsRefusedError) as lengths:
        stats.execution_means(["a"], [1.0, 2.0])
    assert lengths.value.refusal is stats.Refusal.LENGTHS_DIFFER


@pytest.mark.parametrize("scale", [1e-200, 1e-300, 1e200, 1e307])
def test_the_unit_does_not_matter_to_a_summary(scale: float) -> None:
    """The spread of times of 1e-200 was 0, without a word; of 1e200 it was refused."""
    values = np.array([1.0, 2.0, 4.0, 8.0])
    found, plain = stats.summarize(values * scale), stats.summarize(values)
    assert found.cv == pytest.approx(plain.cv, rel=1e-12)
    assert found.mean == pytest.approx(plain.mean * scale, rel=1e-12)


def test_sums_beyond_the_doubles_are_refused_not_infinite() -> None:
    with pytest.raises(stats.StatsRefusedError) as refused:
        stats.execution_means([1, 1, 2, 2], [1.7e308] * 4)
    assert refused.value.refusal is stats.Refusal.OVERFLOW
    assert stats.summarize([-1e308, 1e308]).median == 0
    big = np.linspace(1.0e308, 1.1e308, 8)
    assert stats.relative_effect(big, big * 0.9).percent == pytest.approx(100 / 9, rel=0.01)


def test_percentiles_far_out_have_enough_resamples_or_are_refused() -> None:
    """Above 99%, an end was the least of 10,000 resamples, whatever the level."""
    values = np.random.default_rng(1).normal(100, 1, 30)
    found = stats.mean_interval(values, level=0.999, seed=1)
    assert found.resamples is not None
    assert found.resamples * stats.mean.widened_tail(30, 0.0005) >= 20
    with pytest.raises(stats.StatsRefusedError) as refused:
        stats.mean_interval(values[:12], level=0.999, seed=1)
    assert refused.value.refusal is stats.Refusal.COUNT_OUT_OF_RANGE
