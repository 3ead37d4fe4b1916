"""``pagelab.simulate.tlb`` on pointer chases whose misses are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pagelab.errors import BadInputError
from pagelab.simulate.hardware import load, presets
from pagelab.simulate.placements import (
    ANONYMOUS_POOL,
    HEAP_POOL,
    History,
    Region,
    page_sizes,
    placement,
    placement_of_pages,
)
from pagelab.simulate.tlb_runs import tlb

MIB = 1 << 20
PASSES = 4
BOOTED = History(turnover=0)
"""Where frames do not matter: nothing to draw."""


def chase(pages: int, step: int = 4096, start: int = HEAP_POOL) -> np.ndarray:
    """Each page once a pass, in a random order that is the same in every pass."""
    order = np.random.default_rng(7).permutation(pages).astype(np.uint64)
    return np.tile(order * np.uint64(step) + np.uint64(start), PASSES)


MOSAICS_TABLE_4 = {
    "sandy-bridge": ((64, 32, 4), (512, 0, 0), 1),
    "ivy-bridge": ((64, 32, 4), (512, 0, 0), 1),
    "haswell": ((64, 32, 4), (1024, 1024, 0), 1),
    "broadwell": ((64, 32, 4), (1536, 1536, 16), 2),
    "skylake": ((64, 32, 4), (1536, 1536, 16), 2),
}


@pytest.mark.parametrize("name", MOSAICS_TABLE_4)
def test_presets_have_mosaics_table_4(name: str) -> None:
    """A chase over as many consecutive pages as there are entries misses in the first pass only; one over twice as many
    always, for LRU keeps none of them until its turn."""
    first, second, walkers = MOSAICS_TABLE_4[name]
    assert load(name).needed("tlb")["walkers"] == walkers
    for page, l1, l2 in zip(("4K", "2M", "1G"), first, second, strict=True):
        step = {"4K": 4096, "2M": 2 * MIB, "1G": 1 << 30}[page]
        placed = placement_of_pages(page)
        fits = tlb(chase(l1, step), name, placed, history=BOOTED).executions.row(0, named=True)
        assert (fits["h"], fits["m"]) == (0, l1)
        l2_fits = tlb(chase(l2 or 2 * l1, step), name, placed, history=BOOTED).executions.row(0, named=True)
        assert l2_fits["m"] == (l2 if l2 else PASSES * 2 * l1)
        order = np.arange(2 * max(l1, l2), dtype=np.uint64) * np.uint64(step)
        over = tlb(np.tile(order, PASSES), name, placed, history=BOOTED).executions.row(0, named=True)
        assert (over["h"], over["m"]) == (0, PASSES * 2 * max(l1, l2))


APART = 5
"""Pages from node to node: each lies in another 16K, so that coalescing neighbours gains nothing."""


@pytest.mark.parametrize("name", [name for name in presets() if load(name).tlb])
def test_chases_have_the_misses_that_the_description_says(name: str) -> None:
    """Of a chase in order over n base pages, LRU keeps all or none: with n entries each misses once, with twice as many
    always."""
    described = load(name).needed("tlb")
    l1, l2 = (
        next(array["entries"] for array in described[level] if 4096 in array["pages"]) for level in ("first", "second")
    )
    placed = placement_of_pages("4K")

    def per_access(pages: int) -> tuple[float, float]:
        """H and M for each access, once every page has been there."""
        order = np.arange(pages, dtype=np.uint64) * np.uint64(APART * 4096) + np.uint64(HEAP_POOL)
        once, often = (
            tlb(np.tile(order, laps), name, placed, history=BOOTED).executions.row(0, named=True) for laps in (1, 4)
        )
        return (often["h"] - once["h"]) / (3 * pages), (often["m"] - once["m"]) / (3 * pages)

    assert per_access(l1) == (0, 0)
    assert per_access(2 * l1) == (1, 0)
    assert per_access(l2) == (1, 0)
    assert per_access(2 * l2) == (0, 1)


@pytest.mark.parametrize("name", [name for name in presets() if load(name).tlb])
def test_every_preset_walks_less_with_larger_pages(name: str) -> None:
    placements = [placement_of_pages(size) for size in ("4K", "64K", "2M", "1G")]
    runs = tlb(chase(16_384), name, placements, caches=True)
    cycles, misses = runs.executions["c"].to_list(), runs.executions["m"].to_list()
    assert min(cycles[:2]) > cycles[2] > cycles[3] > 0
    assert misses[0] >= misses[1] > misses[2] >= misses[3] == 1
    assert runs.levels["walk_accesses"].sum() > 0


@pytest.mark.parametrize("name", ["ice-lake-server", "sapphire-rapids"])
def test_sizes_compete_for_the_half_that_they_share(name: str, tmp_path: Path) -> None:
    """1,500 pages of 4K and 800 of 2M at random: one half of the second level has 1,550 pages for 1,024 entries.

    Arrays of 2,048 and 1,024 entries side by side would miss the first time only: 0.57%.
    """
    (tmp_path / "mixed.toml").write_text(
        'name = "mixed"\n[[rule]]\nmemory = "heap"\npages = { mosaic = [["0", "1600M", "2M"]] }\n'
    )
    page = np.random.default_rng(5).integers(0, 2300, 400_000, dtype=np.uint64)
    base = np.uint64(ANONYMOUS_POOL) + page * np.uint64(4096)
    large = np.uint64(HEAP_POOL) + (page - np.uint64(1500)) * np.uint64(2 * MIB)
    addresses = np.where(page < 1500, base, large)
    found = tlb(addresses, name, placement(tmp_path / "mixed.toml"), history=BOOTED).executions.row(0, named=True)
    assert 0.22 < found["m"] / found["translations"] < 0.26


def test_zen_5_holds_a_thousand_pages_of_1g() -> None:
    def missed(pages: int) -> int:
        order = np.tile(np.arange(pages, dtype=np.uint64) << np.uint64(30), PASSES)
        return int(tlb(order, "zen-5", placement_of_pages("1G"), history=BOOTED).executions["m"][0])

    assert (missed(1024), missed(2048)) == (1024, PASSES * 2048)


def test_stores_have_sixteen_entries_of_their_own() -> None:
    """Ice Lake's servers: a chase of loads over 32 pages finds them in the first level, one of stores in the second."""
    order = np.tile(np.arange(32, dtype=np.uint64) * np.uint64(4096), PASSES)
    hits = []
    for kind in (0, 1):
        batch = (order, np.full(len(order), kind))
        found = tlb(iter([batch]), "ice-lake-server", placement_of_pages("4K"), history=BOOTED)
        hits.append(found.executions["h"][0])
    assert hits == [0, (PASSES - 1) * 32]


