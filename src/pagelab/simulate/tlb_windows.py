"""Estimates H, M and C of a long trace from warmed-up windows of it, with standard errors (docs/simulate-tlb.md).

Systematic sampling (Cochran, Sampling Techniques, 3rd ed. 1977, chapter 8; for simulation: Wunderlich et al., SMARTS,
ISCA 2003): windows of equal length begin at equal distances, the first one at random. Before each, one reference to
each page that was used until then, in the order of last use, and then the references that precede it are simulated and
not counted. The standard error is that of a simple random sample of windows, with the finite population's factor:
s √((1 − f)/n) a window, with f the share of references in windows; its interval is Student's t with n − 1 degrees, or
that of a Poisson count of the events in all windows (Garwood, Biometrika 28, 1936) where it reaches further. Where
counts drift along the trace it is too wide; where they have the period of the windows it is wrong.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ..errors import BadInputError
from . import hardware
from .cache_runs import workers
from .placements import Design, What, design
from .reach import pools_of, require_data_runs, require_met
from .references import ADDRESS_BITS, Report, pack
from .tlb_runs import started

COUNTS = ("h", "m", "c")
FEWEST, SHARE = 10, 20
"""The least number of windows for a useful standard error; each window has this part of its stretch of the trace."""
RECENT = 16_384
"""Base pages: several times the entries of the largest second level."""
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

    Raises :class:`BadInputError` for windows that are too few, too short, or that overlap, and where ``tlb`` does.
    """
    described = hardware.load(processor)
    translation = described.needed("tlb")
    planned = design(placements, 1).of_trace(pools_of(trace))
    require_data_runs(trace)
    require_met(trace, planned)
    total = _references(trace)
    if windows < FEWEST:
        raise BadInputError(f"{windows} windows: at least {FEWEST}; fewer say nothing of their error")
    stretch = total // windows
    size = stretch // SHARE if length is None else length
    before = 2 * size if warm_up is None else warm_up
    if size < LEAST:
        raise BadInputError(
            f"windows of {size} references: at least {LEAST}; the trace has {total:,}: simulate it whole, or take "
            "fewer or longer windows"
        )
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
    for at, (words, spaces, warm) in enumerate(_pieces(trace, spans)):
        cold = _counts(translation, planned, words[:warm], spaces[:warm], workers(threads))
        whole = _counts(translation, planned, words, spaces, workers(threads))
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


def _counts(
    translation: Mapping[str, Any], planned: Design, words: NDArray[np.uint64], spaces: NDArray[Any], threads: int
) -> list[tuple[int, int, int]]:
    """H, M and C of each placement, from empty TLBs."""
    simulation = started(translation, None, planned, threads)
    edges = np.flatnonzero(np.diff(spaces.astype(np.int64))) + 1
    for low, high in zip([0, *edges.tolist()], [*edges.tolist(), len(words)], strict=True):
        if high > low:
            space = int(spaces[low])
            simulation.feed_array(np.ascontiguousarray(words[low:high]), space >> 32, space & 0xFFFFFFFF)
    outcomes = json.loads(simulation.finish())
    sums = []
    for outcome in outcomes:
        h, m, c = (sum(leaf[at] for leaf in outcome["by_leaf"]) for at in range(3))
        sums.append((h, m, c))
    return sums


def _references(trace: Any) -> int:
    if isinstance(trace, np.ndarray):
        return int(trace.size)
    from ..trace.files import info

    return int(info(Path(trace))["references"])


def _pieces(
    trace: Any, spans: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint64], int]]:
    """For each span (warm-up, start, end), in order: its words, the address space and thread of each word, and the
    number of words that warm up: those of :class:`_Before`, and the span's own."""
    kept: list[tuple[int, NDArray[np.uint64], NDArray[np.uint64]]] = []
    before = _Before()
    at, wanted = 0, 0
    for words, spaces in _batches(trace):
        kept.append((at, words, spaces))
        at += len(words)
        while wanted < len(spans) and spans[wanted][2] <= at:
            low, start, end = spans[wanted]
            before.advance(kept, low)
            old, theirs = before.references()
            own = [(w[max(0, low - o) : end - o], s[max(0, low - o) : end - o]) for o, w, s in kept if o < end]
            both = np.concatenate([old, *(w for w, _ in own)]), np.concatenate([theirs, *(s for _, s in own)])
            yield *both, len(old) + start - low
            wanted += 1
        if wanted == len(spans):
            return
        before.advance(kept, min(spans[wanted][0], at))
        kept = [(o, w, s) for o, w, s in kept if o + len(w) > spans[wanted][0]]


class _Before:
    """A summary of all references before a place: the last reference to each page, in order.

    After the summary, an array that replaces the least recently used entry has the same content as after all
    references. Before the :data:`RECENT` last pages, one reference stays for each 2 MiB: no array has as many entries.
    """

    def __init__(self) -> None:
        self._at = 0
        self._pages = np.empty(0, np.uint64)
        self._spaces = np.empty(0, np.uint64)

    def advance(self, kept: Sequence[tuple[int, NDArray[np.uint64], NDArray[np.uint64]]], to: int) -> None:
        """Moves the place to ``to``; ``kept`` are batches, each with the number of its first reference."""
        for first, words, spaces in kept:
            part = slice(max(0, self._at - first), max(0, to - first))
            pages = (words[part] & np.uint64((1 << ADDRESS_BITS) - 1)) >> np.uint64(12)
            if len(pages):
                self._pages = np.concatenate([self._pages, pages])
                self._spaces = np.concatenate([self._spaces, spaces[part]])
                self._keep(_last_of_each(self._pages, self._spaces))
        self._at = max(self._at, to)
        old = len(self._pages) - RECENT
        if old > 0:
            tiles = _last_of_each(self._pages[:old] >> np.uint64(9), self._spaces[:old])
            self._keep(np.concatenate([tiles, np.arange(old, len(self._pages))]))

    def _keep(self, rows: NDArray[np.int64]) -> None:
        self._pages, self._spaces = self._pages[rows], self._spaces[rows]

    def references(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """The summary's words, and the address space and thread of each."""
        return pack(self._pages << np.uint64(12), sizes=1), self._spaces


def _last_of_each(pages: NDArray[np.uint64], spaces: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The row of each page's last reference in its address space, ascending. Addresses have 56 bits, spaces 16."""
    keys = pages | (spaces >> np.uint64(32)) << np.uint64(44)
    _, first = np.unique(keys[::-1], return_index=True)
    return np.sort(len(keys) - 1 - first)


def _batches(trace: Any) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
    """Words of the references and (address space << 32 | thread), one batch at a time."""
    if isinstance(trace, np.ndarray):
        yield pack(trace), np.zeros(trace.size, np.uint64)
        return
    from ..trace import Trace

    source = Trace(Path(trace))
    if source.page_bytes is None:
        for batch in source.references(("load", "store")):
            spaces = batch.asid.astype(np.uint64) << np.uint64(32) | batch.thread.astype(np.uint64)
            yield pack(batch.address, batch.kind, np.minimum(batch.size, 32)), spaces
        return
    for runs in source.runs(4096):
        for low in range(0, len(runs.page), 4096):
            part = slice(low, low + 4096)
            times = runs.count[part].astype(np.int64)
            pages = np.repeat(runs.page[part] * np.uint64(4096), times)
            yield pack(pages), np.repeat(runs.asid[part].astype(np.uint64) << np.uint64(32), times)
