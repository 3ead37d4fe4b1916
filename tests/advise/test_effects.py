"""What mosaics show: planted gains are found, nothing is promised where there is nothing, and promises hold."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pagelab.advise.choose import choose
from pagelab.advise.design import TILE, Region, mosaics
from pagelab.advise.effects import effects


def _times(
    included: NDArray[np.bool_], gains: NDArray[np.float64], blocks: int, noise: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Seconds, with a level of its own for each block: 1 s in base pages."""
    clean = 1 - included @ gains
    levels = rng.normal(0, 0.1, (blocks, 1))
    return np.asarray(clean + levels + rng.normal(0, noise, (blocks, included.shape[0])))


def test_without_noise_effects_are_the_planted_gains() -> None:
    rng = np.random.default_rng(1)
    gains = np.array([0.0, 0.2, 0.0, 0.05, 0.0, 0.0, 0.01])
    included = mosaics(7, rng)
    found = effects(included, _times(included, gains, 2, 0.0, rng), base=1.0, rng=rng)
    assert found.raw == pytest.approx(gains, abs=1e-12)
    assert found.error <= 1e-9
    assert found.mean == pytest.approx(gains, abs=1e-6)


def test_estimates_are_those_of_least_squares_with_a_level_for_each_block() -> None:
    rng = np.random.default_rng(2)
    gains = rng.normal(0, 0.05, 11)
    included = mosaics(11, rng)
    times = _times(included, gains, 3, 0.05, rng)
    blocks, rows_ = times.shape
    columns = np.hstack([np.kron(np.eye(blocks), np.ones((rows_, 1))), np.tile(included.astype(float), (blocks, 1))])
    expected = -np.linalg.lstsq(columns, times.ravel(), rcond=None)[0][blocks:]
    assert effects(included, times, base=1.0, rng=rng).raw == pytest.approx(expected, abs=1e-12)


def test_the_error_is_the_spread_of_the_estimates() -> None:
    rng = np.random.default_rng(3)
    included = mosaics(15, rng)
    found = [effects(included, _times(included, np.zeros(15), 4, 0.1, rng), base=1.0, rng=rng) for _ in range(300)]
    spread = np.concatenate([one.raw for one in found]).std()
    assert np.median([one.error for one in found]) == pytest.approx(spread, rel=0.05)


def test_promises_hold_in_nineteen_of_twenty_studies() -> None:
    """Of what was chosen for looking large: without shrinking, it would be promised too much."""
    rng = np.random.default_rng(4)
    regions = [Region("anon", at * TILE, (at + 1) * TILE) for at in range(15)]
    held, bias, chosen = 0, [], 0
    for _ in range(400):
        gains = np.where(rng.random(15) < 0.25, np.abs(rng.normal(0, 0.06, 15)), 0.0)
        included = mosaics(15, rng)
        found = effects(included, _times(included, gains, 3, 0.08, rng), base=1.0, rng=rng)
        choice = choose(regions, found, None)
        if not choice.chosen.any():
            continue
        truth = gains[choice.chosen].sum()
        chosen += 1
        held += choice.low <= truth <= choice.high
        bias.append(choice.gain - truth)
    assert chosen > 300
    assert held / chosen >= 0.90
    assert abs(float(np.mean(bias))) < 0.01


def test_where_nothing_gains_little_is_chosen() -> None:
    rng = np.random.default_rng(5)
    regions = [Region("anon", at * TILE, (at + 1) * TILE) for at in range(15)]
    wrong = []
    for _ in range(200):
        included = mosaics(15, rng)
        found = effects(included, _times(included, np.zeros(15), 4, 0.1, rng), base=1.0, rng=rng)
        wrong.append(choose(regions, found, None).chosen.sum())
    assert np.mean(np.array(wrong) > 0) <= 0.10


def test_a_budget_goes_to_the_best_regions() -> None:
    rng = np.random.default_rng(6)
    gains = np.array([0.02, 0.2, 0.0, 0.05, 0.0, 0.1, 0.01])
    regions = [Region("heap", at * 4 * TILE, (at + 1) * 4 * TILE) for at in range(7)]
    included = mosaics(7, rng)
    found = effects(included, _times(included, gains, 8, 0.005, rng), base=1.0, rng=rng)
    choice = choose(regions, found, 8 * TILE)
    assert choice.chosen.tolist() == [False, True, False, False, False, True, False]
    assert choice.huge_bytes == 8 * TILE
    assert choice.low <= 0.3 <= choice.high
    assert choice.left_out >= 2
    assert not choose(regions, found, TILE).chosen.any()


def test_one_block_is_refused() -> None:
    with pytest.raises(ValueError, match="two blocks"):
        effects(mosaics(3, np.random.default_rng(1)), np.ones((1, 8)), base=1.0, rng=np.random.default_rng(1))
    with pytest.raises(ValueError, match="every mosaic"):
        effects(mosaics(3, np.random.default_rng(1)), np.full((2, 8), np.nan), base=1.0, rng=np.random.default_rng(1))
