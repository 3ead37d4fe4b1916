"""Sliding windows: the hot region's window leaves it step by step (MOSAIC, section VI-B)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pagelab.errors import BadInputError
from pagelab.layouts.footprint import Footprint
from pagelab.layouts.hot_region import hot_region
from pagelab.layouts.layout import Layout
from pagelab.layouts.random_windows import random_windows

SHARES = (0.2, 0.4, 0.6, 0.8)
"""Of all misses, in the hot regions of the paper's campaign."""


def sliding(
    footprint: Footprint, misses: NDArray[np.float64] | None, share: float, count: int, seed: int
) -> list[Layout]:
    """``count`` layouts; the first window is the hot region with ``share`` of the ``misses`` (one number a tile).

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
