"""Estimates H, M and C of a long trace from warmed-up windows of it, with standard errors (docs/simulate-tlb.md).

Systematic sampling (Cochran, Sampling Techniques, 3rd ed. 1977, chapter 8; for simulation: Wunderlich et al., SMARTS,
ISCA 2003): windows of equal length begin at equal distances, the first one at random. Before each, one reference to
each page that was used until then (one of each side, where stores or fetches have entries of their own), in the order
of last use, and then the references that precede it are simulated and not counted. References are those that the
hardware translates: loads and stores, and fetches where there are arrays for them. The standard error is that of a
simple random sample of windows, with the finite population's factor: s √((1 − f)/n) a window, with f the share of
references in windows; its interval is Student's t with n − 1 degrees, or that of a Poisson count of the events in all
windows (Garwood, Biometrika 28, 1936) where it reaches further. Where counts drift along the trace it is too wide;
where they have the period of the windows it is wrong.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ..errors import BadInputError
from . import hardware
from .cache_runs import workers
from .placements import Design, What, design
from .reach import pools_of, require_data_runs, require_every_reference, require_met
from .references import ADDRESS_BITS, FETCH, LOAD, STORE, Report, pack
from .tlb_runs import started

if TYPE_CHECKING:
    from .._native import PlacedSimulation, TraceBatches

COUNTS = ("h", "m", "c")
FEWEST, SHARE = 10, 20
"""The least number of windows for a useful standard error; each window has this part of its stretch of the trace."""
RECENT = 16_384
"""Base pages: several times the entries of the largest second level."""
_BASE = np.uint64(12)
"""Binary logarithm of the size of a base page."""
LEAST = 1000
"""References of a window: what a warm-up leaves out is then little beside it."""


@dataclass(frozen=True)
class TlbEstimate:
    """``executions``: one row a placement: ``placement, references, h, m, c`` (of the whole trace), ``h_se``,
    ``h_low``, ``h_high`` and so on: standard errors and 95% intervals.
    ``windows``: ``placement, window, start, h, m, c``."""

    hardware: str
    length: int
    """References of a window."""
    warm_up: int
    executions: pl.DataFrame
    windows: pl.DataFrame


def tlb_windows(
    trace: str | os.PathLike[str] | NDArray[Any],
    processor: str | Path | hardware.Processor | Mapping[str, Any],
    placements: What | Sequence[What] = "kernel",
    *,
    windows: int = 30,
    length: int | None = None,
    warm_up: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    report: Report | None = None,
) -> TlbEstimate:
    """As :func:`pagelab.simulate.tlb` without caches, but simulates ``windows`` windows of ``length`` references (None:
    a twentieth of the trace in all), each after ``warm_up`` references (None: twice the length).

    A trace file is read to its end to count the references that are translated, and then once more. Raises
    :class:`BadInputError` for windows that are too few, too short, or that overlap, for several cores, and where
    ``tlb`` does.
    """
    described = hardware.load(processor)
    translation = described.needed("tlb")
    cores = translation.get("cores", 1)
    if cores > 1:
        raise BadInputError(
            f"{described.name}: it has {cores} cores, and windows are of one: which threads a core had before a window "
            "is not known; simulate the whole trace, or describe one core: cores = 1"
        )
    planned = design(placements, 1).of_trace(pools_of(trace))
    source = _Source(trace, translation)
    require_met(trace, planned)
    # Page runs are refused where they tell too little, before they are counted.
    _counts(translation, planned, [source.nothing()], workers(threads))
    total = source.count()
    if windows < FEWEST:
        raise BadInputError(f"{windows} windows: at least {FEWEST}; fewer say nothing of their error")
    stretch = total // windows
    size = stretch // SHARE if length is None else length
    before = 2 * size if warm_up is None else warm_up
    if size < LEAST:
        raise BadInputError(_too_short(total, windows, size, length is None))
    if size > stretch:
        raise BadInputError(
            f"{windows} windows of {size:,} references overlap in a trace of {total:,}; take shorter ones"
        )
    if before < 0:
        raise BadInputError(f"a warm-up of {before} references: not below zero")
    first = int(np.random.default_rng(seed).integers(0, stretch - size + 1))
    starts = [first + at * stretch for at in range(windows)]
    rows: list[dict[str, Any]] = []
    spans = [(max(0, start - before), start, start + size) for start in starts]
    for at, (warm, own) in enumerate(_pieces(source, spans)):
        cold = _counts(translation, planned, warm, workers(threads))
        whole = _counts(translation, planned, [*warm, *own], workers(threads))
        for one, a, b in zip(planned.placements, cold, whole, strict=True):
            counted = {name: int(y - x) for name, x, y in zip(COUNTS, a, b, strict=True)}
            rows.append(
                {
                    "placement": one.name,
                    "window": at,
                    "start": starts[at],
                    **counted,
                    "walk": b[2] / b[1] if b[1] else 0.0,
                }
            )
        if report is not None:
            report(at + 1, windows)
    done = len(rows) // len(planned.placements)
    if done < windows:
        raise BadInputError(
            f"{trace}: it had {total:,} references, and ends before window {done + 1} of {windows}: it has changed "
            "meanwhile; simulate it again"
        )
    found = pl.DataFrame(rows)
    table = [_estimated(one.name, found, total, size) for one in planned.placements]
    return TlbEstimate(described.name, size, before, pl.DataFrame(table), found.drop("walk"))


def _estimated(name: str, found: pl.DataFrame, total: int, size: int) -> dict[str, Any]:
    from scipy import stats

    own = found.filter(pl.col("placement") == name)
    n = len(own)
    scale, left = total / size, max(0.0, 1 - n * size / total)
    row: dict[str, Any] = {"placement": name, "references": total}
    for count in COUNTS:
        values = own[count].to_numpy().astype(np.float64)
        error = scale * float(values.std(ddof=1)) * np.sqrt(left / n)
        middle = scale * float(values.mean())
        reach = float(stats.t.ppf(0.975, n - 1)) * error
        # Rare events: few windows have one, and their scatter is no guide. Cycles come in walks.
        counted, each = (own["m"].to_numpy(), own["walk"].to_numpy().max()) if count == "c" else (values, 1.0)
        events = float(counted.sum())
        most = float(stats.chi2.ppf(0.975, 2 * (events + 1))) / 2
        least = float(stats.chi2.ppf(0.025, 2 * events)) / 2 if events else 0.0
        further = float(each) * scale / n * np.sqrt(left)
        low, high = middle - further * (events - least), middle + further * (most - events)
        row |= {count: middle, f"{count}_se": error}
        row |= {f"{count}_low": max(0.0, min(low, middle - reach)), f"{count}_high": max(high, middle + reach)}
    return row


class _Piece(Protocol):
    """References of a trace, one after the other."""

    @property
    def references(self) -> int:
        """How many."""

    def part(self, low: int, high: int) -> _Piece:
        """Those from number ``low`` up to ``high``."""

    def uses(self) -> _Uses:
        """The base pages that they use."""

    def feed(self, simulation: PlacedSimulation) -> None:
        """Simulates them."""


def _counts(
    translation: Mapping[str, Any], planned: Design, pieces: Sequence[_Piece], threads: int
) -> list[tuple[int, int, int]]:
    """H, M and C of each placement, from empty TLBs."""
    simulation = started(translation, None, planned, threads)
    for piece in pieces:
        try:
            piece.feed(simulation)
        except ValueError as error:
            raise BadInputError(str(error)) from error
    outcomes = json.loads(simulation.finish())
    sums = []
    for outcome in outcomes:
        h, m, c = (sum(leaf[at] for leaf in outcome["by_leaf"]) for at in range(3))
        sums.append((h, m, c))
    return sums


@dataclass(frozen=True)
class _Uses:
    """Uses of base pages, in order."""

    pages: NDArray[np.uint64]
    spaces: NDArray[np.uint64]
    """Address space << 32 | thread."""
    sides: NDArray[np.uint64]
    """The kind by whose entries the page is translated: loads', stores' if they have their own, fetches'."""

    def kept(self, rows: NDArray[np.int64]) -> _Uses:
        """Only these rows."""
        return _Uses(self.pages[rows], self.spaces[rows], self.sides[rows])

    def then(self, other: _Uses) -> _Uses:
        """These, and the others after them."""
        pairs = ((self.pages, other.pages), (self.spaces, other.spaces), (self.sides, other.sides))
        return _Uses(*(np.concatenate(pair) for pair in pairs))

    def last(self, bits: int = 0) -> NDArray[np.int64]:
        """The row of the last use of each 2^``bits`` pages by each address space and side, ascending. Numbers of pages
        have 44 bits, address spaces 12."""
        keys = self.pages >> np.uint64(bits) | (self.spaces >> np.uint64(32)) << np.uint64(44)
        keys |= self.sides << np.uint64(56)
        _, first = np.unique(keys[::-1], return_index=True)
        return np.sort(len(keys) - 1 - first)


