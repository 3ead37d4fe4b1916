"""Layouts against what is asked of them: whole tiles, shares of misses, numbers; by brute force where it decides."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagelab import layouts, policy
from pagelab.errors import BadInputError
from pagelab.layouts import Footprint, Layout, Tile, files, moselect
from pagelab.layouts.campaign import FEWEST, shares
from pagelab.layouts.footprint import refuse_other_input
from pagelab.layouts.layout import PLACES, POOL_BYTES, POOLS, TILE
from pagelab.layouts.windows import SHARES
from pagelab.simulate.placements import placement

tiles = st.sets(st.tuples(st.sampled_from(POOLS), st.integers(0, 60).map(lambda n: n * TILE)), min_size=1, max_size=40)
footprints = tiles.map(lambda found: Footprint(tuple(found)))
weights = st.one_of(st.integers(0, 5), st.floats(1e-3, 1e6), st.just(0))


@st.composite
def profiled(draw: st.DrawFn) -> tuple[Footprint, np.ndarray]:
    footprint = draw(footprints)
    misses = draw(st.lists(weights, min_size=len(footprint), max_size=len(footprint)))
    return footprint, np.array(misses, np.float64)


def check(layout: Layout, footprint: Footprint) -> None:
    """Whole tiles, of the footprint only, none twice, neighbours as one."""
    assert layout.pieces() <= set(footprint.tiles)
    assert layout.huge_bytes == len(layout.pieces()) * TILE
    for one, other in pairwise(layout.tiles):
        assert one.pool != other.pool or one.end < other.start
    for tile in layout.tiles:
        assert tile.start % TILE == tile.end % TILE == 0
        assert 0 <= tile.start < tile.end <= POOL_BYTES


def shortest(misses: np.ndarray, share: float) -> int:
    """The length of the shortest window with that share of the misses, by trying all of them."""
    wanted = share * misses.sum() * (1 - 1e-9)
    spans = [(s, e) for s in range(len(misses)) for e in range(s + 1, len(misses) + 1)]
    return min(e - s for s, e in spans if misses[s:e].sum() >= wanted)


@given(profiled(), st.sampled_from(SHARES))
def test_the_hot_region_is_the_shortest_window_with_its_share(both: tuple[Footprint, np.ndarray], share: float) -> None:
    _, misses = both
    region = layouts.hot_region(misses, share)
    if misses.sum() == 0:
        assert region is None
        return
    assert region is not None
    start, end = region
    assert misses[start:end].sum() >= share * misses.sum() * (1 - 1e-9)
    assert end - start == shortest(misses, share)


@given(footprints, st.integers(1, 20))
def test_growing_windows_grow_from_nothing_to_everything(footprint: Footprint, count: int) -> None:
    found = layouts.growing(footprint, count)
    assert len(found) == count
    positions = [footprint.positions(layout) for layout in found]
    assert positions[0] == []
    for at, own in enumerate(positions):
        check(found[at], footprint)
        assert own == list(range(at * len(footprint) // max(count - 1, 1)))
    if count > 1:
        assert len(positions[-1]) == len(footprint)


@given(footprints, st.integers(1, 20), st.integers(0, 1000))
def test_random_windows_are_windows(footprint: Footprint, count: int, seed: int) -> None:
    found = layouts.random_windows(footprint, count, seed)
    assert len(found) == count
    assert found == layouts.random_windows(footprint, count, seed)
    for layout in found:
        check(layout, footprint)
        own = footprint.positions(layout)
        assert own == list(range(own[0], own[0] + len(own)))


def test_random_windows_have_every_length_and_every_place_equally_often() -> None:
    footprint = Footprint(tuple(("heap", at * TILE) for at in range(4)))
    found = layouts.random_windows(footprint, 40_000, 0)
    spans = [(own[0], len(own)) for own in map(footprint.positions, found)]
    for length in range(1, 5):
        for start in range(5 - length):
            expected = 40_000 / 4 / (5 - length)
            assert abs(spans.count((start, length)) - expected) < 5 * expected**0.5


@given(profiled(), st.sampled_from(SHARES), st.integers(1, 12))
def test_sliding_windows_leave_the_hot_region(both: tuple[Footprint, np.ndarray], share: float, count: int) -> None:
    footprint, misses = both
    found = layouts.sliding(footprint, misses, share, count, 0)
    assert len(found) == count
    for layout in found:
        check(layout, footprint)
    region = layouts.hot_region(misses, share)
    if region is None:
        assert all("random" in layout.name for layout in found)
        return
    hot = set(range(*region))
    positions = [set(footprint.positions(layout)) for layout in found]
    assert positions[0] == hot
    covered = [len(own & hot) for own in positions]
    length = len(hot)
    assert covered == [length - at * length // max(count - 1, 1) for at in range(count)]
    down = sum(region) > len(footprint)
    for own in positions:
        assert not own or (max(own) < region[1] if down else min(own) >= region[0])


def test_a_hot_region_at_the_top_slides_down_and_one_at_the_bottom_up() -> None:
    footprint = Footprint(tuple(("anon", at * TILE) for at in range(10)))
    misses = np.zeros(10)
    misses[8:] = 1
    found = [footprint.positions(layout) for layout in layouts.sliding(footprint, misses, 0.8, 3, 0)]
    assert found == [[8, 9], [7, 8], [6, 7]]
    found = [footprint.positions(layout) for layout in layouts.sliding(footprint, misses[::-1], 0.8, 3, 0)]
    assert found == [[0, 1], [1, 2], [2, 3]]


@given(profiled(), st.integers(FEWEST, 80), st.booleans())
def test_a_campaign_has_the_number_asked_for_and_no_two_that_coincide(
    both: tuple[Footprint, np.ndarray], count: int, known: bool
) -> None:
    footprint, misses = both
    made = layouts.campaign(footprint, misses if known else None, count)
    assert made.asked == count == len(made.layouts) + len(made.merged)
    assert len({layout.tiles for layout in made.layouts}) == len(made.layouts)
    names = [layout.name for layout in made.layouts]
    assert names[0] == "4K"
    assert "2M" in names
    assert all(kept in names and gone not in names for gone, kept in made.merged)
    for layout in made.layouts:
        check(layout, footprint)


def test_the_papers_campaign_is_nine_nine_and_thirty_six() -> None:
    assert shares(54) == (9, 9, (9, 9, 9, 9))
    for count in range(FEWEST, 200):
        grow, drawn, slide = shares(count)
        assert grow + drawn + sum(slide) == count
        assert min(slide) >= 1
        assert grow >= 2
    with pytest.raises(BadInputError, match="at least 7"):
        shares(FEWEST - 1)


@given(footprints, st.integers(0, 50))
def test_test_layouts_are_others(footprint: Footprint, seed: int) -> None:
    made = layouts.campaign(footprint, None, 20)
    if len(footprint) < 12:  # so few tiles that there may be no others
        return
    judging = layouts.judges(footprint, without=made.layouts, seed=seed)
    every = [layout.tiles for layout in (*made.layouts, *judging)]
    assert len(judging) == 12
    assert len(set(every)) == len(every)
    for layout in judging:
        check(layout, footprint)


def test_a_dozen_test_layouts_at_least() -> None:
    footprint = Footprint((("heap", 0), ("heap", TILE)))
    with pytest.raises(BadInputError, match="at least 12"):
        layouts.judges(footprint, 11)
    with pytest.raises(BadInputError, match=r"uses 2 tiles.*give it a larger input$"):
        layouts.judges(footprint, 12)
    with pytest.raises(BadInputError, match=r"or take fewer tests \(at least 12\)$"):
        layouts.judges(footprint, 13)


@given(footprints)
def test_kinds_are_a_full_factorial(footprint: Footprint) -> None:
    found = layouts.kinds(footprint)
    assert len({layout.tiles for layout in found}) == len(found) == 2 ** len(footprint.pools)
    for layout in found:
        large = set(layout.name.split("+")) - {"4K"}
        assert layout.pieces() == {tile for tile in footprint.tiles if tile[0] in large}


@given(profiled())
def test_moselects_buckets_are_disjoint_and_near_their_shares(both: tuple[Footprint, np.ndarray]) -> None:
    footprint, misses = both
    if misses.sum() == 0:
        with pytest.raises(BadInputError, match="--profile"):
            moselect.buckets(misses)
        return
    found = moselect.buckets(misses)
    every = [position for bucket in found for position in bucket]
    assert len(set(every)) == len(every)
    for bucket, share in zip(found, moselect.BUCKETS, strict=True):
        # Nothing is off by more than what the bucket's largest tile brought or the next one would have.
        assert abs(misses[bucket].sum() - share * misses.sum()) <= max(share * misses.sum(), misses.max())
    first = moselect.first_layouts(footprint, misses)
    assert len(first) == 9
    for layout in first:
        check(layout, footprint)


def test_moselect_begins_with_56_28_and_14_percent() -> None:
    footprint = Footprint(tuple(("anon", at * TILE) for at in range(100)))
    misses = np.ones(100)
    assert [len(bucket) for bucket in moselect.buckets(misses)] == [56, 28, 14]
    covered = [len(layout.pieces()) for layout in moselect.first_layouts(footprint, misses)]
    assert covered == [0, 56, 28, 14, 84, 70, 42, 98, 100]


@given(profiled(), st.integers(0, 30))
def test_moselects_next_layout_is_new_and_between(both: tuple[Footprint, np.ndarray], rounds: int) -> None:
    """Where C falls with the misses in large pages, as it does, a round halves the largest gap that can be halved."""
    footprint, misses = both
    small, large = layouts.anchors(footprint)

    def cycles(layout: Layout) -> float:
        return float(misses.sum() - misses[footprint.positions(layout)].sum())

    measured = [(small, cycles(small)), (large, cycles(large))]
    for at in range(min(rounds, 10)):
        found = moselect.next_layout(footprint, misses, measured, f"next-{at}")
        if found is None:
            break
        check(found, footprint)
        assert found.tiles not in {layout.tiles for layout, _ in measured}
        assert -1e-9 * misses.sum() <= cycles(found) <= cycles(small)
        measured.append((found, cycles(found)))


def test_moselect_goes_for_the_middle_of_the_largest_gap() -> None:
    footprint = Footprint(tuple(("anon", at * TILE) for at in range(16)))
    misses = np.ones(16)
    measured = [(footprint.window(str(n), 0, n), 16.0 - n) for n in (0, 4, 16)]
    found = moselect.next_layout(footprint, misses, measured, "next")
    assert found is not None
    assert len(found.pieces()) == 10
    with pytest.raises(BadInputError, match="at least two"):
        moselect.next_layout(footprint, misses, measured[:1], "next")


@given(footprints, st.integers(0, 2**40 - 1))
def test_policies_mean_the_layout(footprint: Footprint, chosen: int) -> None:
    layout = footprint.at("some", [at for at in range(len(footprint)) if chosen >> at & 1])
    again = policy.parse(layout.toml(), "layout")
    assert again.toml == layout.policy().toml
    extents, otherwise = placement(layout.policy()).of_trace(PLACES).extents()
    assert otherwise == 12
    large = {start for first, last, bits in extents if bits == 21 for start in range(first, last, TILE)}
    bases = {pool.memory: pool.start for pool in PLACES}
    far = {pool.end - TILE for pool in PLACES}
    assert large == {bases[pool] + at for pool, at in layout.pieces()} | far


def test_tiles_are_whole() -> None:
    for start, end, size, why in (
        (1, TILE, TILE, "whole pages"),
        (0, 0, TILE, "empty"),
        (0, TILE, 12345, "power of two"),
    ):
        with pytest.raises(BadInputError, match=why):
            Tile("heap", start, end, size)
    with pytest.raises(BadInputError, match="pools are heap, anon, arenas"):
        Tile("stack", 0, TILE)
    with pytest.raises(BadInputError, match="beyond"):
        Tile("heap", 0, POOL_BYTES)
    with pytest.raises(BadInputError, match="overlap"):
        Layout("twice", (Tile("heap", 0, 2 * TILE), Tile("heap", TILE, 3 * TILE)))
    mixed = Layout("mixed", (Tile("heap", 0, 1 << 30, 1 << 30), Tile("heap", 1 << 30, (1 << 30) + TILE)))
    assert [tile.page_bytes for tile in mixed.tiles] == [1 << 30, TILE]
    with pytest.raises(BadInputError, match="nothing to lay out"):
        Footprint(())


FOUR = Footprint(tuple(("anon", at * TILE) for at in range(4)))


def test_an_index_of_another_kind_is_refused_and_kept(tmp_path: Path) -> None:
    """Regression: --force ended with an error about the column that it lacks."""
    index = tmp_path / files.INDEX
    index.write_text("name,C\n4K.toml,12\n")
    (tmp_path / "4K.toml").write_text("mine")
    with pytest.raises(BadInputError, match=r"layouts\.csv: it is no list of layouts, and is kept"):
        files.write(tmp_path, FOUR, layouts.anchors(FOUR), [], None, force=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "layouts.csv": "name,C\n4K.toml,12\n",
        "4K.toml": "mine",
    }


@pytest.mark.parametrize("content", [b'file,role\n"' + 200_000 * b"x\n", b"file\n\xff\n"])
def test_an_index_that_is_no_table_is_kept(tmp_path: Path, content: bytes) -> None:
    index = tmp_path / files.INDEX
    index.write_bytes(content)
    with pytest.raises(BadInputError, match=r"layouts\.csv: it is no list of layouts, and is kept"):
        files.write(tmp_path, FOUR, layouts.anchors(FOUR), [], None, force=True)
    assert index.read_bytes() == content


def test_a_policy_beside_no_index_is_replaced_by_force_only(tmp_path: Path) -> None:
    """Regression: a file of the same name was overwritten where there was no index."""
    (tmp_path / "2M.toml").write_text("mine")
    (tmp_path / "other.toml").write_text("mine, too")
    with pytest.raises(BadInputError, match=r"2M\.toml exists; give another directory, or --force"):
        files.write(tmp_path, FOUR, layouts.anchors(FOUR), [], None)
    assert {path.name for path in tmp_path.iterdir()} == {"2M.toml", "other.toml"}
    assert (tmp_path / "2M.toml").read_text() == "mine"
    paths = files.write(tmp_path, FOUR, layouts.anchors(FOUR), [], None, force=True)
    assert [path.name for path in paths] == ["4K.toml", "2M.toml"]
    assert policy.load(tmp_path / "2M.toml").name == "2M"
    assert (tmp_path / "other.toml").read_text() == "mine, too"


def of_anon(touched: int, reserved: int, page_bytes: int) -> Any:
    """What a record has of a program's anonymous memory."""
    start = PLACES[1].start
    sizes = [SimpleNamespace(page_bytes=page_bytes, bytes=touched)]
    row = SimpleNamespace(region="anon", start=start, end=start + reserved, by_size=sizes)
    return SimpleNamespace(processes=[SimpleNamespace(placement=[row])])


def test_memory_that_is_reserved_and_not_touched_makes_no_other_input() -> None:
    """Regression: a program that maps 128 MiB and uses 40 had "another input" than its own trace, as every JVM."""
    argv = ["part"]
    traced = Footprint(tuple(("anon", at * TILE) for at in range(20)))
    records = {"4K": of_anon(40 << 20, 128 << 20, 4096), "2M": of_anon(40 << 20, 128 << 20, TILE)}
    refuse_other_input(traced, records, argv, whole=True)
    records["4K"].processes *= 4  # as forked children, at the same addresses
    refuse_other_input(traced, records, argv, whole=True)
    more = {**records, "4K": of_anon(64 << 20, 128 << 20, 4096)}
    refuse_other_input(traced, more, argv, whole=False)
    with pytest.raises(BadInputError, match=r"it touches 40 MiB of the anon pool, an execution 64 MiB"):
        refuse_other_input(traced, more, argv, whole=True)
    less = {size: of_anon(20 << 20, 20 << 20, 4096) for size in ("4K", "2M")}
    with pytest.raises(BadInputError, match=r"it uses 40 MiB of the anon pool, an execution 20 MiB"):
        refuse_other_input(traced, less, argv, whole=False)
