"""The parts of ``pagelab map`` that need no process: parsing, naming, sizing, drawing."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagelab import placement
from pagelab.placement import folios, pages, picture, procfs, regions, scan, table, words
from pagelab.placement.model import AddressMap, Mapping, Region, Tile
from pagelab.record import SizeBytes

PAGE = 4096
HEAD, TAIL = 1 << 15, 1 << 16

SMAPS = """\
55d0c0000000-55d0c0002000 r--p 00001000 fe:00 247026                     /usr/bin/a file (deleted)
Size:                  8 kB
KernelPageSize:        4 kB
Rss:                   8 kB
AnonHugePages:         0 kB
VmFlags: rd mr mw me
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
Size:               4096 kB
KernelPageSize:        4 kB
Rss:                4096 kB
AnonHugePages:      2048 kB
VmFlags: rd wr mr mw me ac hg
7f0040000000-7f0040200000 rw-p 00000000 00:0f 12                         /anon_hugepage (deleted)
KernelPageSize:     2048 kB
VmFlags: rd wr mr mw me de ht
"""


def test_smaps_are_read_with_totals_and_flags() -> None:
    first, second, third = procfs.parse_smaps(SMAPS.splitlines())
    assert (first.start, first.end, first.offset) == (0x55D0C0000000, 0x55D0C0002000, 0x1000)
    assert first.path == "/usr/bin/a file (deleted)"
    assert second.totals["AnonHugePages"] == 2 << 20
    assert "hg" in second.flags
    assert not second.path
    assert third.is_hugetlb
    assert third.totals["KernelPageSize"] == 2 << 20


def vma(start: int, size: int, permissions: str = "rw-p", path: str = "", offset: int = 0) -> procfs.Vma:
    return procfs.Vma(start, start + size, permissions, offset, 0, path)


def names(vmas: list[procfs.Vma], executable: str = "/bin/prog") -> list[tuple[str, str]]:
    return [(group.kind, group.name) for group in regions.group(vmas, executable)]


def test_regions_have_the_names_of_the_policy_language() -> None:
    vmas = [
        vma(0x400000, 0x1000, "r-xp", "/bin/prog"),
        vma(0x401000, 0x1000, "rw-p", "/bin/prog"),
        vma(0x402000, 0x1000, "rw-p"),
        vma(0x5000000, 0x21000, "rw-p", "[heap]"),
        vma(0x65C000000000, 0x200000),
        vma(0x660000000000, 0x200000),
        vma(0x660000400000, 0x200000),
        vma(0x670000000000, 0x200000),
        vma(0x680000000000, 0x200000),
        vma(0x7F0000001000, 0x1000, "r--p", "/data/big.bin"),
        vma(0x7F0000010000, 0x1000, "rw-s", "/dev/shm/x"),
        vma(0x7F0000020000, 0x1000, "rw-p", "[anon:pagelab]"),
        vma(0x7FFC00000000, 0x21000, "rw-p", "[stack]"),
        vma(0x7FFD00000000, 0x1000, "r-xp", "[vdso]"),
    ]
    assert names(vmas) == [
        ("file", "/bin/prog"),
        ("data", "data of prog"),
        ("data", "bss of prog"),
        ("heap", "heap"),
        ("special", "frame pool"),
        ("heap", "heap pool"),
        ("anon", "anonymous pool"),
        ("anon", "anonymous pool 2"),
        ("file", "/data/big.bin"),
        ("shared", "/dev/shm/x"),
        ("anon", "pagelab"),
        ("stack", "stack"),
        ("special", "[vdso]"),
    ]


def test_malloc_arenas_are_told_from_other_memory() -> None:
    arena = 0x7F0004000000
    vmas = [
        vma(arena, 0x21000),
        vma(arena + 0x21000, (64 << 20) - 0x21000, "---p"),
        vma(0x7F0010000000, 0x21000),  # aligned, and not reserved up to 64 MiB
        vma(0x7F0010021000, 0x1000, "---p"),
    ]
    assert names(vmas) == [("arenas", "malloc arenas"), ("anon", "anonymous")]
    pool = 0x670000000000
    pooled = [vma(pool, 0x21000), vma(pool + 0x21000, (64 << 20) - 0x21000, "---p"), vma(pool + (64 << 20), 0x1000)]
    assert names(pooled) == [("arenas", "arenas in the anonymous pool"), ("anon", "anonymous pool")]


def test_anonymous_memory_is_one_region_as_far_as_it_is_contiguous() -> None:
    vmas = [vma(0x7F0000000000, 0x1000), vma(0x7F0000001000, 0x1000, "---p"), vma(0x7F0000010000, 0x1000)]
    found = regions.group(vmas, None)
    assert [len(group.vmas) for group in found] == [2, 1]


def test_anonymous_memory_behind_a_library_is_bss_only_as_far_as_its_headers_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = [vma(0x7F0000000000, 0x2000, "r--p", "/l.so"), vma(0x7F0000002000, 0x1000, "rw-p", "/l.so", 0x2000)]
    behind = vma(0x7F0000003000, 0x4000)
    monkeypatch.setattr(regions, "memory_end", lambda _path: 0x6000)
    assert names([*library, behind])[-1] == ("data", "bss of l.so")
    monkeypatch.setattr(regions, "memory_end", lambda _path: 0x4000)
    assert names([*library, behind])[-1] == ("anon", "anonymous")


def test_the_memory_image_of_this_python_is_larger_than_nothing() -> None:
    import sys

    end = regions.memory_end(sys.executable)
    assert end is not None
    assert end > 0
    assert regions.memory_end(__file__) is None
    assert regions.memory_end("/nonexistent") is None


def extents(*rows: tuple[int, int, int]) -> scan.Extents:
    return np.array(list(rows), dtype=scan.EXTENT)


def test_extents_that_touch_are_joined_when_they_are_of_one_category() -> None:
    cut = extents((0, 8, 1), (8, 16, 1), (16, 24, 2), (32, 40, 2), (40, 48, 2))
    assert scan.merge(cut).tolist() == [(0, 16, 1), (16, 24, 2), (32, 48, 2)]


def folios_naively(addresses: list[int], frames: list[int], flags: dict[int, int]) -> list[int]:
    """One page at a time: find its head, walk to the end of the folio, and see whether all of it is mapped here."""
    at = dict(zip(addresses, frames, strict=True))
    sizes = []
    for address, frame in zip(addresses, frames, strict=True):
        head = frame
        while flags.get(head, 0) & TAIL:
            head -= 1
        count = 1
        while flags.get(head + count, 0) & TAIL:
            count += 1
        first = address - (frame - head) * PAGE
        whole = all(at.get(first + i * PAGE) == head + i for i in range(count))
        good = flags.get(head, 0) & HEAD and 1 < count < 512 and head % count == 0 and first % (count * PAGE) == 0
        sizes.append(count * PAGE if whole and good else PAGE)
    return sizes


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_folio_sizes_are_those_of_a_naive_search(seed: int, pieces: int) -> None:
    rng = random.Random(seed)
    flags: dict[int, int] = {}
    for frame in range(0, 256, 16):
        order = rng.choice([0, 0, 2, 3, 4])
        for base in range(frame, frame + 16, 1 << order):
            for page in range(1 << order):
                flags[base + page] = 0 if order == 0 else HEAD if page == 0 else TAIL
    mapped: dict[int, int] = {}
    for _ in range(pieces):
        frame, count = rng.randrange(256), rng.choice([1, 2, 4, 8, 16])
        shift = rng.choice([0, 0, 0, 1])
        slot = rng.randrange(16) * 16 + (frame + shift) % 16
        for i in range(min(count, 256 - frame)):
            mapped[(slot + i) * PAGE] = frame + i
    addresses = sorted(mapped)
    frames = [mapped[address] for address in addresses]
    placed = folios.Placed(np.array(addresses, np.uint64), np.array(frames, np.uint64))
    own = np.array([flags.get(frame, 0) for frame in frames], np.uint64)
    following = np.array([flags.get(frame + 1, 0) for frame in frames], np.uint64)
    found = folios.folio_sizes(placed, own, following, PAGE, 512)
    assert found.tolist() == folios_naively(addresses, frames, flags)


def test_runs_are_contiguous_in_both_address_spaces() -> None:
    placed = folios.Placed(np.array([0, 1, 2, 4, 5], np.uint64) * PAGE, np.array([10, 11, 20, 21, 22], np.uint64))
    found = folios.runs(placed, PAGE)
    rows = zip(*(column.tolist() for column in found), strict=True)
    assert list(rows) == [(0, 10, 2), (2 * PAGE, 20, 1), (4 * PAGE, 21, 2)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), min_size=1), st.integers(1, 40), st.integers(0, 3))
def test_batches_cover_every_extent_once_and_stay_small(pieces: list[tuple[int, int]], room: int, gap: int) -> None:
    rows, at = [], 0
    for skip, count in pieces:
        rows.append(((at + skip) * PAGE, (at + skip + count) * PAGE, scan.PRESENT))
        at += skip + count
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "_BATCH_PAGES", room)
        patch.setattr(pages, "_GAP_PAGES", gap)
        batches = list(pages.batches(scan.merge(extents(*rows)), PAGE))
    assert all(sum(high - low for low, high in batch) <= room * PAGE for batch in batches)
    spans = [span for batch in batches for span in batch]
    assert all(low // (room * PAGE) == (high - 1) // (room * PAGE) for low, high in spans)
    read = [page for low, high in spans for page in range(low, high, PAGE)]
    assert read == sorted(set(read))
    wanted = {page for low, high, _ in rows for page in range(low, high, PAGE)}
    assert wanted <= set(read)
    category = pages.categories(scan.merge(extents(*rows)), np.array(read, np.uint64))
    assert {page for page, bits in zip(read, category.tolist(), strict=True) if bits} == wanted


@given(st.integers(0, 2**32), st.integers(1, 60), st.sets(st.integers(1, 59)))
def test_frames_are_summed_up_the_same_however_they_are_cut(seed: int, count: int, cuts: set[int]) -> None:
    rng = random.Random(seed)
    addresses, frames, address, frame = [], [], 0, 100
    for _ in range(count):
        address += PAGE * rng.choice([1, 1, 1, 2])
        frame = frame + 1 if rng.random() < 0.8 else rng.randrange(1, 1000)
        addresses.append(address)
        frames.append(frame)
    whole = folios.Placed(np.array(addresses, np.uint64), np.array(frames, np.uint64))
    at_once, in_parts = pages.FrameSummary(PAGE, wanted=True), pages.FrameSummary(PAGE, wanted=True)
    at_once.add(whole)
    edges = [0, *sorted(cut for cut in cuts if cut < count), count]
    for low, high in itertools.pairwise(edges):
        in_parts.add(folios.Placed(whole.addresses[low:high], whole.frames[low:high]))
    assert in_parts.frames() == at_once.frames()
    assert in_parts.pieces() == at_once.pieces()
    summary, listed = at_once.frames(), at_once.pieces()
    assert summary is not None
    assert listed is not None
    assert (summary.runs, summary.longest_run_pages) == (len(listed), max(run.pages for run in listed))
    assert (summary.lowest, summary.highest) == (min(frames), max(frames))


def test_tiles_join_across_batches() -> None:
    page, huge = np.uint64(PAGE), np.uint64(2 << 20)
    first = pages.from_pages(np.array([0, 1, 2], np.uint64) * page, np.array([page, page, page]), PAGE)
    second = pages.from_pages(np.array([3, 5], np.uint64) * page, np.array([page, huge]), PAGE)
    found = [(tile.start // PAGE, tile.end // PAGE, tile.page_bytes) for tile in pages.tiles([first, second])]
    assert found == [(0, 4, PAGE), (5, 6, 2 << 20)]
    assert pages.tiles([]) == []


def region(tiles: list[Tile], end: int, start: int = 0, name: str = "anonymous") -> Region:
    sizes: dict[int, int] = {}
    for tile in tiles:
        sizes[tile.page_bytes] = sizes.get(tile.page_bytes, 0) + tile.end - tile.start
    by_size = [SizeBytes(page_bytes=size, bytes=count) for size, count in sorted(sizes.items())]
    mapping = Mapping(start=start, end=end, permissions="rw-p", path="", huge_advice=None, tiles=tiles)
    return Region(
        kind="anon", name=name, start=start, end=end, mapped_bytes=end - start, resident_bytes=sum(sizes.values()),
        zero_bytes=0, swapped_bytes=0, by_size=by_size, mappings=[mapping],
    )  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 60), st.sampled_from([4096, 2 << 20])), min_size=1))
def test_bins_hold_every_resident_byte_where_it_lies(pieces: list[tuple[int, int, int]]) -> None:
    tiles, at = [], 0
    for gap, count, size in pieces:
        tiles.append(Tile(start=at + gap * PAGE, end=at + (gap + count) * PAGE, page_bytes=size))
        at = tiles[-1].end
    drawn, width = picture.bins(region(tiles, at), 16)
    naive: dict[int, list[int]] = {size: [0] * -(-at // width) for size in drawn}
    for tile in tiles:
        for page in range(tile.start, tile.end, PAGE):
            naive[tile.page_bytes][page // width] += PAGE
    assert {size: (shares * width).round().astype(int).tolist() for size, shares in drawn.items()} == naive


def address_map(*found: Region) -> AddressMap:
    sizes: dict[int, int] = {}
    for one in found:
        for entry in one.by_size:
            sizes[entry.page_bytes] = sizes.get(entry.page_bytes, 0) + entry.bytes
    by_size = [SizeBytes(page_bytes=size, bytes=count) for size, count in sorted(sizes.items())]
    return AddressMap(
        pid=1, command="prog", taken_at="2026-01-01T00:00:00", moment="now", base_page_bytes=4096, method="scan",
        folios=True, by_size=by_size, regions=list(found),
    )  # fmt: skip


def test_a_picture_of_many_gibibytes_stays_small() -> None:
    rng = random.Random(3)
    start, tiles, at = 0x670000000000, [], 0x670000000000
    while at < start + (64 << 30):
        size = rng.choice([4096, 2 << 20])
        end = at + rng.randrange(1, 64) * (2 << 20)
        tiles.append(Tile(start=at, end=end, page_bytes=size))
        at = end + rng.randrange(3) * (2 << 20)
    assert len(tiles) > 500
    specification = picture.specification(address_map(region(tiles, at, start, "anonymous pool")))
    assert 0 < str(specification).count("'percent':") <= 2 * picture.BINS
    assert "GiB" in str(specification)
    assert "var(--" not in str(specification), "files have no style sheet"


def test_small_regions_are_left_out_of_the_picture_and_counted() -> None:
    big = region([Tile(start=0, end=1 << 30, page_bytes=4096)], 1 << 30)
    small = [
        region([Tile(start=at, end=at + 4096, page_bytes=4096)], at + 4096, at, f"s{at}")
        for at in range(2 << 30, (2 << 30) + 30 * 8192, 8192)
    ]
    found = address_map(big, *small)
    drawn, rest = picture.drawn(found)
    assert drawn == [big]
    assert len(rest) == 30
    assert "not drawn: 30 regions with 120K resident" in str(picture.specification(found)["title"])


def test_the_table_sums_up_what_it_does_not_show() -> None:
    found = address_map(
        *(region([Tile(start=at, end=at + 4096, page_bytes=4096)], at + 4096, at) for at in range(0, 40 * 8192, 8192))
    )
    assert table.table(found).row_count == 24
    assert table.table(found, everything=True).row_count == 40


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0B"),
        (999, "999B"),
        (1000, "0.977K"),
        (4096, "4K"),
        (1 << 20, "1M"),
        (1536 << 20, "1.5G"),
        (123 << 20, "123M"),
    ],
)
def test_sizes_have_at_most_three_digits(count: int, text: str) -> None:
    assert words.size(count) == text


@pytest.mark.by_turns(4)
def test_a_map_prints_as_a_short_table() -> None:
    found = placement.collect(os.getpid())
    lines = str(found).splitlines()
    assert lines[0].startswith(f"process {os.getpid()} (")
    assert 1 < len(lines) <= 9
    assert found._repr_html_().startswith("<table>")
    assert found._repr_html_().count("<tr>") == len(lines) - 1


def test_the_published_schema_is_that_of_the_code() -> None:
    published = Path(__file__).parent.parent / "docs/schema/map-1.json"
    current = json.dumps(AddressMap.model_json_schema(by_alias=True), indent=2) + "\n"
    if not published.exists() or published.read_text() != current:
        published.with_suffix(".json.new").write_text(current)
    assert published.read_text() == current, f"the new version is {published}.new"
