"""The store: one run one transaction, versions and migrations, readers, frames."""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from fakes import TWO_BY_TWO, record, spec_in, tools

from pagelab.errors import MachineError
from pagelab.study import connection, migrations
from pagelab.study import store as store_module
from pagelab.study.control import resume_study, run_study
from pagelab.study.errors import StudyError
from pagelab.study.plan import Condition
from pagelab.study.planning import plan_text
from pagelab.study.reboots import count
from pagelab.study.schedule import Slot, schedule
from pagelab.study.status import status_of
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


def put_journal(database: Path, victim: Path) -> None:
    """A journal that SQLite rolls back at the first query; then it removes ``victim``, which the journal names."""
    name, content = os.fsencode(victim), database.read_bytes()
    (page,) = struct.unpack(">H", content[16:18])
    magic = bytes.fromhex("d9d505f920a163d7")
    head = magic + struct.pack(">IIIII", 0, 0, len(content) // page, 512, page)
    end = struct.pack(">I", 0x40000000 // page + 1) + name + struct.pack(">II", len(name), sum(name)) + magic
    (database.parent / "study.db-journal").write_bytes(head.ljust(512, b"\0") + end)


USES: dict[str, Callable[[Path], object]] = {
    "status": status_of,
    "report": lambda directory: Store.open(directory, write=False),
    "resume": lambda directory: resume_study(directory, tools()),
    "boot": count.analysed,
}


@pytest.mark.parametrize("use", USES)
def test_a_journal_beside_a_store_is_refused_before_it_is_opened(tmp_path: Path, use: str) -> None:
    run_study(spec_in(tmp_path), tmp_path / "out", tools())
    precious = tmp_path / "precious"
    precious.write_text("the reader's own")
    put_journal(tmp_path / "out" / "study.db", precious)
    with pytest.raises(StudyError, match=r"study\.db-journal is not pagelab's; see whose it is with: ls -l "):
        USES[use](tmp_path / "out")
    assert precious.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user; run: sudo make test")
@pytest.mark.parametrize("place", ["owner", "shared", "above"])
def test_reading_somebody_elses_store_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Also if the journal is put there after it was looked for."""
    out = tmp_path / "out"
    run_study(spec_in(tmp_path), out, tools())
    (precious := tmp_path / "precious").write_text("the reader's own")
    if place == "shared":
        out.chmod(0o777)
    else:
        os.chown(out if place == "owner" else tmp_path, 65534, 65534)
    put_journal(out / "study.db", precious)
    before = sorted(out.iterdir())
    monkeypatch.setattr(connection, "_refuse_others_files", lambda _path: None)
    with Store.open(out, write=False) as store:
        assert store.runs().height == 16
    assert precious.exists()
    assert sorted(out.iterdir()) == before, "and nothing is made"


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user; run: sudo make test")
def test_the_log_of_somebody_elses_store_is_read_and_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with make(out) as writer:
        writer.commit_run(Slot(0, -1, 0, -1), result(writer.plan().conditions[0]))
        for one in (out, *out.iterdir()):
            os.chown(one, 65534, 65534)
        with Store.open(out, write=False) as reader:
            assert reader.finished() == {0}
        shutil.copytree(out, killed := tmp_path / "killed")
    os.chown(killed, 65534, 65534)
    for index in ("study.db-shm", "none"):  # as restored from a copy that left the index out
        files = {one.name: one.read_bytes() for one in killed.glob("study.db*") if one.name != index}
        (killed / index).unlink(missing_ok=True)
        with Store.open(killed, write=False) as reader:
            assert reader.finished() == {0}, "with nobody who holds the index"
        assert {one.name: one.read_bytes() for one in killed.glob("study.db*")} == files


def commit(directory: Path, position: int) -> None:
    """A session that makes one run."""
    with Store.open(directory) as store:
        store.commit_run(Slot(position, -1, 0, position), result(store.plan().conditions[0]))


def test_a_session_that_begins_changes_nothing_for_a_reader_of_a_shared_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it read the file without a lock, and mixed pages from before the session and after it."""
    make(tmp_path).close()
    monkeypatch.setattr(connection, "is_private", lambda _path: False)
    with Store.open(tmp_path, write=False) as reader:
        assert reader.rows("PRAGMA cache_size = 0") == []
        commit(tmp_path, 0)
        assert (reader.finished(), reader.rows("SELECT count(*) FROM attempt")) == (set(), [(0,)])
        assert reader.rows("PRAGMA integrity_check") == [("ok",)]
    copy, positions = connection._copy, iter(range(1, 9))

    def changed(path: Path) -> sqlite3.Connection:
        found = copy(path)
        commit(tmp_path, next(positions))
        return found

    monkeypatch.setattr(connection, "_copy", changed)
    with pytest.raises(StudyError, match=r"study\.db: sessions change it while it is read; try again when none"):
        Store.open(tmp_path, write=False)
    positions = iter([6])
    monkeypatch.setattr(connection, "_copy", lambda path: changed(path) if 6 not in finished(tmp_path) else copy(path))
    with Store.open(tmp_path, write=False) as reader:
        assert reader.finished() == set(range(7)), "the second copy"


def finished(directory: Path) -> set[int]:
    with Store.open(directory) as store:
        return store.finished()


def test_a_reader_of_a_shared_store_is_told_of_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def busy(_connection: sqlite3.Connection) -> int:
        looks.append(1)
        if len(looks) > 1:
            return migrations.VERSION
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise error

    with make(tmp_path):
        monkeypatch.setattr(connection, "is_private", lambda _path: False)
        monkeypatch.setattr(migrations, "version_of", busy)
        with pytest.raises(MachineError, match=r"study\.db: another process holds a lock on it"):
            Store.open(tmp_path, write=False)


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_fifo_beside_a_store_is_not_waited_for(tmp_path: Path, suffix: str) -> None:
    make(tmp_path).close()
    os.mkfifo(tmp_path / f"study.db{suffix}")
    for write in (False, True):
        with pytest.raises(StudyError, match=f"study.db{suffix} is not pagelab's"):
            Store.open(tmp_path, write=write)


def test_a_writer_waits_for_a_lock_of_others_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = []

    def echo(text: str, **_: object) -> None:
        said.append(text)
        other.execute("ROLLBACK")

    monkeypatch.setattr(store_module.terminal, "echo", echo)
    with make(tmp_path) as store:
        other = sqlite3.connect(tmp_path / "study.db", isolation_level=None)
        store._db.execute("PRAGMA busy_timeout = 1")
        other.execute("BEGIN IMMEDIATE")
        store.put_meta("a", "b")
        assert store.meta()["a"] == "b"
        assert said == [f"waits for another process, which holds a lock on {tmp_path}/study.db; whose: run: lslocks"]
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(store_module, "_PATIENCE_S", -1)
        with pytest.raises(MachineError, match=r"study\.db: another process holds a lock .*run: lslocks; then go on"):
            store.put_meta("a", "c")
        other.close()


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
