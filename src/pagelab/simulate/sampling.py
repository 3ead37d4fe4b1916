"""LRU fault curves from a sample of the pages, with an estimate of the error (SHARDS; docs/method/paging.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pagelab.errors import BadInputError
from pagelab.simulate.page_faults import PAPER_COLOURS
from pagelab.simulate.traces import Report, Trace, feed

if TYPE_CHECKING:
    import polars as pl

    from pagelab._native import _Curve

Floats = NDArray[np.float64]
LEAST_FRAMES = 8
"""Sampled frames of each colour below which nothing is estimated: each of the eight parts then has less than one."""
Epoch = tuple[float, "_Curve"]
"""The rate at which a curve was counted, and the curve."""


def sampled_paging(
    trace: Trace,
    memory: Sequence[int],
    colours: Sequence[int] = PAPER_COLOURS,
    *,
    rate: float | None = None,
    most_pages: int | None = None,
    colouring: str = "modulo",
    masks: Sequence[int] = (),
    page_bytes: int = 4096,
    seed: int = 1,
    report: Report | None = None,
) -> pl.DataFrame:
    """LRU faults estimated from a share ``rate`` of the pages, or from at most ``most_pages`` of them, or both.

    SHARDS-adj (Waldspurger et al., FAST 2015): pages are chosen by a hash, distances and counts are scaled, counts
    relative to the references that were expected. ``standard_error`` is the spread of eight disjoint parts of the
    sample, over √8, with 7 degrees of freedom; memories with fewer than :data:`LEAST_FRAMES` sampled frames a colour
    are left out, because the sample has no such distances.

    Columns: policy, colours, memory_pages, references, faults, faults_per_million, standard_error (per million), rate.
    """
    import polars as pl

    from pagelab._native import Paging

    if rate is None and most_pages is None:
        raise BadInputError("sampling needs a rate or a number of pages")
    if rate is not None and not 0 < rate <= 1:
        raise BadInputError(f"rate {rate}: not above 0 and at most 1")
    if most_pages is not None and most_pages < 64:
        raise BadInputError(f"{most_pages} pages: a sample needs at least 64")
    try:
        sample = Paging.sampled(colouring, list(masks), list(colours), rate or 1.0, most_pages, seed)
    except (ValueError, OverflowError) as error:
        raise BadInputError(str(error)) from error
    feed([sample], trace, page_bytes=page_bytes, require=_refuse_reduced, report=report)
    references, epochs = sample.epochs()
    if references == 0:
        raise BadInputError("the trace has no references")
    groups = len(epochs[0][2])
    rows = []
    for at, (count, *_) in enumerate(epochs[0][1]):
        least = LEAST_FRAMES * count / epochs[-1][0]
        sizes = np.array([m for m in sorted(set(memory)) if m >= least and m % count == 0], dtype=np.int64)
        share = _faults([(rate, whole[at]) for rate, whole, _ in epochs], sizes // count) / references
        parts = [
            _faults([(rate / groups, part[g][at]) for rate, _, part in epochs], sizes // count) / references
            for g in range(groups)
        ]
        spread = np.std(parts, axis=0, ddof=1) / math.sqrt(groups)
        rows += [
            ("lru sampled", count, int(m), references, round(f * references), f * 1e6, e * 1e6, epochs[-1][0])
            for m, f, e in zip(sizes, share, spread, strict=True)
        ]
    schema = {
        "policy": pl.String,
        "colours": pl.Int64,
        "memory_pages": pl.Int64,
        "references": pl.UInt64,
        "faults": pl.UInt64,
        "faults_per_million": pl.Float64,
        "standard_error": pl.Float64,
        "rate": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def _refuse_reduced(header: dict[str, Any]) -> None:
    if header.get("reduction") is not None:
        raise BadInputError("the trace is reduced: a sample of it would be neither; sample the whole trace")


def _faults(epochs: list[Epoch], frames: NDArray[np.int64]) -> Floats:
    """Estimated faults with so many frames of each colour: each sampled reference stands for 1 / rate of them."""
    total = np.zeros(len(frames))
    for rate, (_, _, cold, reused, _) in epochs:
        counts = np.frombuffer(reused, np.uint64).astype(np.float64)
        beyond = np.append(np.cumsum(counts[::-1])[::-1], 0.0)
        # A sampled distance d stands for d / rate, a fault when that is at least the number of frames; between two
        # whole sampled distances the curve is taken to be straight.
        total += (np.interp(frames * rate, np.arange(len(beyond)), beyond) + cold) / rate
    return total
