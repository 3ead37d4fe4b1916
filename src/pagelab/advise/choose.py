"""Chooses the regions that get huge pages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagelab.advise.design import Region
from pagelab.advise.effects import Effects

SURE = 0.8
"""A region is advised if the probability of a gain is at least this."""


@dataclass(frozen=True)
class Choice:
    """The advised regions and their promised gain."""

    chosen: NDArray[np.bool_]
    """Whether each region is advised, shape (regions,)."""
    gain: float | None
    low: float | None
    high: float | None
    """``gain``, ``low``, ``high``: promised gain and its 95% interval, as fractions of the time in base pages; None by
    misses."""
    huge_bytes: int
    left_out: int
    """Number of regions (by misses: tiles) that would gain, but do not fit into the budget."""
    least_left_out: int = 0
    """Bytes of the smallest of them; 0 if there is none."""


def choose(found: list[Region], effects: Effects, budget: int | None) -> Choice:
    """Chooses the regions with the largest gain per byte that fit into ``budget`` bytes of huge pages (None: no limit).

    A region whose gain is less probable than :data:`SURE` gets none. The choice is greedy by gain per byte, followed by
    single exchanges while these gain. Regions are nearly of one size, so the loss against the optimum is small.
    """
    sizes = np.array([region.bytes for region in found], dtype=np.int64)
    worth = np.where(effects.sure >= SURE, effects.mean, 0.0)
    chosen = np.zeros(len(found), dtype=bool)
    room = int(sizes.sum()) if budget is None else budget
    for index in np.argsort(-worth / sizes, kind="stable"):
        if worth[index] > 0 and sizes[index] <= room:
            chosen[index] = True
            room -= int(sizes[index])
    chosen, room = _exchanged(chosen, worth, sizes, room)
    gain, low, high = effects.gain(chosen) if chosen.any() else (0.0, 0.0, 0.0)
    left_out = sizes[(worth > 0) & ~chosen]
    return Choice(
        chosen, gain, low, high, int(sizes[chosen].sum()), len(left_out), int(left_out.min()) if left_out.size else 0
    )


def _exchanged(
    chosen: NDArray[np.bool_], worth: NDArray[np.float64], sizes: NDArray[np.int64], room: int
) -> tuple[NDArray[np.bool_], int]:
    """Single exchanges of a chosen region for another that is worth more and fits."""
    chosen = chosen.copy()
    while True:
        best, pair = 0.0, None
        for out in np.flatnonzero(chosen):
            for into in np.flatnonzero(~chosen & (worth > worth[out]) & (sizes <= room + sizes[out])):
                if worth[into] - worth[out] > best:
                    best, pair = worth[into] - worth[out], (out, into)
        if pair is None:
            return chosen, room
        chosen[pair[0]], chosen[pair[1]] = False, True
        room += int(sizes[pair[0]] - sizes[pair[1]])
