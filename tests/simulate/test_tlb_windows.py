"""TLBs by windows of a trace: the whole trace's counts lie in the intervals as often as they say."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pagelab import trace
from pagelab.errors import BadInputError
from pagelab.layouts.layout import PLACES
from pagelab.simulate import hardware
from pagelab.simulate.placements import placement_of_pages
from pagelab.simulate.tlb_estimate import COUNTS, tlb_windows
from pagelab.simulate.tlb_runs import tlb

LENGTH = 600_000


def phases(seed: int) -> NDArray[np.uint64]:
    """Stretches of random length, each at random in a working set of random size, or along it."""
    rng = np.random.default_rng(seed)
    parts: list[NDArray[np.int64]] = []
    while sum(map(len, parts)) < LENGTH:
        size = int(rng.integers(2_000, 12_000))
        pages = int(2 ** rng.uniform(5, 13))
        first = int(rng.integers(0, 8192))
        own = rng.integers(0, pages, size) if rng.random() < 0.7 else np.arange(size) // 8 % pages
        parts.append(first + own)
    return np.concatenate(parts)[:LENGTH].astype(np.uint64) * np.uint64(4096) + np.uint64(PLACES[1].start)


@pytest.mark.slow
def test_nine_of_ten_intervals_hold_the_whole_traces_counts() -> None:
    """Of 95% intervals, over 30 seeded traces, for H, M and C in 4K and in 2M pages."""
    held: dict[tuple[str, str], list[bool]] = {}
    wanted = [placement_of_pages("4K"), placement_of_pages("2M")]
    for seed in range(30):
        addresses = phases(seed)
        whole = tlb(addresses, "haswell", wanted, threads=1).executions
        found = tlb_windows(addresses, "haswell", wanted, windows=30, length=2_000, warm_up=8_000, seed=seed, threads=1)
        for real, row in zip(whole.iter_rows(named=True), found.executions.iter_rows(named=True), strict=True):
            assert real["placement"] == row["placement"]
            for name in COUNTS:
                inside = row[f"{name}_low"] <= real[name] <= row[f"{name}_high"]
                held.setdefault((row["placement"], name), []).append(inside)
    told = {key: float(np.mean(each)) for key, each in held.items()}
    assert min(told.values()) >= 0.9, told


def test_windows_that_are_the_whole_trace_have_its_counts() -> None:
    """Each window after all that precedes it: no error of sampling is left."""
    addresses = phases(1)[:20_000]
    real = tlb(addresses, "zen-4", threads=1).executions.row(0, named=True)
    found = tlb_windows(addresses, "zen-4", windows=10, length=2_000, warm_up=20_000, threads=1)
    row = found.executions.row(0, named=True)
    assert [row[name] for name in COUNTS] == [pytest.approx(real[name]) for name in COUNTS]
    assert [row[f"{name}_se"] for name in COUNTS] == [0, 0, 0]


def test_files_of_references_and_of_page_runs_give_what_the_array_gives(tmp_path: Path) -> None:
    addresses = phases(2)[:200_000]
    batch = {"address": addresses, "kind": np.zeros(len(addresses), np.uint8), "size": np.full(len(addresses), 8)}
    trace.write(tmp_path / "full", [batch], pools=PLACES)
    trace.convert(tmp_path / "full", tmp_path / "runs", page_bytes=4096)
    found = [
        tlb_windows(source, "haswell", placement_of_pages("4K"), windows=20, length=1_000, seed=5, threads=1).windows
        for source in (addresses, tmp_path / "full", tmp_path / "runs")
    ]
    assert found[0].equals(found[1])
    assert found[0].equals(found[2])


def references(path: Path, addresses: NDArray[np.uint64], kinds: NDArray[np.int64], size: int = 8) -> Path:
    trace.write(path, [{"address": addresses, "kind": kinds, "size": np.full(len(addresses), size)}], pools=PLACES)
    return path


FIRST, SECOND = {"pages": ["4K"], "entries": 64, "ways": 4}, {"pages": ["4K"], "entries": 1024, "ways": 8}
DATA_ONLY = {"tlb": {"first": [FIRST], "second": [SECOND]}}
FETCHES = {"tlb": {"first": [FIRST, FIRST | {"serves": "instruction"}], "second": [SECOND]}}
"""The same with entries for fetches."""


def test_only_references_that_are_translated_are_counted(tmp_path: Path) -> None:
    """Regression: windows were of loads and stores, and as many of them were assumed as the trace has references of all
    kinds: with a fetch for each load, estimates were twice the counts, and ended in the middle."""
    data = phases(4)[:40_000]
    every = np.repeat(data, 3)
    kinds = np.tile([0, 2, 3], len(data))
    every[kinds == 2] = PLACES[1].start
    alone = references(tmp_path / "alone", data, np.zeros(len(data), np.int64))
    mixed = references(tmp_path / "mixed", every, kinds)
    options: dict[str, Any] = {"windows": 20, "length": 1_000, "seed": 3, "threads": 1}
    one, other = (tlb_windows(path, DATA_ONLY, placement_of_pages("4K"), **options) for path in (alone, mixed))
    assert other.executions["references"][0] == len(data)
    assert other.executions.equals(one.executions)
    assert other.windows.equals(one.windows)
    # Where fetches have an array of their own, they are references, too.
    found = tlb_windows(mixed, FETCHES, placement_of_pages("4K"), windows=10, length=8_000, warm_up=80_000, threads=1)
    whole = tlb(mixed, FETCHES, placement_of_pages("4K"), threads=1).executions
    assert found.executions["references"][0] == 80_000
    assert [found.executions[name][0] for name in COUNTS] == [pytest.approx(whole[name][0]) for name in COUNTS]


def test_windows_of_fetches_are_those_of_the_whole_trace(tmp_path: Path) -> None:
    """Regression: entries for fetches had nothing to do in windows, and their misses were missing."""
    code = (np.arange(20_000, dtype=np.uint64) * 17 % 3000) * np.uint64(4096) + np.uint64(PLACES[1].start)
    path = references(tmp_path / "code", code, np.full(len(code), 2))
    whole = tlb(path, FETCHES, placement_of_pages("4K"), threads=1).executions.row(0, named=True)
    assert whole["m"] > 3000
    found = tlb_windows(path, FETCHES, placement_of_pages("4K"), windows=10, length=2_000, warm_up=0, threads=1)
    assert [found.executions[name][0] for name in COUNTS] == [pytest.approx(whole[name]) for name in COUNTS]


def test_windows_keep_the_sizes_of_references(tmp_path: Path) -> None:
    """Regression: more than 32 bytes were 32, so that these crossed the end of no page."""
    ends = np.arange(20_000, dtype=np.uint64) % 50 * np.uint64(8192) + np.uint64(4096 - 64 + PLACES[1].start)
    path = references(tmp_path / "wide", ends, np.zeros(len(ends), np.int64), size=128)
    whole = tlb(path, "haswell", placement_of_pages("4K"), threads=1).executions.row(0, named=True)
    assert whole["h"] == 2 * len(ends) - 100
    for warm_up in (0, 20_000):
        found = tlb_windows(
            path, "haswell", placement_of_pages("4K"), windows=10, length=2_000, warm_up=warm_up, threads=1
        )
        assert [found.executions[name][0] for name in COUNTS] == [pytest.approx(whole[name]) for name in COUNTS]


@pytest.mark.parametrize("kinds", [[1], [0, 1], [0, 1, 1]])
def test_windows_warm_up_the_entries_of_stores(tmp_path: Path, kinds: list[int]) -> None:
    """Regression: all that came before was a load, so that the entries of stores were empty in each window."""
    addresses = np.arange(20_000, dtype=np.uint64) % 10 * np.uint64(4096) + np.uint64(PLACES[1].start)
    path = references(tmp_path / "stores", addresses, np.resize(np.repeat(kinds, 10), len(addresses)))
    whole = tlb(path, "sapphire-rapids", placement_of_pages("4K"), threads=1).executions.row(0, named=True)
    found = tlb_windows(
        path, "sapphire-rapids", placement_of_pages("4K"), windows=10, length=2_000, warm_up=0, threads=1
    )
    assert [found.executions[name][0] for name in COUNTS] == [pytest.approx(whole[name]) for name in COUNTS]


def test_a_torn_trace_is_refused(tmp_path: Path) -> None:
    """Regression: reading ended with the last window, before the place where the trace is torn."""
    references(tmp_path / "whole", phases(5)[:300_000], np.zeros(300_000, np.int64))
    content = (tmp_path / "whole").read_bytes()
    (tmp_path / "torn").write_bytes(content[: len(content) * 7 // 10])
    with pytest.raises(BadInputError, match=r"is torn.*--recover"):
        tlb_windows(tmp_path / "torn", "haswell", windows=10, length=1_000)
    # The index is whole, the last chunk is not.
    at = len(content) - 2_000
    (tmp_path / "hurt").write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    assert trace.info(tmp_path / "hurt")["complete"]
    with pytest.raises(BadInputError, match="is damaged"):
        tlb_windows(tmp_path / "hurt", "haswell", windows=10, length=1_000)


def test_long_runs_are_cut_and_not_counted_out(tmp_path: Path) -> None:
    """Regression: each reference of a run had a word in memory, of these two tebibytes."""
    pages = np.arange(64, dtype=np.uint64) + np.uint64(PLACES[1].start >> 12)
    trace.write(tmp_path / "t", [{"page": pages, "count": np.full(64, 1 << 32, np.uint64)}], page_bytes="4K")
    found = tlb_windows(tmp_path / "t", "haswell", placement_of_pages("4K"), windows=16, length=1 << 34, threads=1)
    row = found.executions.row(0, named=True)
    assert (row["references"], row["h"], row["m"], row["m_se"]) == (1 << 38, 0, 64, 0)


def test_runs_that_tell_too_little_are_refused(tmp_path: Path) -> None:
    """Regression: as loads, in processors whose stores have entries of their own; tlb refuses them there."""
    trace.write(tmp_path / "t", [np.arange(100_000, dtype=np.uint64)], page_bytes="4K")
    with pytest.raises(BadInputError, match="stores, which have entries of their own"):
        tlb_windows(tmp_path / "t", "ice-lake-server", windows=10, length=1_000)


def test_it_can_be_called_again() -> None:
    """Regression: the first call imported a module of the same name, which was then there in the function's place."""
    import pagelab.simulate

    for _ in range(2):
        assert pagelab.simulate.tlb_windows(phases(1)[:20_000], "haswell", windows=10, length=1_000).length == 1_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"windows": 5}, "5 windows: at least 10"),
        ({"windows": 30}, "need 600,000 references; the trace has 20,000: simulate it whole$"),
        ({"windows": 20, "length": 900}, "windows of 900 references: at least 1000; .* or take longer windows"),
        ({"windows": 20, "length": 1_500}, "overlap in a trace of 20,000"),
        ({"windows": 10, "length": 1_000, "warm_up": -1}, "a warm-up of -1"),
    ],
)
def test_windows_that_tell_nothing_are_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        tlb_windows(phases(1)[:20_000], "haswell", **changes)  # type: ignore[arg-type]


