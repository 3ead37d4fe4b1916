"""Finds frame numbers, and page sizes between the base page and 2M, from ``pagemap`` and ``kpageflags`` (root only).

The kernel maps an mTHP folio (16K to 1M) by base-page entries, so neither smaps nor PAGEMAP_SCAN shows it; only the
flags of its frames do: one compound head, then tails.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FRAME_MASK = np.uint64((1 << 55) - 1)
_PRESENT = np.uint64(1 << 63)
_HEAD, _TAIL = np.uint64(1 << 15), np.uint64(1 << 16)
_GAP_FRAMES = 512
"""Frames closer than this are read in one call: cheaper than another system call."""
_CHUNK_FRAMES = 1 << 18

Words = npt.NDArray[np.uint64]


class Placed(NamedTuple):
    """Base pages with their frames: parallel arrays, ascending by address."""

    addresses: Words
    frames: Words


def placed(entries: Words, start: int, page: int) -> Placed:
    """The pages of a range that have a frame, from its ``pagemap`` entries."""
    at = np.flatnonzero((entries & _PRESENT) > 0)
    frames = entries[at] & FRAME_MASK
    return Placed(np.uint64(start) + at.astype(np.uint64) * np.uint64(page), frames)


class Runs(NamedTuple):
    """Pieces that are contiguous in both address spaces: parallel arrays, ascending by address."""

    start: Words
    frame: Words
    pages: Words


def runs(pages: Placed, page: int) -> Runs:
    """Joins pages into contiguous pieces."""
    first = np.flatnonzero(~_continues(pages, page))
    lengths = np.diff(np.append(first, len(pages.frames))).astype(np.uint64)
    return Runs(pages.addresses[first], pages.frames[first], lengths)


def _continues(pages: Placed, page: int) -> npt.NDArray[np.bool_]:
    """For each page, whether it follows the one before it in both address spaces."""
    if not len(pages.frames):
        return np.zeros(0, np.bool_)
    follows = (np.diff(pages.frames) == 1) & (np.diff(pages.addresses) == page)
    return np.concatenate(([False], follows))


class FrameFlags:
    """Reader of ``/proc/kpageflags`` at requested frames."""

    def __init__(self) -> None:
        self._file = os.open("/proc/kpageflags", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def of(self, frames: Words) -> Words:
        """The flags of each frame; 0 if the kernel shows none."""
        wanted = np.unique(frames)
        if not len(wanted):
            return np.zeros(0, np.uint64)
        cuts = np.flatnonzero(np.diff(wanted) > _GAP_FRAMES) + 1
        known_frames, known_flags = [], []
        for group in np.split(wanted, cuts):
            for low in range(int(group[0]), int(group[-1]) + 1, _CHUNK_FRAMES):
                high = min(low + _CHUNK_FRAMES, int(group[-1]) + 1)
                flags = self._read(low, high - low)
                known_flags.append(flags)
                known_frames.append(np.arange(low, low + len(flags), dtype=np.uint64))
        table, flags = np.concatenate(known_frames), np.concatenate(known_flags)
        at = np.searchsorted(table, frames)
        inside = at < len(table)
        at[~inside] = 0
        found = inside & (table[at] == frames) if len(table) else inside
        return np.where(found, flags[at], np.uint64(0)) if len(table) else np.zeros(len(frames), np.uint64)

    def _read(self, frame: int, count: int) -> Words:
        raw = os.pread(self._file, count * 8, frame * 8)
        return np.frombuffer(raw[: len(raw) // 8 * 8], dtype="<u8")


def folio_sizes(pages: Placed, flags: Words, next_flags: Words, page: int, largest_pages: int) -> Words:
    """Bytes of each page's folio if mapped whole and naturally aligned in both address spaces, else of a base page.

    ``flags`` are those of the pages' frames, ``next_flags`` those of the next frames. Pages of a partly mapped folio
    count as base pages. So do those of a folio of ``largest_pages`` or more: mapped by base-page entries, it is a split
    huge page.
    """
    sizes = np.full(len(pages.frames), page, dtype=np.uint64)
    if not len(sizes):
        return sizes
    inside = _continues(pages, page) & ((flags & _TAIL) > 0)
    first = np.flatnonzero(~inside)
    lengths = np.diff(np.append(first, len(sizes)))
    last = first + lengths - 1
    length_words = lengths.astype(np.uint64)
    whole = ((flags[first] & _HEAD) > 0) & ((next_flags[last] & _TAIL) == 0)
    power = (lengths & (lengths - 1)) == 0
    aligned = (pages.frames[first] % length_words == 0) & (
        pages.addresses[first] % (length_words * np.uint64(page)) == 0
    )
    folio = whole & power & aligned & (lengths > 1) & (lengths < largest_pages)
    per_run = np.where(folio, length_words * np.uint64(page), np.uint64(page))
    return np.repeat(per_run, lengths)
