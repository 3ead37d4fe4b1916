"""The store of a study: one SQLite file that survives a power cut, and frames of its content for analysis.

A writer commits each run in one transaction (WAL, ``synchronous=FULL``). A reader never needs the writer to stop.
Tables: docs/schema/store.md.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from .. import terminal
from ..disk import sync_directory
from ..errors import MachineError, quoted
from ..record import Record, RunWarning, WarningKind
from . import elsewhere, migrations
from .connection import NAME as NAME
from .connection import beside, connect, connect_to_read, is_busy
from .errors import StudyError
from .plan import Plan
from .schedule import ALGORITHM, Slot
from .this_boot import Boot

if TYPE_CHECKING:
    import polars as pl

FAILED = ("failed", "signalled", "timed-out", "not-started")


def now() -> str:
    """The time as the store writes it: ISO 8601, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


_PATIENCE_S = 120
"""How long a writer waits for a lock on the database; SQLite itself waits 10 s at a time."""


@dataclass(frozen=True)
class StepOutcome:
    """Result of a set-up or tear-down command."""

    phase: Literal["setup", "teardown"]
    command: str
    exit_code: int | None
    duration_s: float
    output: str
    message: str | None = None


@dataclass(frozen=True)
class RunResult:
    """The result of one place of the schedule, committed as one transaction."""

    status: str
    started_at: str | None
    duration_s: float | None
    """Seconds with set-up, flushing and tear-down; None where the run was measured elsewhere."""
    record: Record | None = None
    message: str | None = None
    steps: tuple[StepOutcome, ...] = ()
    boot: Boot | None = None
    """The boot in which the run began; None where the run was not started, or was measured elsewhere."""


ImportedRun = tuple[RunResult, str, Iterable[tuple[str, float, str]]]
"""A run measured elsewhere: its result, its ``pagelab.imported/1`` text, and measurements (name, value, unit)."""


