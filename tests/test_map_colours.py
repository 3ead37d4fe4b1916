"""``pagelab map``: frames by cache colour, their table and picture, and maps saved for policies to replay."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness.frames import _missing as frames_missing
from pagelab import machine
from pagelab.errors import BadInputError, MachineError
from pagelab.placement import colour_picture, colours, folios, framemap, pages, table
from pagelab.placement.colours import ColourFunction, ColourSummary
from pagelab.placement.model import AddressMap, FrameRun, Kind, Mapping, Region

PAGE = 4096
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="frame numbers need root; run: sudo make test")

FUNCTIONS = st.one_of(
    st.integers(1, 70).map(ColourFunction),
    st.lists(st.integers(1, 255), min_size=1, max_size=4).map(lambda masks: ColourFunction(1 << len(masks), (*masks,))),
)
PLACED = st.dictionaries(st.integers(0, 300), st.integers(1, 4000), min_size=1, max_size=120)


def naive_colour(function: ColourFunction, frame: int) -> int:
    if not function.masks:
        return frame % function.colours
    return sum((bin(mask & frame).count("1") % 2) << bit for bit, mask in enumerate(function.masks))


def arrays(placed: dict[int, int], start: int = 0) -> folios.Placed:
    addresses = sorted(placed)
    return folios.Placed(
        np.array([start + page * PAGE for page in addresses], np.uint64),
        np.array([placed[page] for page in addresses], np.uint64),
    )


@given(FUNCTIONS, PLACED, st.integers(0, 5))
def test_pages_are_counted_by_colour_as_one_would_by_hand(
    function: ColourFunction, placed: dict[int, int], cut: int
) -> None:
    start = 0x600000000000
    summary = ColourSummary(function, start, start + 301 * PAGE, PAGE)
    whole = arrays(placed, start)
    for low, high in ((0, cut), (cut, len(placed))):
        summary.add(folios.Placed(whole.addresses[low:high], whole.frames[low:high]))
    found = summary.colours()
    assert found is not None
    counts = [0] * function.colours
    turns = [0] * function.colours
    for page, frame in placed.items():
        colour = naive_colour(function, frame)
        counts[colour] += 1
        turns[(colour - (start // PAGE + page)) % function.colours] += 1
    assert found.counts == counts
    assert (found.pages, found.least, found.most) == (len(placed), min(counts), max(counts))
    assert found.along_address == pytest.approx(max(turns) / len(placed))
    grid = found.grid
    assert grid is not None
    table, bin_bytes = grid
    naive = np.zeros_like(table)
    for page, frame in placed.items():
        group = naive_colour(function, frame) * table.shape[1] // function.colours
        naive[page * PAGE // bin_bytes, group] += 1
    assert (table == naive).all()


def test_crowding_tells_even_from_chance_from_crowded() -> None:
    rng = np.random.default_rng(1)
    assert colours.crowding(np.full(64, 10)) == 0
    by_chance = [colours.crowding(np.bincount(rng.integers(0, 64, 6400), minlength=64)) for _ in range(50)]
    assert 0.9 < float(np.mean([one for one in by_chance if one is not None])) < 1.1
    crowded = np.zeros(64, np.int64)
    crowded[3] = 640
    assert colours.crowding(crowded) == pytest.approx(640)
    assert colours.crowding(np.array([5])) is None


def test_page_colouring_follows_the_address_and_bin_hopping_in_fault_order_too_when_touched_in_order() -> None:
    function = ColourFunction(16)
    summary = ColourSummary(function, 0, 64 * PAGE, PAGE)
    summary.add(arrays({page: 160 + (page + 5) % 16 for page in range(64)}))
    found = summary.colours()
    assert found is not None
    assert (found.along_address, found.crowding) == (1.0, 0.0)


def test_the_fullest_colours_are_named_in_order() -> None:
    assert colours.top([3, 9, 0, 9]) == [(1, 9), (3, 9), (0, 3)]
    assert colours.top([0, 0]) == []


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ((64, None, None), (64, ())),
        ((None, "1M,8", None), (32, ())),
        ((None, "32m,16", None), (512, ())),
        ((None, "16K,8", None), (1, ())),
        ((None, None, "0x21,66"), (4, (0x21, 66))),
    ],
)
def test_flags_name_a_colour_function(
    flags: tuple[int | None, str | None, str | None], wanted: tuple[int, tuple[int, ...]]
) -> None:
    found = colours.from_flags(*flags, PAGE)
    assert found is not None
    assert (found.colours, found.masks) == wanted


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((0, None, None), "allowed: 1 to 65536"),
        ((70000, None, None), "allowed: 1 to 65536"),
        ((None, "1M", None), "not of the form SIZE,WAYS"),
        ((None, "1M,0", None), "not of the form SIZE,WAYS"),
        ((None, None, "0x,1"), "not masks over frame-number bits"),
        ((None, None, "0"), "not masks over frame-number bits"),
        ((None, None, ",".join(["1"] * 20)), "1048576 colours; allowed"),
        ((64, "1M,8", None), "--colors and --cache both set"),
    ],
)
def test_flags_that_make_no_sense(flags: tuple[int | None, str | None, str | None], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        colours.from_flags(*flags, PAGE)


CACHES = [
    {"level": 1, "kind": "data", "size_bytes": 32 << 10, "ways": 8, "colours": 1},
    {"level": 2, "kind": "unified", "size_bytes": 1 << 20, "ways": 8, "colours": 32},
    {"level": 3, "kind": "unified", "size_bytes": 32 << 20, "ways": 16, "colours": 512},
]
SHAPE = {"line_bytes": 64, "sets": 32768, "ways": 16}


def test_the_default_is_the_second_level_cache() -> None:
    found = colours.of_machine({"caches": CACHES})
    assert found is not None
    assert (found.colours, found.source) == (32, "L2: 1024K, 8 ways")
    without_second = colours.of_machine({"caches": [CACHES[0], CACHES[2]]})
    assert without_second is not None
    assert without_second.colours == 512
    assert colours.of_machine({"caches": []}) is None


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("machine", (512, ())),
        ({"count": 48}, (48, ())),
        ({"cache": {"bytes": 1 << 20, "ways": 8}}, (32, ())),
        ({"masks": [3, 12]}, (4, (3, 12))),
    ],
)
def test_under_a_policy_its_own_colours_count(said: object, wanted: tuple[int, tuple[int, ...]]) -> None:
    described = {"caches": CACHES, "cache": SHAPE, "base_page_bytes": PAGE}
    kernel = {"strategy": {"kind": "kernel"}, "colours": "machine"}
    axis = {"strategy": {"kind": "page-coloring"}, "colours": said}
    for document in (
        {"name": "p", "frames": axis, "rules": []},
        {"name": "p", "frames": kernel, "rules": [{"frames": None}, {"frames": axis}]},
    ):
        found = colours.from_policy(document, described)
        assert found is not None
        assert (found.colours, found.masks) == wanted
    assert colours.from_policy({"name": "p", "frames": kernel, "rules": []}, described) is None


def runs_of(placed: dict[int, int], start: int) -> list[FrameRun]:
    summary = pages.FrameSummary(PAGE, wanted=True)
    summary.add(arrays(placed, start))
    return summary.pieces() or []


def address_map(*found: Region, function: ColourFunction | None = None) -> AddressMap:
    return AddressMap(
        pid=7, command="prog", taken_at="2026-01-01T00:00:00", moment="now", base_page_bytes=PAGE, method="scan",
        folios=True, by_size=[], regions=list(found), colouring=None if function is None else function.described,
    )  # fmt: skip


def region(placed: dict[int, int], start: int, kind: Kind = "anon", function: ColourFunction | None = None) -> Region:
    end = start + (max(placed, default=0) + 1) * PAGE
    counted = None
    if function is not None:
        summary = ColourSummary(function, start, end, PAGE)
        summary.add(arrays(placed, start))
        counted = summary.colours()
    mapping = Mapping(start=start, end=end, permissions="rw-p", path="", huge_advice=None, tiles=[])
    return Region(
        kind=kind, name=f"{kind} pool", start=start, end=end, mapped_bytes=end - start,
        resident_bytes=len(placed) * PAGE, zero_bytes=0, swapped_bytes=0, by_size=[], mappings=[mapping],
        frame_runs=runs_of(placed, start), colours=counted,
    )  # fmt: skip


@given(PLACED, FUNCTIONS)
def test_a_saved_map_has_every_page_where_it_was(placed: dict[int, int], function: ColourFunction) -> None:
    start = 0x610000000000
    library = region({0: 5}, 0x7F0000000000, "file")
    saved = framemap.document(address_map(region(placed, start), library), function)
    assert (saved["schema"], saved["colours"]) == ("pagelab.framemap/1", function.colours)
    assert [int(mask, 16) for mask in saved["masks"]] == list(function.masks)
    found = {}
    before = 0
    for span in saved["spans"]:
        low = int(span["start"], 16)
        assert low >= before, "sorted and disjoint"
        before = low + span["pages"] * PAGE
        assert len(span["frames"]) == len(span["colours"]) == span["pages"]
        assert span["frames"][0] is not None
        assert span["frames"][-1] is not None
        for i, (frame, colour) in enumerate(zip(span["frames"], span["colours"], strict=True)):
            assert (frame is None) == (colour is None)
            if frame is not None:
                found[(low - start) // PAGE + i] = frame
                assert colour == naive_colour(function, frame)
    assert found == placed


def test_nothing_to_save_is_said(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="none is known; run: sudo pagelab map --save"):
        framemap.document(address_map(region({0: 1}, 0, "file")), ColourFunction(4))
    with pytest.raises(BadInputError, match="there is no directory"):
        framemap.check_target(tmp_path / "none" / "x.json")


def test_the_table_shows_large_regions_and_counts_the_others() -> None:
    function = ColourFunction(4)
    small = [region({0: 1}, 0x1000000 * i, function=function) for i in range(1, 12)]
    big = region({page: page for page in range(64)}, 0x600000000000, "heap", function)
    found = address_map(*small, big, function=function)
    shown, rest = table.colour_table(found)
    assert shown.row_count == 8
    assert rest == "4 smaller regions with 4 pages (--all shows them)"
    everything, rest = table.colour_table(found, everything=True)
    assert (everything.row_count, rest) == (12, "")


def test_no_number_of_the_table_is_cut_off_in_80_columns() -> None:
    """Regression: "23,7…" of 23,731 pages under "pages", beside names of 38 columns."""
    function = ColourFunction(4)
    frames = {page: page for page in range(23_731)}
    long = region(frames, 0x600000000000, "file", function).model_copy(update={"name": "/usr/lib/locale/" + "x" * 60})
    shown, _ = table.colour_table(address_map(long, function=function), width=80)
    out = io.StringIO()
    Console(file=out, width=80).print(shown)
    heads, row = out.getvalue().splitlines()
    assert heads.split() == ["region", "pages", "least", "most", "crowding", "along", "address"]
    name, pages, least, most, *_ = row.split()
    assert (pages, least, most) == ("23,731", "5,932", "5,933")
    assert name.startswith("…")
    assert name.endswith("x" * 20)


def test_the_picture_has_a_strip_and_a_histogram_for_each_large_region() -> None:
    function = ColourFunction(64)
    rng = random.Random(5)
    heap = region({page: page % 64 for page in range(4096)}, 0x600000000000, "heap", function)
    anon = region({page: rng.randrange(1, 1 << 20) for page in range(4096)}, 0x610000000000, "anon", function)
    tiny = region({0: 3}, 0x620000000000, "anon", function)
    library = region({page: page for page in range(9000)}, 0x7F0000000000, "file", function)
    found = address_map(heap, anon, tiny, library, function=function)
    assert colour_picture.drawn(found) == [heap, anon], "files are not placed by policies"
    spec = colour_picture.specification(found)
    assert len(spec["vconcat"]) == 2
    assert "var(--" not in str(spec), "files have no style sheet"
    cells = spec["datasets"][spec["vconcat"][0]["hconcat"][0]["data"]["name"]]
    assert sum(cell["pages"] for cell in cells) == 4096
    assert len(cells) <= colours.GRID_BINS * colours.GRID_ROWS
    histogram = spec["datasets"][spec["vconcat"][1]["hconcat"][1]["layer"][0]["data"]["name"]]
    assert anon.colours is not None
    assert [row["pages"] for row in histogram] == anon.colours.counts


def test_a_picture_without_frames_is_refused() -> None:
    with pytest.raises(MachineError, match="no frame numbers are known"):
        colour_picture.specification(address_map())


def pagelab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pagelab", "map", *arguments], capture_output=True, text=True, check=False
    )


# Touches a 2M page that the kernel may give, and 300 base pages; ends without freeing them.
PROGRAM = """
import ctypes, mmap, os
libc = ctypes.CDLL(None)
libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
area = mmap.mmap(-1, 6 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
base = ctypes.addressof(ctypes.c_char.from_buffer(area))
tile = (base + (2 << 20) - 1) // (2 << 20) * (2 << 20)
libc.madvise(tile, 2 << 20, 14)
libc.madvise(tile, 2 << 20, 23)
libc.madvise(tile + (2 << 20), 300 * 4096, 15)
libc.madvise(tile + (2 << 20), 300 * 4096, 23)
print(hex(tile), flush=True)
os._exit(0)
"""


@pytest.mark.by_turns(4)
@ROOT_ONLY
def test_a_2m_page_is_page_coloured_by_construction(tmp_path: Path) -> None:
    saved = tmp_path / "frames.json"
    done = pagelab(
        "--json", "--colors", "64", "--save", str(saved), "--picture", str(tmp_path / "c.svg"), "--stdout",
        str(tmp_path / "out"), "--", sys.executable, "-c", PROGRAM,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    tile = int((tmp_path / "out").read_text(), 16)
    found = AddressMap.model_validate_json(done.stdout)
    assert found.colouring is not None
    assert (found.colouring.colours, found.colouring.source) == (64, "given")
    (own,) = [one for one in found.regions if one.start <= tile < one.end]
    assert own.frame_runs is None, "pieces are listed only where they are asked for"
    assert own.colours is not None
    assert own.colours.pages >= 812
    assert sum(own.colours.counts) == own.colours.pages
    assert (tmp_path / "c.svg").read_text().startswith("<svg")
    spans = json.loads(saved.read_text())["spans"]
    by_address = {int(s["start"], 16) + i * PAGE: f for s in spans for i, f in enumerate(s["frames"]) if f is not None}
    huge = [by_address[tile + i * PAGE] for i in range(512)]
    if any(entry.page_bytes == 2 << 20 for entry in own.by_size):
        assert huge == list(range(huge[0], huge[0] + 512)), "frames in a row: every colour in order"
    assert all(by_address[tile + i * PAGE] for i in range(812))


# Anonymous memory of 600 pages, touched from its end, and never freed.
TOUCHES = """
import mmap, os
area = mmap.mmap(-1, 600 * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for page in reversed(range(600)):
    area[page * 4096] = 1
os._exit(0)
"""


@pytest.mark.skipif(frames_missing() is not None, reason=str(frames_missing()))
def test_a_saved_map_is_replayed_by_the_next_execution(tmp_path: Path) -> None:
    """ALLOC's modulo strategy: the colours that a run had, page by page, in another run."""

    def saved(name: str, *flags: str) -> dict[int, int]:
        path = tmp_path / name
        done = pagelab(*flags, "--save", str(path), "--stdout", "null", "--", sys.executable, "-c", TOUCHES)
        assert done.returncode == 0, done.stderr
        spans = json.loads(path.read_text())["spans"]
        pools = range(0x600000000000, 0x700000000000)
        every = {int(s["start"], 16) + i * PAGE: c for s in spans for i, c in enumerate(s["colours"]) if c is not None}
        return {address: colour for address, colour in every.items() if address in pools}

    first = saved("first.json", "--frames", "random:colors=16,seed=7")
    policy = tmp_path / "replay.toml"
    policy.write_text(f'frames = {{ modulo = "{tmp_path / "first.json"}" }}\n')
    second = saved("second.json", "--policy", str(policy))
    common = first.keys() & second.keys()
    assert len(common) >= 600
    assert len(set(first.values())) == 16
    # What else the interpreter has on its heap may differ a little, and memory may be moved after it was placed.
    assert sum(first[address] == second[address] for address in common) >= 0.99 * len(common)


@ROOT_ONLY
def test_the_table_of_colours_stands_below_the_map() -> None:
    done = pagelab("--stdout", "null", "--", "true")
    assert done.returncode == 0, done.stderr
    described = colours.of_machine(machine.describe())
    if described is None:
        assert "pages by colour" not in done.stdout
    else:
        assert f"pages by colour: {described.colours} colours ({described.source}" in done.stdout
        assert "crowding: 0 = even" in done.stdout


@pytest.mark.parametrize("flags", [["--save", "x.json"], ["--picture", "x.svg", "--draw", "colours"]])
def test_who_sees_no_frames_is_told_before_anything_runs(flags: list[str], tmp_path: Path) -> None:
    # A user without rights may not even read this interpreter's library, so the interpreter is told that it is one.
    program = (
        f"import os, sys\nos.chdir({str(tmp_path)!r})\nos.geteuid = lambda: 65534\n"
        f"sys.argv = ['pagelab', 'map', *{flags!r}, '--', 'touch', 'ran']\nfrom pagelab.cli import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "needs frame numbers, which only root sees; run: sudo pagelab map" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--colors", "0", "--", "true"], "allowed: 1 to 65536"),
        (["--draw", "frames", "--picture", "a.svg", "--", "true"], "allowed: sizes, colours"),
        (["--draw", "colours", "--", "true"], "name its file: --picture FILE"),
        (["--save", "/nonexistent/x.json", "--", "true"], "there is no directory /nonexistent"),
        (["--frames", "page-coloring", "1"], "process 1 runs already"),
        (["--frames", "rainbow", "--", "true"], "rainbow"),
    ],
)
def test_what_the_command_line_refuses(arguments: list[str], words: str) -> None:
    done = pagelab(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
