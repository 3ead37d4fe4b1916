"""Plans the tasks of a sweep from its file."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import BadInputError
from ...machine.provenance import pagelab_version
from ...study.errors import Problem, SpecError
from ...study.toml_text import LineIndex
from .. import hardware
from ..page_faults import memory_pages
from ..placements import History, Placement, placement, placement_of_pages, regions_of_map
from . import rows, traces
from .configurations import Cache, Configuration, Paging, Tlb
from .operations import Task
from .spec import RawCache, RawPaging, RawSweep, RawTable, RawTlb

_DEFAULT = History()


@dataclass(frozen=True)
class Plan:
    """The plan of a whole sweep."""

    name: str
    text: str
    """The sweep's file, or its JSON where it came from Python."""
    traces: tuple[traces.TraceFile, ...]
    configurations: tuple[Configuration, ...]
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class _Table:
    """The configurations of one table, with their traces and seeds."""

    where: str
    patterns: Sequence[str]
    seeds: Sequence[int]
    configurations: Sequence[Configuration]


def plan(raw: RawSweep, text: str, path: Path, known: traces.Known) -> Plan:
    """The tasks of ``raw``; its relative paths start at the directory of ``path``.

    Raises :class:`~pagelab.study.errors.SpecError` with every problem of the tables, and
    :class:`~pagelab.errors.BadInputError` for traces that cannot be used.
    """
    tables = _tables(raw, path, LineIndex(text))
    found = {table.where: traces.find(table.patterns, path.parent) for table in tables}
    files = traces.read((file for several in found.values() for file in several), known)
    version = pagelab_version()
    tasks = []
    for table in tables:
        for file in found[table.where]:
            for configuration in table.configurations:
                _suits(files[file], configuration, f"{path}: {table.where}")
                size = raw.seeds_per_task if configuration.together else 1
                chunks = _chunks(table.seeds, size) if configuration.drawn else [(None,)]
                tasks += [_task(files[file], configuration, seeds, version) for seeds in chunks]
    configurations = tuple(one for table in tables for one in table.configurations)
    return Plan(raw.name or path.stem, text, tuple(files.values()), configurations, tuple(tasks))


def _tables(raw: RawSweep, path: Path, lines: LineIndex) -> list[_Table]:
    seen: dict[tuple[str, str], str] = {}
    tables, problems = [], []
    for kind, at, table, expanded in _expanded(raw, path.parent):
        where = f"{kind}[{at}]"
        try:
            configurations = list(expanded)
            for one in configurations:
                _distinct(one, where, seen)
                one.check()
        except BadInputError as error:
            problems.append(Problem(where, str(error), lines.line((kind, at))))
            continue
        patterns = table.traces if table.traces is not None else raw.traces or []
        seeds = table.seeds if table.seeds is not None else raw.seeds
        tables.append(_Table(where, patterns, seeds, configurations))
    if problems:
        raise SpecError(path, problems)
    return tables


def _expanded(raw: RawSweep, base: Path) -> Iterator[tuple[str, int, RawTable, Iterator[Configuration]]]:
    """Every table with its kind and number, and its configurations, which are made on request."""
    for at, paging in enumerate(raw.paging):
        yield "paging", at, paging, _paging(paging)
    for at, cache in enumerate(raw.cache):
        yield "cache", at, cache, _cache(cache, base)
    for at, tlb in enumerate(raw.tlb):
        yield "tlb", at, tlb, _tlb(tlb, base)


def _distinct(one: Configuration, where: str, seen: dict[tuple[str, str], str]) -> None:
    """Refuses configurations of equal simulator and name."""
    key = (one.simulator, one.name)
    if key in seen:
        raise BadInputError(
            f'a configuration of {seen[key]} is called "{one.name}", too; give one of the tables a name = "…"'
        )
    seen[key] = where


def _suits(trace: traces.TraceFile, configuration: Configuration, where: str) -> None:
    if trace.page_bytes is None:
        return
    if configuration.full:
        raise BadInputError(
            f"{where}: trace {trace.path} has page runs only, and {configuration.simulator} needs every reference: "
            "capture it with pagelab trace --full, or give the table traces of its own"
        )
    if isinstance(configuration, Paging) and configuration.page_bytes < trace.page_bytes:
        raise BadInputError(
            f"{where}: trace {trace.path} has runs of pages of {_shown(trace.page_bytes)}, and page_size = "
            f'"{_shown(configuration.page_bytes)}" is smaller; name a larger one, or give the table traces of its own'
        )


