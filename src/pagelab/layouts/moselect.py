"""Moselect: chooses few layouts, the first ones by misses, the others by the measured counts.

After Agbarya's selector (the successor of MOSAIC's fixed set of 54): three buckets of tiles with 56, 28 and 14% of the
misses, all their subsets, all tiles; from then on, each layout goes into the largest gap of measured walk cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from pagelab.errors import BadInputError
from pagelab.layouts.campaign import anchors
from pagelab.layouts.footprint import Footprint
from pagelab.layouts.layout import Layout

BUCKETS = (0.56, 0.28, 0.14)


def buckets(misses: NDArray[np.float64], shares: Sequence[float] = BUCKETS) -> list[list[int]]:
    """Positions of tiles in disjoint buckets with about these shares of all ``misses``.

    Tiles are taken from the one with the most misses down; each goes into the bucket that lacks most, if it brings
    that one nearer to its share. Tiles without misses are in none.
    """
    if misses.sum() <= 0:
        raise BadInputError("no misses are known, and moselect chooses by them; give a profile: --profile FILE")
    lacking = [share * float(misses.sum()) for share in shares]
    found: list[list[int]] = [[] for _ in shares]
    for position in np.argsort(-misses, kind="stable").tolist():
        weight = float(misses[position])
        into = max(range(len(lacking)), key=lambda bucket: lacking[bucket])
        if 0 < weight < 2 * lacking[into]:
            found[into].append(position)
            lacking[into] -= weight
    return found


def first_layouts(footprint: Footprint, misses: NDArray[np.float64]) -> list[Layout]:
    """The nine layouts with which moselect begins: every subset of the three buckets, and all tiles."""
    filled = buckets(misses)
    found = []
    for size in range(len(filled) + 1):
        for chosen in combinations(range(len(filled)), size):
            name = "+".join(str(round(100 * BUCKETS[bucket])) for bucket in chosen)
            found.append(
                footprint.at(f"buckets-{name}" if name else "4K", [at for one in chosen for at in filled[one]])
            )
    return [*found, anchors(footprint)[1]]


def next_layout(
    footprint: Footprint, misses: NDArray[np.float64], measured: Sequence[tuple[Layout, float]], name: str
) -> Layout | None:
    """A layout likely to lie in the middle of the largest gap in C, by ``measured`` layouts and their walk cycles.

    Of the two layouts at the gap's ends, tiles that only one has large change over, those with the most misses first,
    as long as the share of misses in large pages comes nearer to the middle of the two. Where all that gives is a
    layout that was measured, the next largest gap is tried; ``None`` where no gap gives a new one.
    Raises :class:`BadInputError` for fewer than two layouts.
    """
    if len(measured) < 2:
        raise BadInputError("the largest gap in C needs at least two measured layouts; measure more")
    ordered = sorted(measured, key=lambda pair: pair[1])
    gaps = sorted(pairwise(ordered), key=lambda pair: pair[0][1] - pair[1][1])
    known = {layout.tiles for layout, _ in measured}
    for (low, low_c), (high, high_c) in gaps:
        if high_c <= low_c:
            return None
        for one, other in ((high, low), (low, high)):
            found = footprint.at(name, _between(footprint, misses, one, other))
            if found.tiles not in known:
                return found
    return None


def _between(footprint: Footprint, misses: NDArray[np.float64], one: Layout, other: Layout) -> set[int]:
    """Positions of ``one``, changed towards ``other`` until half of the difference in misses is covered."""
    mine, theirs = set(footprint.positions(one)), set(footprint.positions(other))
    missing = (misses[sorted(theirs)].sum() - misses[sorted(mine)].sum()) / 2
    found = set(mine)
    for position in sorted(mine ^ theirs, key=lambda at: (-misses[at], at)):
        change = float(misses[position]) * (1 if position in theirs else -1)
        if abs(missing - change) < abs(missing):
            found ^= {position}
            missing -= change
    return found