class Store:
    """One study's database, and a context manager that closes it. Make it with :meth:`create` or :meth:`open`."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._db = connection
        self._gave_up = False
        self.path = path

    # -- opening --------------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        directory: Path,
        plan: Plan,
        slots: list[Slot],
        spec_text: str,
        extra: dict[str, Any],
        imported: Sequence[ImportedRun] = (),
    ) -> Store:
        """A new store with the plan, the conditions and the schedule. Raises :class:`StudyError` if a store exists.

        ``imported``: a run for each of ``slots`` that was measured elsewhere.

        The file is built under another name and then renamed, so that a directory never holds half a study.
        """
        path = directory / NAME
        if path.exists():
            raise StudyError(f"{path} exists; continue it with: pagelab study resume {quoted(directory)}")
        building = directory / (NAME + ".new")
        for suffix in ("", "-wal", "-shm", "-journal"):  # of a process that was killed
            beside(building, suffix).unlink(missing_ok=True)
        store = cls(connect(building), building)
        migrations.migrate(store._db)
        with store._transaction():
            store._put_meta("plan", plan.model_dump_json(by_alias=True))
            store._put_meta("spec", spec_text)
            store._put_meta("digest", plan.digest)
            store._put_meta("schedule_algorithm", ALGORITHM)
            store._put_meta("created_at", now())
            for key, value in extra.items():
                store._put_meta(key, value if isinstance(value, str) else json.dumps(value))
            store._put_conditions(plan)
            store._put_slots(slots)
            for slot, (result, text, measurements) in zip(slots if imported else (), imported, strict=True):
                store.put_measurements(store._insert_run(slot, result, text), measurements)
        store.close()
        building.rename(path)
        sync_directory(directory)
        return cls.open(directory)

    @classmethod
    def open(cls, directory: Path | str, *, write: bool = True) -> Store:
        """The store in ``directory``, migrated to this version.

        With ``write=False`` the file is not changed: an older store is migrated in a copy in memory.
        Raises :class:`StudyError` where there is no store, or it is damaged, not pagelab's, or of a newer version.
        """
        directory = Path(directory)
        path = directory / NAME if directory.is_dir() or not directory.exists() else directory
        if not path.exists():
            raise StudyError(f"no study in {directory} (no {path.name}); {elsewhere.instead(directory)}")
        if path.suffix == ".toml":
            raise StudyError(f"{path} is no study: {elsewhere.instead(path)}")
        if not path.is_file():
            raise StudyError(f"{path} is no study; name the directory of one, or start it with: pagelab study run SPEC")
        try:
            connection = connect(path) if write else connect_to_read(path)
            if write:
                migrations.refuse_empty(connection)
                migrations.migrate(connection)
        except sqlite3.DatabaseError as error:
            if is_busy(error):
                raise MachineError(
                    f"cannot open {path}: another process holds a lock on it; to see which, run: lslocks"
                ) from None
            raise StudyError(
                f"cannot read {path}: {error}; it is damaged, or no study: name the directory of one"
            ) from None
        except StudyError as error:
            raise StudyError(f"cannot open {path}: {error}") from None
        return cls(connection, path)

    def close(self) -> None:
        """Closes the store; the last one to close it also merges the write-ahead log into the file."""
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- writing --------------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._begin()
        try:
            yield
        except BaseException:
            # On a full disk SQLite has rolled back itself and refuses to do it again: keep the original error.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _begin(self) -> None:
        """Waits for the database, with a message: any user who may read it can hold its lock.

        Raises MachineError if that takes too long; later calls do not wait again.
        """
        started = time.monotonic()
        is_told = False
        while True:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
            except BaseException:
                self._gave_up = True  # who is interrupted here does not wait again to end
                raise
            if self._gave_up or time.monotonic() > started + _PATIENCE_S:
                self._gave_up = True
                raise MachineError(
                    f"cannot write {self.path}: another process holds a lock on it; finished runs are kept; to see "
                    f"which process, run: lslocks; then go on with: pagelab study resume {quoted(self.path.parent)}"
                )
            if not is_told:
                terminal.echo(
                    f"waits for another process, which holds a lock on {self.path}; whose: run: lslocks", err=True
                )
                is_told = True

    def _put_meta(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def put_meta(self, key: str, value: str) -> None:
        """Sets one entry of ``meta``."""
        with self._transaction():
            self._put_meta(key, value)

    def _put_conditions(self, plan: Plan) -> None:
        self._db.executemany(
            "INSERT INTO condition VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (c.index, c.name, c.workload, c.policy, int(c.baseline), json.dumps(c.parameters), c.left_out)
                for c in plan.conditions
            ],
        )

    def _put_slots(self, slots: list[Slot]) -> None:
        self._db.executemany(
            "INSERT INTO schedule VALUES (?, ?, ?, ?)",
            [(slot.position, slot.block, slot.condition, slot.execution) for slot in slots],
        )

    def extend(self, plan: Plan, slots: list[Slot]) -> None:
        """Stores a longer plan of the same conditions, with the places that follow the present ones.

        It removes the warnings about the level, since the longer plan may reach it.
        """
        with self._transaction():
            self._put_meta("plan", plan.model_dump_json(by_alias=True))
            self._put_slots(slots)
            self._db.execute(
                "DELETE FROM event WHERE kind = 'warning' AND json_extract(data, '$.kind') = ?",
                (str(WarningKind.LEVEL_NOT_REACHABLE),),
            )

    def begin_session(self, pid: int, host: str, boot_id: str | None, machine: dict[str, Any]) -> int:
        """Opens a session and marks what a killed session left behind; returns the new session's number."""
        with self._transaction():
            self._give_up_attempts("its session was killed")
            self._db.execute("UPDATE session SET reason = 'killed' WHERE ended_at IS NULL AND reason IS NULL")
            cursor = self._db.execute(
                "INSERT INTO session (started_at, pid, host, boot_id, machine) VALUES (?, ?, ?, ?, ?)",
                (now(), pid, host, boot_id, json.dumps(machine)),
            )
            return int(cursor.lastrowid or 0)

    def _warn_interrupted(self, position: int, condition: str, started_at: str, why: str) -> None:
        warning = RunWarning(
            kind=WarningKind.RUN_INTERRUPTED,
            severity="info",
            message=f"run {position} ({condition}), started {started_at}, was interrupted ({why}) and repeated",
            data={"position": position, "condition": condition, "started_at": started_at},
        )
        self._put_event("warning", warning.model_dump(mode="json"))

    def killed_in(self) -> tuple[bool, list[int]]:
        """Whether a session was killed and no tear-down followed, and the conditions that it was running."""
        killed = self.rows("SELECT 1 FROM session WHERE ended_at IS NULL AND reason IS NULL")
        running = self.rows("SELECT condition FROM attempt JOIN schedule USING (position) WHERE outcome IS NULL")
        return bool(killed), [row[0] for row in running]

    def end_session(self, session: int, reason: str) -> None:
        with self._transaction():
            self._db.execute("UPDATE session SET ended_at = ?, reason = ? WHERE id = ?", (now(), reason, session))

    def begin_attempt(self, position: int, session: int) -> int:
        """Stores that the run at ``position`` starts now, so that an interruption is known later; returns an id."""
        with self._transaction():
            cursor = self._db.execute(
                "INSERT INTO attempt (position, session, started_at) VALUES (?, ?, ?)", (position, session, now())
            )
            return int(cursor.lastrowid or 0)

    def interrupt_attempts(self, why: str, attempt: int | None = None) -> None:
        """Marks the runs in progress (all, or only ``attempt``) as abandoned: they have no result and are repeated."""
        with self._transaction():
            self._give_up_attempts(why, attempt)

    def _give_up_attempts(self, why: str, attempt: int | None = None) -> None:
        which, parameters = ("", ()) if attempt is None else (" AND attempt.id = ?", (attempt,))
        query = (
            "SELECT attempt.position, attempt.started_at, name FROM attempt JOIN schedule USING (position)"
            f" JOIN condition ON condition.id = schedule.condition WHERE outcome IS NULL{which}"
        )
        for position, started_at, condition in self.rows(query, parameters):
            self._warn_interrupted(position, condition, started_at, why)
        self._db.execute(f"UPDATE attempt SET outcome = 'interrupted' WHERE outcome IS NULL{which}", parameters)

    def commit_run(self, slot: Slot, result: RunResult, session: int | None = None, attempt: int | None = None) -> int:
        """Stores one finished run with its measurements and steps, in one transaction; returns its id."""
        return self.commit_runs([(slot, result, attempt)], session)[0]

    def commit_runs(self, runs: Sequence[tuple[Slot, RunResult, int | None]], session: int | None = None) -> list[int]:
        """Stores finished runs, each with its attempt; all of them or none. Returns their ids."""
        with self._transaction():
            return [self._put_run(slot, result, session, attempt) for slot, result, attempt in runs]

    def _put_run(self, slot: Slot, result: RunResult, session: int | None, attempt: int | None) -> int:
        record = result.record
        run = self._insert_run(slot, result, record.model_dump_json(by_alias=True) if record else None)
        if record:
            self.put_measurements(run, [(m.name, m.value, m.unit) for m in record.measurements])
        self.put_steps(result.steps, session, run)
        if attempt is not None:
            self._db.execute("UPDATE attempt SET outcome = 'finished' WHERE id = ?", (attempt,))
        return run

    def take_back(self, positions: Iterable[int]) -> None:
        """Removes the runs at these places, to be repeated: warm-ups whose boot ended before their execution."""
        with self._transaction():
            for position in positions:
                own = "(SELECT id FROM run WHERE position = ?)"
                for table in ("measurement", "step"):
                    self._db.execute(f"DELETE FROM {table} WHERE run IN {own}", (position,))
                self._db.execute("DELETE FROM run WHERE position = ?", (position,))
                again = "UPDATE attempt SET outcome = 'repeated' WHERE position = ? AND outcome = 'finished'"
                self._db.execute(again, (position,))

    def _insert_run(self, slot: Slot, result: RunResult, text: str | None) -> int:
        cursor = self._db.execute(
            "INSERT INTO run (position, condition, execution, status, started_at, record_json, message, duration_s,"
            " boot_id, uptime_s) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                slot.position,
                slot.condition,
                slot.execution,
                result.status,
                result.started_at,
                text,
                result.message,
                result.duration_s,
                result.boot.id if result.boot else None,
                result.boot.uptime_s if result.boot else None,
            ),
        )
        return int(cursor.lastrowid or 0)

    def put_measurements(self, run: int, measurements: Iterable[tuple[str, float, str]]) -> None:
        """Stores measurements of a run; the caller has begun a transaction."""
        counts: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        rows = ((run, name, next(counts[name]), value, unit) for name, value, unit in measurements)
        self._db.executemany("INSERT INTO measurement VALUES (?, ?, ?, ?, ?)", rows)

    def put_steps(self, steps: tuple[StepOutcome, ...], session: int | None, run: int | None) -> None:
        """Stores outcomes of steps: of a run inside :meth:`commit_run`, or of a whole session."""
        self._db.executemany(
            "INSERT INTO step (session, run, phase, command, exit_code, duration_s, output, message)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(session, run, s.phase, s.command, s.exit_code, s.duration_s, s.output, s.message) for s in steps],
        )

    def commit_steps(self, steps: tuple[StepOutcome, ...], session: int) -> None:
        """Stores outcomes of the set-up and tear-down of a whole session, in one transaction."""
        with self._transaction():
            self.put_steps(steps, session, None)

    def put_platform(self, name: str, host: str, processor: str, kernel: str, machine: dict[str, Any]) -> None:
        """Stores a platform of a study on a cluster; a known platform keeps its first description."""
        with self._transaction():
            self._db.execute(
                "INSERT OR IGNORE INTO platform VALUES (?, ?, ?, ?, ?)",
                (name, host, processor, kernel, json.dumps(machine)),
            )

    def bind_block(self, block: int, platform: str) -> None:
        """Binds a block to a platform, which makes all runs of the block."""
        with self._transaction():
            self._db.execute("INSERT INTO block_platform VALUES (?, ?)", (block, platform))

    def block_platforms(self) -> dict[int, str]:
        """Block → name of its platform; empty for a study on one machine."""
        return dict(self._db.execute("SELECT block, platform FROM block_platform").fetchall())

    def put_event(self, kind: Literal["warning", "look", "sized", "limits"], data: dict[str, Any]) -> None:
        """Stores an event of the whole study."""
        with self._transaction():
            self._put_event(kind, data)

    def _put_event(self, kind: str, data: dict[str, Any]) -> None:
        self._db.execute("INSERT INTO event (at, kind, data) VALUES (?, ?, ?)", (now(), kind, json.dumps(data)))

    # -- reading --------------------------------------------------------------------------------------------------

    def meta(self) -> dict[str, str]:
        """All entries of ``meta``: store_version, plan, spec, digest, created_at, origin …"""
        return dict(self._db.execute("SELECT key, value FROM meta").fetchall())

    def plan(self) -> Plan:
        """The study's plan, with later extensions."""
        return Plan.model_validate_json(self.meta()["plan"])

    def slots(self) -> list[Slot]:
        """The recorded schedule, in order."""
        rows = self._db.execute("SELECT position, block, condition, execution FROM schedule ORDER BY position")
        return [Slot(*row) for row in rows]

    def finished(self) -> set[int]:
        """The positions that have a run."""
        return {row[0] for row in self._db.execute("SELECT position FROM run")}

    def rows(self, query: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Rows of a SELECT, for code in this package that needs no frame."""
        return self._db.execute(query, parameters).fetchall()

    def records(self) -> Iterator[Record]:
        """The records of all runs that have one, in order of position; imported runs have none."""
        for _, text in self.record_texts():
            if json.loads(text).get("schema") == "pagelab.record/1":
                yield Record.model_validate_json(text)

    def record_texts(self) -> Iterator[tuple[int, str]]:
        """``(run_id, JSON)`` of all records as stored, including imported ones."""
        query = "SELECT id, record_json FROM run WHERE record_json IS NOT NULL ORDER BY position"
        yield from self._db.execute(query)

    def record_bytes(self) -> int:
        """Total bytes of the texts of :meth:`record_texts`."""
        return int(self._db.execute("SELECT coalesce(sum(length(record_json)), 0) FROM run").fetchone()[0])

    def short_record_texts(self) -> Iterator[tuple[int, str]]:
        """:meth:`record_texts` without measurements: there may be millions, and they have a table of their own."""
        query = (
            "SELECT id, CASE WHEN json_type(record_json, '$.measurements') = 'array'"
            " THEN json_replace(record_json, '$.measurements', json('[]')) ELSE record_json END"
            " FROM run WHERE record_json IS NOT NULL ORDER BY position"
        )
        yield from self._db.execute(query)

    def batches(
        self, query: str, parameters: tuple[Any, ...] = (), size: int = 100_000
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Rows of a SELECT in lists of up to ``size`` rows."""
        cursor = self._db.execute(query, parameters)
        while rows := cursor.fetchmany(size):
            yield rows

    def events(self) -> list[dict[str, Any]]:
        """Warnings, looks, sizes and judged limits of the whole study: ``{"at", "kind", "data"}``."""
        rows = self._db.execute("SELECT at, kind, data FROM event ORDER BY id")
        return [{"at": at, "kind": kind, "data": json.loads(data)} for at, kind, data in rows]

    def study_warnings(self) -> list[RunWarning]:
        """Warnings about the study itself (conditions left out, a level that cannot be reached …)."""
        return [RunWarning.model_validate(event["data"]) for event in self.events() if event["kind"] == "warning"]

    def runs(self) -> pl.DataFrame:
        """One row per execution; see :func:`pagelab.study.dataframes.runs`."""
        from .dataframes import runs

        return runs(self)

    def measurements(self) -> pl.DataFrame:
        """``run_id, name, idx, value, unit, dropped``; see :func:`pagelab.study.dataframes.measurements`."""
        from .dataframes import measurements

        return measurements(self)

    def conditions(self) -> pl.DataFrame:
        """One row per condition; see :func:`pagelab.study.dataframes.conditions`."""
        from .dataframes import conditions

        return conditions(self)

    def warnings(self) -> pl.DataFrame:
        """One row per warning, ``run_id`` null for the study's; see :func:`pagelab.study.dataframes.warnings`."""
        from .dataframes import warnings

        return warnings(self)

    def steps(self) -> pl.DataFrame:
        """Outcomes of set-up and tear-down commands; see :func:`pagelab.study.dataframes.steps`."""
        from .dataframes import steps

        return steps(self)

    def metric(self, name: str) -> pl.DataFrame:
        """``run_id, value`` of one metric; see :func:`pagelab.study.dataframes.metric`."""
        from .dataframes import metric

        return metric(self, name)
