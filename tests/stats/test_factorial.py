"""Effects of 2^k designs, against a naive reading of their definitions, enumeration, and planted effects."""

from __future__ import annotations

from itertools import product
from math import expm1, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagelab.stats import Interval, NotAchievable, StatsRefusedError, factorial_effects, paired_ratio, pairs_of
from pagelab.stats.factorial import MOST_FACTORS, factorial_contrast, subsets


def naive(logs: dict[tuple[int, ...], float], chosen: tuple[int, ...], factors: int) -> float:
    """The effect by its definition: with the first of the factors less without it, of the effect of the others."""
    if not chosen:
        return float(np.mean(list(logs.values())))
    first, others = chosen[0], chosen[1:]
    parts = [{key: value for key, value in logs.items() if key[first] == level} for level in (0, 1)]
    return naive(parts[1], others, factors) - naive(parts[0], others, factors)


@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_a_contrast_is_a_difference_of_differences(factors: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=2**factors)
    logs = dict(zip(product((0, 1), repeat=factors), values.tolist(), strict=True))
    for chosen in subsets(factors):
        assert values @ factorial_contrast(factors, chosen) == pytest.approx(naive(logs, chosen, factors))


@given(st.integers(1, 3), st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_planted_effects_without_noise_come_back_whatever_slows_a_block(factors: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    planted = {chosen: random.normal(0, 0.1) for chosen in subsets(factors)}
    levels = np.array(list(product((0.0, 1.0), repeat=factors)))
    # In 0 and 1: an interaction changes only what has all its factors, so the main effects have half of it each.
    logs = sum(size * levels[:, list(chosen)].prod(axis=1) for chosen, size in planted.items())
    blocks = np.exp(logs + random.normal(0, 1, size=(12, 1)))
    for found in factorial_effects(blocks):
        above = {
            other: 0.5 ** (len(other) - len(found.factors)) for other in planted if set(found.factors) <= set(other)
        }
        expected = sum(planted[other] * share for other, share in above.items())
        assert found.percent == pytest.approx(100 * expm1(expected), abs=1e-9)
        assert found.n == 12


def test_one_factor_is_a_comparison_of_pairs() -> None:
    random = np.random.default_rng(4)
    values = np.exp(random.normal(0, 0.1, size=(15, 2)))
    blocks = np.arange(15)
    pairs = paired_ratio(pairs_of(values[:, 1], values[:, 0], treatment_blocks=blocks, baseline_blocks=blocks))
    (found,) = factorial_effects(values)
    assert found.percent == pytest.approx(pairs.percent)
    assert isinstance(found.interval, Interval)
    assert isinstance(pairs.interval, Interval)
    assert (found.interval.low, found.interval.high) == pytest.approx((pairs.interval.low, pairs.interval.high))
    assert found.p == found.p_holm


def test_false_alarms_over_a_whole_design_stay_below_the_level() -> None:
    """Nothing is planted, blocks are slowed down as a whole, noise has heavy tails: after Holm, at most 5%."""
    random = np.random.default_rng(7)
    alarms, designs = 0, 400
    for _ in range(designs):
        logs = random.normal(0, 0.3, size=(10, 1)) + 0.05 * random.standard_t(2, size=(10, 8))
        alarms += any(one.p_holm <= 0.05 for one in factorial_effects(np.exp(logs)))
    # Binomial: 400 designs at 5% are at most 31 with 99.5%.
    assert alarms <= 31


def test_intervals_hold_the_planted_effect() -> None:
    random = np.random.default_rng(8)
    held, designs = 0, 300
    for _ in range(designs):
        logs = random.normal(0, 0.3, size=(12, 1)) + random.normal(0, 0.05, size=(12, 4))
        logs[:, 2:] += log(0.9)
        found = factorial_effects(np.exp(logs))[0]
        assert isinstance(found.interval, Interval)
        held += found.interval.low <= -10 <= found.interval.high
    # Exact level at least 95%; 300 designs at 95% are at least 274 with 99.5%.
    assert held >= 274


def test_ends_of_the_ranges() -> None:
    (alike,) = factorial_effects(np.ones((9, 2)))
    assert (alike.percent, alike.p, alike.p_holm) == (0.0, 1.0, 1.0)
    (single,) = factorial_effects([[2.0, 1.0]])
    assert single.percent == pytest.approx(-50)
    assert isinstance(single.interval, NotAchievable)
    assert len(factorial_effects(np.ones((2, 2**MOST_FACTORS)))) == 2**MOST_FACTORS - 1
    for shape in ((0, 4), (3, 1), (3, 3), (3, 2 ** (MOST_FACTORS + 1)), (4,)):
        with pytest.raises(StatsRefusedError, match="blocks of 2, 4"):
            factorial_effects(np.ones(shape))
    for value in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(StatsRefusedError, match="no logarithm"):
            factorial_effects([[1.0, value], [1.0, 1.0]])
    with pytest.raises(StatsRefusedError, match="double range"):
        factorial_effects([[1e300, 1e-300, 1e-300, 1e300]])
