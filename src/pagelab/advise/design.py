"""Random mosaics that show what each region of a program's memory gains by huge pages.

A region is a run of whole tiles of one pool. Each mosaic has about half of the regions in huge pages; mosaics come in
pairs of a mosaic and its complement. The rows are those of a Hadamard matrix: every region is huge in half of the
mosaics, and any two regions are huge together in a quarter of them. So the effect of each region is estimated from all
executions, apart from the effects of the others (Plackett and Burman, Biometrika 33, 1946); and because every row has
its complement, products of two regions' effects bias none of them (fold-over; Box and Wilson 1951).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard

TILE = 2 << 20
"""Bytes of a tile: regions are made of whole ones."""
SIZES = (3, 7, 15, 31, 63)
"""Numbers of regions for which a Hadamard matrix of Sylvester's kind has one column each, beside the constant."""


@dataclass(frozen=True)
class Region:
    """A run of whole tiles of one pool: offsets in it, bytes."""

    pool: str
    """``heap``, ``anon`` or ``arenas``; mosaics have the arenas in ``anon``."""
    start: int
    end: int

    @property
    def bytes(self) -> int:
        """Its length."""
        return self.end - self.start


def regions(used: Mapping[str, int], most: int) -> list[Region]:
    """At most ``most`` regions over the used parts of the pools; ``used``: bytes from the beginning of each.

    Tiles are shared out evenly; a region never reaches from one pool into another. A pool of which less than half a
    tile is used is left out; where all pools together use less than a tile, nothing is left.
    """
    if sum(used.values()) < TILE:
        return []
    tiles = {pool: -(-size // TILE) for pool, size in used.items() if size >= TILE // 2}
    total = sum(tiles.values())
    if most < len(tiles):
        return []
    # Largest remainders, with at least one region a pool.
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
    """Mosaics of a design for ``count`` regions, complements included."""
    return 2 * _order(count)


def mosaics(count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Shape (rows, count): which regions are huge in which mosaic; row 2k + 1 is the complement of row 2k.

    Which column a region gets, the order of the pairs and which of a pair comes first are random.
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
