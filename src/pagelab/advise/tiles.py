"""Which tiles of 2 MiB of a process have memory, and which of them are 2M pages already."""

from __future__ import annotations

import os
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pagelab.layouts.layout import TILE
from pagelab.placement import scan
from pagelab.placement.procfs import Vma


class Tiles(NamedTuple):
    """Whole tiles of a mapping with at least one resident page that are not 2M pages: parallel arrays, ascending."""

    start: NDArray[np.int64]
    """Addresses."""
    resident: NDArray[np.int64]
    """Bytes of each that are resident: more than 0."""


def whole(vma: Vma) -> tuple[int, int]:
    """The range from a mapping's first whole tile to the end of its last; empty or negative where it has none."""
    return -(-vma.start // TILE) * TILE, vma.end // TILE * TILE


def collapsible(pagemap: BinaryIO, vma: Vma) -> Tiles:
    """The tiles that can be collapsed: MADV_COLLAPSE refuses (EINVAL) a tile that has no page.

    The zero page is no memory of the process. Before PAGEMAP_SCAN (Linux 6.7) the kernel does not tell which tiles are
    2M pages; there, in mappings that have such pages, tiles that are resident as a whole are taken for them.
    Raises ``OSError`` if the process is gone.
    """
    start, end = whole(vma)
    try:
        return of_extents(scan.scan(pagemap, start, end), start, end)
    except scan.UnsupportedError:
        found = of_extents(scan.scan_entries(pagemap, start, end, os.sysconf("SC_PAGE_SIZE")), start, end)
    kept = found.resident < (TILE if vma.totals.get("AnonHugePages") else TILE + 1)
    return Tiles(found.start[kept], found.resident[kept])


def of_extents(extents: scan.Extents, start: int, end: int) -> Tiles:
    """The same tiles from extents of pages, cut to ``start`` … ``end``, which are multiples of a tile."""
    present = extents[(extents["category"] & np.uint64(scan.PRESENT | scan.ZERO)) == scan.PRESENT]
    low = np.maximum(present["start"].astype(np.int64), start)
    high = np.minimum(present["end"].astype(np.int64), end)
    huge = (present["category"] & np.uint64(scan.HUGE)) > 0
    low, high, huge = (column[low < high] for column in (low, high, huge))
    # An extent's part in each of its tiles.
    first = low // TILE
    count = (high - 1) // TILE - first + 1
    tile = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
    part = np.minimum(np.repeat(high, count), (tile + 1) * TILE) - np.maximum(np.repeat(low, count), tile * TILE)
    tiles, of = np.unique(tile, return_inverse=True)
    resident = np.zeros(len(tiles), np.int64)
    np.add.at(resident, of, part)
    small = np.ones(len(tiles), bool)
    small[of[np.repeat(huge, count)]] = False
    return Tiles(tiles[small] * TILE, resident[small])
