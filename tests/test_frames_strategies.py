"""What each strategy promises beyond a colour for an address: the order of bins, repeatable chance, the very frame."""

from __future__ import annotations

import ctypes
import json
import mmap
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
from scipy import stats

from harness.frames import FramesPolicy, frames_policy, possible
from harness.guests import Workshop
from harness.launching import Runner
from harness.placing import moved_pages

PAGES = 1500


@dataclass(frozen=True)
class Page:
    vpn: int
    frame: int
    colour: int


def touched(policy: FramesPolicy, pages: int, seed: int, workshop: Workshop, run_under: Runner) -> list[Page]:
    """Pages in the order in which the guest touched them (seed 0: ascending)."""
    argv = [str(workshop.build("frames/order")), str(pages), str(seed)]
    run = run_under(possible(policy).toml, argv, env=policy.environment()).succeeded()
    assert run.stderr == "", run.story()
    rows = [line.split() for line in run.stdout.splitlines()]
    assert len(rows) == pages, run.story()
    return [Page(int(vpn, 16), int(frame, 16), int(colour)) for vpn, frame, colour in rows]


def colours(policy: FramesPolicy, pages: int, seed: int, workshop: Workshop, run_under: Runner) -> list[int]:
    return [page.colour for page in touched(policy, pages, seed, workshop, run_under)]


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("count", [1, 2, 20, 64, 1000])
def test_bin_hopping_follows_the_order_of_faults_exactly(
    count: int, seed: int, workshop: Workshop, run_under: Runner
) -> None:
    found = colours(frames_policy("", "bin-hopping", count), PAGES, seed, workshop, run_under)
    assert found == [(found[0] + i) % count for i in range(PAGES)]


def test_bin_hopping_starts_where_it_is_told(workshop: Workshop, run_under: Runner) -> None:
    """With only the anonymous mappings governed, what was placed before the guest's own pages is the same each time."""

    def first(more: str) -> int:
        toml = f'[[rule]]\nmemory = ["anon"]\nframes = {{ kind = "bin-hopping", colors = 64{more} }}\n'
        policy = FramesPolicy("", toml, root=True, told={"FRAMES_STRATEGY": "bin-hopping", "FRAMES_COLOURS": "64"})
        return colours(policy, 10, 0, workshop, run_under)[0]

    start = first("")
    assert first(", first = 11") == (start + 11) % 64
    assert first("") == start
    drawn = [first(f", seed = {seed}") for seed in range(4)]
    assert [first(f", seed = {seed}") for seed in range(4)] == drawn
    assert len(set(drawn)) > 1


def test_bin_hopping_with_fault_around_takes_neighbours_along(workshop: Workshop, run_under: Runner) -> None:
    found = colours(frames_policy("", "bin-hopping", 64, ", fault-around = 8"), 800, 0, workshop, run_under)
    steps = Counter((b - a) % 64 for a, b in pairwise(found))
    assert steps[1] >= 700, found


@pytest.mark.parametrize("count", [16, 20])
def test_random_is_repeatable_whatever_the_order(count: int, workshop: Workshop, run_under: Runner) -> None:
    policy = frames_policy("", "random", count, ", seed = 42", seed="42")
    found = colours(policy, PAGES, 0, workshop, run_under)
    assert colours(policy, PAGES, 0, workshop, run_under) == found
    shuffled = colours(policy, PAGES, 9, workshop, run_under)
    assert sorted(shuffled) == sorted(found)
    assert shuffled != found
    other = colours(frames_policy("", "random", count, ", seed = 43", seed="43"), PAGES, 0, workshop, run_under)
    agreeing = sum(a == b for a, b in zip(found, other, strict=True))
    assert agreeing < 2.5 * PAGES / count


def test_random_is_even_and_knows_no_neighbours(workshop: Workshop, run_under: Runner) -> None:
    count = 16
    found = colours(frames_policy("", "random", count, ", seed = 1", seed="1"), 4000, 0, workshop, run_under)
    even = [Counter(found)[colour] for colour in range(count)]
    assert stats.chisquare(even).pvalue > 1e-4
    steps = Counter((b - a) % count for a, b in pairwise(found))
    assert stats.chisquare([steps[step] for step in range(count)]).pvalue > 1e-4


def test_page_coloring_gives_neighbours_neighbouring_colours(workshop: Workshop, run_under: Runner) -> None:
    found = colours(frames_policy("", "page-coloring", 64), PAGES, 0, workshop, run_under)
    assert found == [(found[0] + i) % 64 for i in range(PAGES)]


