"""Layouts with one window of large pages: growing, random, and sliding from the hot region (MOSAIC, section VI-B)."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from pagelab.errors import BadInputError
from pagelab.layouts.footprint import Footprint
from pagelab.layouts.layout import Layout


def growing(footprint: Footprint, count: int) -> list[Layout]:
    """``count`` layouts with growing windows: the i-th covers the first i/(count-1) of the space, in whole tiles.

    So the first has base pages only and the last large pages only; one alone has base pages. The paper's N is
    ``count - 1``. Raises :class:`BadInputError` for fewer than one.
    """
    if count < 1:
        raise BadInputError(f"{count} growing windows: at least 1")
    steps = max(count - 1, 1)
    return [footprint.window(f"growing-{at}-of-{steps}", 0, at * len(footprint) // steps) for at in range(count)]


def random_window(footprint: Footprint, draw: random.Random) -> tuple[int, int]:
    """Positions [start, end): every length from one tile to all is equally likely, then every place where it fits."""
    length = draw.randint(1, len(footprint))
    start = draw.randint(0, len(footprint) - length)
    return start, start + length


def random_windows(footprint: Footprint, count: int, seed: int, prefix: str = "random") -> list[Layout]:
    """``count`` layouts with one random window each, drawn by ``seed`` (and ``prefix``); some may coincide.

    Raises :class:`BadInputError` for fewer than one.
    """
    if count < 1:
        raise BadInputError(f"{count} random windows: at least 1")
    draw = random.Random(f"{prefix} {seed}")
    return [footprint.window(f"{prefix}-{at}", *random_window(footprint, draw)) for at in range(count)]


def hot_region(misses: NDArray[np.float64], share: float) -> tuple[int, int] | None:
    """Positions [start, end) of the shortest window with at least ``share`` (0 to 1) of the sum of ``misses``.

    Of several of that length the one with the most misses, then the first. ``None`` without misses: there is no hot
    region. Raises :class:`BadInputError` for a share that is none, or misses below 0.
    """
    if not 0 < share <= 1:
        raise BadInputError(f"share of misses {share}: above 0, at most 1")
    if misses.ndim != 1 or (misses < 0).any() or not np.isfinite(misses).all():
        raise BadInputError("misses: one number a tile, none below 0")
    total = misses.sum()
    if total <= 0:
        return None
    # Sums of the same numbers in another order may differ in the last bits.
    wanted = share * total * (1 - 1e-12)
    sums = np.concatenate([[0.0], np.cumsum(misses)])
    starts = np.arange(len(misses))
    ends = np.maximum(np.searchsorted(sums, sums[:-1] + wanted), starts + 1)
    reaches = ends <= len(misses)
    starts, ends = starts[reaches], ends[reaches]
    lengths = ends - starts
    shortest = lengths == lengths.min()
    starts, ends = starts[shortest], ends[shortest]
    best = int(np.argmax(sums[ends] - sums[starts]))
    return int(starts[best]), int(ends[best])


SHARES = (0.2, 0.4, 0.6, 0.8)
"""Of all misses, in the hot regions of the paper's campaign."""


def sliding(
    footprint: Footprint, misses: NDArray[np.float64] | None, share: float, count: int, seed: int
) -> list[Layout]:
    """``count`` layouts with a sliding window: first the hot region with ``share`` of ``misses`` (one number per tile).

    It slides by 1/(count-1) of its length a step, rounded down to whole tiles, until it has left the region: towards
    low addresses where the region's middle lies in the upper half of the space, else towards high ones. What would
    lie outside of the space is left out. Without a hot region (no misses are known, or there are none), random windows
    by ``seed``. Raises :class:`BadInputError` for fewer than one layout.
    """
    if count < 1:
        raise BadInputError(f"{count} sliding windows: at least 1")
    name = f"sliding-{round(100 * share)}"
    region = None if misses is None else hot_region(_one_a_tile(misses, footprint), share)
    if region is None:
        return random_windows(footprint, count, seed, f"{name}-random")
    start, end = region
    down = start + end > len(footprint)
    steps = max(count - 1, 1)
    layouts = []
    for at in range(count):
        moved = at * (end - start) // steps * (-1 if down else 1)
        layouts.append(footprint.window(f"{name}-{at}-of-{steps}", start + moved, end + moved))
    return layouts


def _one_a_tile(misses: NDArray[np.float64], footprint: Footprint) -> NDArray[np.float64]:
    if misses.shape != (len(footprint),):
        raise BadInputError(f"misses of {misses.size} tiles for a space of {len(footprint)}")
    return misses
