"""TLBs by windows of a trace: the whole trace's counts lie in the intervals as often as they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pagelab import trace
from pagelab.errors import BadInputError
from pagelab.layouts.layout import PLACES
from pagelab.simulate.placements import placement_of_pages
from pagelab.simulate.tlb_runs import tlb
from pagelab.simulate.tlb_windows import COUNTS, tlb_windows

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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"windows": 5}, "5 windows: at least 10"),
        ({"windows": 30}, "at least 1000; the trace has 20,000: simulate it whole"),
        ({"windows": 20, "length": 1_500}, "overlap in a trace of 20,000"),
        ({"windows": 10, "length": 1_000, "warm_up": -1}, "a warm-up of -1"),
    ],
)
def test_windows_that_tell_nothing_are_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        tlb_windows(phases(1)[:20_000], "haswell", **changes)  # type: ignore[arg-type]


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
