"""``simulate tlb`` with page runs: the counts of the references that they are of."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagelab import trace
from pagelab.errors import BadInputError
from pagelab.layouts.layout import PLACES
from pagelab.simulate.placements import placement_of_pages
from pagelab.simulate.tlb_runs import tlb

PAGES = ("4K", "anon=2M-6M:2M", "2M")
COUNTS = ("h", "m", "c", "h_4K", "m_2M", "table_reads", "shortened_walks", "coalesced")


def both(directory: Path, addresses: np.ndarray, sizes: np.ndarray) -> list[Path]:
    """The same references in full and as page runs."""
    batch = {"address": addresses, "kind": np.zeros(len(addresses), np.uint8), "size": sizes}
    trace.write(directory / "full", [batch], pools=PLACES, force=True)
    trace.convert(directory / "full", directory / "runs", page_bytes=4096, force=True)
    return [directory / "full", directory / "runs"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 4095), st.integers(1, 9)), min_size=1, max_size=300),
    st.sampled_from(["haswell", "zen-3", "sandy-bridge"]),
    st.sampled_from([1, 8, 32, 64]),
)
def test_runs_have_the_counts_of_their_references(
    tmp_path: Path, list_: list[tuple[int, int, int]], processor: str, size: int
) -> None:
    page, within, times = (np.array(column, np.uint64) for column in zip(*list_, strict=True))
    addresses = np.repeat(page * np.uint64(4096) + within + np.uint64(PLACES[1].start), times.astype(int))
    full, runs = both(tmp_path, addresses, np.full(len(addresses), size, np.uint32))
    # The first page is there in each list, so that the mosaic's tile is met.
    wanted = [placement_of_pages(text) for text in PAGES if text != PAGES[1] or ((page >= 512) & (page < 1536)).any()]
    one, other = (tlb(path, processor, wanted, threads=1) for path in (full, runs))
    assert one.executions.select(COUNTS).equals(other.executions.select(COUNTS))
    assert one.windows.equals(other.windows)
    crossings = int((addresses // 4096 != (addresses + np.uint64(size - 1)) // 4096).sum())
    if not crossings:
        assert one.executions.equals(other.executions)
    assert other.executions["translations"].to_list() == [len(addresses) + crossings] * len(wanted)


def test_several_threads_simulate_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    addresses = np.repeat(rng.integers(0, 3000, 60_000).astype(np.uint64), 3) * np.uint64(4096)
    full, runs = both(tmp_path, addresses + np.uint64(PLACES[1].start), np.full(180_000, 8, np.uint32))
    wanted = [placement_of_pages(text) for text in PAGES]
    found = [tlb(path, "haswell", wanted, threads=n).executions for path in (full, runs) for n in (1, 2)]
    assert all(one.equals(found[0]) for one in found)
    assert found[0]["m"].to_list()[0] > found[0]["m"].to_list()[1] > 0


@pytest.mark.parametrize(
    ("processor", "caches", "why"),
    [("ice-lake-server", False, "stores, which have entries of their own"), ("haswell", True, "data caches")],
)
def test_runs_that_tell_too_little_are_refused(tmp_path: Path, processor: str, caches: bool, why: str) -> None:
    addresses = np.arange(10, dtype=np.uint64) * np.uint64(4096)
    _, runs = both(tmp_path, addresses, np.full(10, 8, np.uint32))
    with pytest.raises(BadInputError, match=why):
        tlb(runs, processor, "kernel", caches=caches)


def test_runs_of_larger_pages_are_refused(tmp_path: Path) -> None:
    trace.write(tmp_path / "t", [np.arange(10, dtype=np.uint64)], page_bytes="2M")
    with pytest.raises(BadInputError, match="runs of 2097152 B pages"):
        tlb(tmp_path / "t", "haswell", "kernel")


def test_runs_of_pages_that_no_array_holds_miss_as_their_references_do(tmp_path: Path) -> None:
    """Regression: a run was one miss there, its references one each."""
    only_4k = {"tlb": {"first": [{"pages": ["4K"], "entries": 4}], "second": [{"pages": ["4K"], "entries": 16}]}}
    addresses = np.repeat(np.arange(8, dtype=np.uint64) * np.uint64(4096), 10) + np.uint64(PLACES[1].start)
    wanted = [placement_of_pages(text) for text in ("4K", "2M", "1G")]
    one, other = (
        tlb(path, only_4k, wanted).executions for path in both(tmp_path, addresses, np.full(80, 8, np.uint32))
    )
    assert one["m"].to_list() == [8, 80, 80]
    assert one.equals(other)


def fetches_and_data(path: Path) -> Path:
    """Every other reference fetches one of 100 pages, the others load from 80 more."""
    at = np.arange(4000, dtype=np.uint64)
    code, data = 0x400000 + at // 2 % 100 * 4096, 0x10000000 + at // 2 % 80 * 4096
    trace.write(path, [{"address": np.where(at % 2 == 0, code, data), "kind": np.where(at % 2 == 0, 2, 0)}])
    return path


def test_runs_of_converted_traces_are_refused_with_fetches_and_taken_without(tmp_path: Path) -> None:
    """Regression: only the options of a capture were looked at. A converted trace was taken with fetches, and one of
    data alone refused because its source had fetches."""
    full = fetches_and_data(tmp_path / "full")
    trace.convert(full, tmp_path / "mixed", page_bytes="4K")
    trace.convert(full, tmp_path / "data", page_bytes="4K", kinds=["load", "store"])
    trace.convert(full, tmp_path / "prefetched", page_bytes="4K", kinds=["load", "other"])
    trace.concat([tmp_path / "mixed", tmp_path / "data"], tmp_path / "joined")
    for name in ("mixed", "joined"):
        with pytest.raises(BadInputError, match=r"its page runs contain fetches.* --kinds load,store"):
            tlb(tmp_path / name, "haswell", "kernel")
    # Without entries for fetches, those of the full trace do not count.
    only_data = {
        "tlb": {"first": [{"pages": ["4K"], "entries": 64, "ways": 4}], "second": [{"pages": ["4K"], "entries": 1024}]}
    }
    found = [tlb(path, only_data, placement_of_pages("4K")).executions for path in (full, tmp_path / "data")]
    assert found[0].equals(found[1])
    # There was none of the other kind that was asked for.
    assert tlb(tmp_path / "prefetched", only_data, placement_of_pages("4K")).executions.equals(found[0])


def test_runs_with_prefetches_are_refused(tmp_path: Path) -> None:
    """Regression: they were translated as loads."""
    trace.write(tmp_path / "full", [{"address": np.arange(4) * 4096, "kind": np.array([0, 3, 0, 3])}])
    trace.convert(tmp_path / "full", tmp_path / "all", page_bytes="4K", kinds=trace.KINDS)
    with pytest.raises(BadInputError, match="contain prefetches"):
        tlb(tmp_path / "all", "haswell", "kernel")
    trace.convert(tmp_path / "full", tmp_path / "demand", page_bytes="4K")
    assert tlb(tmp_path / "demand", "haswell", "kernel").executions["translations"][0] == 2


@pytest.mark.parametrize(
    ("header", "refused"),
    [
        ({}, False),
        ({"provenance": {"parameters": {"options": {"kinds": "load+store"}}}}, False),
        ({"provenance": {"parameters": {"options": {"kinds": "load+store+fetch"}}}}, True),
        ({"provenance": {"from": [{"header": {"provenance": {"parameters": {"options": {"kinds": "fetch"}}}}}]}}, True),
        ({"provenance": {"from": [{"header": {"kinds": ["load"], "provenance": {}}}]}}, False),
        (
            {"provenance": {"from": [{"header": {"kinds": ["load", "fetch"]}, "ending": {"run_kinds": ["load"]}}]}},
            False,
        ),
        ({"kinds": ["load"], "provenance": {"from": [{"header": {"kinds": ["fetch"]}}]}}, False),
        ({"kinds": ["load", "fetch"]}, True),
    ],
)
def test_the_nearest_header_says_which_kinds_runs_have(
    tmp_path: Path, header: dict[str, object], refused: bool
) -> None:
    """Traces of earlier versions have the options of their capture alone, or of their sources' captures."""
    from pagelab._native import TraceFile

    file = TraceFile(tmp_path / "t", json.dumps({"content": "runs", "page_bits": 12, **header}), 3)
    file.runs(np.ones(1, np.uint64), np.zeros(1, np.uint16), np.ones(1, np.uint64))
    file.finish("null")
    if refused:
        with pytest.raises(BadInputError, match="its page runs contain fetches"):
            tlb(tmp_path / "t", "haswell", "kernel")
    else:
        assert tlb(tmp_path / "t", "haswell", "kernel").executions["translations"][0] == 1


@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs QEMU: sudo apt install qemu-user")
def test_runs_with_fetches_are_refused(tmp_path: Path) -> None:
    trace.capture(["true"], tmp_path / "t", kinds=("load", "store", "fetch"))
    with pytest.raises(BadInputError, match="its page runs contain fetches"):
        tlb(tmp_path / "t", "haswell", "kernel")
    trace.capture(["true"], tmp_path / "full", full=True, kinds=("load", "store", "fetch"))
    trace.convert(tmp_path / "full", tmp_path / "of-full", page_bytes="4K", kinds=["load", "store"])
    assert tlb(tmp_path / "of-full", "haswell", "kernel").executions["m"][0] > 0
    trace.capture(["true"], tmp_path / "data")
    assert tlb(tmp_path / "data", "haswell", "kernel").executions["m"][0] > 0
