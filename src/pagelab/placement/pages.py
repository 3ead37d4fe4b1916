"""Collects the resident pages of one mapping: pieces of one page size and their frames, in batches of arrays.

A mapping can have millions of pages in millions of pieces, so nothing here works page by page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from . import folios, scan
from .colours import ColourSummary
from .model import FrameRun, Frames, Tile

Words = npt.NDArray[np.uint64]

_GAP_PAGES = 64
"""Extents closer than this are read from ``pagemap`` in one call."""
_BATCH_PAGES = 1 << 18
"""Pages that are processed together: 1 GiB of base pages, about 20 MB of arrays."""


class Pieces(NamedTuple):
    """Ranges ``[start, end)`` mapped by pages of ``size`` bytes: parallel arrays, ascending."""

    start: Words
    end: Words
    size: Words


def from_extents(present: scan.Extents, size: Words) -> Pieces:
    """The pieces of extents whose page sizes are known."""
    return Pieces(present["start"].astype(np.uint64), present["end"].astype(np.uint64), size)


def from_pages(addresses: Words, size: Words, page: int) -> Pieces:
    """The pieces of base pages, each with the size of the page that holds it."""
    if not len(addresses):
        return Pieces(addresses, addresses, size)
    edges = np.flatnonzero((np.diff(size) != 0) | (np.diff(addresses) != page)) + 1
    first, last = np.append(0, edges), np.append(edges, len(addresses)) - 1
    return Pieces(addresses[first], addresses[last] + np.uint64(page), size[first])


def tiles(parts: list[Pieces]) -> list[Tile]:
    """Pieces as tiles; neighbours of one size are joined."""
    if not parts:
        return []
    start, end, size = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not len(start):
        return []
    cut = np.append(True, (start[1:] != end[:-1]) | (size[1:] != size[:-1]))
    last = np.append(np.flatnonzero(cut)[1:] - 1, len(start) - 1)
    rows = zip(start[cut].tolist(), end[last].tolist(), size[cut].tolist(), strict=True)
    return [Tile.model_construct(start=low, end=high, page_bytes=bytes_) for low, high, bytes_ in rows]


Span = tuple[int, int]


def batches(present: scan.Extents, page: int) -> Iterator[list[Span]]:
    """Ranges that cover the extents, many at a time; none crosses a boundary of :data:`_BATCH_PAGES`."""
    room = _BATCH_PAGES * page
    batch: list[Span] = []
    count = 0
    for start, end in _covering(present, _GAP_PAGES * page):
        while start < end:
            high = min(end, (start // room + 1) * room)
            if count + high - start > room and batch:
                yield batch
                batch, count = [], 0
            batch.append((start, high))
            count += high - start
            start = high
    if batch:
        yield batch


def _covering(present: scan.Extents, gap: int) -> list[Span]:
    if not len(present):
        return []
    apart = present["start"][1:] - present["end"][:-1] > gap
    first = np.append(True, apart)
    last = np.append(apart, True)
    return list(zip(present["start"][first].tolist(), present["end"][last].tolist(), strict=True))


def categories(present: scan.Extents, addresses: Words) -> Words:
    """The category of each address; 0 outside the extents."""
    at = np.searchsorted(present["start"], addresses, side="right").astype(np.int64) - 1
    inside = (at >= 0) & (addresses < present["end"][at])
    return np.where(inside, present["category"][at], np.uint64(0)).astype(np.uint64)


class FrameSummary:
    """Summarizes where a region's pages lie in memory; keeps the single pieces only if ``wanted``."""

    def __init__(self, page: int, *, wanted: bool, colours: ColourSummary | None = None) -> None:
        self._page, self._wanted, self._colours = page, wanted, colours
        self._kept: list[folios.Runs] = []
        self._lowest, self._highest = 1 << 64, 0
        self._count = self._longest = 0
        self._open: tuple[int, int, int] | None = None

    def add(self, pages: folios.Placed) -> None:
        """Adds pages that lie above all earlier ones."""
        if not len(pages.frames) or not pages.frames.any():
            return  # nothing, or a kernel that shows no frame numbers
        if self._colours is not None:
            self._colours.add(pages)
        found = folios.runs(pages, self._page)
        self._lowest = min(self._lowest, int(found.frame.min()))
        self._highest = max(self._highest, int((found.frame + found.pages).max()) - 1)
        self._count += len(found.start) - int(self._continues(found))
        longest = int(found.pages.max())
        if self._continues(found) and self._open is not None:
            longest = max(longest, self._open[2] + int(found.pages[0]))
        self._longest = max(self._longest, longest)
        self._open = self._last(found)
        if self._wanted:
            self._kept.append(found)

    def _continues(self, found: folios.Runs) -> bool:
        """Whether the last piece continues in these pages; batches may split a contiguous piece."""
        if self._open is None:
            return False
        start, frame, pages = self._open
        return int(found.start[0]) == start + pages * self._page and int(found.frame[0]) == frame + pages

    def _last(self, found: folios.Runs) -> tuple[int, int, int]:
        last = int(found.start[-1]), int(found.frame[-1]), int(found.pages[-1])
        if len(found.start) == 1 and self._continues(found) and self._open is not None:
            return self._open[0], self._open[1], self._open[2] + last[2]
        return last

    def frames(self) -> Frames | None:
        """The summary; ``None`` if no frame was seen."""
        if not self._count:
            return None
        return Frames(lowest=self._lowest, highest=self._highest, runs=self._count, longest_run_pages=self._longest)

    def pieces(self) -> list[FrameRun] | None:
        """Every piece, joined across batches; ``None`` if they were not wanted."""
        if not self._wanted:
            return None
        joined: list[tuple[int, int, int]] = []
        for found in self._kept:
            for start, frame, pages in zip(*(column.tolist() for column in found), strict=True):
                if joined:
                    low, first, count = joined[-1]
                    if start == low + count * self._page and frame == first + count:
                        joined[-1] = low, first, count + pages
                        continue
                joined.append((start, frame, pages))
        return [FrameRun.model_construct(start=start, frame=frame, pages=pages) for start, frame, pages in joined]
