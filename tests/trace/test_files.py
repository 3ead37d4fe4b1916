"""Trace files: arrays in and out, foreign formats, mixing, reduction, and what is left of a torn file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pagelab import trace
from pagelab.trace import TraceError
from pagelab.trace.data import KINDS
from pagelab.trace.files import ask
from pagelab.trace.operations import FORMATS, output, records

COLUMNS = ("address", "kind", "size", "thread", "asid")
EXACT_SIZES = [*range(33), 64, 94, 108, 128, 512, 4096]


def cli(*arguments: object, cwd: Path, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "pagelab", "trace", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, input=data, check=False)


def columns_of(path: Path, **options: Any) -> dict[str, NDArray[Any]]:
    batches = [batch.columns() for batch in trace.Trace(path).references(**options)]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in COLUMNS} if batches else {}


def pages_of(path: Path, **options: Any) -> list[tuple[int, int]]:
    """Every page reference of a trace: address space and page number."""
    return [
        (int(asid), int(page))
        for batch in trace.Trace(path).runs(**options)
        for asid, page, count in zip(batch.asid, batch.page, batch.count, strict=True)
        for _ in range(int(count))
    ]


RECORDS = st.lists(
    st.tuples(
        st.integers(0, (1 << 56) - 1),
        st.integers(0, 3),
        st.sampled_from(EXACT_SIZES),
        st.integers(0, 3),
        st.sampled_from([0, 1, 4095]),
    ),
    max_size=60,
)


@given(batches=st.lists(RECORDS, max_size=4))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arrays_come_back(batches: list[list[tuple[int, ...]]], tmp_path: Path) -> None:
    types = dict(zip(COLUMNS, (np.uint64, np.uint8, np.uint16, np.uint32, np.uint16), strict=True))

    def frame(rows: list[tuple[int, ...]]) -> dict[str, NDArray[Any]]:
        values = list(zip(*rows, strict=True)) if rows else [[]] * len(COLUMNS)
        return {name: np.array(column, types[name]) for name, column in zip(COLUMNS, values, strict=True)}

    written = trace.write(tmp_path / "t", (frame(rows) for rows in batches), force=True)
    rows = [row for batch in batches for row in batch]
    assert written == len(rows) == len(trace.Trace(tmp_path / "t"))
    back = columns_of(tmp_path / "t")
    for name, column in frame(rows).items():
        assert np.array_equal(back.get(name, np.array([])), column), name


def test_runs_come_back_in_every_page_size(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    addresses = random.integers(0, 1 << 24, 5000, dtype=np.uint64)
    trace.write(tmp_path / "t", [addresses[:1000], addresses[1000:]])
    for size in ("4K", 65536, "2M"):
        shift = np.uint64(trace.page_bits(size))
        assert [page for _, page in pages_of(tmp_path / "t", page_bytes=size)] == (addresses >> shift).tolist()


def test_shards_make_the_whole(tmp_path: Path) -> None:
    addresses = np.arange(1_000_000, dtype=np.uint64)
    trace.write(tmp_path / "t", np.split(addresses, 10))
    shards = [columns_of(tmp_path / "t", shard=(number, 3))["address"] for number in range(3)]
    assert min(map(len, shards)) > 200_000
    assert np.array_equal(np.concatenate(shards), addresses)


def test_kinds_are_chosen(tmp_path: Path) -> None:
    trace.write(tmp_path / "t", [{"address": np.arange(8), "kind": np.arange(8) % 4}])
    assert columns_of(tmp_path / "t", kinds=["store", "other"])["address"].tolist() == [1, 3, 5, 7]
    assert [page for _, page in pages_of(tmp_path / "t", page_bytes=16, kinds=["load"])] == [0, 0]


def test_a_frame_shows_names(tmp_path: Path) -> None:
    trace.write(tmp_path / "t", [pl.DataFrame({"address": [4096, 8192], "kind": [0, 1], "size": [8, 4]})])
    shown = trace.Trace(tmp_path / "t").frame()
    assert shown["kind"].to_list() == ["load", "store"]
    assert trace.Trace(tmp_path / "t").frame(1).height == 1
    trace.write(tmp_path / "r", [np.array([5, 5, 6])], page_bytes=4096)
    assert trace.Trace(tmp_path / "r").frame().rows() == [(5, 0, 1), (5, 0, 1), (6, 0, 1)]


@pytest.mark.parametrize(
    ("batch", "options", "words"),
    [
        (np.array([-1]), {}, "integers from 0"),
        (np.array([0.5]), {}, "integers from 0"),
        ({"address": [1], "when": [2]}, {}, "address is needed"),
        ({"kind": [1]}, {}, "address is needed"),
        ([1, 2], {}, "not a list"),
        ({"address": [1], "asid": [4096]}, {}, "address space 4096"),
        ({"address": [1, 2], "kind": [0]}, {}, "different lengths"),
        ({"page": [1], "count": [0]}, {"page_bytes": 4096}, "no references"),
        ({"page": [1 << 52]}, {"page_bytes": 4096}, "52 bits"),
        ({"page": [1, 1 << 44]}, {"page_bytes": 4096}, "run 2: 0x100000000000 is no page number.* 44 bits"),
        ({"page": [1 << 35]}, {"page_bytes": "2M"}, "run 1: .* 35 bits"),
        ({"page": [1, 2], "count": [1 << 63, 1 << 63]}, {"page_bytes": 4096}, "add up to 18446744073709551616"),
        ({"address": [1, 2], "kind": [3, 4]}, {}, "reference 2: kind 4: 0 load, 1 store, 2 fetch, 3 other"),
        (np.array([1]), {"page_bytes": 3000}, "power of two"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    batch: Any, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(TraceError, match=words):
        trace.write(tmp_path / "t", [batch], **options)
    assert not list(tmp_path.iterdir())


def test_a_frame_of_an_empty_trace_has_its_columns(tmp_path: Path) -> None:
    """Regression: without references, the names of kinds could not be put in, with an error of polars."""
    for name, pages in (("references", None), ("runs", 4096)):
        trace.write(tmp_path / name, [], page_bytes=pages)
        trace.write(tmp_path / f"{name}-1", [np.array([1], np.uint64)], page_bytes=pages)
        empty, one = (trace.Trace(tmp_path / path).frame() for path in (name, f"{name}-1"))
        assert empty.height == 0
        assert empty.schema == one.schema


def test_kind_codes_in_parquet_are_those_of_kinds(tmp_path: Path) -> None:
    """Regression: codes above 3 were cut to two bits, so that 7 was a prefetch and 4 a load."""
    pl.DataFrame({"address": [1, 2], "kind": [2, 7]}).write_parquet(tmp_path / "k.parquet")
    with pytest.raises(TraceError, match="reference 2: kind 7"):
        trace.convert(tmp_path / "k.parquet", tmp_path / "t", format="parquet")


PREFETCHED = "".join(f"0 {at % 4 * 4096:x}\n3 {0x100000 + at % 64 * 4096:x}\n" for at in range(1000))
"""Dinero: loads of four pages in turn, and prefetches of 64 others."""


def test_prefetches_are_no_use_of_a_page_however_runs_are_made(tmp_path: Path) -> None:
    """Regression: page runs and reductions had the prefetches, and a memory of eight pages 250 times the faults."""
    (tmp_path / "p.din").write_text(PREFETCHED)
    trace.convert(tmp_path / "p.din", tmp_path / "full", format="dinero")
    trace.convert(tmp_path / "p.din", tmp_path / "runs", format="dinero", page_bytes="4K")
    trace.convert(tmp_path / "full", tmp_path / "of-full", page_bytes="4K")
    trace.concat([tmp_path / "full"], tmp_path / "joined", page_bytes="4K")
    trace.interleave([tmp_path / "full"], tmp_path / "turns", page_bytes="4K", quantum=7)
    trace.reduce(tmp_path / "full", tmp_path / "reduced", memory="32K")
    demand = [(0, at % 4) for at in range(1000)]
    for name in ("full", "runs", "of-full", "joined", "turns"):
        assert pages_of(tmp_path / name) == demand, name
    reduced = pages_of(tmp_path / "reduced")
    assert len(reduced) == 1000
    assert lru_faults(reduced, 8, 1) == lru_faults(demand, 8, 1) == 4
    pl.DataFrame({"address": [0, 4096], "kind": ["load", "other"]}).write_parquet(tmp_path / "p.parquet")
    trace.convert(tmp_path / "p.parquet", tmp_path / "parquet", format="parquet", page_bytes="4K")
    assert pages_of(tmp_path / "parquet") == [(0, 0)]
    # Named kinds are kept, and so are all where kinds stay apart.
    trace.convert(tmp_path / "full", tmp_path / "all", page_bytes="4K", kinds=trace.KINDS)
    assert len(pages_of(tmp_path / "all")) == 2000
    trace.convert(tmp_path / "full", tmp_path / "copy")
    assert np.bincount(columns_of(tmp_path / "copy")["kind"]).tolist() == [1000, 0, 0, 1000]
    done = cli("convert", "--page", "4K", "full", "by-command", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert pages_of(tmp_path / "by-command") == demand


def kinds_of(path: Path) -> tuple[list[str] | None, list[str] | None]:
    """Of a trace: the kinds that were kept, by its header, and those that its page runs are of, by its ending."""
    found = trace.info(path)
    return found["header"].get("kinds"), (found["ending"] or {}).get("run_kinds")


def test_a_trace_says_which_kinds_it_has(tmp_path: Path) -> None:
    """Regression: no header of a converted trace did, and page runs have no other place for it."""
    (tmp_path / "l.txt").write_text("I  400000,4\n L 10000000,8\n")
    trace.convert(tmp_path / "l.txt", tmp_path / "full", format="lackey")
    trace.convert(tmp_path / "l.txt", tmp_path / "runs", format="lackey", page_bytes="4K")
    trace.convert(tmp_path / "full", tmp_path / "data", page_bytes="4K", kinds=["load", "store"])
    trace.convert(tmp_path / "data", tmp_path / "coarse", page_bytes="8K")
    trace.reduce(tmp_path / "data", tmp_path / "reduced", memory="64K")
    trace.concat([tmp_path / "runs", tmp_path / "data"], tmp_path / "both")
    trace.write(tmp_path / "pages", [np.array([1])], page_bytes="4K")
    trace.concat([tmp_path / "pages", tmp_path / "data"], tmp_path / "unknown")
    assert kinds_of(tmp_path / "full") == (list(trace.KINDS), None)
    assert kinds_of(tmp_path / "runs") == (["load", "store", "fetch"], ["load", "fetch"])
    assert kinds_of(tmp_path / "data") == (["load", "store"], ["load"])
    assert kinds_of(tmp_path / "coarse") == kinds_of(tmp_path / "reduced") == (["load"], ["load"])
    assert kinds_of(tmp_path / "both") == (["load", "fetch"], ["load", "fetch"])
    assert kinds_of(tmp_path / "pages") == kinds_of(tmp_path / "unknown") == (None, None)


def test_kinds_are_not_chosen_from_page_runs(tmp_path: Path) -> None:
    """Regression: ``--kinds store`` of page runs was as if it had not been given, and all references were in the new
    trace."""
    (tmp_path / "l.txt").write_text("I  400000,4\n L 10000000,8\n")
    trace.convert(tmp_path / "l.txt", tmp_path / "runs", format="lackey", page_bytes="4K")
    for kinds in (["store"], ["load", "store"]):
        with pytest.raises(TraceError, match=r"do not tell .*fetch from other references"):
            trace.convert(tmp_path / "runs", tmp_path / "x", kinds=kinds)
        with pytest.raises(TraceError, match=r"do not tell .*fetch from other references"):
            list(trace.Trace(tmp_path / "runs").runs(kinds=kinds))
    trace.convert(tmp_path / "runs", tmp_path / "same", kinds=["load", "fetch"])
    assert pages_of(tmp_path / "same") == pages_of(tmp_path / "runs") == [(0, 0x400), (0, 0x10000)]


# Random, so that chunks are larger than the header.
ADDRESSES = np.random.default_rng(3).integers(0, 1 << 40, 600_000, dtype=np.uint64)


def test_where_there_is_no_room_the_file_is_named_with_what_to_look_at(tmp_path: Path) -> None:
    np.random.default_rng(1).integers(0, 1 << 50, 100_000, dtype=np.uint64).tofile(tmp_path / "addresses")
    command = f"ulimit -f 16; exec {sys.executable} -m pagelab trace convert --from raw addresses u.trace"
    full = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "cannot write a chunk of the trace: File too large (errno 27) (into" in full.stderr, full.stderr
    assert full.stderr.endswith(f"u.trace); run: df -h {tmp_path}\n")


def torn(tmp_path: Path) -> Path:
    trace.write(tmp_path / "whole", np.split(ADDRESSES, 6))
    content = (tmp_path / "whole").read_bytes()
    (tmp_path / "torn").write_bytes(content[: len(content) * 2 // 3])
    return tmp_path / "torn"


def test_a_torn_file_gives_its_whole_chunks_then_says_so(tmp_path: Path) -> None:
    path = torn(tmp_path)
    seen: list[trace.References] = []
    with pytest.raises(TraceError, match="is torn at byte") as caught:
        seen.extend(trace.Trace(path).references())
    assert caught.value.kind == "torn"
    addresses = np.concatenate([batch.address for batch in seen])
    assert 0 < len(addresses) < 600_000
    assert np.array_equal(addresses, ADDRESSES[: len(addresses)])
    assert len(addresses) == len(trace.Trace(path))
    shown = cli("info", path, cwd=tmp_path)
    assert shown.returncode == 2
    assert b"torn" in shown.stdout
    assert b"--recover" in shown.stderr


@pytest.mark.parametrize("parts", [1, 2, 9])
def test_shards_of_a_torn_file_say_so_in_the_last(tmp_path: Path, parts: int) -> None:
    """Regression: they gave the references of the whole chunks, and no error."""
    path = torn(tmp_path)
    count = len(trace.Trace(path))
    seen = sum(len(b.address) for at in range(parts - 1) for b in trace.Trace(path).references(shard=(at, parts)))
    last: list[int] = []
    with pytest.raises(TraceError, match="is torn at byte") as caught:
        last.extend(len(batch.address) for batch in trace.Trace(path).references(shard=(parts - 1, parts)))
    assert caught.value.kind == "torn"
    assert seen + sum(last) == count
    with pytest.raises(TraceError, match="part 3 of 3"):
        list(trace.Trace(path).references(shard=(3, 3)))


def test_two_files_in_one_are_not_taken_for_the_first(tmp_path: Path) -> None:
    """Regression: ``cat a b > c`` was simulated as ``a`` alone, and recovery took the pages of both for pages of the
    size of ``a``."""
    trace.write(tmp_path / "a", [np.arange(3, dtype=np.uint64)], page_bytes="4K")
    trace.write(tmp_path / "b", [np.arange(100, 103, dtype=np.uint64)], page_bytes="2M")
    (tmp_path / "c").write_bytes((tmp_path / "a").read_bytes() + (tmp_path / "b").read_bytes())
    with pytest.raises(TraceError, match=r"bytes follow its end.*pagelab trace concat"):
        pages_of(tmp_path / "c")
    assert "bytes follow its end" in trace.info(tmp_path / "c", thorough=True)["thorough"]["damage"]
    done = trace.convert(tmp_path / "c", tmp_path / "d", recover=True)
    assert pages_of(tmp_path / "d") == [(0, 0), (0, 1), (0, 2)]
    assert done["lost_bytes"] >= (tmp_path / "b").stat().st_size
    simulated = subprocess.run(
        [sys.executable, "-m", "pagelab", "simulate", "paging", "c"], cwd=tmp_path, capture_output=True, text=True
    )
    assert simulated.returncode == 2
    assert "bytes follow its end" in simulated.stderr


def test_what_is_whole_is_recovered(tmp_path: Path) -> None:
    path = torn(tmp_path)
    done = cli("convert", "--recover", "--json", path, "new", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["lost_bytes"] > 0
    assert len(trace.Trace(tmp_path / "new")) == answer["records"] == len(trace.Trace(path))
    assert trace.info(tmp_path / "new", thorough=True)["thorough"]["damage"] is None


def test_a_damaged_chunk_is_left_out_of_what_is_recovered(tmp_path: Path) -> None:
    torn(tmp_path)
    content = bytearray((tmp_path / "whole").read_bytes())
    content[len(content) // 2] ^= 0x40
    (tmp_path / "hurt").write_bytes(content)
    assert "damaged" in str(trace.info(tmp_path / "hurt", thorough=True)["thorough"]["damage"])
    trace.convert(tmp_path / "hurt", tmp_path / "new", recover=True)
    addresses = columns_of(tmp_path / "new")["address"]
    assert 600_000 - len(addresses) == 1 << 17
    assert np.isin(addresses, ADDRESSES).all()


def test_foreign_traces_through_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "f.din").write_text("0 1000\n1 2008\n2 400000\n")
    assert cli("convert", "--from", "dinero", "f.din", "t", cwd=tmp_path).returncode == 0
    assert columns_of(tmp_path / "t")["address"].tolist() == [0x1000, 0x2008, 0x400000]
    raw = np.array([7, 7, 9], "<u8").tobytes()
    assert cli("convert", "--from", "raw-pages", "-", "r", cwd=tmp_path, data=raw).returncode == 0
    assert pages_of(tmp_path / "r") == [(0, 7), (0, 7), (0, 9)]
    wrong = cli("convert", "--from", "lackey", "f.din", "x", cwd=tmp_path)
    assert wrong.returncode == 2
    assert b"line 1: not a line of lackey's: 0 1000" in wrong.stderr
    assert cli("convert", "f.din", "x", cwd=tmp_path).stderr.count(b"--from FORMAT") == 1
    assert not (tmp_path / "x").exists()


def test_samples_are_marked_and_refused_where_exactness_is_needed(tmp_path: Path) -> None:
    (tmp_path / "perf.txt").write_text(" 7/7  1.5: page-faults:     562870d5f1e0\n 7/8  1.6: page-faults:  10\n")
    trace.convert(tmp_path / "perf.txt", tmp_path / "t", format="perf-script")
    assert not trace.Trace(tmp_path / "t").exact
    with pytest.raises(TraceError, match="is a sample") as caught:
        trace.reduce(tmp_path / "t", tmp_path / "r", memory="1M")
    assert caught.value.kind == "sampled"
    assert b"a sample" in cli("info", "t", cwd=tmp_path).stdout


def test_parquet_of_references_and_of_pages(tmp_path: Path) -> None:
    frame = pl.DataFrame({"address": [4096, 5, 8192], "kind": ["load", "store", "fetch"], "size": [8, 4, 3]})
    frame.write_parquet(tmp_path / "r.parquet")
    trace.convert(tmp_path / "r.parquet", tmp_path / "r", format="parquet")
    back = columns_of(tmp_path / "r")
    assert (back["address"].tolist(), back["kind"].tolist()) == ([4096, 5, 8192], [0, 1, 2])
    assert back["size"].tolist() == [8, 4, 3]
    trace.convert(tmp_path / "r.parquet", tmp_path / "s", format="parquet", kinds=["load"], page_bytes="4K")
    assert pages_of(tmp_path / "s") == [(0, 1)]
    pl.DataFrame({"page": [3, 4], "count": [2, 1], "asid": [1, 0]}).write_parquet(tmp_path / "p.parquet")
    trace.convert(tmp_path / "p.parquet", tmp_path / "p", format="parquet")
    assert pages_of(tmp_path / "p") == [(1, 3), (1, 3), (0, 4)]
    pl.DataFrame({"address": [1], "kind": ["write"]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(TraceError, match="kind is none of"):
        trace.convert(tmp_path / "x.parquet", tmp_path / "x", format="parquet")
    pl.DataFrame({"time": [1]}).write_parquet(tmp_path / "y.parquet")
    with pytest.raises(TraceError, match="columns time"):
        trace.convert(tmp_path / "y.parquet", tmp_path / "y", format="parquet")
    with pytest.raises(TraceError, match="not a Parquet file"):
        trace.convert(tmp_path / "r", tmp_path / "z", format="parquet")


@pytest.mark.parametrize(
    ("options", "bits", "pages"),
    [
        ({}, 12, 1024),
        ({"page": "2M"}, 21, 2),
        ({"its_page": "2M"}, 21, 1024),
        ({"its_page": "64K", "page": "2M"}, 21, 32),
    ],
)
def test_page_numbers_in_parquet_are_converted_as_those_in_csv(
    tmp_path: Path, options: dict[str, str], bits: int, pages: int
) -> None:
    """Regression: Parquet's were taken for pages of the new trace's size, whatever ``--its-page`` said."""
    table = pl.DataFrame({"page": range(1024)})
    table.write_csv(tmp_path / "p.csv")
    table.write_parquet(tmp_path / "p.parquet")
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    for form in ("csv", "parquet"):
        done = cli("convert", "--from", form, *words, "--json", f"p.{form}", f"{form}.trace", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["references"] == 1024
        found = trace.info(tmp_path / f"{form}.trace", thorough=True)
        assert (found["header"]["page_bits"], found["thorough"]["pages"]) == (bits, pages), form
        refused = cli("convert", "--from", form, "--its-page", "2M", "--page", "4K", f"p.{form}", "x", cwd=tmp_path)
        assert refused.returncode == 2
        assert f"p.{form}: the trace has runs of 2097152 B pages".encode() in refused.stderr
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".whole")]


def test_traces_in_turns_and_one_after_the_other(tmp_path: Path) -> None:
    trace.write(tmp_path / "a", [np.array([1, 1, 1, 2])], page_bytes="4K")
    trace.write(tmp_path / "b", [np.array([1, 5])], page_bytes="4K")
    trace.interleave([tmp_path / "a", tmp_path / "b"], tmp_path / "i", quantum=2)
    assert pages_of(tmp_path / "i") == [(0, 1), (0, 1), (1, 1), (1, 5), (0, 1), (0, 2)]
    trace.concat([tmp_path / "a", tmp_path / "b"], tmp_path / "c", same_space=True)
    assert pages_of(tmp_path / "c") == [(0, 1), (0, 1), (0, 1), (0, 2), (0, 1), (0, 5)]
    assert trace.Trace(tmp_path / "i").header["address_spaces"] == ["a", "b"]
    trace.concat([tmp_path / "i", tmp_path / "b"], tmp_path / "d")
    assert trace.Trace(tmp_path / "d").header["address_spaces"] == ["a", "b", "b"]
    assert {asid for asid, _ in pages_of(tmp_path / "d")} == {0, 1, 2}
    shown = cli("info", "--thorough", "d", cwd=tmp_path).stdout
    assert b"3 address spaces" in shown
    with pytest.raises(TraceError, match="at least 1"):
        trace.interleave([tmp_path / "a"], tmp_path / "x", quantum=0)
    trace.write(tmp_path / "full", [np.array([1])])
    with pytest.raises(TraceError, match="--page SIZE"):
        trace.concat([tmp_path / "a", tmp_path / "full"], tmp_path / "x")
    trace.concat([tmp_path / "a", tmp_path / "full"], tmp_path / "x", page_bytes="4K")


def test_errors_of_several_traces_name_the_one(tmp_path: Path) -> None:
    trace.write(tmp_path / "a", [np.arange(1000)], page_bytes="4K")
    trace.write(tmp_path / "b", [np.arange(1000)], page_bytes="4K")
    (tmp_path / "torn").write_bytes((tmp_path / "b").read_bytes()[:-30])
    torn = str(tmp_path / "torn")
    for mixed in (partial(trace.interleave, quantum=5), trace.concat):
        with pytest.raises(TraceError, match=f"^{re.escape(torn)}: the trace is torn") as told:
            mixed([tmp_path / "a", torn], tmp_path / "x")
        assert told.value.kind == "torn"
        with pytest.raises(TraceError, match=f"^{re.escape(str(tmp_path / 'none'))}: cannot open a trace"):
            mixed([tmp_path / "a", tmp_path / "none"], tmp_path / "x")
        with pytest.raises(TraceError, match=f"^{re.escape(str(tmp_path / 'a'))}: .* pages"):
            mixed([tmp_path / "a", tmp_path / "b"], tmp_path / "x", page_bytes="1K")
    assert not (tmp_path / "x").exists()


def lru_faults(pages: list[tuple[int, int]], frames: int, colours: int) -> int:
    memories: list[OrderedDict[tuple[int, int], None]] = [OrderedDict() for _ in range(colours)]
    faults = 0
    for page in pages:
        memory = memories[page[1] % colours]
        if page in memory:
            memory.move_to_end(page)
            continue
        faults += 1
        memory[page] = None
        if len(memory) > frames // colours:
            memory.popitem(last=False)
    return faults


def test_a_reduced_trace_has_the_faults_of_the_full_one(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    pages = np.concatenate([random.zipf(1.3, 20_000) % 300, np.tile(np.arange(40), 200)]).astype(np.uint64)
    trace.write(tmp_path / "full", [pages], page_bytes="4K")
    answer = trace.reduce(tmp_path / "full", tmp_path / "less", memory=64 * 4096, colours=[1, 4])
    assert answer["references"] == len(pages)
    assert answer["records"] < answer["read_runs"] / 2
    full, less = pages_of(tmp_path / "full"), pages_of(tmp_path / "less")
    for frames in (64, 65, 80, 128, 256):
        for colours in (1, 4):
            assert lru_faults(less, frames, colours) == lru_faults(full, frames, colours)
    again = trace.reduce(tmp_path / "less", tmp_path / "least", memory=128 * 4096, colours=[4, 8])
    assert again["records"] < answer["records"]
    assert trace.Trace(tmp_path / "least").header["reduction"] == {"memory_pages": 128, "colours": [4]}
    with pytest.raises(TraceError, match="own page size"):
        trace.convert(tmp_path / "less", tmp_path / "x", page_bytes="8K")
    with pytest.raises(TraceError, match="mix first, then reduce"):
        trace.concat([tmp_path / "less", tmp_path / "less"], tmp_path / "x")


def test_a_header_says_where_a_trace_comes_from(tmp_path: Path) -> None:
    trace.write(tmp_path / "a", [np.array([1])])
    trace.convert(tmp_path / "a", tmp_path / "b", page_bytes="4K")
    provenance = trace.Trace(tmp_path / "b").header["provenance"]
    assert provenance["machine"]["schema"] == "pagelab.provenance/1"
    assert provenance["from"][0]["header"]["content"] == "references"
    assert provenance["from"][0]["header"]["provenance"]["parameters"] == {"by": "pagelab.trace.write"}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for command in (["info", "no"], ["convert", "no", "x"], ["reduce", "--memory", "1M", "no", "x"]):
        run = cli(*command, cwd=tmp_path)
        assert run.returncode == 2, run.stderr
        assert run.stderr.startswith(b"pagelab: no: cannot open a trace"), run.stderr


# In a process of its own: its peak is this trace's, and resource.RLIMIT_AS would count what is only reserved.
_BILLION = """
import resource, sys
import numpy as np
from pagelab import trace
batch = np.arange(1 << 22, dtype=np.uint64) * np.uint64(72) % np.uint64(1 << 30)
turns = 239 if len(sys.argv) < 3 else int(sys.argv[2])
print(trace.write(sys.argv[1] + "/full", (batch + np.uint64(turn) for turn in range(turns))))
print(trace.convert(sys.argv[1] + "/full", sys.argv[1] + "/runs", page_bytes="4K")["references"])
print(trace.reduce(sys.argv[1] + "/runs", sys.argv[1] + "/less", memory="1G", colours=[1, 16])["references"])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_billion_references_stream_in_less_than_a_gibibyte(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", _BILLION, tmp_path], capture_output=True, text=True, check=True)
    written, converted, reduced, peak_kib = (int(line) for line in run.stdout.splitlines())
    assert written == 239 << 22 > 1_000_000_000
    # Loads of unknown size cross no page's end.
    assert reduced == converted == written
    assert peak_kib < 1 << 20


@pytest.mark.parametrize("address", [1 << 56, (1 << 56) + 4096, 0xFFFF_FFFF_8100_0000])
def test_addresses_that_a_trace_cannot_hold_are_refused_with_their_number(tmp_path: Path, address: int) -> None:
    """Cut to 56 bits, two pages would be one."""
    pieces = [np.arange(3, dtype=np.uint64), np.array([5, address, 6], np.uint64)]
    with pytest.raises(TraceError, match=r"reference 5: address 0x[0-9a-f]+ has more than 56 bits"):
        trace.write(tmp_path / "t", pieces)
    assert not list(tmp_path.iterdir())
    (tmp_path / "a.csv").write_text(f"address\n1\n{address}\n")
    with pytest.raises(TraceError, match=r"line 3: address 0x[0-9a-f]+ has more than 56 bits"):
        trace.convert(tmp_path / "a.csv", tmp_path / "t", format="csv")
    pl.DataFrame({"address": np.concatenate(pieces)}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(TraceError, match="reference 5: address"):
        trace.convert(tmp_path / "a.parquet", tmp_path / "t", format="parquet")
    with pytest.raises(TraceError, match=r"run 5: .* is no page number"):
        trace.write(tmp_path / "t", pieces, page_bytes=4096)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.parquet"]


def test_the_formats_are_those_of_the_native_part(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as refused:
        ask(
            {
                "work": "convert",
                "input": "x",
                "format": "?",
                "records": records(KINDS, None),
                "output": output(tmp_path / "x", False, 3, {}),
                "foreign_page_bits": 12,
                "recover": False,
            }
        )
    assert str(refused.value).split("none of ")[1].split(", ") == [one for one in FORMATS if one != "parquet"]
    with pytest.raises(TraceError, match=r"'vtune': none of lackey.*parquet"):
        trace.convert("x", tmp_path / "x", format="vtune")
