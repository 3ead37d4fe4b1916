"""Counts that are kept in a file: reused for the trace that they are of, and for no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pagelab import trace as traces
from pagelab.layouts import Layout
from pagelab.layouts.layout import PLACES
from pagelab.model_run.document import Simulated
from pagelab.model_run.simulation import COUNTS, TRACE, Simulator, digest
from pagelab.simulate import hardware

LENGTH = 20_000
FIRST = PLACES[1].start >> 12
"""Of the anonymous pool's pages."""
HOW = Simulated(
    processor="broadwell",
    description=digest(hardware.load("broadwell")),
    caches=False,
    trace=TRACE,
    references=LENGTH,
)
SMALL = Layout("4K", ())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A trace of a few pages, again and again, and its counts."""
    path = tmp_path / "g.model"
    path.mkdir()
    pages = np.uint64(FIRST) + np.arange(LENGTH, dtype=np.uint64) % np.uint64(64)
    traces.write(path / TRACE, [pages], page_bytes=4096, pools=PLACES)
    Simulator(path, HOW).counts([SMALL])
    return path


def test_counts_are_those_of_a_trace_that_was_copied_too(directory: Path, tmp_path: Path) -> None:
    assert Simulator(directory, HOW).missing([SMALL]) == []
    shutil.copytree(directory, tmp_path / "copy.model")
    assert Simulator(tmp_path / "copy.model", HOW).missing([SMALL]) == []


def test_counts_of_another_trace_are_not_reused(directory: Path) -> None:
    """Regression: a program that was built anew, and its trace captured anew, kept the counts of the old one."""
    (before,) = Simulator(directory, HOW).counts([SMALL])
    pages = np.uint64(FIRST) + np.random.default_rng(1).integers(0, 8192, LENGTH, dtype=np.uint64)
    traces.write(directory / TRACE, [pages], page_bytes=4096, pools=PLACES, force=True)
    simulator = Simulator(directory, HOW)
    assert simulator.missing([SMALL]) == [SMALL]
    (now,) = simulator.counts([SMALL])
    assert now.m > 10 * before.m
    assert Simulator(directory, HOW).missing([SMALL]) == []


@pytest.mark.parametrize("change", [{"description": "0"}, {"caches": True}, {"references": LENGTH + 1}], ids=str)
def test_counts_of_another_simulation_are_not_reused(change: dict[str, object], directory: Path) -> None:
    assert (directory / COUNTS).exists()
    assert Simulator(directory, HOW.model_copy(update=change)).missing([SMALL]) == [SMALL]
