"""LRU fault curves from a sample of the pages, with an estimate of the error (SHARDS; docs/method/paging.md)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pagelab.errors import BadInputError
from pagelab.simulate.page_faults import PAPER_COLOURS
from pagelab.simulate.traces import Report, Trace, feed, no_references

if TYPE_CHECKING:
    import polars as pl

    from pagelab._native import _Curve

Floats = NDArray[np.float64]
LEAST_FRAMES = 8
"""Sampled frames of each colour below which nothing is estimated: each of the eight parts then has less than one."""
T95 = 2.365
"""Student's t with 7 degrees of freedom, one less than the parts: 95% lie within."""
STEEP = 0.7
"""If the curve changes by more than this multiple of the parts' spread over distances that the sample cannot
distinguish, the spread is no measure of the error: near a jump, all parts may be on the wrong side.
"""
Epoch = tuple[float, "_Curve"]
"""The rate at which a curve was counted, and the curve."""


@dataclass(frozen=True)
class Sample:
    """The estimates of a sample, and the memory sizes without an estimate."""

    faults: pl.DataFrame
    """The rows of :func:`sampled_paging`."""
    unsure: tuple[tuple[int, int], ...]
    """Colours and memory sizes (pages) whose 95% interval is as wide as the estimate: left out."""
    too_few: tuple[tuple[int, int], ...]
    """Colours and memory sizes with fewer than :data:`LEAST_FRAMES` sampled frames of each colour: left out."""
    references: int
    rate: float

    def omissions(self) -> str | None:
        """What is left out and why, and what would be shown instead; ``None`` without omissions."""
        return "\n".join(filter(None, (self._without_frames(), self._without_interval()))) or None

    def with_omissions(self) -> pl.DataFrame:
        """The rows, and those that are left out: without faults."""
        import polars as pl

        missing = [
            ("lru sampled", colours, pages, self.references, None, None, None, self.rate)
            for colours, pages in sorted((*self.too_few, *self.unsure))
        ]
        return pl.concat([self.faults, pl.DataFrame(missing, schema=_schema(), orient="row")])

    def _without_frames(self) -> str | None:
        if not self.too_few:
            return None
        parts = []
        for colours in sorted({colours for colours, _ in self.too_few}):
            sizes = sorted(pages for of, pages in self.too_few if of == colours)
            cures = [f"a memory of {math.ceil(LEAST_FRAMES / self.rate) * colours:,} pages"]
            needed = LEAST_FRAMES * colours / sizes[0]
            if needed <= 1:
                cures.append(f"a rate of {math.ceil(needed * 10_000) / 10_000:g}")
            held = ", ".join(f"{pages:,}" for pages in sizes)
            parts.append(f"{held} pages in {colours} colours (needed: {' or '.join(cures)})")
        return (
            f"left out, since fewer than {LEAST_FRAMES} frames of each colour are in the sample of rate {self.rate:.3g}"
            f": {'; '.join(parts)}"
        )

    def _without_interval(self) -> str | None:
        """Omitted colours by size, and the sizes with valid estimates."""
        if not self.unsure:
            return None
        parts = []
        for memory in sorted({pages for _, pages in self.unsure}):
            left = sorted(colours for colours, pages in self.unsure if pages == memory)
            hold = sorted(row[0] for row in self.faults.select("colours", "memory_pages").rows() if row[1] == memory)
            where = ", ".join(map(str, hold)) or "none of those asked for"
            parts.append(f"{memory:,} pages in {', '.join(map(str, left))} colours (they hold at {where})")
        return (
            f"left out, since the sample's 95% interval reaches down to zero: {'; '.join(parts)}. "
            "Take a larger sample, or fewer colours"
        )


