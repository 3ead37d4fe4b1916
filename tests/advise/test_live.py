"""``pagelab advise --pid``: what a process touches, and the command that collapses it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagelab.advise import live, tiles
from pagelab.advise.design import TILE
from pagelab.advise.live import Candidate, LiveAdvice, LiveRegion, Span, advice, collapse_command
from pagelab.advise.tiles import Tiles
from pagelab.placement import errors, scan
from pagelab.placement.procfs import Vma

pytestmark = pytest.mark.needs_page_sizes


@pytest.mark.parametrize(
    "option",
    ["--minutes=5", "--metric=wall_s", "--processor=zen-4", "--seed=1", "--timeout=9", "--measure-regex=x", "--into=x"],
)
def test_options_of_a_command_are_refused_with_a_process(option: str) -> None:
    """Regression: they were ignored."""
    words = [sys.executable, "-m", "pagelab", "advise", "--pid", str(os.getpid()), option]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"{option.partition('=')[0]}: does not apply to --pid" in done.stderr


CHILD = """
import mmap, time
# Small pages, which nobody but the test makes huge: khugepaged works where "always" or an advice lets it.
always = "[always]" in open("/sys/kernel/mm/transparent_hugepage/enabled").read()
def block(prot=3):
    made = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=prot)
    if prot:
        if always:
            made.madvise(mmap.MADV_NOHUGEPAGE)
        made[:] = bytes(16 << 20)
        if always:
            made.madvise(mmap.MADV_HUGEPAGE)
    return made
kept = [block(), block(0), block(), block(0)]
import ctypes
print(*(hex(ctypes.addressof(ctypes.c_char.from_buffer(one))) for one in (kept[0], kept[2])), flush=True)
hot = kept[0]
while True:
    for at in range(0, 16 << 20, 4096):
        hot[at] = 1
    time.sleep(0.01)
