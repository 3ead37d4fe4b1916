"""The columns of a sweep's dataset: the same for every simulator, so that all parts read as one frame."""

from __future__ import annotations

import polars as pl

from ..cache_runs import KINDS
from ..tlb_runs import LEAVES

_WHAT = {
    "task": pl.String,
    "trace": pl.String,
    "trace_sha256": pl.String,
    "simulator": pl.String,
    "configuration": pl.String,
    "seed": pl.Int64,
}
_PAGING = {
    "policy": pl.String,
    "coloring": pl.String,
    "page_bytes": pl.Int64,
    "colours": pl.Int64,
    "memory_pages": pl.Int64,
    "references": pl.UInt64,
    "faults": pl.UInt64,
    "faults_per_million": pl.Float64,
    "standard_error": pl.Float64,
    "rate": pl.Float64,
}
_MACHINE = {
    "hardware": pl.String,
    "placement": pl.String,
    "data_caches": pl.Boolean,
    "machine_bytes": pl.Int64,
    "used": pl.Float64,
    "cached": pl.Float64,
    "turnover": pl.Float64,
}
_LEVEL = {
    "level": pl.String,
    "accesses": pl.Int64,
    "misses": pl.Int64,
    "miss_ratio": pl.Float64,
    **{f"{kind}_{what}": pl.Int64 for kind in KINDS for what in ("accesses", "misses")},
    **dict.fromkeys(("writebacks_in", "writebacks_out", "evictions", "invalidations"), pl.Int64),
}
_PLACED = dict.fromkeys(("pages", "fallbacks", "replayed", "compacted", "beyond"), pl.Int64)
_CACHE = dict.fromkeys(("cycles", "memory_reads", "memory_writes"), pl.Int64)
_TLB = {
    **dict.fromkeys(("translations", "h", "m", "c"), pl.Int64),
    **{f"{what}_{leaf}": pl.Int64 for leaf in LEAVES for what in ("h", "m", "c")},
    **dict.fromkeys(
        ("table_reads", "host_reads", "shortened_walks", "coalesced", "active_cycles", "queue_cycles"), pl.Int64
    ),
}
_HOW = {"host": pl.String, "seconds": pl.Float64, "pagelab": pl.String}
SCHEMA = pl.Schema(_WHAT | _PAGING | _MACHINE | _LEVEL | _PLACED | _CACHE | _TLB | _HOW)
"""Of every part. Change it, and :data:`FORMAT`, together."""
FORMAT = 2
"""Part of a task's identity: parts of another format are done again."""


def conform(frame: pl.DataFrame) -> pl.DataFrame:
    """``frame`` with all columns of :data:`SCHEMA`, in its order; missing ones are null.

    Raises ValueError for a column that no dataset has: a simulator has learnt something that would be dropped.
    """
    unknown = [name for name in frame.columns if name not in SCHEMA]
    if unknown:
        raise ValueError(f"columns that no sweep has: {', '.join(unknown)}")
    have = set(frame.columns)
    return frame.select(
        (pl.col(name) if name in have else pl.lit(None)).cast(kind).alias(name) for name, kind in SCHEMA.items()
    )