class SampleWarning(UserWarning):
    """A sample is too small for some of the requested rows: those rows are missing."""


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
    relative to the references that were expected. ``standard_error`` is such that the estimate ± :data:`T95` of it is a
    95% interval: docs/method/paging.md has its construction and its coverage. Memories with fewer
    than :data:`LEAST_FRAMES` sampled frames a colour are left out, because the sample has no such distances; so are
    those whose interval reaches down to zero. A :class:`SampleWarning` names both kinds, and where estimates hold.

    Columns: policy, colours, memory_pages, references, faults, faults_per_million, standard_error (per million), rate.
    """
    found = sample(
        trace,
        memory,
        colours,
        rate=rate,
        most_pages=most_pages,
        colouring=colouring,
        masks=masks,
        page_bytes=page_bytes,
        seed=seed,
        report=report,
    )
    omissions = found.omissions()
    if omissions is not None:
        warnings.warn(omissions, SampleWarning, stacklevel=2)
    return found.faults


def sample(
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
) -> Sample:
    """As :func:`sampled_paging`; the result also has the omitted rows."""
    import polars as pl

    from pagelab._native import Paging

    if rate is None and most_pages is None:
        raise BadInputError("sampling needs a rate or a number of pages")
    if rate is not None and not 0 < rate <= 1:
        raise BadInputError(f"rate {rate}: not above 0 and at most 1")
    if most_pages is not None and most_pages < 64:
        raise BadInputError(f"{most_pages} pages: a sample needs at least 64")
    try:
        sampling = Paging.sampled(colouring, list(masks), list(colours), rate or 1.0, most_pages, seed)
    except (ValueError, OverflowError) as error:
        raise BadInputError(str(error)) from error
    feed([sampling], trace, page_bytes=page_bytes, require=_refuse_reduced, report=report)
    references, epochs = sampling.epochs()
    if references == 0:
        raise no_references(trace)
    last_rate = epochs[-1][0]
    rows: list[tuple[object, ...]] = []
    unsure: list[tuple[int, int]] = []
    too_few: list[tuple[int, int]] = []
    for at, (count, *_) in enumerate(epochs[0][1]):
        least = LEAST_FRAMES * count / last_rate
        divided = [pages for pages in sorted(set(memory)) if pages % count == 0]
        too_few += [(count, pages) for pages in divided if pages < least]
        sizes = np.array([pages for pages in divided if pages >= least], dtype=np.int64)
        share, half = _estimates(epochs, at, count, sizes // count, references)
        for pages, estimate, width in zip(sizes, share, half, strict=True):
            if width >= estimate:
                unsure.append((count, int(pages)))
                continue
            faults = round(estimate * references)
            standard_error = width / T95 * 1e6
            rows.append(
                ("lru sampled", count, int(pages), references, faults, estimate * 1e6, standard_error, last_rate)
            )
    faults = pl.DataFrame(rows, schema=_schema(), orient="row")
    return Sample(faults, tuple(unsure), tuple(too_few), references, last_rate)


def _schema() -> dict[str, Any]:
    import polars as pl

    return {
        "policy": pl.String,
        "colours": pl.Int64,
        "memory_pages": pl.Int64,
        "references": pl.UInt64,
        "faults": pl.UInt64,
        "faults_per_million": pl.Float64,
        "standard_error": pl.Float64,
        "rate": pl.Float64,
    }


def _estimates(
    epochs: list[Any], at: int, colours: int, frames: NDArray[np.int64], references: int
) -> tuple[Floats, Floats]:
    """Faults per reference with ``frames`` frames of each colour, and half the width of their 95% interval.

    ``at`` numbers the curve of this colour count in each epoch.
    """
    groups = len(epochs[0][2])
    last_rate = epochs[-1][0]
    whole = [(rate, curves[at]) for rate, curves, _ in epochs]

    def share(frames: Floats) -> Floats:
        return _faults(whole, np.maximum(frames, 0.0)) / references

    estimate = share(frames.astype(np.float64))
    if all(rate >= 1.0 for rate, _ in whole):
        return estimate, np.zeros(len(frames))
    parts = np.array(
        [
            _faults([(rate / groups, part[g][at]) for rate, _, part in epochs], frames) / references
            for g in range(groups)
        ]
    )
    spread = T95 * np.std(parts, axis=0, ddof=1) / math.sqrt(groups)
    width = spread + np.abs(estimate - np.mean(parts, axis=0))
    # The sample's uncertainty as a number of frames, more or fewer, in all colours at once.
    shift = NormalDist().inv_cdf(1 - 0.025 / colours) * np.sqrt(frames * (1 - last_rate) / last_rate)
    jump = np.maximum(share(frames - shift) - estimate, estimate - share(frames + shift))
    # There are not more faults than references; an excess of the sample is left to the width.
    return np.minimum(estimate, 1.0), width + np.where(jump > STEEP * spread, jump, 0.0)


def _refuse_reduced(header: dict[str, Any]) -> None:
    if header.get("reduction") is not None:
        raise BadInputError("a reduced trace cannot be sampled; sample the whole trace")


def _faults(epochs: list[Epoch], frames: NDArray[Any]) -> Floats:
    """Estimated faults with ``frames`` frames of each colour: each sampled reference stands for 1 / rate of them."""
    total = np.zeros(len(frames))
    for rate, (_, _, cold, reused, _) in epochs:
        counts = np.frombuffer(reused, np.uint64).astype(np.float64)
        beyond = np.append(np.cumsum(counts[::-1])[::-1], 0.0)
        # A sampled distance d stands for d / rate, a fault when that is at least the number of frames; between two
        # whole sampled distances the curve is taken to be straight.
        total += (np.interp(frames * rate, np.arange(len(beyond)), beyond) + cold) / rate
    return total
