"""Designs random mosaics that show how much each region of a program's memory gains from huge pages.

A region is a run of whole tiles of one pool. Each mosaic has about half of the regions in huge pages, and is paired
with its complement. The mosaics are the rows of a Hadamard matrix: every region is huge in half of the mosaics, and any
two regions are huge together in a quarter of them. So each region's effect is estimated from all executions, separately
from the others' effects (Plackett and Burman, Biometrika 33, 1946). Because every row has its complement, interactions
of two regions bias none of the effects (fold-over; Box and Wilson 1951).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard

TILE = 2 << 20
"""Bytes of a tile; regions are made of whole tiles."""
SIZES = (3, 7, 15, 31, 63)
"""Numbers of regions for which a Hadamard matrix of Sylvester's kind has one column each, beside the constant."""


@dataclass(frozen=True)
class Region:
    """A run of whole tiles of one pool; offsets in the pool, in bytes."""

    pool: str
    """``heap``, ``anon`` or ``arenas``; in mosaics, arenas lie in ``anon``."""
    start: int
    end: int

    @property
    def bytes(self) -> int:
        """Length of the region in bytes."""
        return self.end - self.start


def regions(used: Mapping[str, int], most: int) -> list[Region]:
    """At most ``most`` regions over the used parts of the pools; ``used``: bytes from the beginning of each pool.

    Tiles are shared out evenly, and no region crosses pools. A pool with less than half a tile in use is left out; if
    all pools together use less than a tile, there are no regions.
    """
    if sum(used.values()) < TILE:
        return []
    tiles = {pool: -(-size // TILE) for pool, size in used.items() if size >= TILE // 2}
    total = sum(tiles.values())
    if most < len(tiles):
        return []
    # Method of largest remainders, with at least one region per pool.
    shares = {pool: min(count, max(1, most * count // total)) for pool, count in tiles.items()}
    while sum(shares.values()) > most:
        shares[max(shares, key=lambda pool: shares[pool])] -= 1
    while sum(shares.values()) < min(most, total):
        room = [pool for pool in tiles if shares[pool] < tiles[pool]]
        shares[max(room, key=lambda pool: tiles[pool] / shares[pool])] += 1
    found = []
    for pool, count in tiles.items():
        cuts = np.linspace(0, count, shares[pool] + 1).round().astype(int)
        found += [Region(pool, int(a) * TILE, int(b) * TILE) for a, b in pairwise(cuts) if b > a]
    return found


def rows(count: int) -> int:
    """Number of mosaics in a design for ``count`` regions, complements included."""
    return 2 * _order(count)


def mosaics(count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which regions are huge in which mosaic, shape (rows, count); row 2k + 1 is the complement of row 2k.

    Random are: the column of each region, the order of the pairs, and which of a pair comes first.
    """
    order = _order(count)
    matrix = hadamard(order)[:, 1:] > 0
    columns = rng.permutation(order - 1)[:count]
    half = matrix[rng.permutation(order)][:, columns] ^ rng.integers(0, 2, (order, 1)).astype(bool)
    found = np.empty((2 * order, count), dtype=bool)
    found[0::2], found[1::2] = half, ~half
    return found


def _order(count: int) -> int:
    """The smallest power of two above ``count``, at least four."""
    if count < 1:
        raise ValueError("a design needs a region")
    return max(4, 1 << count.bit_length())