"""


SPARSE = """
import ctypes, mmap, time
# 16 tiles: the first and the third whole, of the fifth one page; nothing else, and one page is read only in the ninth.
made = mmap.mmap(-1, 34 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
made.madvise(mmap.MADV_DONTFORK)  # so that it is one with no neighbour
address = ctypes.addressof(ctypes.c_char.from_buffer(made))
tile = -(-address // (2 << 20)) * (2 << 20) - address
always = "[always]" in open("/sys/kernel/mm/transparent_hugepage/enabled").read()
if always:
    made.madvise(mmap.MADV_NOHUGEPAGE)
def touch():
    for at in [*range(0, 2 << 20, 4096), *range(4 << 20, 6 << 20, 4096), 8 << 20]:
        made[tile + at] = 1
touch()
made[tile + (16 << 20)]
if always:
    made.madvise(mmap.MADV_HUGEPAGE)
print(hex(address + tile), flush=True)
while True:
    touch()
    time.sleep(0.01)
"""


@pytest.fixture
def sparse() -> Iterator[tuple[int, int]]:
    """A process with a mapping of which three tiles have memory: its number, and the address of the first tile."""
    if not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists():
        pytest.skip("this kernel has no transparent huge pages; boot one built with THP")
    with subprocess.Popen([sys.executable, "-c", SPARSE], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield child.pid, int(child.stdout.readline(), 16)
        child.kill()


@pytest.fixture
def process() -> Iterator[tuple[int, int, int]]:
    """A process with two blocks of 16 MiB: its number, the address of the one it uses, and of the other."""
    if not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists():
        pytest.skip("this kernel has no transparent huge pages; boot one built with THP")
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        hot, cold = (int(word, 16) for word in child.stdout.readline().split())
        yield child.pid, hot, cold
        child.kill()


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pagelab", "advise", *map(str, arguments)], capture_output=True, text=True
    )


def collapsed_by(command: str) -> subprocess.CompletedProcess[str]:
    """Runs the command that is printed, without its sudo."""
    done = subprocess.run(["sh", "-c", command.removeprefix("sudo ")], capture_output=True, text=True, timeout=60)
    assert not done.stderr, done.stderr
    if "Cannot allocate memory" in done.stdout:
        pytest.skip(f"this kernel has no 2M page free ({done.stdout.strip()}); free one: pagelab doctor")
    return done


def region_at(told: LiveAdvice, address: int) -> LiveRegion:
    """The region with a tile."""
    return next(one for one in told.regions if one.start <= address < one.end)


def test_only_tiles_with_memory_are_advised_and_the_advice_ends_once_they_are_collapsed(
    sparse: tuple[int, int],
) -> None:
    pid, first = sparse
    done = run("--pid", pid, "--seconds", 0.5, "--json")
    assert done.returncode == 0, done.stderr
    told = LiveAdvice.model_validate_json(done.stdout)
    own = region_at(told, first)
    assert own.collapse_spans == [Span(start=first + at * TILE, end=first + (at + 1) * TILE) for at in (0, 2, 4)]
    assert own.collapse_bytes == 3 * TILE
    # The budget goes to what has most memory.
    vma = Vma(own.start, own.end, "rw-p", 0, 0, "", {"Rss": own.resident_bytes, "Referenced": own.touched_bytes})
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
        found = tiles.collapsible(pagemap, vma)
    assert found.resident.tolist() == [TILE, TILE, 4096]
    narrow = advice(pid, "x", [Candidate("anon", vma, found)], 1.0, 2 * TILE)
    assert [span.start for span in narrow.regions[0].collapse_spans] == [first, first + 2 * TILE]
    assert (narrow.left_out, narrow.left_out_bytes, narrow.more_resident_bytes) == (0, TILE, 0)
    alone = advice(pid, "x", [Candidate("anon", vma, found)], 1.0, None)
    assert alone.more_resident_bytes == TILE - 4096
    if os.geteuid() != 0:
        pytest.skip("collapsing another process's memory needs CAP_SYS_NICE; run as root")
    assert alone.collapse is not None
    collapsed = collapsed_by(alone.collapse)
    assert (collapsed.returncode, collapsed.stdout) == (0, "3 of 3 tiles are in 2M pages now\n")
    after = region_at(LiveAdvice.model_validate_json(run("--pid", pid, "--seconds", 0.5, "--json").stdout), first)
    assert after.touched_bytes >= 3 * TILE
    assert after.huge_bytes == 3 * TILE
    assert after.resident_bytes - own.resident_bytes == alone.more_resident_bytes
    assert after.collapse_bytes == 0


def test_a_tile_that_cannot_be_collapsed_keeps_no_other_from_it_and_is_told(sparse: tuple[int, int]) -> None:
    if os.geteuid() != 0:
        pytest.skip("collapsing another process's memory needs CAP_SYS_NICE; run as root")
    pid, first = sparse
    done = collapsed_by(collapse_command(pid, [Span(start=first, end=first + 3 * TILE)]))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "2 of 3 tiles are in 2M pages now",
        f"1 not: Invalid argument; the first at {first + TILE:#x}",
    ]


def test_what_is_touched_is_told_and_the_command_collapses_it(process: tuple[int, int, int]) -> None:
    pid, hot, cold = process
    done = run("--pid", pid, "--seconds", 1, "--json")
    assert done.returncode == 0, done.stderr
    told = LiveAdvice.model_validate_json(done.stdout)
    own = {
        name: next(one for one in told.regions if one.start - TILE < at < one.end)
        for name, at in (("hot", hot), ("cold", cold))
    }
    assert own["hot"].touched_bytes >= 15 << 20
    assert own["hot"].collapse_bytes == own["hot"].end - own["hot"].start
    assert own["cold"].touched_bytes < 1 << 20
    assert own["cold"].resident_bytes >= 15 << 20
    assert "What that gains is not known" in told.verdict
    assert told.collapse is not None
    if os.geteuid() != 0:
        pytest.skip("collapsing another process's memory needs CAP_SYS_NICE; run as root")
    collapsed = collapsed_by(told.collapse)
    assert "not:" not in collapsed.stdout, collapsed.stdout
    after = run("--pid", pid, "--seconds", 0.1, "--json")
    huge = next(
        one.huge_bytes for one in LiveAdvice.model_validate_json(after.stdout).regions if one.start == own["hot"].start
    )
    assert huge == own["hot"].end - own["hot"].start


def test_the_text_names_the_regions_and_the_budget_holds(process: tuple[int, int, int]) -> None:
    pid, *_ = process
    done = run("--pid", pid, "--seconds", 0.5, "--budget", "4M")
    assert done.returncode == 0, done.stderr
    spans = re.findall(r"\((0x[0-9a-f]+), (0x[0-9a-f]+)\)", done.stdout)
    assert 0 < sum(int(end, 16) - int(start, 16) for start, end in spans) <= 4 << 20
    # Accessed bits are counted by mapping: nothing says where in one they are.
    assert done.stdout.startswith("4 MiB in 1 region could be collapsed into 2M pages. Of the ")
    assert "were touched within 0.5 s; the kernel does not tell where in them." in done.stdout
    assert "more could be collapsed, and the budget has no room for it" in done.stdout
    assert f"os.pidfd_open({pid})" in done.stdout
    # The command's line ends are escapes, and no more of it than fits.
    heading = done.stdout.splitlines()[2]
    assert heading.startswith(f"{pid} (")
    assert heading.endswith("…): private memory, touched within 0.5 s")
    assert r"\x0a" in heading


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pid", 2**22 + 1), "there is no process 4194305"),
        (("--pid", 2), "it is a thread of the kernel"),
        (("--pid", 1, "--", "true"), "--pid and a command"),
        ((), "nothing to advise on: give a command"),
        (("--pid", 1, "--trace", "x"), "--trace: does not apply to --pid"),
        (("--seconds", 3, "--", "true"), "--seconds 3: applies to --pid only"),
        (("--pid", 1, "--seconds", 0), "--seconds 0: not within"),
    ],
)
def test_bad_input_is_told(arguments: tuple[object, ...], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("call", "failed"),
    [("_clear", "cannot clear the accessed bits"), ("mappings", "cannot read smaps"), ("_candidates", "cannot read ")],
)
def test_without_rights_the_refusal_says_how_to_get_them(process: tuple[int, int, int], call: str, failed: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody without rights; run as root")
    pid, *_ = process
    arguments = f"{pid}, live._READER" if call == "mappings" else str(pid)
    code = f"import os\nfrom pagelab.advise import live\nos.setgid(65534); os.setuid(65534)\nlive.{call}({arguments})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert failed in done.stderr
    assert f"of process {pid}: Permission denied" in done.stderr
    assert f"sudo pagelab advise --pid {pid}" in done.stderr


def test_root_that_is_refused_is_not_sent_to_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the first process of a container that has more capabilities than its root."""
    monkeypatch.setattr(errors, "is_root", lambda: True)
    with (
        pytest.raises(errors.NotPermittedError) as told,
        errors.explained(1, "smaps", live._READER),
    ):
        raise PermissionError(13, "Permission denied")
    assert "sudo" not in str(told.value)
    assert str(told.value).endswith("as root of the host, with the process's number there: pagelab advise --pid PID")


def test_a_process_that_ends_meanwhile_names_the_command_for_programs() -> None:
    with (
        pytest.raises(errors.ProcessEndedError, match="before it ends: pagelab advise -- COMMAND"),
        errors.explained(1, "smaps", live._READER),
    ):
        raise ProcessLookupError(3, "No such process")


ROWS = st.lists(st.tuples(st.integers(0, 9), st.lists(st.integers(1, 512), max_size=6)), max_size=5)
"""Mappings: touched tenths of what is resident, and resident pages of the tiles that are not huge."""


@given(ROWS, st.none() | st.integers(1, 20))
def test_only_touched_memory_is_advised_within_the_budget(rows: list[tuple[int, list[int]]], room: int | None) -> None:
    found = []
    for at, (tenths, pages) in enumerate(rows):
        start = (at + 1) << 32
        totals = {"Rss": 40960 * sum(pages), "Referenced": tenths * 4096 * sum(pages)}
        vma = Vma(start + 4096, start + (2 * len(pages) + 2) * TILE, "rw-p", 0, 0, "", totals)
        # Every other tile has memory.
        starts = start + TILE * (1 + 2 * np.arange(len(pages), dtype=np.int64))
        found.append(Candidate("anon", vma, Tiles(starts, 4096 * np.array(pages, np.int64))))
    told = advice(1, "x", found, 1.0, None if room is None else room * TILE)
    worth = {
        int(tile): (tenths * size, size)
        for one, (tenths, pages) in zip(found, rows, strict=True)
        for tile, size in zip(one.tiles.start, pages, strict=True)
        if tenths
    }
    advised = [at for one in told.regions for span in one.collapse_spans for at in range(span.start, span.end, TILE)]
    assert len(set(advised)) == len(advised) == min(len(worth), len(worth) if room is None else room)
    left = [worth[tile][0] for tile in worth if tile not in advised]
    assert not left or min((worth[tile][0] for tile in advised), default=0) >= max(left)
    assert sum(one.collapse_bytes for one in told.regions) == len(advised) * TILE
    assert told.more_resident_bytes == sum(TILE - 4096 * worth[tile][1] for tile in advised)
    assert told.left_out_bytes == len(left) * TILE
    assert told.left_out == sum(
        bool(tenths and pages) and not one.collapse_bytes
        for (tenths, pages), one in zip(rows, told.regions, strict=True)
    )
    assert (told.collapse is None) == (not advised)


def test_one_command_is_no_longer_than_linux_takes() -> None:
    """Nothing is lost: what has no room is advised when the command is run again."""
    starts = (1 << 40) + 2 * TILE * np.arange(5000, dtype=np.int64)
    vma = Vma(1 << 40, (1 << 40) + 10_000 * TILE, "rw-p", 0, 0, "", {"Rss": 1 << 30, "Referenced": 1 << 30})
    told = advice(1, "x", [Candidate("anon", vma, Tiles(starts, np.full(5000, 4096)))], 1.0, None)
    assert told.collapse is not None
    assert len(told.collapse) < 128 << 10
    assert told.regions[0].collapse_bytes == 1000 * TILE
    assert told.left_out_bytes == 4000 * TILE
    assert told.more_resident_bytes == 1000 * (TILE - 4096)


@given(
    st.lists(
        st.tuples(st.integers(0, 1500), st.integers(1, 1200), st.sampled_from([0, scan.ZERO, scan.HUGE, None])),
        max_size=8,
    )
)
def test_tiles_of_extents_are_those_counted_page_by_page(rows: list[tuple[int, int, int | None]]) -> None:
    """Each row: a hole and an extent, in pages, and its category beside "present" (None: swapped)."""
    base, at = 5 * TILE, 4 * TILE
    extents = np.zeros(len(rows), scan.EXTENT)
    resident: dict[int, int] = {}
    huge = set()
    for row, (hole, pages, category) in enumerate(rows):
        at += 4096 * hole
        extents[row] = (at, at + 4096 * pages, scan.SWAPPED if category is None else scan.PRESENT | category)
        for page in range(at, at + 4096 * pages, 4096):
            tile = page // TILE * TILE
            if category in (0, scan.HUGE) and base <= page < base + 6 * TILE:
                resident[tile] = resident.get(tile, 0) + 4096
                if category == scan.HUGE:
                    huge.add(tile)
        at += 4096 * pages
    found = tiles.of_extents(extents, base, base + 6 * TILE)
    wanted = {tile: size for tile, size in sorted(resident.items()) if tile not in huge}
    assert dict(zip(found.start.tolist(), found.resident.tolist(), strict=True)) == wanted


def test_before_pagemap_scan_whole_tiles_of_mappings_with_huge_pages_are_left(
    sparse: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> scan.Extents:
        raise scan.UnsupportedError

    monkeypatch.setattr(scan, "scan", unsupported)
    pid, first = sparse
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
        for huge, wanted in ((0, [0, 2, 4]), (2 * TILE, [4])):
            vma = Vma(first, first + 8 * TILE, "rw-p", 0, 0, "", {"AnonHugePages": huge})
            assert ((tiles.collapsible(pagemap, vma).start - first) // TILE).tolist() == wanted
