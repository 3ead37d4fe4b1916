"""Designs of random mosaics: balanced, orthogonal, and over whole tiles."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagelab.advise.design import SIZES, TILE, mosaics, regions, rows

_USED = st.dictionaries(st.sampled_from(["heap", "anon"]), st.integers(0, 3000 * TILE // 2), min_size=0, max_size=2)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 11, 15, 31, 63])
def test_every_region_is_huge_in_half_of_the_mosaics_and_any_two_in_a_quarter(count: int) -> None:
    found = mosaics(count, np.random.default_rng(count))
    assert found.shape == (rows(count), count)
    assert (found.sum(axis=0) * 2 == found.shape[0]).all()
    both = found.astype(int).T @ found.astype(int)
    off_diagonal = both[~np.eye(count, dtype=bool)]
    assert (off_diagonal * 4 == found.shape[0]).all()


@pytest.mark.parametrize("count", SIZES)
def test_mosaics_come_with_their_complements(count: int) -> None:
    found = mosaics(count, np.random.default_rng(1))
    assert (found[0::2] == ~found[1::2]).all()


def test_sizes_need_no_more_rows_than_the_next_size_would() -> None:
    assert [rows(size) for size in SIZES] == [8, 16, 32, 64, 128]
    assert rows(SIZES[0] + 1) == rows(SIZES[1])


@given(_USED, st.integers(1, 70))
def test_regions_cover_the_used_tiles_of_each_pool_once(used: dict[str, int], most: int) -> None:
    found = regions(used, most)
    assert len(found) <= most
    for pool in {region.pool for region in found}:
        own = [region for region in found if region.pool == pool]
        assert own[0].start == 0
        assert own[-1].end == -(-used[pool] // TILE) * TILE
        assert all(a.end == b.start for a, b in pairwise(own))
        assert all(region.bytes >= TILE and region.bytes % TILE == 0 for region in own)
    total = sum(-(-size // TILE) for size in used.values() if size >= TILE // 2)
    if sum(used.values()) < TILE:
        assert found == []
    elif most >= 2:
        assert len(found) == min(most, total)


def test_a_pool_that_is_hardly_used_has_no_region() -> None:
    assert {region.pool for region in regions({"heap": 4096, "anon": 100 * TILE}, 7)} == {"anon"}
    assert regions({"heap": 4096, "anon": TILE - 8192}, 7) == []
    assert regions({}, 7) == []
