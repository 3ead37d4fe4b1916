"""Page faults for all sizes and colours in one pass are those of one naive simulation for each."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import pagelab.simulate
from pagelab.errors import BadInputError
from pagelab.simulate import tables
from pagelab.simulate.page_faults import curves, paging


def naive_lru(pages: list[int], colours: int, frames: int) -> int:
    """Faults of ``colours`` LRU lists of ``frames`` frames each."""
    lists: dict[int, OrderedDict[int, None]] = {}
    faults = 0
    for page in pages:
        held = lists.setdefault(page % (1 << 52) % colours, OrderedDict())
        if page in held:
            held.move_to_end(page)
            continue
        faults += 1
        held[page] = None
        if len(held) > frames:
            held.popitem(last=False)
    return faults


def sweep(pages: int, times: int) -> NDArray[np.int64]:
    return np.tile(np.arange(pages), times)


def at(frame: pl.DataFrame, colours: int, memory: int) -> int:
    (value,) = frame.filter(pl.col("colours") == colours, pl.col("memory_pages") == memory)["faults"]
    return int(value)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 90) | st.integers(0, 2**64 - 1), min_size=1, max_size=300),
    st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True),
)
def test_every_size_and_colour_count_agrees_with_a_simulation_of_its_own(pages: list[int], colours: list[int]) -> None:
    frame = paging(np.array(pages, np.uint64), colours)
    for count in colours:
        for memory, faults in frame.filter(pl.col("colours") == count).select("memory_pages", "faults").iter_rows():
            assert faults == naive_lru(pages, count, memory // count)


def test_a_sweep_of_one_page_too_many_always_faults_without_colours_and_hardly_with() -> None:
    """PAGING, section 4.2: n + 1 pages in rotation in n frames; with colours, only one colour has a page too many."""
    frame = paging(sweep(65, 100), [1, 64], memory=[64])
    assert at(frame, 1, 64) == 6500
    assert at(frame, 64, 64) == 65 + 2 * 99


def test_all_kinds_of_traces_give_the_same() -> None:
    pages = sweep(50, 4).astype(np.uint64)
    runs = [(pages, np.full(len(pages), 3))]
    thrice = paging(np.repeat(pages, 3), [1, 2])
    for trace in (runs, iter(runs), np.repeat(pages, 3).astype(np.int32), np.array_split(np.repeat(pages, 3), 7)):
        assert paging(trace, [1, 2]).equals(thrice)
    assert pagelab.simulate.paging(np.repeat(pages, 3), [1, 2]).equals(thrice)


def test_runs_of_no_references_are_none() -> None:
    assert paging([([1, 2, 3], [2, 0, 1])], [1])["references"].to_list() == [3]


def test_memory_that_colours_do_not_divide_is_left_out() -> None:
    frame = paging(sweep(30, 2), [1, 3, 4], memory=[4, 6, 12])
    assert frame.select("colours", "memory_pages").rows() == [(1, 4), (1, 6), (1, 12), (3, 6), (3, 12), (4, 4), (4, 12)]


@pytest.mark.parametrize("before", [0, 1024, 30 * 1024])
def test_the_last_page_that_64_bits_number_is_a_page(before: int) -> None:
    """Regression: its first use was no fault where the search for alternations began."""
    last = 2**64 - 1
    # Sweeps have no alternation, after which none is looked for in some batches.
    pages = np.array([*range(10, 10 + before), 5, last, 5, 6], np.uint64)
    assert curves(pages, [1]).pages == before + 3


def test_utilisation_counts_pages_until_a_colour_is_full() -> None:
    found = curves(np.array([0, 4, 1, 4, 2, 8, 3]), [4]).utilisation()
    assert found.select("pages_per_colour", "allocated").rows() == [(1, 1), (2, 2), (3, 5)]
    assert found["m_eff"].to_list() == [1 / 4, 2 / 8, 5 / 12]


def test_processes_share_colours_unless_hashed_and_never_share_pages() -> None:
    """PAGING, section 4: without hashing, every process has its segments in the same colours."""
    pages = np.concatenate([np.uint64(asid << 52) + np.arange(4, dtype=np.uint64) for asid in range(64)])
    plain = curves(pages, [64]).curves[0]
    hashed = curves(pages, [64], colouring="pid-hashed").curves[0]
    assert plain.cold == hashed.cold == 256
    assert len(plain.filled) == 64
    assert len(hashed.filled) < 20


@pytest.mark.parametrize(
    ("trace", "colours", "message"),
    [
        (np.array([1.5]), [1], "must be integers, not float64"),
        (np.array([-1]), [1], "must not be negative: -1"),
        (np.ones((2, 2), int), [1], "one-dimensional"),
        (np.array([1]), [0], "0 colours: not within 1 ... 4096"),
        (np.array([1]), [5000], "5000 colours"),
        (np.array([1]), [], "no colour count"),
        (np.array([], int), [1], "no references"),
        ([(np.array([1, 2]), np.array([1]))], [1], "2 page numbers, but 1 counts"),
    ],
)
def test_what_cannot_be_simulated_is_refused(trace: object, colours: list[int], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        paging(trace, colours)  # type: ignore[arg-type]  # that is the point


def test_files_that_are_no_traces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"missing\.trace: No such file or directory .errno 2."):
        paging(tmp_path / "missing.trace", [1])
    other = tmp_path / "other"
    other.write_bytes(b"something else altogether, and long enough to look at")
    with pytest.raises(BadInputError, match="other"):
        paging(other, [1])


def test_the_fault_table_is_laid_out_as_the_papers() -> None:
    faults = paging(sweep(300, 10), [1, 2, 3], memory=[256, 768])
    lines = tables.fault_table(faults, 4096)
    assert lines == [
        ["memory", "1", "2", "3"],
        ["1 MiB", "1000000.00", "1000000.00", "–"],
        ["3 MiB", "100000.00", "100000.00", "100000.00"],
    ]


def test_relative_faults_are_over_the_fewest_colours() -> None:
    relative = tables.relative_faults(paging(sweep(65, 100), [1, 64], memory=[64, 128]))
    assert relative["relative"].to_list() == [1.0, 1.0, (65 + 2 * 99) / 6500, 1.0]


def test_figures_draw_memory_sizes_with_the_same_line_once_and_next_to_no_difference_small() -> None:
    faults = paging(sweep(65, 100), [1, 64], memory=[64, 128, 256, 512])
    figure = tables.relative_figure(faults, 4096, "sweep")
    assert _names(figure) == ["256 KiB", "512 KiB to 2 MiB"]
    calm = tables.relative_figure(faults.filter(pl.col("memory_pages") > 64), 4096, "sweep")
    assert _names(calm) == ["512 KiB to 2 MiB"]
    assert calm["layer"][0]["encoding"]["y"]["scale"]["domain"] == [0.95, 1.05]


def _names(figure: dict[str, Any]) -> list[str]:
    (rows,) = figure["datasets"].values() if "datasets" in figure else [figure["data"]["values"]]
    return list(dict.fromkeys(row["name"] for row in rows))


def test_the_smallest_memory_that_matters_changes_no_count() -> None:
    """Sizes from there on have the same faults, and smaller ones are left out."""
    random = np.random.default_rng(3)
    pages = np.concatenate([random.integers(0, span, 20_000) for span in (40, 3000, 90, 600)]).astype(np.uint64)
    whole = curves(pages, [1, 4, 64])
    for smallest in (2, 64, 256, 4096):
        found = curves(pages, [1, 4, 64], smallest=smallest)
        expected = whole.faults().filter(pl.col("memory_pages") >= smallest)
        assert found.faults(expected["memory_pages"].to_list()).equals(whole.faults(expected["memory_pages"].to_list()))
        assert found.faults([1, 64, 4096])["memory_pages"].min() >= smallest
        assert found.utilisation().equals(whole.utilisation())
    sizes = [64, 256, 1024, 4096]
    assert paging(pages, [1, 4, 64], memory=sizes).equals(whole.faults(sizes))
    loop = np.tile(np.arange(64, dtype=np.uint64), 5)
    assert curves(loop, [1], smallest=64).faults().rows() == [("lru", 1, 64, 320, 64, 2e5)]
    with pytest.raises(BadInputError, match="at least 1 page"):
        curves(pages, [1], smallest=-1)
