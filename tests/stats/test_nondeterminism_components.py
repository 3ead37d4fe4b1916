"""Variance components and plans: definitions, unbalanced data, brute force."""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from pagelab.stats import nondeterminism as nd
from pagelab.stats.refusal import Refusal, StatsRefusedError


def two_levels(between: float, within: float, shape: tuple[int, int] = (10, 20), seed: int = 1) -> nd.Executions:
    random = np.random.default_rng(seed)
    return nd.Executions.of(100 + random.normal(0, between, (shape[0], 1)) + random.normal(0, within, shape))


def test_balanced_components_are_kalibera_and_jones_s() -> None:
    random = np.random.default_rng(3)
    data = 50 + random.normal(0, 2, (4, 1, 1)) + random.normal(0, 1, (4, 6, 1)) + random.normal(0, 3, (4, 6, 9))
    found = nd.nested_components(data.tolist(), ("measurement", "execution", "compilation"))
    s1 = data.var(axis=2, ddof=1).mean()
    s2 = data.mean(axis=2).var(axis=1, ddof=1).mean()
    s3 = data.mean(axis=(1, 2)).var(ddof=1)
    assert [level.variance_of_means for level in found.levels] == pytest.approx([s1, s2, s3])
    assert [level.raw for level in found.levels] == pytest.approx([s1, s2 - s1 / 9, s3 - s2 / 6])
    assert [level.units for level in found.levels] == [216, 24, 4]
    half = student.ppf(0.975, 3) * sqrt(s3 / 4)
    assert (found.interval.low, found.interval.high) == pytest.approx((data.mean() - half, data.mean() + half))
    assert found.balanced


def test_components_of_ragged_data_are_unbiased() -> None:
    """Executions of 2 to 12 measurements whose own spread grows with their number; 3,000 experiments."""
    random = np.random.default_rng(5)
    counts = [2, 3, 5, 8, 12]
    within = [1.0, 2.0, 2.0, 3.0, 4.0]
    found = []
    for _ in range(3_000):
        rows = [
            100 + random.normal(0, 1.5) + random.normal(0, spread, count)
            for count, spread in zip(counts, within, strict=True)
        ]
        found.append([level.raw for level in nd.variance_components(nd.Executions.of(rows)).levels])
    mean = np.mean(np.array(found, dtype=float), axis=0)
    assert mean[0] == pytest.approx(np.mean(np.square(within)), rel=0.03)
    assert mean[1] == pytest.approx(1.5**2, rel=0.08)


def test_the_mean_counts_executions_alike_and_agrees_with_the_table() -> None:
    data = nd.Executions.of([[1.0, 3.0], [4.0, 4.0, 4.0, 4.0], [6.0]])
    found = nd.variance_components(data)
    assert found.mean == pytest.approx(4.0)
    assert not found.balanced
    assert found.levels[0].variance == pytest.approx(1.0)  # of the two executions that have one
    assert found.levels[1].raw == pytest.approx(4.0 - (1.0 + 0.0 + 1.0) / 3)
    table = nd.characterize([nd.Experiment("g", "c", data)], nd.Resampling(seed=1))
    estimate = table.estimate(0, nd.Metric.MEAN)
    assert isinstance(estimate, nd.Estimate)
    ends = estimate.interval.low, estimate.interval.high
    assert ends == pytest.approx((found.interval.low, found.interval.high))
    assert table.columns["between_means"][0] - table.columns["within_share"][0] == pytest.approx(found.levels[1].raw)


def test_a_negative_component_is_shown_and_set_to_zero() -> None:
    random = np.random.default_rng(1)
    row = random.normal(100, 1, 20)
    found = nd.variance_components(nd.Executions.of([random.permutation(row) for _ in range(5)]))
    (negative,) = found.negative
    assert (negative.level, negative.variance) == ("execution", 0.0)
    assert negative.raw == pytest.approx(-row.var(ddof=1) / 20)


def test_single_measurements_have_no_component_inside() -> None:
    found = nd.variance_components(nd.Executions.of([[1.0], [2.0], [4.0]]))
    assert [level.raw for level in found.levels] == [None, None]
    assert found.levels[1].variance_of_means == pytest.approx(7 / 3)
    with pytest.raises(StatsRefusedError, match="measure twice"):
        nd.cheapest_plan(found, half_width=1, execution_cost=1, measurement_cost=1)


