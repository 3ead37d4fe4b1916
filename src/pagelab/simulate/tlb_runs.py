"""TLBs and page walks with any mixture of page sizes: H, M and C as MOSAIC's Table 2 defines them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from ..errors import BadInputError
from . import hardware
from .cache_runs import level_row, workers
from .placements import Design, History, Region, What, design
from .reach import WINDOW_BITS, pools_of, require_data_runs, require_met, require_met_by
from .references import Report, Trace, feed, require_references

if TYPE_CHECKING:
    from .._native import PlacedSimulation

LEAVES = ("4K", "2M", "1G")
_WINDOWS = {
    "placement": pl.String,
    "seed": pl.Int64,
    "asid": pl.Int64,
    "start": pl.UInt64,
    "h": pl.Int64,
    "m": pl.Int64,
    "c": pl.Int64,
}


@dataclass(frozen=True)
class TlbRuns:
    """Executions of one trace under each placement; a placement includes the page sizes.

    ``executions``: one row an execution: ``placement, seed, translations, h, m, c`` (MOSAIC's H, M, C), the same by
    the last
    level of the table (``h_4K`` …), ``table_reads, host_reads, shortened_walks, coalesced, active_cycles,
    queue_cycles``.
    ``windows``: ``placement, seed, asid, start, h, m, c`` for each window of 2 MiB with a miss in the first level.
    ``levels``: the data caches as :class:`~pagelab.simulate.cache_runs.CacheRuns` has them; empty where none were
    simulated.
    """

    hardware: str
    executions: pl.DataFrame
    windows: pl.DataFrame
    levels: pl.DataFrame

    def regions(self, regions: Sequence[Region]) -> pl.DataFrame:
        """H, M and C by region: ``placement, seed, region, kind, start, end, h, m, c``. A window counts for the region
        that its first address lies in, or else for the first one that begins in it; what lies in none is
        ``elsewhere``."""
        spans = sorted(regions, key=lambda region: region.start)
        starts = [region.start for region in spans]
        at = pl.Series([_within(spans, starts, start) for start in self.windows["start"]], dtype=pl.Int64)
        named = self.windows.with_columns(region=at)
        sums = named.group_by("placement", "seed", "region").agg(pl.col("h", "m", "c").sum())
        table = pl.DataFrame(
            {
                "region": [-1, *range(len(spans))],
                "kind": ["elsewhere", *(region.kind for region in spans)],
                "start": pl.Series([None, *(region.start for region in spans)], dtype=pl.UInt64),
                "end": pl.Series([None, *(region.end for region in spans)], dtype=pl.UInt64),
            },
            schema_overrides={"region": pl.Int64},
        )
        joined = sums.join(table, on="region", how="left").sort("placement", "seed", "region")
        return joined.select("placement", "seed", "region", "kind", "start", "end", "h", "m", "c")


def _within(spans: Sequence[Region], starts: Sequence[int], start: int) -> int:
    from bisect import bisect_right

    following = bisect_right(starts, start)
    if following and start < spans[following - 1].end:
        return following - 1
    return following if following < len(spans) and starts[following] < start + (1 << WINDOW_BITS) else -1


def tlb(
    trace: Trace,
    processor: str | Path | hardware.Processor | Mapping[str, Any],
    placements: What | Sequence[What] = "kernel",
    *,
    caches: bool = False,
    seeds: int | Iterable[int] = 1,
    history: History | None = None,
    threads: int | None = None,
    report: Report | None = None,
) -> TlbRuns:
    """Simulates the translation of every data reference of ``trace``, and of fetches where there are arrays for them.

    A trace file may have page runs of 4 KiB, too: the same H, M and C, of data references of one core without caches.

    ``caches``: simulate the processor's data caches too, where references and table entries compete for lines; else a
    table entry costs ``entry_cycles``. ``seeds`` as in :func:`pagelab.simulate.cache`; without caches, guests,
    coalescing and random replacement all seeds give the same.

    Raises :class:`BadInputError` for descriptions that cannot be built, traces that cannot be read, and a placement
    whose rules meet no page of the trace.
    """
    described = hardware.load(processor)
    translation = described.needed("tlb")
    data = described.needed("caches") if caches else None
    planned = design(placements, seeds, history).of_trace(pools_of(trace))
    planned.require_memory()
    require_data_runs(trace)
    require_met(trace, planned)
    simulation = started(translation, data, planned, workers(threads))
    feed([simulation], trace, report)
    executions: list[dict[str, Any]] = []
    windows: list[tuple[Any, ...]] = []
    levels: list[dict[str, Any]] = []
    names = [level["name"] for level in data["levels"]] if data else []
    for (one, seed), outcome in zip(planned.executions(), json.loads(simulation.finish()), strict=True):
        base = {"placement": one.name, "seed": seed}
        executions.append(base | _row(outcome))
        windows += [(one.name, seed, *window) for window in outcome["windows"]]
        levels += [base | level_row(name, counts) for name, counts in zip(names, outcome["levels"], strict=True)]
    require_references((row["translations"] for row in executions), "that are translated")
    if executions:
        require_met_by((start for _, _, _, start, *_ in windows), planned)
    return TlbRuns(
        described.name,
        pl.DataFrame(executions),
        pl.DataFrame(windows, schema=_WINDOWS, orient="row"),
        pl.DataFrame(levels),
    )


def started(
    translation: Mapping[str, Any], data: Mapping[str, Any] | None, planned: Design, threads: int
) -> PlacedSimulation:
    """A simulation that has no references yet; ``data``: caches, or None. Raises :class:`BadInputError`."""
    from .._native import PlacedSimulation

    native = planned.native(hardware.colours(data) if data else 1)
    try:
        hierarchy = None if data is None else json.dumps(data)
        return PlacedSimulation.tlbs(json.dumps(translation), hierarchy, native, threads)
    except ValueError as error:
        raise BadInputError(f"{translation['name']}: {error}") from error


def _row(outcome: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"translations": outcome["translations"]}
    for at, name in enumerate(("h", "m", "c")):
        row[name] = sum(leaf[at] for leaf in outcome["by_leaf"])
    for leaf, costs in zip(LEAVES, outcome["by_leaf"], strict=True):
        row |= {f"{name}_{leaf}": cost for name, cost in zip(("h", "m", "c"), costs, strict=True)}
    return row | {
        "table_reads": outcome["reads"],
        "host_reads": outcome["host_reads"],
        "shortened_walks": outcome["shortened"],
        "coalesced": outcome["coalesced"],
        "active_cycles": outcome["active_cycles"],
        "queue_cycles": outcome["queue_cycles"],
        **outcome["placed"],
    }
