"""The store: one run one transaction, versions and migrations, readers, frames."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import polars as pl
import pytest
from fakes import TWO_BY_TWO, record, spec_in, tools

from pagelab.study import migrations
from pagelab.study.control import run_study
from pagelab.study.errors import StudyError
from pagelab.study.plan import Condition
from pagelab.study.planning import plan_text
from pagelab.study.schedule import Slot, schedule
from pagelab.study.store import RunResult, Store

FIXTURES = Path(__file__).parent / "fixtures"


def make(directory: Path) -> Store:
    plan = plan_text(TWO_BY_TWO, directory / "s.toml", directory)
    return Store.create(directory, plan, schedule(4, 3, 1, 7), TWO_BY_TWO, {})


def result(condition: Condition) -> RunResult:
    return RunResult("ok", "2026-01-01T00:00:00.000+00:00", 0.1, record(condition))


def test_every_commit_is_synchronous_and_logged_ahead(tmp_path: Path) -> None:
    with make(tmp_path) as store:
        assert store.rows("PRAGMA journal_mode") == [("wal",)]
        assert store.rows("PRAGMA synchronous") == [(2,)]  # FULL


def test_a_run_is_committed_whole_or_not_at_all(tmp_path: Path) -> None:
    """A duplicate measurement fails the transaction after the run's own row was written."""
    with make(tmp_path) as store:
        good = result(store.plan().conditions[0])
        store._db.execute("CREATE TRIGGER no BEFORE INSERT ON measurement BEGIN SELECT RAISE(ABORT, 'full'); END")
        assert good.record is not None
        with_one = good.record.model_copy(update={"measurements": [_measurement()]})
        with pytest.raises(sqlite3.IntegrityError, match="full"):
            store.commit_run(Slot(0, -1, 0, -1), RunResult("ok", "", 0.1, with_one))
        assert store.finished() == set()
        store.commit_run(Slot(0, -1, 0, -1), good)
        assert store.finished() == {0}


def _measurement() -> object:
    from pagelab.record import Measurement

    return Measurement(name="op", value=1.0, unit="ns")


def test_a_position_has_one_run(tmp_path: Path) -> None:
    with make(tmp_path) as store:
        good = result(store.plan().conditions[0])
        store.commit_run(Slot(0, -1, 0, -1), good)
        with pytest.raises(sqlite3.IntegrityError):
            store.commit_run(Slot(0, -1, 0, -1), good)


def test_an_old_store_migrates_and_keeps_its_runs(tmp_path: Path) -> None:
    """store-v1.sql is a dump of a store as version 1 wrote it."""
    _load(FIXTURES / "store-v1.sql", tmp_path)
    with Store.open(tmp_path, write=False) as store:
        assert store.runs().height == 16, "readers migrate a copy"
    assert _version(tmp_path) == "1", "and leave the file alone"
    with Store.open(tmp_path) as store:
        assert store.runs().height == 16
        assert store.runs()["wall_s"].to_list() == [0.001] * 16
        assert store.runs()["duration_s"].null_count() == 16
    assert _version(tmp_path) == str(migrations.VERSION)


def test_the_conditions_of_a_store_of_version_2_ask_for_what_they_did(tmp_path: Path) -> None:
    """store-v2.sql is a dump of a store as version 2 wrote it, of a study that says each setting of a run; its plan is
    now what planning that study gives."""
    _load(FIXTURES / "store-v2.sql", tmp_path)
    with Store.open(tmp_path, write=False) as store:
        plan = store.plan()
        spec = store.meta()["spec"]
        assert store.runs().height == 4
    assert plan == plan_text(spec, Path("/home/user/s.toml"), Path("/home/user/out"))
    pinned = plan.conditions[1].request
    assert (pinned.cpus, pinned.aslr, pinned.scheduler, pinned.node) == ([0, 1], False, "fifo", 0)
    assert (pinned.timeout_s, pinned.preload, pinned.events) == (90.0, "always", ["faults"])
    assert (pinned.env.set, pinned.env.unset) == ({"A": "1", "B": "2"}, ["LD_LIBRARY_PATH"])
    assert (pinned.flush.mode, pinned.flush.files) == ("files", ["/home/user/in.txt"])
    assert pinned.measurements.regex == "(?P<value>[0-9]+)"
    assert (pinned.stdin, pinned.stderr) == ("/home/user/in.txt", "/home/user/err.txt")
    assert [c.keeps_stderr for c in plan.conditions] == [False, False, True, True]
    with Store.open(tmp_path) as store:
        assert store.plan() == plan
    assert _version(tmp_path) == str(migrations.VERSION)


def _load(dump: Path, directory: Path) -> None:
    connection = sqlite3.connect(directory / "study.db")
    connection.executescript(dump.read_text())
    connection.close()


def _version(directory: Path) -> str:
    connection = sqlite3.connect(directory / "study.db")
    value: str = connection.execute("SELECT value FROM meta WHERE key = 'store_version'").fetchone()[0]
    connection.close()
    return value


