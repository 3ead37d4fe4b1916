"""Writes simulated executions as a study's store, which is read like that of real runs, and as tables."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import whole_file
from ..errors import BadInputError, quoted, system_reason

if TYPE_CHECKING:
    import polars as pl

    from .cache_runs import CacheRuns

CYCLES = "simulated.cycles"
"""The measurement that a study of simulated executions compares: they have cycles of memory, and no time."""
COUNTS = ("memory_reads", "memory_writes")
"""Columns of an execution that are counts of lines, besides the misses of each level."""
SUFFIXES = (".parquet", ".csv", ".json")
"""Formats of tables."""


def check_directory(directory: Path) -> None:
    """Checks the directory before anything is simulated. Raises :class:`BadInputError` if it contains a study or cannot
    be made or written to.
    """
    if (directory / "study.db").exists():
        raise BadInputError(f"--study {directory}: there is a study already; name another directory")
    _check_place(f"--study {directory}", directory if directory.is_dir() else directory.absolute().parent)


def check_table(path: Path) -> None:
    """Checks the file of :func:`write_table` before anything is simulated. Raises :class:`BadInputError`."""
    if path.suffix not in SUFFIXES:
        raise BadInputError(f"--output {path}: the name ends in .parquet, .csv or .json")
    if path.is_dir():
        raise BadInputError(f"--output {path}: a directory has this name; name another file")
    _check_place(f"--output {path}", path.absolute().parent)


def _check_place(option: str, parent: Path) -> None:
    if not parent.is_dir():
        advice = "name another place" if parent.exists() else f"run: mkdir -p {quoted(parent)}"
        raise BadInputError(f"{option}: there is no directory {parent}; {advice}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise BadInputError(
            f"{option}: the directory {parent} cannot be written to; name another place, or run: "
            f"ls -ld {quoted(parent)}"
        )


def as_study(runs: CacheRuns, directory: Path, trace: Path) -> None:
    """A store with one condition per placement and one run per execution, compared with the first placement.

    What is compared is the measurement :data:`CYCLES`, or misses of the last level where the description gives no
    cycles; misses of each level and lines read and written are measurements as well. No execution has a time. Raises
    :class:`~pagelab.study.errors.StudyError`.
    """
    from ..study.imported import ImportedRun, Sample, import_into

    digest = hashlib.sha256(runs.executions.write_json().encode()).hexdigest()
    samples = []
    for row in runs.executions.sort("seed", maintain_order=True).iter_rows(named=True):
        run = ImportedRun(
            source=f"simulated: {trace} through {runs.hierarchy}",
            source_sha256=digest,
            place=f"seed {row['seed']}",
            wall_s=None,
            columns={name: str(value) for name, value in row.items()},
        )
        samples.append(Sample(trace.stem, row["placement"], [], run, measurements=tuple(_measurements(row))))
    names = runs.executions["placement"].unique(maintain_order=True).to_list()
    last = runs.levels["level"].unique(maintain_order=True).to_list()[-1]
    timed = any(runs.executions["cycles"].to_list())
    what = "cycles of memory" if timed else f"misses of the {last}"
    import_into(
        directory,
        samples,
        origin=trace,
        name=f"{trace.stem} simulated on {runs.hierarchy}",
        question=f"How much do the {what} of {trace.stem} differ between simulated executions, and between placements?",
        baseline=names[0],
        metric=f"measure.{CYCLES}" if timed else f"measure.simulated.misses.{last}",
    )


def _measurements(row: Mapping[str, Any]) -> Iterator[tuple[str, float, str]]:
    """Name, value and unit of the compared measurement of one execution."""
    yield CYCLES, float(row["cycles"]), "1"
    for column, value in row.items():
        if column in COUNTS or column.startswith("misses."):
            yield f"simulated.{column}", float(value), "1"


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """Writes the frame in the format of the file's suffix, one of :data:`SUFFIXES`. Raises :class:`BadInputError`."""
    path = path.resolve()  # the file that a link names is written, not the link
    try:
        if path.suffix == ".json":
            whole_file.put(path, json.dumps(frame.to_dicts()))
        else:
            whole_file.put_table(path, frame)
    except OSError as error:
        raise BadInputError(f"--output {path}: {system_reason(error)}") from error