def test_modulo_on_one_colour_holds_what_it_rejects(workshop: Workshop, run_under: Runner) -> None:
    policy = frames_policy("", "modulo", 16, ", pattern = [6]", pattern="6")
    assert set(colours(policy, 2000, 0, workshop, run_under)) == {6}


def saved_map(pages: list[Page], count: int, path: Path) -> Path:
    """What ``pagelab map --save`` would have written of these pages, which follow each other."""
    span = {
        "start": hex(pages[0].vpn * 4096),
        "pages": len(pages),
        "frames": [page.frame for page in pages],
        "colours": [page.colour for page in pages],
    }
    document = {"schema": "pagelab.framemap/1", "pid": 1, "colours": count, "masks": [], "spans": [span]}
    path.write_text(json.dumps(document))
    return path


def test_modulo_replays_the_colours_of_a_saved_map(workshop: Workshop, run_under: Runner, tmp_path: Path) -> None:
    first = touched(frames_policy("", "random", 16, ", seed = 11", seed="11"), PAGES, 0, workshop, run_under)
    saved = saved_map(first, 16, tmp_path / "map.json")
    replay = FramesPolicy(
        "",
        f'frames = {{ kind = "modulo", map = "{saved}" }}\n',
        root=True,
        told={"FRAMES_STRATEGY": "bin-hopping", "FRAMES_COLOURS": "16"},
    )
    again = touched(replay, PAGES, 3, workshop, run_under)
    by_vpn = {page.vpn: page.colour for page in again}
    assert by_vpn == {page.vpn: page.colour for page in first}


FREED = 4096
MADV_NOHUGEPAGE = 15


@pytest.fixture
def free_frames() -> Iterator[list[int]]:
    """Frames that were free a moment ago, of two neighbours only one: so they do not merge into larger blocks."""
    with mmap.mmap(-1, 2 * FREED * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        held.madvise(MADV_NOHUGEPAGE)
        for page in range(2 * FREED):
            held[page * 4096] = 1
        address = ctypes.addressof(ctypes.c_char.from_buffer(held))
        with Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
            pagemap.seek(address // 4096 * 8)
            words = struct.unpack(f"<{2 * FREED}Q", pagemap.read(16 * FREED))
        present = {word & ((1 << 55) - 1): page for page, word in enumerate(words) if word >> 63}
        freed = [frame for frame in present if frame % 2 == 0 or frame ^ 1 not in present]
        for frame in freed:
            held.madvise(mmap.MADV_DONTNEED, present[frame] * 4096, 4096)
        yield freed


@pytest.mark.usefixtures("one_cpu")
def test_exact_gives_the_very_frames_or_counts_them(
    free_frames: list[int], workshop: Workshop, run_under: Runner, tmp_path: Path
) -> None:
    """Most frames that have just been given up are free still; some others somebody took meanwhile."""
    pages = 64
    assert len(free_frames) > 2 * pages
    first = touched(frames_policy("", "page-coloring", 64), pages, 0, workshop, run_under)
    chosen = free_frames[:: len(free_frames) // pages][:pages]
    wanted = [replace(page, frame=frame, colour=frame % 64) for page, frame in zip(first, chosen, strict=True)]
    saved = saved_map(wanted, 64, tmp_path / "map.json")
    toml = f'[[rule]]\nmemory = ["anon"]\nframes = {{ kind = "exact", map = "{saved}", budget = "4G" }}\n'
    told = {"FRAMES_STRATEGY": "bin-hopping", "FRAMES_COLOURS": "64"}
    again = touched(FramesPolicy("", toml, root=True, told=told), pages, 0, workshop, run_under)
    assert [page.vpn for page in again] == [page.vpn for page in first]
    found = sum(a.frame == b.frame for a, b in zip(wanted, again, strict=True))
    assert found >= pages // 4


def test_pages_only_read_before_the_library_are_placed_when_they_are_written(
    workshop: Workshop, run_under: Runner
) -> None:
    """With one colour even the shared zero page is right: a page that is written later must not move for that."""
    policy = frames_policy("", "page-coloring", 1)
    argv = [str(workshop.build("frames/order")), "1", "0"]
    runs = [run_under(possible(policy).toml, argv, env=policy.environment()).succeeded() for _ in range(3)]
    moved = [moved_pages(run) for run in runs]
    # The kernel may move a page now and then, not each time.
    assert min(moved) == 0, runs[0].story()