def test_a_mosaic_is_cheap_where_it_is_large(tmp_path: Path) -> None:
    (tmp_path / "hot.toml").write_text(
        'name = "hot"\n[[rule]]\nmemory = "heap"\npages = { mosaic = [["0", "8M", "2M"]] }\n'
    )
    runs = tlb(chase(4096), "haswell", [placement_of_pages("4K"), placement(tmp_path / "hot.toml")])
    hot = runs.windows.filter(placement="hot").sort("start")
    assert hot["start"].to_list() == [HEAP_POOL + at * 2 * MIB for at in range(8)]
    assert hot["m"].to_list()[:4] == [1, 1, 1, 1]
    assert min(hot["m"].to_list()[4:]) >= 512
    small = runs.windows.filter(placement="4K")
    assert small["m"].sum() == runs.executions["m"][0]
    regions = [
        Region(HEAP_POOL, HEAP_POOL + 8 * MIB, "heap"),
        Region(HEAP_POOL + 8 * MIB, HEAP_POOL + 16 * MIB, "anon"),
    ]
    by_region = runs.regions(regions).filter(placement="hot")
    assert by_region["m"].to_list() == [4, sum(hot["m"].to_list()[4:])]


def test_a_window_counts_for_the_region_that_has_its_first_address() -> None:
    """Regression: it counted for the last region that begins in it, which may have no reference at all."""
    inside = tlb(np.arange(20, dtype=np.uint64) * np.uint64(0x10000), "haswell", [placement_of_pages("4K")])
    behind = tlb(np.arange(20, dtype=np.uint64) + np.uint64(7 * MIB), "haswell", [placement_of_pages("4K")])
    one, two = Region(0, 0x180000, "one"), Region(0x180000, 4 * MIB, "two")
    later, last = Region(0x680000, 0x700000, "later"), Region(0x700000, 0x780000, "last")
    found = inside.regions([two, last, one, later])
    assert found.select("kind", "m").rows() == [("one", 20)]
    # In no region: then the first one that begins in it.
    assert behind.regions([two, last, one, later])["kind"].to_list() == ["later"]
    assert behind.regions([two, one])["kind"].to_list() == ["elsewhere"]
    assert inside.regions([Region(2 * MIB, 4 * MIB, "next")])["kind"].to_list() == ["elsewhere"]


