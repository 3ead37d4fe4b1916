"""The executions of a condition as the statistics of non-determinism need them: every measurement, in order."""

from __future__ import annotations

import polars as pl

from pagelab.analysis.data import StudyData
from pagelab.analysis.metrics import ANALYSED
from pagelab.analysis.model import Metric
from pagelab.stats.nondeterminism import Executions


def executions_of(data: StudyData, condition: str, column: Metric, what: str) -> tuple[Executions, list[str]]:
    """The analysed executions of a condition in schedule order, with all measurements, and the omitted ones.

    A column of the runs has one value an execution; ``measure.<name>`` has as many as the program reported. Raises
    ``StatsRefusedError`` where nothing is left, or where a value is not positive.
    """
    runs = data.runs.filter((pl.col("condition") == condition) & ~pl.col("warmup"))
    good = runs.filter(pl.col("status").is_in(ANALYSED))
    notes = []
    if good.height < runs.height:
        failed = runs.height - good.height
        notes.append(f"{failed} of {runs.height} executions did not end well")
    if column.name.startswith("measure."):
        name = column.name.removeprefix("measure.")
        rows = data.measurements.filter((pl.col("name") == name) & ~pl.col("dropped"))
        rows = good.select("run_id").with_row_index("order").join(rows, on="run_id", how="inner").sort("order", "idx")
    else:
        rows = good.select("run_id", pl.col(column.name).cast(pl.Float64).alias("value")).drop_nulls()
    usable = rows.filter(pl.col("value").is_finite())
    if usable.height < rows.height:
        notes.append(f"{rows.height - usable.height} of {rows.height} values are not finite numbers")
    without = good.height - usable["run_id"].n_unique()
    if without:
        notes.append(f"{without} executions have no value")
    return Executions.labelled(usable["run_id"].to_numpy(), usable["value"].to_numpy(), what=what), notes
