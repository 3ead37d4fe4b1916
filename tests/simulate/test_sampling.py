"""Intervals of sampled page faults hold the exact value, or nothing is shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bench.coverage.sampling import COLOURS, cells, traces

from pagelab import trace
from pagelab.errors import BadInputError
from pagelab.simulate.page_faults import paging
from pagelab.simulate.sampling import T95, SampleWarning, sample, sampled_paging

SEEDS = 40


@pytest.mark.parametrize("name", traces())
def test_intervals_hold_the_exact_value_or_are_not_shown(name: str) -> None:
    """95% are meant. Of 40 samples fewer than 33 hold it by chance in one cell of 700; of a colour's all, many more."""
    found = cells(name, range(SEEDS), {"rate": 0.1})
    for colours in COLOURS:
        shown = {size: cell for (of, size), cell in found.items() if of == colours and cell.shown}
        for size, cell in shown.items():
            assert cell.held / cell.shown >= 0.82 or cell.shown < SEEDS / 4, (colours, size, cell)
        if shown:
            assert sum(cell.held for cell in shown.values()) / sum(cell.shown for cell in shown.values()) >= 0.9
    # It is no art to show nothing.
    sizes = {size for of, size in found if of == 1}
    assert sum(found[1, size].shown for size in sizes) > 0.3 * SEEDS * len(sizes)


def test_a_loop_in_colours_is_not_told_wrongly_with_confidence() -> None:
    """10,000 pages in turn, 16 colours, 39,936 KiB: each page faults each time. A tenth of them says that half do."""
    loop = np.arange(300_000) % 10_000
    exact = paging(loop, [16], memory=[9984])["faults_per_million"][0]
    assert exact == 1e6
    for seed in range(20):
        found = sample(loop, [9984], [16], rate=0.1, seed=seed)
        for row in found.faults.iter_rows(named=True):
            assert abs(row["faults_per_million"] - exact) <= T95 * row["standard_error"]


def test_what_is_refused_names_the_colours_at_which_estimates_hold() -> None:
    trace, _ = traces()["Zipf 0.9"]
    with pytest.warns(SampleWarning, match=r"8,192 pages in 64 colours \(they hold at 1, 4\)"):
        rows = sampled_paging(trace, [8192], [1, 4, 64], rate=0.1).select("colours", "memory_pages").rows()
    assert rows == [(1, 8192), (4, 8192)]


def test_a_rate_at_which_no_page_is_in_the_sample_is_refused() -> None:
    """Regression: below 2⁻⁶⁴ counts were divided by a rate of 0."""
    pages = np.arange(1000, dtype=np.uint64)
    with pytest.raises(BadInputError, match=r"rate .*: a sample has pages from 2"):
        sampled_paging(pages, [1000], [1], rate=1e-20)
    with pytest.warns(SampleWarning, match=r"1,000 pages in 1 colours \(needed: .* pages or a rate of 0.008\)"):
        assert sampled_paging(pages, [1000], [1], rate=1e-19).height == 0


def test_both_kinds_of_omissions_are_named_with_what_helps() -> None:
    loop = np.arange(300_000) % 10_000
    found = sample(loop, [256, 512, 4096, 8192], [1, 64], rate=0.01)
    assert found.too_few == ((1, 256), (1, 512), (64, 256), (64, 512), (64, 4096), (64, 8192))
    text = found.omissions()
    assert text is not None
    assert "256, 512 pages in 1 colours (needed: a memory of 800 pages or a rate of 0.0313)" in text
    # No sample of 256 pages in 64 colours has 8 of each.
    assert "256, 512, 4,096, 8,192 pages in 64 colours (needed: a memory of 51,200 pages)" in text
    rows = found.with_omissions()
    assert rows["faults"].null_count() == 8 - found.faults.height
    assert rows.height == 8


@pytest.mark.parametrize(
    ("arguments", "reason", "other"),
    [
        (["--sample", "0.1", "--colors", "64", "--memory", "32M"], "reaches down to zero", "fewer than 8"),
        (["--sample", "0.01", "--colors", "1", "--memory", "1M,2M,16M"], "fewer than 8 frames", "down to zero"),
        (["--sample", "0.01", "--colors", "64", "--memory", "1M"], "fewer than 8 frames", "down to zero"),
    ],
)
def test_the_command_gives_the_true_reason_for_what_is_missing(
    tmp_path: Path, arguments: list[str], reason: str, other: str
) -> None:
    """Regression: an interval that reached zero was told as too few frames, and too few frames not at all."""
    trace.write(tmp_path / "t", [np.arange(300_000, dtype=np.uint64) % np.uint64(10_000)], page_bytes=4096)
    command = [sys.executable, "-m", "pagelab", "simulate", "paging", str(tmp_path / "t"), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert reason in run.stderr
    assert other not in run.stderr
    assert "enough sampled frames" not in run.stdout


def test_the_terminal_shows_how_near(tmp_path: Path) -> None:
    trace.write(tmp_path / "t", [np.arange(300_000, dtype=np.uint64) % np.uint64(10_000)], page_bytes=4096)
    command = [sys.executable, "-m", "pagelab", "simulate", "paging", str(tmp_path / "t"), "--sample", "0.1"]
    run = subprocess.run(
        [*command, "--colors", "1,16", "--memory", "39936K,60M"], capture_output=True, text=True, check=True
    )
    assert " ± " in run.stdout
    assert "left out, since" in run.stderr
