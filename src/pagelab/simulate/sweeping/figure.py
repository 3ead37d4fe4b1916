"""A sweep's executions in one figure."""

from __future__ import annotations

from typing import Any

import polars as pl

from ...errors import BadInputError
from ...report.charts.simulated import executions_by_row


def cycles_figure(frame: pl.DataFrame) -> dict[str, Any]:
    """The Vega-Lite specification: each execution's cycles of memory, over the median of the first placement.

    One row a placement, grouped by trace and hardware; configurations that differ in anything else need a frame each.
    Raises :class:`BadInputError` where there are no executions of caches.
    """
    executions = frame.filter(pl.col("level").is_null(), simulator="cache").sort("trace", "hardware", "seed")
    if executions.is_empty():
        raise BadInputError("the sweep has no executions of caches to show")
    first = executions["placement"][0]
    base = executions.filter(placement=first).group_by("trace", "hardware").agg(base=pl.col("cycles").median())
    joined = executions.join(base, on=["trace", "hardware"], how="left", maintain_order="left")
    relative = joined.with_columns(value=pl.col("cycles") / pl.col("base"))
    rows: dict[tuple[str, str], list[float]] = {}
    for part in relative.partition_by("trace", "hardware", "placement", maintain_order=True):
        group = f"{part['trace'][0]}, {part['hardware'][0]}"
        rows[group, part["placement"][0]] = part["value"].to_list()
    return executions_by_row(rows, "cycles of memory of each execution", f"relative to the median of {first}")
