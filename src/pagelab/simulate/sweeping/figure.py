"""A sweep's executions in one figure."""

from __future__ import annotations

from typing import Any

import polars as pl

from ...charts.by_row import executions_by_row
from ...errors import BadInputError


def cycles_figure(frame: pl.DataFrame, baseline: str | None = None) -> dict[str, Any]:
    """The Vega-Lite specification: each execution's cycles of memory, over the median of the placement ``baseline``
    (None: the kernel's, or where that is not simulated the first).

    One row a placement, the baseline first, grouped by trace and hardware; configurations that differ in anything else
    need a frame each. Raises :class:`BadInputError` where there are no executions of caches under the baseline.
    """
    executions = frame.filter(pl.col("level").is_null(), simulator="cache")
    if baseline is None:
        placements = executions["placement"].unique(maintain_order=True).to_list()
        baseline = placements[0] if placements and "kernel" not in placements else "kernel"
    group = ["trace", "hardware"]
    base = executions.filter(placement=baseline).group_by(group).agg(base=pl.col("cycles").median())
    relative = executions.join(base, on=group).with_columns(
        value=pl.col("cycles") / pl.col("base"), other=pl.col("placement") != baseline
    )
    if relative.is_empty():
        raise BadInputError(f"the sweep has no executions of caches under {baseline} to show")
    rows: dict[tuple[str, str], list[float]] = {}
    ordered = relative.sort(*group, "other", "placement", "seed")
    for part in ordered.partition_by(*group, "placement", maintain_order=True):
        rows[f"{part['trace'][0]}, {part['hardware'][0]}", part["placement"][0]] = part["value"].to_list()
    return executions_by_row(rows, "cycles of memory of each execution", f"relative to the median of {baseline}")