def _chunks(seeds: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    return (tuple(seeds[at : at + size]) for at in range(0, len(seeds), size))


def _task(
    trace: traces.TraceFile, configuration: Configuration, seeds: tuple[int | None, ...], version: str | None
) -> Task:
    identity = [rows.FORMAT, version, trace.name, trace.sha256, configuration.identity, seeds]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]
    return Task(digest, trace, configuration, seeds, version)


def _name(table: RawTable, words: Sequence[str], options: Mapping[str, tuple[Any, Any]]) -> str:
    """The words, then the options (value, default) that differ from their defaults. A name does not depend on the rest
    of the sweep, so that a longer list does not change the names, and so the parts, of earlier configurations."""
    parts = [*words, *(f"{key}={_shown(value)}" for key, (value, default) in options.items() if value != default)]
    return f"{table.name}: {' '.join(parts)}" if table.name else " ".join(parts)


def _shown(value: object) -> str:
    """``4G`` for a number of bytes."""
    if not isinstance(value, int):
        return f"{value:g}" if isinstance(value, float) else str(value)
    for shift, unit in ((40, "T"), (30, "G"), (20, "M"), (10, "K")):
        if value >= 1 << shift and value % (1 << shift) == 0:
            return f"{value >> shift}{unit}"
    return str(value)


def _paging(table: RawPaging) -> Iterator[Paging]:
    for policy, coloring, page_bytes in itertools.product(table.policies, table.coloring, table.page_size):
        memory = None
        if table.memory != "all":
            # Of the numbers of colours that nobody named, those that divide no size have no row.
            named = table.colors if "colors" in table.model_fields_set else ()
            memory = tuple(memory_pages([(_shown(size), size) for size in table.memory], page_bytes, named))
        options = {
            "coloring": (coloring, "modulo"),
            "page_size": (page_bytes, 4096),
            "sample": (table.sample, None),
            "sample_pages": (table.sample_pages, None),
        }
        yield Paging(
            name=_name(table, [policy], options),
            policy=policy,
            colours=tuple(table.colors),
            memory_pages=memory,
            coloring=coloring,
            page_bytes=page_bytes,
            sample=table.sample,
            sample_pages=table.sample_pages,
        )


def _cache(table: RawCache, base: Path) -> Iterator[Cache]:
    placements = [placement(word) for word in table.frames or ([] if table.policy else ["kernel"])]
    placements += [placement(base / name) for name in table.policy or []]
    for name, placed, (history, options) in itertools.product(table.hierarchy, placements, _histories(table)):
        processor = _processor(name, base)
        processor.needed("caches")
        yield Cache(_name(table, [processor.name, placed.name], options), processor, placed, history)


def _tlb(table: RawTlb, base: Path) -> Iterator[Tlb]:
    regions = regions_of_map(base / table.regions) if table.regions else []
    placements: list[Placement] = [
        placement_of_pages(word, regions=regions) for word in table.pages or ([] if table.policy else ["4K"])
    ]
    placements += [placement(base / name, regions=regions) for name in table.policy or []]
    choices = itertools.product(table.processor, placements, table.caches, _histories(table))
    for name, placed, caches, (history, options) in choices:
        processor = _processor(name, base)
        for part in ("tlb", "caches") if caches else ("tlb",):
            processor.needed(part)
        words = [processor.name, placed.name, *(["with caches"] if caches else [])]
        yield Tlb(_name(table, words, options), processor, placed, history, caches)


def _processor(name: str, base: Path) -> hardware.Processor:
    return hardware.load(name if name in hardware.presets() or not name.endswith(".toml") else base / name)


def _histories(table: RawCache | RawTlb) -> Iterator[tuple[History, dict[str, tuple[Any, Any]]]]:
    for memory, used, cached, turnover in itertools.product(table.memory, table.used, table.cached, table.turnover):
        options = {
            "memory": (memory, _DEFAULT.memory_bytes),
            "used": (used, _DEFAULT.used),
            "cached": (cached, _DEFAULT.cached),
            "turnover": (turnover, _DEFAULT.turnover),
        }
        yield History(memory_bytes=memory, used=used, cached=cached, turnover=turnover), options