@pytest.mark.parametrize("write", [True, False])
def test_a_newer_store_is_refused_untouched(tmp_path: Path, write: bool) -> None:
    make(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "study.db")
    connection.execute("UPDATE meta SET value = '99' WHERE key = 'store_version'")
    connection.commit()
    connection.close()
    before = (tmp_path / "study.db").read_bytes()
    with pytest.raises(StudyError, match=r"version 99.*knows versions up to \d+; run: pip install --upgrade"):
        Store.open(tmp_path, write=write)
    assert (tmp_path / "study.db").read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be one" * 30, b""])
def test_what_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "study.db").write_bytes(content)
    with pytest.raises(StudyError, match="cannot"):
        Store.open(tmp_path)


def test_there_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"no study in .*start one with: pagelab study run"):
        Store.open(tmp_path)
    with pytest.raises(StudyError, match="no study in"):
        Store.open(tmp_path / "nowhere")


def test_a_store_on_a_read_only_medium_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(TWO_BY_TWO)
    run_study(tmp_path / "s.toml", tmp_path / "out", tools())
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(tmp_path / "out" / "study.db", copy)
    assert not (tmp_path / "out" / "study.db-wal").exists(), "a finished session leaves one file"
    (copy / "study.db").chmod(0o444)
    copy.chmod(0o555)
    with Store.open(copy, write=False) as store:
        assert store.runs().height == 16
    copy.chmod(0o755)


def test_a_reader_sees_what_is_committed_while_a_session_writes(tmp_path: Path) -> None:
    with make(tmp_path) as writer, Store.open(tmp_path, write=False) as reader:
        writer.commit_run(Slot(0, -1, 0, -1), result(writer.plan().conditions[0]))
        assert reader.finished() == {0}


def test_frames(tmp_path: Path) -> None:
    def behave(condition: Condition) -> object:
        counters = [
            _counter("tlb.walks", 5, "ok"),
            _counter("tlb.hits", 2**47, "implausible"),
        ]
        shortfall = {"kind": "placement-shortfall", "message": "half", "data": {"asked": 2}}
        placement = {
            "by_size": [{"page_bytes": 4096, "bytes": 8192}, {"page_bytes": 2 << 20, "bytes": 4 << 20}],
            "whole_touched_tiles": 4,
            "tiles_as_asked": 2,
            "placed_fraction": 0.5,
        }
        values = [{"name": "op", "value": value, "unit": "ns"} for value in (1.0, 2.0, 6.0)]
        return record(condition, counters=counters, warnings=[shortfall], placement=placement, measurements=values)

    (tmp_path / "s.toml").write_text(TWO_BY_TWO)
    run_study(tmp_path / "s.toml", tmp_path / "out", tools(behave))
    with Store.open(tmp_path / "out", write=False) as store:
        runs = store.runs()
        assert runs.height == 16
        assert runs["warmup"].sum() == 4
        first = runs.row(0, named=True)
        assert first["counter.tlb.walks"] == 5
        assert first["counter.tlb.hits"] is None, "a counter that lies is not a number"
        assert (first["placed_fraction"], first["huge_bytes"], first["short_placed"]) == (0.5, 4 << 20, True)
        assert (first["wall_s"], first["user_s"], first["system_s"], first["cpu_s"]) == (
            0.001,
            0.0005,
            0.00025,
            0.00075,
        )
        assert store.measurements().height == 48
        assert store.metric("measure.op")["value"].to_list() == [3.0] * 16, "the mean over the execution"
        assert store.metric("counter.tlb.walks")["value"].to_list() == [5.0] * 16
        assert store.metric("counter.none").is_empty()
        assert store.warnings().filter(pl.col("kind") == "placement-shortfall").height == 16
        assert len(list(store.records())) == 16


def _counter(name: str, count: int, status: str) -> dict[str, object]:
    times = {"enabled_ns": 1, "running_ns": 1}
    return {"name": name, "code": "r1", "count": count, "status": status, "verified": True, "source": "test", **times}


def test_a_window_gone_through_once_has_no_warm_up(tmp_path: Path) -> None:
    """Of what is repeated the first is dropped; of a window that is repeated, too."""
    times = ("", ".cpu", ".faults")
    values = [{"name": "op", "value": float(i), "unit": "ns"} for i in range(3)]
    values += [{"name": f"once{part}", "value": 1.0, "unit": "s"} for part in times]
    values += [{"name": f"twice{part}", "value": 1.0, "unit": "s"} for part in times for _ in range(2)]
    values += [{"name": "single", "value": 1.0, "unit": "s"}]
    text = TWO_BY_TWO.replace("seed = 7\n", "seed = 7\ndrop_first = 1\n")
    run_study(spec_in(tmp_path, text), tmp_path / "out", tools(lambda c: record(c, measurements=values)))
    with Store.open(tmp_path / "out", write=False) as store:
        kept = store.measurements().filter(pl.col("run_id") == 1, ~pl.col("dropped"))
    assert sorted(kept["name"]) == sorted(
        ["op", "op", *(f"once{part}" for part in times), *(f"twice{part}" for part in times)]
    )