def test_what_cannot_be_nested_is_refused() -> None:
    for nested, refusal in (
        ([[1.0, 2.0]], Refusal.ONE_EXECUTION),
        ([[1.0], []], Refusal.EMPTY),
        ([[1.0, -2.0], [1.0, 2.0]], Refusal.NOT_POSITIVE),
    ):
        with pytest.raises(StatsRefusedError) as caught:
            nd.nested_components(nested, ("measurement", "execution"))
        assert caught.value.refusal is refusal
    with pytest.raises(StatsRefusedError) as caught:
        nd.nested_components([[1.0, 2.0], [3.0, 4.0]], ("measurement", "execution", "compilation"))
    assert caught.value.refusal is Refusal.NOT_ONE_DIMENSIONAL


@settings(max_examples=40, deadline=None)
@given(
    between=st.sampled_from([0.0, 0.5, 2.0]),
    within=st.sampled_from([0.0, 1.0, 6.0]),
    half_width=st.sampled_from([0.8, 1.5, 4.0]),
    execution_cost=st.sampled_from([0.0, 1.0, 30.0]),
    most=st.sampled_from([3, 1_000]),
)
def test_no_plan_is_cheaper(between: float, within: float, half_width: float, execution_cost: float, most: int) -> None:
    """Against all plans of up to 400 executions of up to 60 measurements."""
    levels = (nd.Component("measurement", 200, within, within), nd.Component("execution", 10, between, between))
    interval = nd.variance_components(two_levels(1, 1)).interval
    components = nd.Components(100.0, interval, levels, True)
    n, m = np.arange(2, 400)[:, None], np.arange(1, min(60, most) + 1)[None]
    expected = student.ppf(0.975, n - 1) * np.sqrt((between + within / m) / n)
    cost = np.where(expected <= half_width * (1 + 1e-12), n * (execution_cost + m), np.inf)
    found = nd.cheapest_plan(
        components, half_width=half_width, execution_cost=execution_cost, measurement_cost=1, most_measurements=most
    )
    assert found.half_width <= half_width * (1 + 1e-9)
    assert found.cost == pytest.approx(found.executions * (execution_cost + found.measurements))
    assert found.measurements <= most
    assert found.cost <= cost.min() * (1 + 1e-12)


def test_plans_that_cannot_be_are_refused() -> None:
    components = nd.variance_components(two_levels(10, 1))
    with pytest.raises(StatsRefusedError) as caught:
        nd.cheapest_plan(components, half_width=1e-4, execution_cost=1, measurement_cost=1)
    assert caught.value.refusal is Refusal.OUT_OF_REACH
    for half_width, cost in ((0.0, 1.0), (float("nan"), 1.0), (1.0, 0.0)):
        with pytest.raises(StatsRefusedError) as caught:
            nd.cheapest_plan(components, half_width=half_width, execution_cost=1, measurement_cost=cost)
        assert caught.value.refusal is Refusal.COUNT_OUT_OF_RANGE


def test_repetitions_are_the_square_root_of_costs_and_components() -> None:
    components = nd.variance_components(two_levels(1, 4, (40, 50)))
    within, between = (level.variance for level in components.levels)
    assert within is not None
    assert between is not None
    assert nd.repetitions(components, (1, 25)) == (ceil(5 * sqrt(within / between)),)
    with pytest.raises(StatsRefusedError):
        nd.repetitions(components, (1, 2, 3))
    flat = nd.variance_components(nd.Executions.of(np.tile([1.0, 2.0, 3.0], (4, 1))))
    with pytest.raises(StatsRefusedError, match="in one of them"):
        nd.repetitions(flat, (1, 1))


def test_the_plan_delivers_what_it_promises() -> None:
    """1,500 studies run by the plan have that half-width on average."""
    levels = (nd.Component("measurement", 200, 25.0, 25.0), nd.Component("execution", 10, 4.0, 4.0))
    components = nd.Components(100.0, nd.variance_components(two_levels(1, 1)).interval, levels, True)
    plan = nd.cheapest_plan(components, half_width=1.0, execution_cost=20, measurement_cost=1)
    widths = [
        nd.variance_components(two_levels(2, 5, (plan.executions, plan.measurements), seed)).interval.half_width
        for seed in range(1_500)
    ]
    assert np.mean(widths) == pytest.approx(plan.half_width, rel=0.05)
