"""Samples and reduced traces: what they are not exact for is refused before anything is simulated, in plain words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pagelab import trace
from pagelab.errors import BadInputError
from pagelab.simulate.cache_runs import cache
from pagelab.simulate.page_faults import curves, paging
from pagelab.simulate.replacement_runs import replacement
from pagelab.simulate.sampling import sampled_paging
from pagelab.simulate.tlb_estimate import tlb_windows
from pagelab.simulate.tlb_runs import tlb
from pagelab.trace import TraceError

PAGES = 4096
"""Bytes a page."""


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Page faults by ``perf script``."""
    lines = [f" 7/7  1.{at}: page-faults:     {0x562870D5F000 + at * PAGES:x}" for at in range(9)]
    (tmp_path / "perf.txt").write_text("\n".join(lines) + "\n")
    trace.convert(tmp_path / "perf.txt", tmp_path / "faults.trace", format="perf-script")
    return tmp_path / "faults.trace"


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Runs of 64 pages, now these, now those."""
    rng = np.random.default_rng(5)
    pages = (rng.integers(0, 4, 4000) ** 3 + rng.integers(0, 37, 4000)).astype(np.uint64)
    trace.write(tmp_path / "whole.trace", [pages], page_bytes=PAGES)
    return tmp_path / "whole.trace"


@pytest.fixture
def reduced(whole: Path) -> Path:
    """Exact from 16 pages on, for 1, 2 and 4 colours."""
    trace.reduce(whole, whole.with_name("reduced.trace"), memory=16 * PAGES, colours=[1, 2, 4])
    return whole.with_name("reduced.trace")


WITH_SAMPLES: dict[str, Callable[[Path], object]] = {
    "paging": lambda path: paging(path, [1]),
    "replacement": lambda path: replacement(path, ["clock"], [4]),
    "sampled": lambda path: sampled_paging(path, [4], [1], rate=0.5),
    "cache": lambda path: cache(path, "zen-3"),
    "tlb": lambda path: tlb(path, "zen-3"),
    "windows of a tlb": lambda path: tlb_windows(path, "zen-3"),
}


@pytest.mark.parametrize("how", WITH_SAMPLES)
def test_samples_are_refused(samples: Path, how: str) -> None:
    with pytest.raises(BadInputError, match="sample"):
        WITH_SAMPLES[how](samples)


def test_counts_in_arrays_that_add_up_to_more_than_64_bits_are_refused() -> None:
    """Regression: their sum was taken modulo 2⁶⁴."""
    pages, counts = np.arange(2, dtype=np.uint64), np.full(2, 1 << 63, np.uint64)
    with pytest.raises(BadInputError, match="add up to 18446744073709551616"):
        paging(iter([(pages, counts)]), [1])
    found = paging(iter([(pages, counts - np.uint64(1))]), [1], memory=[1])
    assert found["references"][0] == (1 << 64) - 2


def test_samples_are_not_reduced(samples: Path) -> None:
    with pytest.raises(TraceError, match="sample"):
        trace.reduce(samples, samples.with_name("less.trace"), memory=16 * PAGES, colours=[1])


def test_the_command_refuses_samples_and_says_what_to_do(samples: Path) -> None:
    command = [sys.executable, "-m", "pagelab", "simulate", "paging", str(samples)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "page faults need every reference" in done.stderr
    assert "pagelab trace -o FILE -- PROGRAM" in done.stderr


def test_a_reduced_trace_is_exact_where_it_says_so(whole: Path, reduced: Path) -> None:
    assert trace.info(reduced)["records"] < trace.info(whole)["records"]
    expected = paging(whole, [1, 2, 4]).filter(pl.col("memory_pages") >= 16)
    assert paging(reduced, [1, 2, 4]).equals(expected)
    found = replacement(reduced, ["lru"], [16, 32], [1, 4])
    assert found.equals(replacement(whole, ["lru"], [16, 32], [1, 4]))
    assert curves(reduced, [1, 2]).utilisation().equals(curves(whole, [1, 2]).utilisation())


WITH_REDUCED: dict[str, tuple[Callable[[Path], object], str]] = {
    "colours": (lambda path: paging(path, [1, 8]), "reduced for 1, 2, 4 colours: 8 colours are not exact"),
    "hashed": (lambda path: paging(path, [1, 4], colouring="pid-hashed"), "pid-hashed colours are not exact"),
    "xor": (lambda path: paging(path, [2], colouring="xor", masks=[0x11]), "xor colours are not exact"),
    "pages": (lambda path: paging(path, [1], page_bytes=4 * PAGES), "pages of 4096 bytes, not of 16384"),
    "clock": (lambda path: replacement(path, ["clock"], [16]), "exact for LRU only"),
    "optimal": (lambda path: replacement(path, ["lru", "opt"], [16]), "exact for LRU only"),
    "small": (lambda path: replacement(path, ["lru"], [8, 16]), "from 16 pages on, not for 8"),
    "others": (lambda path: replacement(path, ["lru"], [24], [3]), "3 colours are not exact"),
    "sampled": (lambda path: sampled_paging(path, [64], [1], rate=0.5), "a reduced trace cannot be sampled"),
    "tlb": (lambda path: tlb(path, "zen-3"), "was reduced"),
    "windows of a tlb": (lambda path: tlb_windows(path, "zen-3"), "it was reduced, and TLBs need every reference"),
}


@pytest.mark.parametrize("how", WITH_REDUCED)
def test_what_a_reduced_trace_is_not_exact_for_is_refused(reduced: Path, how: str) -> None:
    simulate, message = WITH_REDUCED[how]
    with pytest.raises(BadInputError, match=message):
        simulate(reduced)


def test_one_colour_is_the_same_whatever_the_colouring(whole: Path, reduced: Path) -> None:
    expected = paging(whole, [1]).filter(pl.col("memory_pages") >= 16)
    assert paging(reduced, [1], colouring="pid-hashed").equals(expected)


def test_sizes_that_a_reduced_trace_says_nothing_about_are_left_out_and_explained(reduced: Path) -> None:
    command = [sys.executable, "-m", "pagelab", "simulate", "paging", str(reduced), "--colors", "1,2"]
    command += ["--memory", "32K,64K"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "64 KiB" in done.stdout
    assert "32 KiB" not in done.stdout
    assert "reduced" in done.stdout


def test_without_colours_a_reduced_trace_is_simulated_for_its_own(reduced: Path) -> None:
    """Regression: the default's 8 colours were refused, with the advice to capture the trace again."""
    command = [sys.executable, "-m", "pagelab", "simulate", "paging", str(reduced), "--memory", "64K,128K", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {row["colours"] for row in json.loads(done.stdout)} == {1, 2, 4}
    with pytest.raises(BadInputError, match=r"simulate those \(--colors 1,2,4\), or reduce the whole trace with: "):
        paging(reduced, [1, 8])


@pytest.mark.parametrize(("simulate", "option"), [("tlb", "--processor"), ("cache", "--hierarchy")])
def test_a_missing_processor_is_told_with_those_that_there_are(whole: Path, simulate: str, option: str) -> None:
    command = [sys.executable, "-m", "pagelab", "simulate", simulate, str(whole)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.search(f"missing option '{option}'; allowed: .*zen-3.*, or a TOML file; see: ", done.stderr), done.stderr


@pytest.mark.parametrize("simulate", ["cache", "tlb"])
def test_addresses_of_more_than_56_bits_are_refused_with_their_number(simulate: str) -> None:
    import pagelab.simulate

    batches = iter([np.arange(4, dtype=np.uint64), np.array([7, 1 << 56], np.uint64)])
    with pytest.raises(BadInputError, match="reference 6: addresses: 72057594037927936 is above"):
        getattr(pagelab.simulate, simulate)(batches, "zen-3", seeds=1)


@pytest.mark.parametrize("how", [lambda empty: tlb(empty, "haswell"), lambda empty: cache(empty, "zen-3")])
def test_traces_without_references_are_refused(how: Callable[[object], object]) -> None:
    """Regression: 0 translations, H = M = C = 0: a program without misses. `simulate paging` refused it."""
    with pytest.raises(BadInputError, match=r"the trace has no references .*: pagelab trace info TRACE"):
        how(np.empty(0, np.uint64))


@pytest.mark.parametrize("option", [[], ["--policy", "fifo"], ["--sample", "0.5"]])
def test_page_faults_of_a_trace_without_references_name_it_and_the_next_command(
    tmp_path: Path, option: list[str]
) -> None:
    empty = tmp_path / "empty.trace"
    trace.write(empty, [])
    command = [sys.executable, "-m", "pagelab", "simulate", "paging", str(empty), *option]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"trace {empty}: it has no references that use pages" in done.stderr
    assert f"pagelab trace info {empty}" in done.stderr


@pytest.mark.parametrize("how", [lambda path: tlb(path, "haswell"), lambda path: cache(path, "zen-3")])
def test_traces_that_cannot_be_opened_have_their_errno(tmp_path: Path, how: Callable[[object], object]) -> None:
    """Regression: "(os error 2) (errno None)"."""
    with pytest.raises(BadInputError, match=r"missing: No such file or directory \(errno 2\)"):
        how(tmp_path / "missing")
