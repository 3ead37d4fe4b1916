"""Simulated executions as a study's store, so that what reads real runs reads them too; and as tables."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadInputError

if TYPE_CHECKING:
    import polars as pl

    from .caching import CacheRuns

NS_PER_CYCLE = 1.0
"""A cycle counts as a nanosecond: a study's time is a simulated machine's at 1 GHz."""


def check_directory(directory: Path) -> None:
    """Before anything is simulated. Raises :class:`BadInputError` where a study is there already."""
    if (directory / "study.db").exists():
        raise BadInputError(f"--study {directory}: there is a study already; name another directory")
    if not directory.absolute().parent.is_dir():
        raise BadInputError(f"--study {directory}: there is no directory {directory.absolute().parent}")


def as_study(runs: CacheRuns, directory: Path, trace: Path) -> None:
    """A store with one condition a placement and one run an execution, compared with the first placement.

    The time of a run is its cycles of memory, a nanosecond each; misses and the rest are columns of the imported run.
    Raises :class:`~pagelab.study.errors.StudyError`.
    """
    from ..study.imported import ImportedRun, Sample, import_into

    digest = hashlib.sha256(runs.executions.write_json().encode()).hexdigest()
    samples = []
    for row in runs.executions.sort("seed", maintain_order=True).iter_rows(named=True):
        run = ImportedRun(
            source=f"simulated: {trace} through {runs.hierarchy}",
            source_sha256=digest,
            place=f"seed {row['seed']}",
            wall_s=row["cycles"] * NS_PER_CYCLE * 1e-9,
            columns={name: str(value) for name, value in row.items()},
        )
        samples.append(Sample(trace.stem, row["placement"], [], run))
    question = (
        f"How much does the memory time of {trace.stem} differ between executions on {runs.hierarchy}? "
        "(simulated, 1 ns a cycle)"
    )
    names = runs.executions["placement"].unique(maintain_order=True).to_list()
    import_into(directory, samples, origin=trace, name=f"{trace.stem} simulated", question=question, baseline=names[0])


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """By the name's ending: ``.parquet``, ``.csv`` or ``.json``. Raises :class:`BadInputError`."""
    try:
        if path.suffix == ".parquet":
            frame.write_parquet(path)
        elif path.suffix == ".csv":
            frame.write_csv(path)
        elif path.suffix == ".json":
            path.write_text(json.dumps(frame.to_dicts()))
        else:
            raise BadInputError(f"--output {path}: the name ends in .parquet, .csv or .json")
    except OSError as error:
        raise BadInputError(f"--output {path}: {error.strerror} (errno {error.errno})") from error
