"""Time that programs were ready to run and had no processor: where there is much of it, times compare that as well."""

from __future__ import annotations

import polars as pl

from pagelab.analysis import wording
from pagelab.analysis.data import StudyData
from pagelab.analysis.metrics import ANALYSED

MUCH = 0.05
"""Of the wall time, under any policy."""


def waiting_of(data: StudyData) -> str | None:
    """A caveat; None where little was waited, or it is not known."""
    if "waiting_s" not in data.runs.columns:
        return None
    done = data.runs.filter(~pl.col("warmup") & pl.col("status").is_in(ANALYSED) & (pl.col("wall_s") > 0))
    by_policy = (
        done.filter(pl.col("waiting_s").is_not_null())
        .group_by("policy", maintain_order=True)
        .agg(pl.col("waiting_s").sum() / pl.col("wall_s").sum())
    )
    ordered = sorted(by_policy.iter_rows(), key=lambda one: -one[1])
    if not ordered or ordered[0][1] < MUCH:
        return None
    told = [f"{wording.percent(share, signed=False)} under {policy}" for policy, share in ordered[:4]]
    return (
        "Of their wall time programs were ready to run and had no processor (others ran beside them, or their own "
        f"threads) for {wording.listing(told)}: differences in time are differences in that waiting as well."
    )
