"""The statistics of a diagnosis against naive computations, and against what is known of simulated data."""

from __future__ import annotations

import numpy as np
import pytest
from bench.coverage import diagnose as coverage
from numpy.typing import NDArray
from scipy import stats

from pagelab.diagnose.judge import default_spread
from pagelab.diagnose.spread import (
    Group,
    between_values,
    block_effects,
    log_sd,
    mean_shift,
    shared,
    spread_ratio,
    weighted_variances,
)
from pagelab.stats.refusal import Refusal, StatsRefusedError


def normal(seed: int, rows: int, blocks: int, sd: float, mean: float = 100.0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(mean, sd, (rows, blocks))


def pooled_log_sd(rows: list[NDArray[np.float64]]) -> float:
    rows = [np.log(row) for row in rows]
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
    assert found.sd_control == pytest.approx(np.sqrt(np.log(default).var(axis=1, ddof=1).mean()))
    assert found.sd_pinned == pytest.approx(np.sqrt(np.log(pinned).var(axis=1, ddof=1).mean()))
    assert found.ratio.estimate == pytest.approx(found.sd_pinned / found.sd_control)
    assert found.ratio.high < 0.5
    assert found.p < 0.002
    assert found.removed.estimate == pytest.approx(1 - found.ratio.estimate**2)


def test_over_whole_blocks_the_jackknife_leaves_out_a_block_of_everything() -> None:
    default, pinned = normal(1, 3, 25, 4.0), normal(2, 2, 25, 2.0)
    found = spread_ratio(default, pinned, seed=1, permutations=19)
    left = []
    for block in range(25):
        rows = [[np.delete(row, block) for row in part] for part in (pinned, default)]
        left.append(pooled_log_sd(rows[0]) - pooled_log_sd(rows[1]))
    error = np.sqrt(24 / 25 * ((np.array(left) - np.mean(left)) ** 2).sum())
    assert found.error == pytest.approx(error, rel=1e-9)


def test_what_executions_of_one_block_share_makes_the_comparison_sharper() -> None:
    block_effect = np.random.default_rng(3).normal(0, 3, 40)
    alone = normal(1, 3, 40, 3.16), normal(2, 1, 40, 3.16)
    shared = normal(1, 3, 40, 1.0) + block_effect, normal(2, 1, 40, 1.0) + block_effect
    errors = [spread_ratio(*rows, seed=1, permutations=19).error for rows in (alone, shared)]
    assert errors[1] < 0.6 * errors[0]


def test_weighted_variances_add_and_have_the_interval_of_their_jackknife() -> None:
    first, second = normal(1, 3, 30, 4.0), normal(2, 2, 30, 2.0)
    found = weighted_variances([Group(first, 1.0), Group(second, -2.0)], level=0.95)
    variances = [np.log(rows).var(axis=1, ddof=1).mean() for rows in (first, second)]
    assert found.estimate == pytest.approx(variances[0] - 2 * variances[1])
    left = [
        np.log(np.delete(first, j, 1)).var(axis=1, ddof=1).mean()
        - 2 * np.log(np.delete(second, j, 1)).var(axis=1, ddof=1).mean()
        for j in range(30)
    ]
    error = np.sqrt(29 / 30 * ((np.array(left) - np.mean(left)) ** 2).sum())
    assert found.high - found.estimate == pytest.approx(stats.t.ppf(0.975, 29) * error, rel=1e-9)


def test_huge_and_tiny_times_overflow_nowhere() -> None:
    for scale in (1e306, 1e-306):
        found = spread_ratio(scale * normal(1, 3, 12, 4.0), scale * normal(2, 1, 12, 4.0), seed=1, permutations=99)
        assert 0.3 < found.ratio.estimate < 3
        assert abs(mean_shift(scale * normal(1, 3, 12, 4.0), scale * normal(2, 1, 12, 4.0)).estimate) < 0.2
    wild = np.array([[1e-300, 1e300] * 6])
    assert np.isfinite(default_spread(wild, 0.95).estimate)


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


@pytest.mark.parametrize("blocks", [8, 20, 40])
def test_one_odd_tick_leaves_intervals_that_can_be_used(blocks: int) -> None:
    """Regression: on a clock of 10 ms, without its one odd execution a condition had no spread; the jackknife took
    this for a factor of 10⁹, and the SD ratio was "0.23 (0.00–33569544713593.08)"."""
    default = np.round(normal(1, 3, blocks, 0.01, 0.1), 2)
    pinned = np.full((1, blocks), 0.1)
    pinned[0, 2] = 0.11
    found = spread_ratio(default, pinned, seed=1, permutations=999).ratio
    assert 0.01 * found.estimate < found.low < found.estimate < found.high < 100 * found.estimate
    spread = default_spread(np.concatenate([pinned, np.full((2, blocks), 0.1)]), 0.95)
    assert 0.05 * spread.estimate < spread.low < spread.estimate < spread.high < 20 * spread.estimate


def test_an_odd_execution_is_as_likely_under_the_pin_as_its_share_of_the_executions() -> None:
    """Regression: p was 0.001, by rounding; of 80 executions the one that differs is pinned with probability 1/4."""
    default, pinned = np.full((3, 20), 0.1), np.full((1, 20), 0.1)
    pinned[0, 2] = 0.11
    assert spread_ratio(default, pinned, seed=1, permutations=1999).p == pytest.approx(0.25, abs=0.05)


def test_no_limit_of_an_interval_is_infinite_however_degenerate_the_times() -> None:
    random = np.random.default_rng(7)

    def draw(rows: int, blocks: int) -> NDArray[np.float64]:
        one_odd = np.full((rows, blocks), 0.1)
        one_odd[0, random.integers(blocks)] = 0.1 * 10 ** random.uniform(-3, 300)
        kinds = (
            np.round(random.normal(0.1, 0.01, (rows, blocks)), 2),
            np.full((rows, blocks), 0.1),
            one_odd,
            np.tile(np.resize([0.1, 0.2], blocks), (rows, 1)),
            random.lognormal(0, random.choice([1e-12, 0.1, 3, 50]), (rows, blocks)),
        )
        return kinds[random.integers(len(kinds))]

    for seed in range(150):
        blocks = int(random.integers(5, 25))
        default, pinned = draw(3, blocks), draw(int(random.integers(1, 4)), blocks)
        others = np.where(random.random(blocks) < 0.1, 0.1, 0.0) if seed % 2 else None
        if max(np.log(default).var(axis=1).max(), np.log(pinned).var(axis=1).max()) < 1e-17:
            continue
        found = spread_ratio(default, pinned, seed=seed, permutations=49, block_effect=others)
        ranges = [found.ratio, found.deviation_ratio, found.removed, default_spread(default, 0.95)]
        for one in (*ranges, found.ratio_beside or found.ratio):
            assert np.isfinite([one.low, one.high]).all()
            assert one.low <= one.estimate <= one.high


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


def test_the_share_of_the_values_is_the_intraclass_correlation() -> None:
    """Searle's estimator and interval, from scipy's F."""
    rows = np.exp((normal(5, 4, 10, 3.0) + np.array([[0.0], [1.0], [2.0], [5.0]])) / 1000)
    found = between_values(rows, drawn=True, seed=1, permutations=199).share
    assert found is not None
    f = float(stats.f_oneway(*np.log(rows)).statistic)
    assert found.estimate == pytest.approx((f - 1) / (f - 1 + 10))
    for end, probability in ((found.low, 0.975), (found.high, 0.025)):
        quotient = f / stats.f.ppf(probability, 3, 36)
        assert end == pytest.approx(max(0.0, (quotient - 1) / (quotient - 1 + 10)), abs=1e-9)


def test_values_that_are_no_sample_have_a_test_and_no_share() -> None:
    found = between_values(normal(5, 2, 10, 3.0) + np.array([[0.0], [50.0]]), drawn=False, seed=1)
    assert found.share is None
    assert found.p < 0.01


def test_values_that_are_alike_have_a_share_that_may_be_nothing() -> None:
    found = between_values(normal(3, 4, 15, 3.0), drawn=True, seed=1)
    assert found.share is not None
    assert found.share.low == 0
    assert found.p > 0.05


def test_values_that_differ_without_spread_inside_are_all_of_the_variance() -> None:
    found = between_values(np.array([[100.0] * 8, [150.0] * 8]), drawn=True, seed=1)
    assert found.share is not None
    assert found.share.estimate > 0.999
    assert found.p < 0.01


def test_the_shift_of_the_mean_is_students_of_pairs_where_the_control_is_known() -> None:
    default = np.tile([100.0 - 1e-9, 100.0 + 1e-9], (1, 15))
    pinned = normal(2, 1, 30, 4.0, 103.0)
    found = mean_shift(default, pinned)
    reach = stats.t.ppf(0.975, 29) * pinned.std(ddof=1) / 30**0.5
    assert found.estimate == pytest.approx(pinned.mean() / 100 - 1)
    assert found.high - found.estimate == pytest.approx(reach / 100, rel=1e-4)


def test_what_the_machine_does_to_a_block_is_not_in_the_shift_of_the_mean() -> None:
    """Every block up to three times as long as another: to a factor the pairs are the same."""
    busy = np.exp(np.random.default_rng(3).uniform(0, 1, 20))
    default, pinned = normal(1, 3, 20, 1.0), normal(2, 2, 20, 1.0, 110.0)
    quiet, loud = mean_shift(default, pinned), mean_shift(default * busy, pinned * busy)
    assert loud.estimate == pytest.approx(quiet.estimate, abs=0.005)
    assert loud.high - loud.low < 1.3 * (quiet.high - quiet.low)


def naive_block_effect(others: NDArray[np.float64]) -> list[float]:
    rows = [np.log(row) - np.median(np.log(row)) for row in others]
    found = []
    for block in zip(*rows, strict=True):
        kept = sorted(block)[len(rows) // 4 : len(rows) - len(rows) // 4]
        found.append(sum(kept) / len(kept))
    return found


def test_the_effect_of_a_block_is_the_middle_of_what_its_executions_are_beside_their_own_condition() -> None:
    others = normal(1, 9, 11, 3.0) * np.array([[1, 2, 3, 4, 5, 6, 7, 8, 9]]).T
    assert block_effects(others) == pytest.approx(naive_block_effect(others))
    slow = others.copy()
    slow[2, 5] *= 100
    difference = np.asarray(block_effects(slow)) - np.asarray(block_effects(others))
    assert np.abs(difference).max() < 0.02
    missing = np.concatenate([others, np.full((1, 11), np.nan)])
    assert block_effects(missing) == pytest.approx(naive_block_effect(others))


def test_too_few_other_conditions_tell_no_block_effect() -> None:
    assert block_effects(normal(1, 5, 11, 3.0)) is None
    assert block_effects(np.full((9, 11), np.nan)) is None
    broken = normal(1, 6, 11, 3.0)
    broken[0, 3] = np.nan
    assert block_effects(broken) is None


def drifting(seed: int, sd: float, block_effect: float, *, follows: float = 1.0) -> tuple[NDArray[np.float64], ...]:
    """Control, pinned and others of 30 blocks; pinned with ``sd`` and so much of the block effect."""
    random = np.random.default_rng(seed)
    moved = random.normal(0, block_effect, 30)
    rows = random.normal(0, 0.02, (27, 30)) + moved
    pinned = random.normal(0, sd, (1, 30)) + follows * moved
    return np.exp(rows[:3]), np.exp(pinned), np.exp(rows[3:])


def test_a_source_is_found_behind_what_the_machine_does_to_whole_blocks() -> None:
    control, pinned, others = drifting(1, 0.005, 0.06)
    alone = spread_ratio(control, pinned, seed=1)
    beside = spread_ratio(control, pinned, seed=1, block_effect=block_effects(others))
    assert alone.p > 0.05
    assert beside.p < 0.002
    assert (beside.direction, beside.rests_beside) == (-1, True)
    assert beside.log_ratio.estimate == alone.log_ratio.estimate
    assert beside.ratio_beside is not None
    assert beside.ratio_beside.high < 0.8


def test_a_pin_that_keeps_the_machine_away_is_found_as_before() -> None:
    """Without the block effect it has the spread of its control: the times as they are must be looked at, too."""
    control, pinned, others = drifting(1, 0.02, 0.1, follows=0.0)
    found = spread_ratio(control, pinned, seed=1, block_effect=block_effects(others))
    assert found.p < 0.03
    assert (found.direction, found.rests_beside) == (-1, False)
    assert found.ratio.high < 1
    assert found.ratio_beside is not None
    assert found.ratio_beside.low < 1 < found.ratio_beside.high, "what it follows less is no spread that it adds"


def test_what_is_taken_out_is_the_regression_on_the_block_effect_half_from_either_side() -> None:
    control, pinned, others = drifting(2, 0.02, 0.05, follows=0.5)
    first, second, block_effect = np.log(control), np.log(pinned), block_effects(others)
    assert block_effect is not None
    slopes = [np.polyfit(block_effect, part.mean(axis=0), 1)[0] for part in (first, second)]
    found = shared(np.concatenate([first, second])[None], 3, block_effect)
    assert found[0] == pytest.approx(np.mean(slopes) * (block_effect - block_effect.mean()))
    assert not shared(first[None], 1, np.zeros(30)).any()


def test_with_block_effects_as_without_a_program_without_a_cause_is_hardly_ever_accused() -> None:
    """100 comparisons at 5%; more than 12 are less likely than 1 in 1,000."""
    alarms = 0
    for seed in range(100):
        control, pinned, others = drifting(seed, 0.02, 0.05)
        alarms += (
            spread_ratio(control, pinned * 2, seed=seed, permutations=299, block_effect=block_effects(others)).p <= 0.05
        )
    assert alarms <= 12


def test_each_pinned_value_counts_alike_in_the_mean() -> None:
    found = mean_shift(normal(1, 1, 20, 1.0), np.stack([normal(2, 1, 20, 1.0)[0], normal(3, 1, 20, 1.0, 300.0)[0]]))
    assert found.estimate == pytest.approx(1.0, abs=0.02)


def test_the_spread_of_the_default_is_its_cv() -> None:
    found = default_spread(normal(4, 3, 40, 5.0), 0.95)
    assert found.low < 0.05 < found.high
    assert found.estimate == pytest.approx(0.05, rel=0.2)


@pytest.mark.by_turns(4)
@pytest.mark.parametrize(
    ("shape", "factor"),
    [
        # Every other one, in turns, is among the slow tests.
        pytest.param(shape, factor, marks=pytest.mark.slow if (at + among) % 2 else ())
        for at, shape in enumerate(coverage.SHAPES)
        for among, factor in enumerate((1.0, 0.5))
    ],
)
def test_few_programs_without_a_cause_are_accused(shape: str, factor: float) -> None:
    """12 whole diagnoses; at most 5% false alarms make more than 4 of 12 less likely than 1 in 5,000."""
    assert coverage.false_alarms(shape, 10, factor, 12) <= 100 * 4 / 12


def test_an_alarm_can_be_raised() -> None:
    """The same count of a program whose copies of the default are quieter than all else: nearly all are alarms."""

    def uneven(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
        rows = random.normal(0, 3, shape)
        rows[: coverage.COPIES] /= 10
        return np.asarray(100 + rows)

    random = np.random.default_rng(1)
    assert all(coverage.accused(uneven, 10, 1.0, random, 999, seed) for seed in range(5))


@pytest.mark.parametrize("change", coverage.CHANGES)
def test_most_intervals_hold_the_true_ratio(change: str) -> None:
    assert coverage.covered(change, 15, 3, 60, 199) >= 80


def test_a_confirmation_finds_what_it_was_sized_for() -> None:
    """Half of the variance, 60 blocks: of those explored well, 80% are to be confirmed; hardly any is refuted."""
    found = coverage.true_cause("two modes", 0.56, 60, 40)
    assert found.found >= 50
    assert found.confirmed >= 70
    assert found.refuted <= 10


@pytest.mark.parametrize("name", [name for name in coverage.SEVERAL if name.startswith("4")])
def test_additive_causes_are_hardly_ever_said_to_interact(name: str) -> None:
    """15 diagnoses; more than 3 of 15 at 5% are less likely than 1 in 100, at 2.5% than 1 in 1,000."""
    told = coverage.several(name, 16, 15)
    assert told.together <= 100 * 3 / 15
    assert told.overlap <= 100 * 3 / 15