def test_windows_of_several_cores_are_refused() -> None:
    """Regression: what warmed up was given to the cores otherwise than in the whole trace."""
    described = hardware.load("haswell")
    two = replace(described, tlb={**described.needed("tlb"), "cores": 2})
    tlb(phases(1)[:20_000], two, threads=1)
    with pytest.raises(BadInputError, match=r"it has 2 cores.* simulate the whole trace"):
        tlb_windows(phases(1)[:20_000], two, windows=10, length=1_000)


def test_the_command_tells_totals_with_their_errors(tmp_path: Path) -> None:
    batch = {"address": phases(3), "kind": np.zeros(LENGTH, np.uint8), "size": np.full(LENGTH, 8)}
    trace.write(tmp_path / "it.trace", [batch], pools=PLACES)
    command = [sys.executable, "-m", "pagelab", "simulate", "tlb", str(tmp_path / "it.trace"), "--processor", "zen-4"]
    done = subprocess.run([*command, "--windows", "10"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "10 windows of 3,000 of 600,000 references, each after 6,000 references of warm-up" in done.stdout
    assert done.stdout.count("95% interval") == 3
    for option in (["--windows", "10", "--caches"], ["--length", "2000"], ["--windows", "10", "-n", "2"]):
        wrong = subprocess.run([*command, *option], capture_output=True, text=True)
        assert wrong.returncode == 2
        assert "windows" in wrong.stderr
