"""Hodges-Lehmann shift, relative effect, and their intervals."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagelab import stats

distinct_split = st.tuples(st.integers(1, 9), st.integers(1, 9), st.randoms(use_true_random=False))


def split(n: int, m: int, random: object) -> tuple[np.ndarray, np.ndarray]:
    values = [float(v) for v in range(n + m)]
    random.shuffle(values)
    return np.array(values[:n]), np.array(values[n:])


@given(case=distinct_split, level=st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99]))
@settings(deadline=None)
def test_interval_excludes_zero_exactly_when_the_test_rejects(case, level: float) -> None:
    """Duality: with no ties the interval holds the shifts that the exact test does not reject."""
    x, y = split(*case)
    interval = stats.hodges_lehmann(x, y, level=level).interval
    if isinstance(interval, stats.NotAchievable):
        assert float(stats.smallest_p(x.size, y.size)) > 1 - level - 1e-12
        return
    assert interval.achieved is not None
    assert interval.achieved >= level
    assert (0.0 not in interval) == (stats.rank_sum(x, y).p <= 1 - interval.achieved + 1e-12)


@pytest.mark.parametrize(("n", "m", "level"), [(3, 3, 0.8), (4, 3, 0.9), (2, 5, 0.8)])
def test_achieved_level_is_the_coverage_over_all_rank_orders(n: int, m: int, level: float) -> None:
    """Every order of N distinct values is equally likely when the true shift is 0."""
    covered = total = 0
    achieved = None
    for order in permutations(range(n + m)):
        interval = stats.hodges_lehmann(order[:n], order[n:], level=level).interval
        assert isinstance(interval, stats.Interval)
        covered += 0.0 in interval
        total += 1
        achieved = interval.achieved
    assert covered / total == pytest.approx(achieved, rel=1e-12)
    assert covered / total >= level


def test_interval_is_as_short_as_the_level_allows() -> None:
    """3 against 3: P(U = 0) = 1/20, so the whole range has level 0.9, and 0.9 is met with equality."""
    result = stats.hodges_lehmann([1.0, 5.0, 9.0], [0.0, 2.5, 4.0], level=0.9)
    assert isinstance(result.interval, stats.Interval)
    assert result.interval.achieved == 0.9
    assert (result.interval.low, result.interval.high) == (-3.0, 9.0)


def test_with_ties_the_interval_covers_at_least_its_level() -> None:
    """Rounding to whole units makes ties everywhere; a shift by whole units stays a pure shift."""
    random = np.random.default_rng(11)
    covered, runs = 0, 2000
    achieved = 0.0
    for _ in range(runs):
        x, y = random.normal(0, 1.2, 8).round() + 3, random.normal(0, 1.2, 9).round()
        shift = stats.hodges_lehmann(x, y)
        assert shift.ties
        assert isinstance(shift.interval, stats.Interval)
        assert shift.interval.achieved is not None
        covered, achieved = covered + (3.0 in shift.interval), shift.interval.achieved
    assert covered / runs > achieved - 3 * np.sqrt(achieved * (1 - achieved) / runs)


@given(
    x=st.lists(st.integers(-1000, 1000), min_size=1, max_size=12),
    y=st.lists(st.integers(-1000, 1000), min_size=1, max_size=12),
    constant=st.integers(-500, 500),
)
def test_shift_moves_with_the_data_and_mirrors_when_swapped(x: list[int], y: list[int], constant: int) -> None:
    plain = stats.hodges_lehmann(x, y)
    moved = stats.hodges_lehmann(np.array(x) + constant, y)
    swapped = stats.hodges_lehmann(y, x)
    assert plain.estimate == float(np.median(np.subtract.outer(np.array(x, float), np.array(y, float))))
    assert moved.estimate == plain.estimate + constant
    assert swapped.estimate == -plain.estimate
    if isinstance(plain.interval, stats.Interval):
        assert isinstance(moved.interval, stats.Interval)
        assert isinstance(swapped.interval, stats.Interval)
        assert moved.interval.low == plain.interval.low + constant
        assert (swapped.interval.low, swapped.interval.high) == (-plain.interval.high, -plain.interval.low)
        assert plain.interval.low <= plain.estimate <= plain.interval.high


@pytest.mark.parametrize(("n", "m", "level", "smallest"), [(3, 3, 0.95, 4), (1, 1, 0.95, 4), (5, 5, 0.999, 7)])
def test_too_few_executions_say_how_many_would_do(n: int, m: int, level: float, smallest: int) -> None:
    refused = stats.hodges_lehmann(np.arange(n), np.arange(m) + 0.5, level=level).interval
    assert isinstance(refused, stats.NotAchievable)
    assert refused.smallest_n == smallest
    assert refused.best < level
    enough = stats.hodges_lehmann(np.arange(smallest), np.arange(smallest) + 0.5, level=level).interval
    assert isinstance(enough, stats.Interval)
    short = stats.hodges_lehmann(np.arange(smallest - 1), np.arange(smallest - 1) + 0.5, level=level).interval
    assert isinstance(short, stats.NotAchievable)
    assert f"at least {smallest} executions" in str(refused)


def test_beyond_the_exact_limit_the_method_is_named() -> None:
    random = np.random.default_rng(3)
    interval = stats.hodges_lehmann(random.normal(size=210), random.normal(size=200)).interval
    assert isinstance(interval, stats.Interval)
    assert interval.method is stats.IntervalMethod.NORMAL_ORDER
    just_below = stats.hodges_lehmann(random.normal(size=200), random.normal(size=200)).interval
    assert isinstance(just_below, stats.Interval)
    assert just_below.method is stats.IntervalMethod.EXACT_ORDER


def test_normal_order_index_meets_the_exact_one_at_the_limit() -> None:
    from fractions import Fraction
    from math import floor, sqrt
    from statistics import NormalDist

    from pagelab.stats.rank_null import order_index

    k, _ = order_index(200, 200, Fraction(1, 40))
    approximate = floor(NormalDist(20_000, sqrt(40_000 * 401 / 12)).inv_cdf(0.025) + 0.5)
    assert abs(k - approximate) <= 1


positive = st.lists(st.floats(0.01, 1000), min_size=1, max_size=10)


@given(x=positive, y=positive)
def test_relative_effect_agrees_with_the_shift_on_what_is_zero(x: list[float], y: list[float]) -> None:
    relative, shift = stats.relative_effect(x, y), stats.hodges_lehmann(x, y)
    assert isinstance(relative.interval, stats.Interval) == isinstance(shift.interval, stats.Interval)
    if isinstance(relative.interval, stats.Interval) and isinstance(shift.interval, stats.Interval):
        assert (0.0 in relative.interval) == (0.0 in shift.interval)
        assert relative.interval.achieved == shift.interval.achieved
        assert relative.interval.low <= relative.percent <= relative.interval.high


@given(x=positive, y=positive)
def test_swapping_gives_the_reciprocal_ratio(x: list[float], y: list[float]) -> None:
    forward, back = 1 + stats.relative_effect(x, y).percent / 100, 1 + stats.relative_effect(y, x).percent / 100
    assert forward * back == pytest.approx(1, rel=1e-9)


SAMPLES = st.lists(st.one_of(st.floats(0.1, 10), st.integers(1, 6).map(float)), min_size=6, max_size=40)


@given(SAMPLES, SAMPLES)
@settings(deadline=None, max_examples=60)
def test_selected_order_statistics_are_those_of_the_sorted_pairs(x: list[float], y: list[float]) -> None:
    """Regression: reports of more than 3,162 against 3,162 executions ended with "a fault of pagelab itself", since all
    pairs were stored. The same numbers, bit by bit, are selected from rows of pairs.
    """
    n = min(len(x), len(y))
    apart = np.array(x[:n]) - np.array(y[:n])
    stored = stats.hodges_lehmann(x, y), stats.relative_effect(x, y), stats.paired_shift(apart)
    with pytest.MonkeyPatch.context() as patch:
        for module in ("shift", "relative", "paired"):
            patch.setattr(f"pagelab.stats.{module}.MOST_PAIRS", 0)
        patch.setattr("pagelab.stats.selection._STORED", 10)
        patch.setattr("pagelab.stats.selection._SAMPLE", 8)
        selected = stats.hodges_lehmann(x, y), stats.relative_effect(x, y), stats.paired_shift(apart)
    for one, other in zip(stored, selected, strict=True):
        assert replace(one, any_shape=None) == replace(other, any_shape=None)


def test_selection_ends_where_two_values_are_nearly_all_pairs() -> None:
    """Two values make up all differences, and the middle lies at the border between them, at which no sample divides
    the rest.
    """
    x = np.repeat([1.0, 2.0], [2_001, 1_999])
    found = stats.hodges_lehmann(x, np.ones(1_000))
    assert (found.estimate, found.interval.low, found.interval.high) == (0.0, 0.0, 1.0)  # type: ignore[union-attr]
    assert stats.relative_effect(x, np.ones(1_000)).percent == 0.0
    assert stats.paired_shift(x - 1).estimate == 0.5


@pytest.mark.by_turns(4)
def test_selected_any_shape_intervals_are_those_of_the_sorted_pairs() -> None:
    """Of tied pairs the selection passes all at once, so without ties. Tight against wide makes the two differ."""
    random = np.random.default_rng(8)
    wider = 0
    for _ in range(60):
        x, y = random.normal(0, 9, random.integers(6, 40)) + 99, random.normal(0, 0.3, random.integers(6, 40)) + 99
        apart = random.lognormal(0, 2, 25)
        stored = stats.hodges_lehmann(x, y), stats.relative_effect(x, y), stats.paired_shift(apart)
        with pytest.MonkeyPatch.context() as patch:
            for module in ("shift", "relative", "paired"):
                patch.setattr(f"pagelab.stats.{module}.MOST_PAIRS", 0)
            assert (stats.hodges_lehmann(x, y), stats.relative_effect(x, y), stats.paired_shift(apart)) == stored
        wider += stored[0].any_shape != stored[0].interval
    assert wider > 10


def test_a_hundred_million_pairs_are_not_stored() -> None:
    random = np.random.default_rng(5)
    x, y = random.lognormal(0.02, 0.1, 10_000), random.lognormal(0, 0.1, 10_000)
    shift, ratio, pairs = stats.hodges_lehmann(x, y), stats.relative_effect(x, y), stats.paired_shift(x - y)
    assert shift.interval.low < shift.estimate < shift.interval.high  # type: ignore[union-attr]
    assert 2.0 in ratio.interval  # type: ignore[operator]
    assert ratio.interval.high - ratio.interval.low < 1  # type: ignore[union-attr]
    assert pairs.estimate == pytest.approx(shift.estimate, abs=0.002)
    blocks = range(10_000)
    pay = stats.blocks_pay(stats.pairs_of(x, y, treatment_blocks=blocks, baseline_blocks=blocks))
    assert pay is not None
    assert pay.narrower == pytest.approx(1, abs=0.03)


def test_relative_effect_of_a_pure_factor_is_that_factor() -> None:
    baseline = np.array([50.0, 10.0, 30.0, 20.0, 40.0])
    relative = stats.relative_effect(baseline * 1.25, baseline)
    assert relative.percent == pytest.approx(25)
    assert relative.shift_over_median_percent == pytest.approx(100 * 7.5 / 30)


@pytest.mark.parametrize(
    ("x", "y", "refusal"),
    [
        ([1.0], [0.0, 1.0], stats.Refusal.BASELINE_NOT_POSITIVE),
        ([-1.0], [1.0], stats.Refusal.TREATMENT_NEGATIVE),
        ([1e300], [1e-300], stats.Refusal.OVERFLOW),
    ],
)
def test_no_percentage_without_positive_values(x: list[float], y: list[float], refusal: stats.Refusal) -> None:
    with pytest.raises(stats.StatsRefusedError) as refused:
        stats.relative_effect(x, y)
    assert refused.value.refusal is refusal


def test_a_difference_that_overflows_is_refused() -> None:
    with pytest.raises(stats.StatsRefusedError) as refused:
        stats.hodges_lehmann([1.7e308], [-1.7e308])
    assert refused.value.refusal is stats.Refusal.OVERFLOW


def test_any_shape_interval_is_never_shorter_and_needs_six() -> None:
    random = np.random.default_rng(21)
    for n, m in [(6, 6), (6, 30), (20, 20), (40, 7)]:
        for scale in (0.001, 1.0, 50.0):
            shift = stats.hodges_lehmann(random.normal(0, scale, n), random.normal(0, 1, m))
            assert isinstance(shift.interval, stats.Interval)
            assert isinstance(shift.any_shape, stats.Interval)
            assert shift.any_shape.low <= shift.interval.low
            assert shift.any_shape.high >= shift.interval.high
            assert shift.any_shape.achieved is None
            assert shift.any_shape.method is stats.IntervalMethod.ANY_SHAPE_ORDER
    five = stats.hodges_lehmann(range(5), range(5, 25)).any_shape
    assert isinstance(five, stats.NotAchievable)
    assert five.smallest_n == 6


def test_any_shape_covers_where_the_exact_order_interval_does_not() -> None:
    """Regression of the method: a tight baseline made a nominal 95% cover 89%."""
    random = np.random.default_rng(8)
    exact = wider = 0
    runs = 1500
    for _ in range(runs):
        shift = stats.hodges_lehmann(random.normal(0, 1, 20), random.normal(0, 0.01, 20))
        assert isinstance(shift.interval, stats.Interval)
        assert isinstance(shift.any_shape, stats.Interval)
        exact += 0.0 in shift.interval
        wider += 0.0 in shift.any_shape
    assert exact / runs < 0.92
    assert wider / runs > 0.95 - 2 * np.sqrt(0.05 * 0.95 / runs)


@given(x=st.lists(st.integers(0, 20), min_size=6, max_size=12), y=st.lists(st.integers(0, 20), min_size=6, max_size=12))
def test_any_shape_mirrors_when_swapped(x: list[int], y: list[int]) -> None:
    forward, back = stats.hodges_lehmann(x, y).any_shape, stats.hodges_lehmann(y, x).any_shape
    assert isinstance(forward, stats.Interval)
    assert isinstance(back, stats.Interval)
    assert (forward.low, forward.high) == (-back.high, -back.low)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_placement_path_is_the_placements_at_every_shift(data: st.DataObject) -> None:
    """The running sums against placements counted anew at each shift between two neighbouring differences."""
    from pagelab.stats.any_shape import placement_path

    n, m = data.draw(st.integers(2, 7)), data.draw(st.integers(2, 7))
    values = data.draw(st.permutations(range(n + m)))
    x, y = np.array(values[:n]) ** 1.5, np.array(values[n:]) ** 1.5  # powers: no two differences are equal
    differences = np.subtract.outer(x, y).ravel()
    pairs = np.argsort(differences, kind="stable")
    ordered = differences[pairs]
    path = placement_path(pairs, n, m)
    between = np.concatenate([[ordered[0] - 1], (ordered[1:] + ordered[:-1]) / 2, [ordered[-1] + 1]])
    for t, shift in enumerate(between):
        of_x = np.array([(y < v - shift).mean() for v in x]).var(ddof=1) / n
        of_y = np.array([(x - shift < v).mean() for v in y]).var(ddof=1) / m
        assert path.variance[t] == pytest.approx(of_x + of_y, rel=1e-9, abs=1e-15)
        if of_x + of_y > 1e-12:
            degrees = (of_x + of_y) ** 2 / (of_x**2 / (n - 1) + of_y**2 / (m - 1))
            assert path.degrees[t] == pytest.approx(degrees, rel=1e-6)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_any_shape_holds_the_shifts_that_scipys_brunnermunzel_does_not_reject(level: float) -> None:
    """Every shift outside is rejected by scipy's test; the nearest inside is not, unless the exact order reached wider.

    Our degrees of freedom are rounded down, so scipy is asked with a level a little above for "not rejected".
    """
    from scipy.stats import brunnermunzel

    random = np.random.default_rng(int(level * 100))
    wider_seen = 0
    for n, m, scale in [(12, 12, 0.01), (20, 15, 5.0), (30, 30, 1.0), (15, 40, 0.1)]:
        x, y = random.normal(0, scale, n), random.normal(0, 1, m)
        shift = stats.hodges_lehmann(x, y, level=level)
        exact, wide = shift.interval, shift.any_shape
        assert isinstance(exact, stats.Interval)
        assert isinstance(wide, stats.Interval)
        ordered = np.sort(np.subtract.outer(x, y).ravel())
        between = (ordered[1:] + ordered[:-1]) / 2
        with np.errstate(all="ignore"):
            p = np.array([brunnermunzel(x - d, y).pvalue for d in between])
        outside = (between < wide.low) | (between > wide.high)
        assert outside.any()
        assert (p[outside & np.isfinite(p)] <= 1 - level + 1e-12).all()
        if wide.low < exact.low:
            wider_seen += 1
            assert p[between > wide.low][0] > (1 - level) * 0.9
        if wide.high > exact.high:
            wider_seen += 1
            assert p[between < wide.high][-1] > (1 - level) * 0.9
    assert wider_seen >= 3
