"""What mosaics show: planted gains are found, nothing is promised where there is nothing, and promises hold."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pagelab.advise.choose import choose
from pagelab.advise.design import TILE, Region, mosaics
from pagelab.advise.effects import Effects, differences, effects

Array = NDArray[np.float64]


def _found(gains: Array, blocks: int, noise: Array, rng: np.random.Generator) -> Effects:
    """1 s in base pages; ``noise``: logarithms, shape (blocks, mosaics), and a level of its own for each pair."""
    included = mosaics(len(gains), rng)
    levels = np.repeat(rng.normal(0, 0.3, (blocks, len(included) // 2)), 2, axis=1)
    times = (1 - included @ gains) * np.exp(levels + noise)
    shares = np.tile(np.where(included[0::2], 1.0, -1.0), (blocks, 1))
    return effects(shares, differences(times[:, 0::2], times[:, 1::2]).ravel(), rng)


def _mosaics(count: int) -> int:
    return len(mosaics(count, np.random.default_rng(0)))


def test_without_noise_effects_are_the_planted_gains_whatever_slows_pairs_down() -> None:
    rng = np.random.default_rng(1)
    gains = np.array([0.0, 0.2, 0.0, 0.05, 0.0, 0.0, 0.01])
    found = _found(gains, 2, np.zeros((2, _mosaics(7))), rng)
    assert found.mean == pytest.approx(gains, abs=1e-6)
    assert found.sure[gains > 0].min() == 1
    assert found.noise <= 1e-8


def test_a_single_region_is_estimated_like_a_mean() -> None:
    rng = np.random.default_rng(2)
    noise = rng.normal(0, 0.02, (20, 8))
    found = _found(np.array([0.1]), 20, noise, rng)
    assert found.mean[0] == pytest.approx(0.1, abs=0.01)
    assert found.noise == pytest.approx(0.02 * np.sqrt(2), rel=0.2)


def test_gains_agree_with_least_squares_where_noise_is_normal_and_every_region_gains() -> None:
    """A slab much wider than the error shrinks nothing, so the posterior mean is that of ordinary regression."""
    rng = np.random.default_rng(3)
    gains = rng.normal(0, 0.05, 7)
    shares = np.tile(np.where(mosaics(7, rng)[0::2], 1.0, -1.0), (40, 1))
    differing = shares @ gains + rng.normal(0, 0.02, len(shares))
    fitted = np.linalg.lstsq(shares, differing, rcond=None)[0]
    found = effects(shares, differing, rng)
    assert found.mean == pytest.approx(fitted / (1 + fitted.sum() / 2), abs=0.003)


def test_single_slow_executions_hardly_count() -> None:
    """One in ten takes twice as long: means are off by more than the gain, the estimate is not."""
    errors, of_means = [], []
    gains = np.array([0.0, 0.0, 0.08, 0.0, 0.0, 0.0, 0.0])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        slow = np.log(2) * (rng.random((4, 16)) < 0.1) + rng.normal(0, 0.01, (4, 16))
        found = _found(gains, 4, slow, np.random.default_rng(seed))
        errors.append(found.mean[2] - 0.08)
        included = mosaics(7, np.random.default_rng(seed))
        times = (1 - included @ gains) * np.exp(slow)
        signs = np.where(included[:, 2], -2.0, 2.0)
        of_means.append(float((times * signs).mean()) - 0.08)
    assert np.sqrt(np.mean(np.square(errors))) < 0.01
    assert np.sqrt(np.mean(np.square(of_means))) > 0.03


def test_promises_hold_in_nineteen_of_twenty_studies() -> None:
    """Of what was chosen for looking large: without shrinking, it would be promised too much."""
    rng = np.random.default_rng(4)
    regions = [Region("anon", at * TILE, (at + 1) * TILE) for at in range(15)]
    held, bias, chosen = 0, [], 0
    for _ in range(60):
        gains = np.where(rng.random(15) < 0.25, np.abs(rng.normal(0, 0.06, 15)), 0.0)
        found = _found(gains, 3, 0.05 * rng.standard_t(4, (3, 32)), rng)
        choice = choose(regions, found, None)
        if not choice.chosen.any():
            continue
        truth = gains[choice.chosen].sum()
        chosen += 1
        held += choice.low <= truth <= choice.high
        bias.append(choice.gain - truth)
    assert chosen > 40
    assert held / chosen >= 0.90
    assert abs(float(np.mean(bias))) < 0.01


@pytest.mark.by_turns(4)
def test_where_nothing_gains_little_is_chosen() -> None:
    rng = np.random.default_rng(5)
    regions = [Region("anon", at * TILE, (at + 1) * TILE) for at in range(15)]
    wrong = [
        choose(regions, _found(np.zeros(15), 3, 0.05 * rng.standard_t(2, (3, 32)), rng), None).chosen.any()
        for _ in range(50)
    ]
    assert np.mean(wrong) <= 0.10


def test_a_gain_goes_to_one_of_two_regions_that_no_pair_tells_apart() -> None:
    """Their sum is known, and neither of them is sure."""
    rng = np.random.default_rng(6)
    signs = rng.choice([-1.0, 1.0], 60)
    found = effects(np.stack([signs, signs], axis=1), 0.1 * signs + rng.normal(0, 0.01, 60), rng)
    of_base = 0.1 / 1.05
    assert found.mean.sum() == pytest.approx(of_base, abs=0.005)
    assert 0.1 < found.sure[0] < 0.9 or found.mean[0] == pytest.approx(of_base / 2, abs=0.03)
    low, high = np.quantile(found.draws[:, 0], [0.05, 0.95])
    assert high - low > 0.05


def test_a_budget_goes_to_the_best_regions() -> None:
    rng = np.random.default_rng(7)
    gains = np.array([0.02, 0.2, 0.0, 0.05, 0.0, 0.1, 0.01])
    regions = [Region("heap", at * 4 * TILE, (at + 1) * 4 * TILE) for at in range(7)]
    found = _found(gains, 8, rng.normal(0, 0.005, (8, 16)), rng)
    choice = choose(regions, found, 8 * TILE)
    assert choice.chosen.tolist() == [False, True, False, False, False, True, False]
    assert choice.huge_bytes == 8 * TILE
    assert choice.low <= 0.3 <= choice.high
    assert choice.left_out >= 2
    assert not choose(regions, found, TILE).chosen.any()


def test_what_tells_nothing_is_refused() -> None:
    rng = np.random.default_rng(1)
    with pytest.raises(ValueError, match="two pairs"):
        effects(np.ones((1, 3)), np.zeros(1), rng)
    with pytest.raises(ValueError, match="every pair"):
        effects(np.ones((4, 3)), np.full(4, np.nan), rng)
