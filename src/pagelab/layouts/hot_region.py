"""The hot region: the shortest window of the space that holds a share of all misses (MOSAIC, section VI-B)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pagelab.errors import BadInputError


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
