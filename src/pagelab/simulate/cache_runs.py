"""Physically indexed caches under placements of pages: many executions of one trace."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from ..errors import BadInputError
from . import hardware
from .placements import Design, History, What, design
from .reach import pools_of, require_met
from .references import Report, Trace, feed, require_references

if TYPE_CHECKING:
    from .._native import PlacedSimulation

KINDS = ("load", "store", "fetch", "walk")
Hierarchy = str | Path | hardware.Processor | Mapping[str, Any]


@dataclass(frozen=True)
class CacheRuns:
    """Executions of one trace under each placement.

    ``levels``: one row an execution and level: ``placement, seed, level, accesses, misses, miss_ratio``, the same by
    kind
    (``load_accesses`` …), ``writebacks_in, writebacks_out, evictions, invalidations``.
    ``executions``: one row an execution: ``placement, seed, cycles, memory_reads, memory_writes, pages, fallbacks,
    replayed,
    compacted, beyond`` and ``misses.LEVEL``. ``cycles`` is Σ accesses × cycles of where they are served, as if each
    waited
    for the one before.
    """

    hierarchy: str
    levels: pl.DataFrame
    executions: pl.DataFrame


def cache(
    trace: Trace,
    hierarchy: Hierarchy,
    placements: What | Sequence[What] = "kernel",
    *,
    seeds: int | Iterable[int] = 1,
    history: History | None = None,
    threads: int | None = None,
    report: Report | None = None,
) -> CacheRuns:
    """Simulates ``trace`` through ``hierarchy`` under each of ``placements``, once for each of ``seeds`` (a number n:
    0 … n-1).

    A seed draws the machine's history before the program starts, and what strategies draw; equal seeds of two
    placements have
    equal histories. ``threads``: how many share the executions (None: the processors at hand).

    Raises :class:`BadInputError` for descriptions that cannot be built, traces that cannot be read, and a placement
    whose rules for page sizes meet no page of the trace.
    """
    processor = hardware.load(hierarchy)
    caches = processor.needed("caches")
    planned = design(placements, seeds, history).of_trace(pools_of(trace))
    planned.require_memory()
    require_met(trace, planned)
    simulation = _start(caches, planned, workers(threads))
    feed([simulation], trace, report)
    levels: list[dict[str, Any]] = []
    executions: list[dict[str, Any]] = []
    names = [level["name"] for level in caches["levels"]]
    for (one, seed), outcome in zip(planned.executions(), json.loads(simulation.finish()), strict=True):
        base = {"placement": one.name, "seed": seed}
        levels += [base | level_row(name, counts) for name, counts in zip(names, outcome["levels"], strict=True)]
        executions.append(base | _execution_row(names, outcome))
    require_references((row["accesses"] for row in levels), "at all")
    return CacheRuns(processor.name, pl.DataFrame(levels), pl.DataFrame(executions))


def workers(threads: int | None) -> int:
    """The requested number, or the number of available processors."""
    return threads if threads is not None else len(os.sched_getaffinity(0))


def _start(caches: Mapping[str, Any], planned: Design, threads: int) -> PlacedSimulation:
    from .._native import PlacedSimulation

    native = planned.native(hardware.colours(caches))
    try:
        return PlacedSimulation.caches(json.dumps(caches), native, threads)
    except ValueError as error:
        raise BadInputError(f"{caches['name']}: {error}") from error


def level_row(name: str, counts: Mapping[str, Any]) -> dict[str, Any]:
    """One level of one execution, from the native part's counts."""
    accesses, misses = sum(counts["accesses"]), sum(counts["misses"])
    row: dict[str, Any] = {"level": name, "accesses": accesses, "misses": misses}
    row["miss_ratio"] = misses / accesses if accesses else None
    for kind, accessed, missed in zip(KINDS, counts["accesses"], counts["misses"], strict=True):
        row |= {f"{kind}_accesses": accessed, f"{kind}_misses": missed}
    return row | {key: counts[key] for key in ("writebacks_in", "writebacks_out", "evictions", "invalidations")}


def _execution_row(names: Sequence[str], outcome: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "cycles": outcome["cycles"],
        "memory_reads": sum(outcome["memory_reads"]),
        "memory_writes": outcome["memory_writes"],
        **outcome["placed"],
    }
    misses = (sum(level["misses"]) for level in outcome["levels"])
    return row | {f"misses.{name}": missed for name, missed in zip(names, misses, strict=True)}
