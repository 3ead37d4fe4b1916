"""The statistics of a diagnosis against naive computations, and against what is known of simulated data."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from pagelab.diagnose import coverage
from pagelab.diagnose.judge import default_spread
from pagelab.diagnose.spread import between_values, log_sd, mean_shift, spread_ratio
from pagelab.stats.refusal import Refusal, StatsRefusedError


def normal(seed: int, rows: int, blocks: int, sd: float, mean: float = 100.0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(mean, sd, (rows, blocks))


def pooled_log_sd(rows: list[NDArray[np.float64]]) -> float:
    squares = sum(float(((row - row.mean()) ** 2).sum()) for row in rows)
    return float(np.log(squares / sum(row.size - 1 for row in rows))) / 2


def test_the_jackknife_is_that_of_leaving_executions_out_one_by_one() -> None:
    rows = normal(1, 3, 7, 5.0)
    variance = 0.0
    for index, row in enumerate(rows):
        others = [other for i, other in enumerate(rows) if i != index]
        left = np.array([pooled_log_sd([*others, np.delete(row, i)]) for i in range(row.size)])
        variance += (row.size - 1) / row.size * float(((left - left.mean()) ** 2).sum())
    log, error = log_sd(rows)
    assert log == pytest.approx(pooled_log_sd(list(rows)), rel=1e-12)
    assert error == pytest.approx(variance**0.5, rel=1e-9)


def test_the_ratio_is_of_standard_deviations_within_conditions() -> None:
    default, pinned = normal(1, 3, 20, 4.0), normal(2, 2, 20, 1.0) + np.array([[0.0], [50.0]])
    found = spread_ratio(default, pinned, seed=1)
    assert found.sd_default == pytest.approx(np.sqrt(default.var(axis=1, ddof=1).mean()))
    assert found.sd_pinned == pytest.approx(np.sqrt(pinned.var(axis=1, ddof=1).mean()))
    assert found.ratio.estimate == pytest.approx(found.sd_pinned / found.sd_default)
    assert found.ratio.high < 0.5
    assert found.p < 0.002
    assert found.removed.estimate == pytest.approx(1 - found.ratio.estimate**2)


def test_units_and_the_order_of_the_values_do_not_matter() -> None:
    default, pinned = normal(1, 3, 12, 4.0), normal(2, 2, 12, 2.0)
    first = spread_ratio(default, pinned, seed=1)
    scaled = spread_ratio(default * 1e-9, pinned * 1e-9, seed=1)
    turned = spread_ratio(default, pinned[::-1], seed=1)
    assert scaled.p == first.p
    assert scaled.log_ratio.low == pytest.approx(first.log_ratio.low)
    assert turned.log_ratio.estimate == pytest.approx(first.log_ratio.estimate)


def test_the_same_seed_gives_the_same_digits() -> None:
    rows = normal(1, 3, 12, 4.0), normal(2, 1, 12, 2.0)
    assert spread_ratio(*rows, seed=3) == spread_ratio(*rows, seed=3)


def test_a_pinned_value_without_any_spread_has_a_ratio_and_no_infinities() -> None:
    default = np.tile([100.0, 130.0], (3, 8))
    found = spread_ratio(default, np.full((1, 16), 100.0), seed=1)
    assert 0 < found.ratio.estimate < 1e-6
    assert np.isfinite([found.log_ratio.low, found.log_ratio.high]).all()
    assert found.p < 0.01


@pytest.mark.parametrize(
    ("rows", "refusal"),
    [
        (np.full((1, 10), 5.0), Refusal.NO_SPREAD),
        (np.array([[1.0, 2.0, 3.0, 4.0]]), Refusal.COUNT_OUT_OF_RANGE),
        (np.array([[1.0, 2.0, np.nan, 4.0, 5.0]]), Refusal.NOT_FINITE),
        (np.array([[1.0, 2.0, 0.0, 4.0, 5.0]]), Refusal.NOT_POSITIVE),
        (np.array([[1.0, 2.0, -3.0, 4.0, 5.0]]), Refusal.NOT_POSITIVE),
        (np.empty((0, 5)), Refusal.EMPTY),
    ],
)
def test_bad_data_are_refused(rows: NDArray[np.float64], refusal: Refusal) -> None:
    with pytest.raises(StatsRefusedError) as refused:
        spread_ratio(rows, rows, seed=1)
    assert refused.value.refusal is refusal


def test_the_share_of_the_values_is_that_of_the_law_of_total_variance() -> None:
    random = np.random.default_rng(1)
    means = np.array([90.0, 100.0, 110.0])
    rows = means[:, None] + random.normal(0, 5, (3, 4000))
    found = between_values(rows, drawn=False, seed=1, permutations=199)
    true = means.var() / (means.var() + 25)
    assert found.share.estimate == pytest.approx(true, abs=0.02)
    assert found.share.low < true < found.share.high
    assert found.cv == pytest.approx(means.std() / 100, rel=0.02)
    drawn = between_values(rows, drawn=True, seed=1, permutations=199)
    sample = means.var(ddof=1)
    assert drawn.share.estimate == pytest.approx(sample / (sample + 25), abs=0.02)


def test_the_noncentrality_interval_is_that_of_scipy() -> None:
    rows = normal(5, 4, 10, 3.0) + np.array([[0.0], [1.0], [2.0], [5.0]])
    found = between_values(rows, drawn=True, seed=1, permutations=199)
    f = float(stats.f_oneway(*rows).statistic)
    for end, probability in ((found.share.low, 0.975), (found.share.high, 0.025)):
        noncentrality = end / (1 - end) * 10 * 3
        assert stats.ncf.cdf(f, 3, 36, noncentrality) == pytest.approx(probability, abs=1e-6)


def test_values_that_are_alike_have_a_share_that_may_be_nothing() -> None:
    found = between_values(normal(3, 4, 15, 3.0), drawn=True, seed=1)
    assert found.share.low == 0
    assert found.p > 0.05


def test_values_that_differ_without_spread_inside_are_all_of_the_variance() -> None:
    found = between_values(np.array([[100.0] * 8, [150.0] * 8]), drawn=False, seed=1)
    assert found.share.estimate > 0.999
    assert found.p < 0.01


def test_the_shift_of_the_mean_is_welchs_for_one_value() -> None:
    """With the denominator known exactly, Fieller's interval is Welch's of the difference."""
    default = np.tile([100.0 - 1e-9, 100.0 + 1e-9], (1, 50_000))
    pinned = normal(2, 1, 30, 4.0, 103.0)
    found = mean_shift(default, pinned)
    reach = stats.t.ppf(0.975, 29) * pinned.std(ddof=1) / 30**0.5
    assert found.estimate == pytest.approx(pinned.mean() / 100 - 1)
    assert found.high - found.estimate == pytest.approx(reach / 100, rel=1e-4)


def test_each_pinned_value_counts_alike_in_the_mean() -> None:
    found = mean_shift(normal(1, 1, 20, 1.0), np.stack([normal(2, 1, 20, 1.0)[0], normal(3, 1, 20, 1.0, 300.0)[0]]))
    assert found.estimate == pytest.approx(1.0, abs=0.02)


def test_the_spread_of_the_default_is_its_cv() -> None:
    found = default_spread(normal(4, 3, 40, 5.0), 0.95)
    assert found.low < 0.05 < found.high
    assert found.estimate == pytest.approx(0.05, rel=0.2)


@pytest.mark.parametrize("shape", coverage.SHAPES, ids=lambda shape: shape.name)
def test_few_programs_without_a_cause_are_accused(shape: coverage.Shape) -> None:
    """20 whole diagnoses; at most 5% false alarms make more than 5 of 20 less likely than 1 in 1,000.

    999 permutations: with fewer, no p could pass Holm over 15 tests, and no alarm could be raised.
    """
    assert coverage.false_alarms(shape, 10, 20, 999) <= 100 * 5 / 20


def test_an_alarm_can_be_raised() -> None:
    """The same count of a program whose copies of the default are quieter than all else: nearly all are alarms."""

    def uneven(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
        rows = random.normal(0, 3, shape)
        rows[: coverage.COPIES] /= 10
        return 100 + rows

    assert coverage.false_alarms(coverage.Shape("uneven", uneven), 10, 5, 999) == 100


@pytest.mark.parametrize("change", coverage.CHANGES, ids=lambda change: change.name)
def test_most_intervals_hold_the_true_ratio(change: coverage.Change) -> None:
    held, _ = coverage.covered(change, 15, 3, 60, 199)
    assert held >= 80