class _Words:
    """Full references, packed in words."""

    def __init__(self, words: NDArray[np.uint64], spaces: NDArray[np.uint64], sides: NDArray[np.uint64]) -> None:
        """``spaces``: address space << 32 | thread of each; ``sides``: the side of each kind."""
        self._words, self._spaces, self._sides = words, spaces, sides

    @property
    def references(self) -> int:
        return len(self._words)

    def part(self, low: int, high: int) -> _Words:
        own = slice(max(0, low), max(0, high))
        return _Words(self._words[own], self._spaces[own], self._sides)

    def uses(self) -> _Uses:
        """One that crosses the end of a page uses two."""
        from .._native import TRACE_SIZES

        address = self._words & np.uint64((1 << ADDRESS_BITS) - 1)
        kind = self._words >> np.uint64(ADDRESS_BITS) & np.uint64(3)
        size = np.array(TRACE_SIZES, np.uint64)[self._words >> np.uint64(ADDRESS_BITS + 2)]
        page = address >> _BASE
        last = (address + np.maximum(size, np.uint64(1)) - np.uint64(1)) >> _BASE
        # The end of the address space is crossed to no other page.
        crosses = (page != last) & (last < np.uint64(1) << np.uint64(ADDRESS_BITS) - _BASE)
        row = np.repeat(np.arange(len(page)), 1 + crosses)
        second = np.flatnonzero(np.diff(row) == 0) + 1
        pages = page[row]
        pages[second] = last[row[second]]
        return _Uses(pages, self._spaces[row], self._sides[kind[row]])

    def feed(self, simulation: PlacedSimulation) -> None:
        edges = np.flatnonzero(np.diff(self._spaces.astype(np.int64))) + 1
        for low, high in zip([0, *edges.tolist()], [*edges.tolist(), len(self._words)], strict=True):
            if high > low:
                space = int(self._spaces[low])
                words = np.ascontiguousarray(self._words[low:high])
                simulation.feed_array(words, space >> 32, space & 0xFFFFFFFF)


