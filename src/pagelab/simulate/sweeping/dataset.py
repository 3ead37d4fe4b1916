"""The directory of a sweep: one Parquet file per task, written completely or not at all, and its description."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from ...errors import BadInputError, PagelabError, system_reason
from ...machine.provenance import provenance
from ...study.lock import DirectoryLock
from .operations import Failed, Task
from .plan import Plan
from .rows import SCHEMA
from .traces import Known

PLAN_SCHEMA = "pagelab.sweep/1"


class Dataset:
    """``DIR/*.parquet`` are the parts of the plan; ``DIR/_sweep`` has the plan, failures, and parts of other plans."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._own = directory / "_sweep"
        self._plan = self._own / "plan.json"
        self._failed = self._own / "failed"
        self._aside = self._own / "set-aside"

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Makes and locks the directory. Raises :class:`BadInputError` where it belongs to something else."""
        self.check()
        try:
            for part in (self._failed, self._aside):
                part.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInputError(f"--out {self.directory}: {system_reason(error)}") from error
        with DirectoryLock(self._own, self._busy):
            yield

    def check(self) -> None:
        """Raises :class:`BadInputError` if the directory belongs to something else."""
        if self.directory.exists() and not self.directory.is_dir():
            raise BadInputError(f"--out {self.directory}: a file; name a directory")
        if self.directory.is_dir() and not self._own.is_dir() and any(self.directory.iterdir()):
            raise BadInputError(
                f"--out {self.directory}: not empty, and not the directory of a sweep; name another directory"
            )

    def _busy(self, who: str) -> str:
        return f"cannot work in {self.directory}: {who} is running a sweep there; wait, or name another --out"

    def known_traces(self) -> Known:
        """Digests of traces, from the plan that the directory has so far."""
        try:
            before = json.loads(self._plan.read_text())
            return {(one["path"], one["size_bytes"], one["mtime_ns"]): one["sha256"] for one in before["traces"]}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def missing(self, plan: Plan) -> list[Task]:
        """Tasks whose part is missing or cannot be read. Changes nothing."""
        return [task for task in plan.tasks if not any(map(_whole, (self._part(task), self._aside_of(task))))]

    def begin(self, plan: Plan) -> list[Task]:
        """Makes this the directory of ``plan``: parts of the plan return from the set-aside directory, others go there.

        Returns the missing tasks.
        """
        try:
            for task in plan.tasks:
                if not _whole(self._part(task)):
                    self._part(task).unlink(missing_ok=True)
                    if _whole(self._aside_of(task)):
                        self._aside_of(task).replace(self._part(task))
            wanted = {self._part(task).name for task in plan.tasks}
            for path in self.directory.glob("*.parquet"):
                if path.name not in wanted:
                    path.replace(self._aside / path.name)
            for path in self._failed.glob("*.json"):
                path.unlink()
            self._write(self._plan, json.dumps(_document(plan), indent=1).encode())
        except OSError as error:
            raise self._error(error) from error
        return self.missing(plan)

    def add(self, task: Task, content: bytes) -> None:
        """Writes a finished part. Raises :class:`PagelabError`, for example where the disk is full."""
        try:
            self._write(self._part(task), content)
        except OSError as error:
            raise self._error(error) from error

    def fail(self, task: Task, failure: Failed) -> None:
        """Records the error of a task."""
        document = {"task": task.digest, "title": task.title, **asdict(failure)}
        try:
            self._write(self._failed / f"{task.digest}.json", json.dumps(document, indent=1).encode())
        except OSError as error:
            raise self._error(error) from error

    def frame(self, plan: Plan) -> pl.DataFrame:
        """The rows of all finished parts, in the order of the plan."""
        parts = [path for task in plan.tasks if (path := self._part(task)).exists()]
        return pl.read_parquet(parts) if parts else pl.DataFrame(schema=SCHEMA)

    def _part(self, task: Task) -> Path:
        return self.directory / f"{task.digest}.parquet"

    def _aside_of(self, task: Task) -> Path:
        return self._aside / f"{task.digest}.parquet"

    def _write(self, path: Path, content: bytes) -> None:
        """Writes a file under a temporary name, flushes and renames it: a crash leaves the old file or the new one."""
        beside = self._own / f"{path.name}.part"
        try:
            with beside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _error(self, error: OSError) -> PagelabError:
        return PagelabError(f"cannot write to {self.directory}: {system_reason(error)}; what is finished is kept")


def _whole(path: Path) -> bool:
    """Whether a part exists, is complete and has this version's columns, which a Parquet file has at its end."""
    try:
        return pl.read_parquet_schema(path) == dict(SCHEMA)
    except (OSError, pl.exceptions.PolarsError):
        return False


def _document(plan: Plan) -> dict[str, Any]:
    def of(tasks: Sequence[Task]) -> list[dict[str, Any]]:
        return [{"digest": task.digest, "title": task.title, "seeds": task.seeds} for task in tasks]

    return {
        "schema": PLAN_SCHEMA,
        "name": plan.name,
        "text": plan.text,
        "provenance": provenance(),
        "traces": [asdict(trace) for trace in plan.traces],
        "tasks": of(plan.tasks),
    }
