"""Rounds of mosaics: coarse regions first, then finer ones where something gains and coarser ones where nothing does.

A pair of a mosaic and its complement says of every region's gain equally much, however many regions there are; so the
gain of a block of memory that is one region is told from noise sooner than that of ten regions which have a tenth of it
each. The first round therefore has few regions. Each further round halves those that may gain and joins neighbours that
do not seem to; where no region stands out, it joins them all by twos. All rounds count for the last one's regions: in a
round whose regions were others, the part of a region that was huge is what counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagelab.advise.design import TILE, Region, rows
from pagelab.advise.effects import Effects, differences, effects

Array = NDArray[np.float64]

FIRST = 7
"""Regions of the first round, where the time allows so many."""
MOST = 15
"""Regions of any round."""
ROUNDS = 8
"""At most; each has about half of the executions that are left."""
_MAY, _HARDLY = 0.5, 0.2
"""Probabilities of a gain: above the one a region may stand out, below the other it is joined with such neighbours."""
_CLEAR = 6.0
"""Standard deviations by which a gain is above nothing where its region is halved: each half has to be told, too."""


@dataclass(frozen=True)
class Round:
    """Mosaics that ran, and their times."""

    regions: list[Region]
    included: NDArray[np.bool_]
    """Shape (mosaics, regions): which were huge; row 2k + 1 is the complement of row 2k."""
    times: Array
    """Shape (blocks, mosaics); those of a pair ran next to each other. NaN: the execution failed."""


def estimated(rounds: Sequence[Round], regions: Sequence[Region], rng: np.random.Generator) -> Effects:
    """Gains of ``regions`` from the pairs of all rounds. Raises ValueError with fewer than two whole pairs."""
    shares, found = [], []
    for one in rounds:
        signs = np.where(one.included[0::2], 1.0, -1.0) @ _parts(one.regions, regions)
        first, second = one.times[:, 0::2], one.times[:, 1::2]
        whole = np.isfinite(first) & np.isfinite(second)
        shares.append(np.broadcast_to(signs, (*first.shape, len(regions)))[whole])
        found.append(differences(first[whole], second[whole]))
    return effects(np.concatenate(shares), np.concatenate(found), rng)


def refined(regions: Sequence[Region], found: Effects) -> list[Region]:
    """The regions of the next round, after what all rounds found of these."""
    if found.sure.max() < _MAY:
        return _joined_by_twos(regions) if len(regions) > 3 else list(regions)
    clear = found.mean / np.maximum(found.draws.std(axis=0), 1e-12)
    room = MOST - len(regions)
    halved = [at for at in np.argsort(-clear) if clear[at] >= _CLEAR and regions[at].bytes > TILE][:room]
    new: list[Region] = []
    hardly = False
    for at, region in enumerate(regions):
        before, hardly = hardly, found.sure[at] < _HARDLY
        if before and hardly and _adjoin(new[-1], region):
            new[-1] = Region(region.pool, new[-1].start, region.end)
        else:
            new += _halves(region) if at in halved else [region]
    return new


def blocks_for(regions: int, executions: int, *, first: bool) -> int:
    """How often each mosaic of the next round runs: about half of the ``executions`` that are left for all rounds.

    None fits: 0. Where what would be left is too little for another round, this one has it.
    """
    each = rows(regions)
    least = 2 if first else 1
    if executions < least * each:
        return 0
    wanted = max(least, round(executions / 2 / each))
    return executions // each if executions - wanted * each < rows(FIRST) else wanted


def _parts(old: Sequence[Region], new: Sequence[Region]) -> Array:
    """Shape (old, new): the share of each new region that lies in each old one."""
    found = np.zeros((len(old), len(new)))
    for i, one in enumerate(old):
        for j, other in enumerate(new):
            if one.pool == other.pool:
                found[i, j] = max(0, min(one.end, other.end) - max(one.start, other.start)) / other.bytes
    return found


def _adjoin(one: Region, other: Region) -> bool:
    return one.pool == other.pool and one.end == other.start


def _joined_by_twos(regions: Sequence[Region]) -> list[Region]:
    found: list[Region] = []
    alone = False
    for region in regions:
        if alone and _adjoin(found[-1], region):
            found[-1] = Region(region.pool, found[-1].start, region.end)
            alone = False
        else:
            found.append(region)
            alone = True
    return found


def _halves(region: Region) -> list[Region]:
    middle = region.start + region.bytes // TILE // 2 * TILE
    return [Region(region.pool, region.start, middle), Region(region.pool, middle, region.end)]
