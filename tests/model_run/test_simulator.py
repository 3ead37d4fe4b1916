"""Counts that are kept in a file: reused for the trace that they are of, and for no other."""

from __future__ import annotations

import re
import shutil
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from pagelab import trace as traces
from pagelab.errors import BadInputError
from pagelab.layouts import Layout
from pagelab.layouts.layout import PLACES
from pagelab.model_run.document import Asked, Simulated, Trial
from pagelab.model_run.simulation import (
    COUNTS,
    TRACE,
    Simulator,
    digest,
    needed,
    refuse_changed,
    refuse_other_run,
    trace_digest,
)
from pagelab.simulate import hardware
from pagelab.trace.capture import capture

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


def test_a_trace_that_was_cut_is_refused(tmp_path: Path) -> None:
    """Regression: counts were of a part of the execution, and R of the whole."""
    if shutil.which("qemu-x86_64") is None:
        pytest.skip("no emulator: install qemu-user (apt install qemu-user)")
    path, argv = tmp_path / "cut.trace", ["sh", "-c", "kill -9 $$"]
    capture(argv, path, pools=True)
    with pytest.raises(BadInputError, match=r"it is incomplete \(its program was killed\).*leave --trace out"):
        refuse_other_run(path, Asked(argv=argv, cwd="/"), None, full=False)


TRIED = Trial(counts="simulated", counts_why="", window=None, resident_bytes=1, run_s=1.0, faults_share=0.0)


def test_a_description_that_is_probed_anew_changes_no_campaign(directory: Path, tmp_path: Path) -> None:
    """Regression: the probe after a campaign, as the page tells, wrote the file anew, and its model was refused."""
    here = tmp_path / "here.toml"
    preset = (resources.files("pagelab.simulate") / "processors/broadwell.toml").read_text()
    here.write_text(preset)
    said: list[str] = []
    wanted = Asked(argv=["x"], cwd="/", processor=str(here))
    before, _ = needed(wanted, directory, TRIED, said.append)
    assert not any("has changed" in one for one in said)
    here.write_text(re.sub(r"walkers = (\d+)", "walkers = 7", preset))
    assert digest(hardware.load(here)) != before.description
    after, _ = needed(wanted, directory, TRIED, said.append)
    assert after == before
    assert any(f"description of {here} has changed; counts are simulated by the one before" in one for one in said)
    refuse_changed(before, directory)
    here.unlink()
    refuse_changed(before, directory)
    assert Simulator(directory, before).counts([SMALL])


def test_another_trace_under_the_same_name_is_refused(directory: Path) -> None:
    how = HOW.model_copy(update={"trace_digest": trace_digest(directory / TRACE, LENGTH)})
    refuse_changed(how, directory)
    pages = np.uint64(FIRST) + np.arange(LENGTH + 1, dtype=np.uint64) % np.uint64(64)
    traces.write(directory / TRACE, [pages], page_bytes=4096, pools=PLACES, force=True)
    with pytest.raises(BadInputError, match=r"program\.trace has changed since the campaign was made"):
        refuse_changed(how, directory)
