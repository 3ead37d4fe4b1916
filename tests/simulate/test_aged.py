"""Free memory of simulated machines with a past, beside that of a Linux machine (tests/data/aged/make.py).

Pasts were fitted to the states in ``fitted``; what is tested is their distance to those in ``held-out``, which the same
script made in another run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pagelab.errors import BadInputError
from pagelab.simulate.history import PASTS, History, aged_memory, runs_of

DATA = Path(__file__).parents[1] / "data/aged"
SEEDS = range(24)
LONGEST = 2048
REACHED = {
    ("held-out", "compile"): (0.06, 0.04),
    ("held-out", "page-cache"): (0.37, 0.2),
    ("held-out", "forks"): (0.09, 0.34),
}
"""Kolmogorov-Smirnov distances, of free memory by size of its blocks and of a fresh process's pages by length of their
runs: what was reached, rounded up. 0.1 is what they should be; in three of the six a second run of the script is
itself further away than that."""

Curve = NDArray[np.float64]


def by_block(counts: list[int]) -> Curve:
    pages = np.array([count << order for order, count in enumerate(counts)], dtype=float)
    return np.asarray(pages.cumsum() / pages.sum())


def by_run(runs: dict[int, int]) -> Curve:
    pages = np.zeros(LONGEST + 1)
    for length, count in runs.items():
        pages[min(length, LONGEST)] += length * count
    return np.asarray(pages.cumsum() / pages.sum())


def real(directory: str, name: str) -> tuple[Curve, Curve]:
    state: dict[str, Any] = json.loads((DATA / directory / f"{name}.json").read_text())
    blocks = [by_block(zone["free_blocks"]) for zone in state["zones"]]
    runs = [by_run({int(length): count for length, count in one.items()}) for one in state["fresh_runs"]]
    return np.mean(blocks, axis=0), np.mean(runs, axis=0)


def simulated(name: str) -> tuple[Curve, Curve]:
    history = History.of(name, readahead_bytes=8 << 20)
    found = aged_memory(history, SEEDS)
    blocks = [by_block(one["free_blocks"].to_list()) for one in found.free.partition_by("seed")]
    runs = [by_run(dict(one.select("pages", "runs").iter_rows())) for one in found.runs.partition_by("seed")]
    return np.mean(blocks, axis=0), np.mean(runs, axis=0)


def distances(one: tuple[Curve, Curve], other: tuple[Curve, Curve]) -> list[float]:
    return [float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True)]


@pytest.mark.by_turns(4)
@pytest.mark.parametrize(("directory", "name"), REACHED)
def test_free_memory_is_as_near_to_a_real_machine_as_the_documentation_says(directory: str, name: str) -> None:
    blocks, runs = distances(real(directory, name), simulated(name))
    reached = REACHED[directory, name]
    assert blocks <= reached[0], blocks
    assert runs <= reached[1], runs


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("name", sorted(PASTS.keys() - {"mixed"}))
def test_a_past_is_nearer_to_its_state_than_a_machine_just_booted(name: str) -> None:
    state = real("fitted", name)
    booted = aged_memory(History(turnover=0), [0])
    fresh = (
        by_block(booted.free["free_blocks"].to_list()),
        by_run(dict(booted.runs.select("pages", "runs").iter_rows())),
    )
    near, far = distances(state, simulated(name)), distances(state, fresh)
    assert near[0] < far[0] / 2
    assert near[1] < far[1] / 2


def test_availability_follows_from_the_blocks() -> None:
    free = aged_memory(History.of("page-cache"), [3]).free
    available = dict(free.select("block_bytes", "available").iter_rows())
    assert available[4096] == 1
    pages = sum(
        size * count for size, count in free.select("block_bytes", "free_blocks").iter_rows() if size >= 2 << 20
    )
    every = sum(size * count for size, count in free.select("block_bytes", "free_blocks").iter_rows())
    assert available[2 << 20] == pytest.approx(pages / every)


@pytest.mark.parametrize(
    ("frames", "runs"), [([], {}), ([5], {1: 1}), ([1, 2, 3, 9, 8, 7], {1: 3, 3: 1}), ([4, 5, 0, 1], {2: 2})]
)
def test_runs(frames: list[int], runs: dict[int, int]) -> None:
    assert runs_of(frames) == runs


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(BadInputError, match="there are: mixed, compile"):
        History.of("compaction")
    with pytest.raises(BadInputError, match="from_files = 2"):
        aged_memory(History(from_files=2.0))
