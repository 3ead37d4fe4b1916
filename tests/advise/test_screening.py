"""Rounds of mosaics: finer where something gains, coarser where nothing does, and all rounds count."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from bench.coverage.advise import Machine, by_means, by_rounds
from hypothesis import given, settings
from hypothesis import strategies as st

from pagelab.advise.design import TILE, Region, mosaics, regions, rows
from pagelab.advise.effects import Effects
from pagelab.advise.screening import MOST, Round, blocks_for, estimated, refined


def _effects(sure: list[float], gain: float = 0.01, deviation: float = 0.01) -> Effects:
    draws = np.random.default_rng(1).normal(gain, deviation, (500, len(sure)))
    return Effects(draws.mean(axis=0), np.array(sure), draws, 0.1)


@given(
    st.fixed_dictionaries({"heap": st.integers(1, 300 * TILE), "anon": st.integers(TILE, 3000 * TILE)}),
    st.data(),
)
def test_rounds_lay_the_same_tiles_out(used: dict[str, int], data: st.DataObject) -> None:
    now = regions(used, data.draw(st.sampled_from([3, 7, 15])))
    probabilities = st.lists(st.floats(0, 1), min_size=len(now), max_size=len(now))
    found = refined(now, _effects(data.draw(probabilities), gain=data.draw(st.sampled_from([0.0, 0.1]))))
    assert 1 <= len(found) <= MOST
    for pool in {region.pool for region in now}:
        before, after = ([one for one in part if one.pool == pool] for part in (now, found))
        assert (after[0].start, after[-1].end) == (before[0].start, before[-1].end)
        assert all(a.end == b.start for a, b in pairwise(after))
        assert all(one.bytes >= TILE and one.bytes % TILE == 0 for one in after)


def test_what_clearly_gains_is_halved_and_what_hardly_can_is_joined() -> None:
    now = [Region("anon", 10 * at * TILE, 10 * (at + 1) * TILE) for at in range(5)]
    found = refined(now, _effects([0.1, 0.1, 1.0, 0.3, 0.1], gain=0.1))
    assert [(one.start // TILE, one.end // TILE) for one in found if 20 * TILE <= one.start < 30 * TILE] == [
        (20, 25),
        (25, 30),
    ]
    assert found[0] == Region("anon", 0, 20 * TILE) or len(found) > 4


def test_where_no_region_stands_out_neighbours_of_one_pool_are_joined() -> None:
    now = [Region("heap", 0, TILE), *(Region("anon", at * TILE, (at + 1) * TILE) for at in range(4))]
    found = refined(now, _effects([0.3] * 5))
    assert found == [Region("heap", 0, TILE), Region("anon", 0, 2 * TILE), Region("anon", 2 * TILE, 4 * TILE)]
    assert refined(found, _effects([0.3] * 3)) == found


@given(st.integers(1, 15), st.integers(0, 3000))
def test_a_round_fits_and_leaves_time_for_another_or_none(count: int, executions: int) -> None:
    for first in (True, False):
        blocks = blocks_for(count, executions, first=first)
        assert blocks * rows(count) <= executions
        if blocks:
            left = executions - blocks * rows(count)
            assert left >= rows(7) or left < rows(count)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_all_rounds_count_for_the_last_ones_regions(seed: int) -> None:
    """Without noise: a gain of the left half of a region, which the first round had whole."""
    rng = np.random.default_rng(seed)
    whole = [Region("anon", 0, 4 * TILE), Region("anon", 4 * TILE, 8 * TILE)]
    halves = [Region("anon", 0, 2 * TILE), Region("anon", 2 * TILE, 4 * TILE), whole[1]]
    first, second = mosaics(2, rng), mosaics(3, rng)
    rounds = [
        Round(whole, first, np.tile(1 - 0.2 * first[:, 0], (3, 1))),
        Round(halves, second, np.tile(1 - 0.2 * second[:, 0], (3, 1))),
    ]
    found = estimated(rounds, halves, rng)
    assert found.mean == pytest.approx([0.2, 0, 0], abs=1e-6)
    rounds[0].times[0, 0] = np.nan  # a pair with a failed execution is left out
    assert estimated(rounds, halves, rng).mean == pytest.approx([0.2, 0, 0], abs=1e-6)


@pytest.mark.by_turns(4)
def test_a_block_that_means_miss_is_found_on_a_machine_with_bursts() -> None:
    """A block of 10 to 70 MiB of 200 that gains 15%, 72 executions, half of them 40% slower for a while."""
    seeds = range(15)
    found = [(one := Machine(0.15, ("bursts", "steady"), seed)).found(by_rounds(one, 72)) for seed in seeds]
    before = [(one := Machine(0.15, ("bursts", "steady"), seed)).found(by_means(one, 72)) for seed in seeds]
    assert np.mean(found) > np.mean(before) + 0.1
    assert np.mean(found) > 0.7


@pytest.mark.by_turns(4)
def test_nothing_is_advised_where_nothing_gains() -> None:
    wrong = [bool(by_rounds(Machine(0.0, ("memory", "heavy tails"), seed), 72)) for seed in range(30)]
    assert sum(wrong) <= 4
