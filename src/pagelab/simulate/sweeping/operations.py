"""The task of a worker, its operation and its outcome. Errors are values: an exception would lose its traceback between
processes.
"""

from __future__ import annotations

import io
import platform
import time
import traceback
from dataclasses import dataclass

import polars as pl

from ...errors import PagelabError
from ...machine.provenance import pagelab_version
from .configurations import Configuration
from .rows import conform
from .traces import TraceFile, TraceMissingError


@dataclass(frozen=True)
class Task:
    """One trace in one configuration with some seeds: the complete input of a worker."""

    digest: str
    """Decides the name of the part: equal for tasks with the same rows."""
    trace: TraceFile
    configuration: Configuration
    seeds: tuple[int | None, ...]
    pagelab: str | None
    """The version that planned it, which must be the one that does it."""

    @property
    def title(self) -> str:
        first, last = self.seeds[0], self.seeds[-1]
        seeds = "" if first is None else f", seed {first}" if first == last else f", seeds {first} … {last}"
        return f"{self.trace.name}, {self.configuration.simulator} {self.configuration.name}{seeds}"


class SweepInterruptedError(PagelabError):
    """The sweep was interrupted; all finished tasks are in the dataset."""

    exit_code = 130


@dataclass(frozen=True)
class Done:
    """A finished task: the bytes of its Parquet file."""

    content: bytes
    rows: int


@dataclass(frozen=True)
class Failed:
    """The task cannot be done; another try would fail, too. ``details``: the traceback of errors of pagelab itself."""

    message: str
    host: str
    details: str | None = None


@dataclass(frozen=True)
class Unfit:
    """This worker cannot do the task: it has another pagelab, another trace, or no trace."""

    message: str
    host: str


Outcome = Done | Failed | Unfit


def perform(task: Task) -> Outcome:
    """Does the task in one thread; writes nothing."""
    host, start = platform.node(), time.perf_counter()
    if (mine := pagelab_version()) != task.pagelab:
        return Unfit(f"it has pagelab {mine}, and the sweep was planned with {task.pagelab}", host)
    try:
        task.trace.verify()
        found = task.configuration.rows(task.trace.path, task.seeds)
        return _part(task, found, host, time.perf_counter() - start)
    except TraceMissingError as error:
        return Unfit(str(error), host)
    except PagelabError as error:
        return Failed(str(error), host)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the native part is no Exception
        return Failed(f"{type(error).__name__}: {error}", host, traceback.format_exc())


def _part(task: Task, found: pl.DataFrame, host: str, seconds: float) -> Done:
    labels = {
        "task": task.digest,
        "trace": task.trace.name,
        "trace_sha256": task.trace.sha256,
        "simulator": task.configuration.simulator,
        "configuration": task.configuration.name,
        "host": host,
        "pagelab": task.pagelab,
    }
    rows = conform(found.with_columns(*(pl.lit(text).alias(name) for name, text in labels.items()), seconds=seconds))
    content = io.BytesIO()
    rows.write_parquet(content)
    return Done(content.getvalue(), rows.height)