def test_guests_read_up_to_24_entries(tmp_path: Path) -> None:
    """Bhargava et al., ASPLOS 2008: a walk in two dimensions of four levels reads 24 entries."""
    text = '[tlb]\n[[tlb.first]]\npages = ["4K"]\nentries = 64\n[tlb.nested]\npage = "4K"\n'
    (tmp_path / "guest.toml").write_text(text)
    row = tlb(chase(1)[:1], tmp_path / "guest.toml").executions.row(0, named=True)
    assert (row["table_reads"], row["host_reads"]) == (24, 20)


def test_page_sizes_of_policies(tmp_path: Path) -> None:
    def sizes(text: str, regions: tuple[Region, ...] = ()) -> tuple[list[tuple[int, int, int]], int]:
        (tmp_path / "p.toml").write_text(text)
        return page_sizes(placement(tmp_path / "p.toml").policy, regions)

    assert sizes('pages = "2M"') == ([], 21)
    heap = (HEAP_POOL, HEAP_POOL + (1 << 40), 21)
    assert sizes('[[rule]]\nmemory = "heap"\npages = "2M"\n') == ([heap], 12)
    text = '[[rule]]\nrange = ["0x10000000", "0x10400000"]\npages = "2M"\n[[rule]]\nmemory = "anon"\npages = "64K"\n'
    extents, _ = sizes(text)
    anon = (ANONYMOUS_POOL, ANONYMOUS_POOL + (1 << 40), 16)
    assert extents == [(0x10000000, 0x10400000, 21), anon]
    mapped = Region(0x7F00_0000_1000, 0x7F00_0060_3000, "anon")
    edges = (mapped.start, mapped.start + 2 * MIB - 4096, mapped.end - 0x3000, mapped.end)
    extents, _ = sizes('[[rule]]\nmemory = "anon"\npages = "2M"\n', (mapped,))
    assert extents[1:] == list(zip(edges, edges[1:], (12, 21, 12), strict=False))
    stack = Region(0x7FFC_0000_0000, 0x7FFC_0003_0000, "stack")
    with pytest.raises(BadInputError, match="no addresses are known for file"):
        sizes('[[rule]]\nmemory = "file"\npages = "4K"\n')
    assert sizes('[[rule]]\nmemory = "stack"\npages = "4K"\n', (stack,))[0] == [(stack.start, stack.end, 12)]
    with pytest.raises(BadInputError, match="at_least"):
        sizes('[[rule]]\nmemory = "anon"\nat_least = "1M"\npages = "2M"\n')


def test_hardware_that_cannot_be_is_refused() -> None:
    odd = {"tlb": {"first": [{"pages": ["4K"], "entries": 100, "ways": 8}]}}
    with pytest.raises(BadInputError, match="no whole sets of 8"):
        tlb(chase(1), odd)
    with pytest.raises(BadInputError, match=r"no table \[tlb\]"):
        tlb(chase(1), "pentium-4")
