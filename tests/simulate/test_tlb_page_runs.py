"""``simulate tlb`` with page runs: the counts of the references that they are of."""

from __future__ import annotations

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


@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs QEMU: sudo apt install qemu-user")
def test_runs_with_fetches_are_refused(tmp_path: Path) -> None:
    trace.capture(["true"], tmp_path / "t", kinds=("load", "store", "fetch"))
    with pytest.raises(BadInputError, match="its page runs contain fetches"):
        tlb(tmp_path / "t", "haswell", "kernel")
    trace.capture(["true"], tmp_path / "data")
    assert tlb(tmp_path / "data", "haswell", "kernel").executions["m"][0] > 0