class _Runs:
    """Page runs. They are cut, and never counted out: one may stand for any number of references."""

    def __init__(self, pages: NDArray[np.uint64], asids: NDArray[np.uint16], counts: NDArray[np.uint64]) -> None:
        self._pages, self._asids, self._counts = pages, asids, counts
        self._ends = np.cumsum(counts, dtype=np.uint64)

    @property
    def references(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def part(self, low: int, high: int) -> _Runs:
        low, high = max(0, low), min(high, self.references)
        if high <= low:
            return _Runs(self._pages[:0], self._asids[:0], self._counts[:0])
        first = int(np.searchsorted(self._ends, np.uint64(low), side="right"))
        last = int(np.searchsorted(self._ends, np.uint64(high), side="left"))
        counts = self._counts[first : last + 1].copy()
        counts[-1] -= self._ends[last] - np.uint64(high)
        counts[0] -= np.uint64(low) - (self._ends[first] - self._counts[first])
        return _Runs(self._pages[first : last + 1], self._asids[first : last + 1], counts)

    def uses(self) -> _Uses:
        spaces = self._asids.astype(np.uint64) << np.uint64(32)
        return _Uses(self._pages, spaces, np.full(len(self._pages), LOAD, np.uint64))

    def feed(self, simulation: PlacedSimulation) -> None:
        pages, asids = np.ascontiguousarray(self._pages), np.ascontiguousarray(self._asids)
        simulation.feed_runs(pages, asids, np.ascontiguousarray(self._counts))


def _too_short(total: int, windows: int, size: int, shared: bool) -> str:
    """Why windows of this size say nothing, and which would be long enough; ``shared``: no length was asked for."""
    if not shared:
        return (
            f"windows of {size} references: at least {LEAST}; the trace has {total:,}: simulate it whole, or take "
            "longer windows"
        )
    most = total // (LEAST * SHARE)
    fewer = f", or take fewer windows: {most}" if most >= FEWEST else ""
    return (
        f"{windows} windows of at least {LEAST:,} references each, together at most 1/{SHARE} of the trace, need "
        f"{windows * LEAST * SHARE:,} references; the trace has {total:,}: simulate it whole{fewer}"
    )


class _Source:
    """The references of an array or a file that the hardware translates."""

    def __init__(self, trace: str | os.PathLike[str] | NDArray[Any], translation: Mapping[str, Any]) -> None:
        """Raises :class:`BadInputError` for a file that has not every reference, or others in its page runs."""
        serves = {array.get("serves", "data") for array in translation["first"]}
        self.sides = np.array([LOAD, STORE if "store" in serves else LOAD, FETCH, FETCH], np.uint64)
        self._kinds = ("load", "store", "fetch") if "instruction" in serves else ("load", "store")
        self._array = trace if isinstance(trace, np.ndarray) else None
        self._path = "" if isinstance(trace, np.ndarray) else os.fspath(trace)
        self._in_runs = False
        if self._path:
            from ..trace import Trace

            require_every_reference(self._path)
            require_data_runs(self._path)
            self._in_runs = Trace(self._path).page_bytes is not None

    def nothing(self) -> _Piece:
        """A piece without references."""
        none = np.empty(0, np.uint64)
        return _Runs(none, np.empty(0, np.uint16), none) if self._in_runs else _Words(none, none, self.sides)

    def count(self) -> int:
        """How many they are. Reads a file to its end, so that no part of it can be missing."""
        if self._array is not None:
            return int(self._array.size)
        with self._opened() as batches:
            return sum(iter(batches.count, None))

    def pieces(self) -> Iterator[_Piece]:
        """All of them, piece by piece."""
        if self._array is not None:
            yield _Words(pack(self._array), np.zeros(self._array.size, np.uint64), self.sides)
            return
        with self._opened() as batches:
            if self._in_runs:
                for page, asid, count in iter(batches.runs, None):
                    yield _Runs(*_columns((page, np.uint64), (asid, np.uint16), (count, np.uint64)))
                return
            for word, thread, asid in iter(batches.words, None):
                words, threads, asids = _columns((word, np.uint64), (thread, np.uint32), (asid, np.uint16))
                spaces = asids.astype(np.uint64) << np.uint64(32) | threads.astype(np.uint64)
                yield _Words(words, spaces, self.sides)

    @contextmanager
    def _opened(self) -> Iterator[TraceBatches]:
        from .._native import TraceBatches
        from ..trace.data import kind_codes, native

        with native(self._path):
            yield TraceBatches(self._path, int(_BASE) if self._in_runs else None, kind_codes(self._kinds), None)


def _columns(*columns: tuple[bytes, type[np.unsignedinteger[Any]]]) -> list[NDArray[Any]]:
    return [np.frombuffer(column, of) for column, of in columns]


def _pieces(source: _Source, spans: Sequence[tuple[int, int, int]]) -> Iterator[tuple[list[_Piece], list[_Piece]]]:
    """For each span (warm-up, start, end), in order: what warms up, which begins with :class:`_Before`, and the span's
    own references."""
    kept: list[tuple[int, _Piece]] = []
    before = _Before(source.sides)
    at, wanted = 0, 0
    for piece in source.pieces():
        kept.append((at, piece))
        at += piece.references
        while wanted < len(spans) and spans[wanted][2] <= at:
            low, start, end = spans[wanted]
            before.advance(kept, low)
            warm = [one.part(low - first, start - first) for first, one in kept if first < start]
            own = [one.part(start - first, end - first) for first, one in kept if first < end]
            yield [before.references(), *warm], own
            wanted += 1
        if wanted == len(spans):
            return
        before.advance(kept, min(spans[wanted][0], at))
        kept = [(first, one) for first, one in kept if first + one.references > spans[wanted][0]]


class _Before:
    """A summary of all references before a place: the last use of each page by each side, in order.

    After the summary, an array that replaces the least recently used entry has the same content as after all
    references. Before the :data:`RECENT` last pages of each side, one use stays for each 2 MiB: no array has as many
    entries.
    """

    def __init__(self, sides: NDArray[np.uint64]) -> None:
        none = np.empty(0, np.uint64)
        self._at = 0
        self._uses = _Uses(none, none, none)
        self._sides = sides
        self._recent = RECENT * len(set(sides.tolist()))

    def advance(self, kept: Sequence[tuple[int, _Piece]], to: int) -> None:
        """Moves the place to ``to``; ``kept`` are pieces, each with the number of its first reference."""
        for first, piece in kept:
            part = piece.part(self._at - first, to - first)
            if part.references:
                self._uses = self._uses.then(part.uses())
                self._uses = self._uses.kept(self._uses.last())
        self._at = max(self._at, to)
        old = len(self._uses.pages) - self._recent
        if old > 0:
            tiles = self._uses.kept(np.arange(old)).last(9)
            self._uses = self._uses.kept(np.concatenate([tiles, np.arange(old, old + self._recent)]))

    def references(self) -> _Piece:
        """The summary as references."""
        words = pack(self._uses.pages << _BASE, self._uses.sides, sizes=1)
        return _Words(words, self._uses.spaces, self._sides)
