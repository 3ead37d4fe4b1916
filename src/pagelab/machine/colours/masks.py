"""Finds XORs of frame-number bits that separate conflicting pages from others, by linear algebra over GF(2).

The index of a cache with 2^n sets is, in all known hashes, a linear function of the physical address. Then there are
masks m whose parity(m & frame) is constant on every group of pages that share their cache sets. These masks are the
null space of the differences within the groups. In a guest whose host scatters its pages there are none: the
differences span everything.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

SPARE = 8
"""Pages beyond the dimension in each draw: a random set has a null space only with probability 2**-SPARE."""
_DRAWS = 64
AGREEMENT = 0.9
"""Share of each class that must have one value, since timing sometimes takes a page for a conflicting one."""


def parity(mask: int, frame: int) -> int:
    """1 if an odd number of the mask's bits are set in the frame number, else 0."""
    return (mask & frame).bit_count() & 1


def colour(masks: Sequence[int], frame: int) -> int:
    """The colour of a frame: bit i is the parity under mask i."""
    return sum(parity(mask, frame) << bit for bit, mask in enumerate(masks))


def explaining(classes: Sequence[Sequence[int]], candidates: Sequence[int], *, seed: int = 1) -> list[int]:
    """Independent masks that are constant within every class, but not over all candidates; empty if there are none.

    ``classes`` are frame numbers of pages that conflict, ``candidates`` those of all pages that were tried. Each draw
    takes a few pages of one class. Its masks count only if they hold for :data:`AGREEMENT` of every class, so that
    single misjudged pages do no harm. Masks use the lowest bits possible.
    """
    if not classes or not candidates:
        return []
    space = _basis(frame ^ candidates[0] for frame in candidates)
    rng = random.Random(seed)
    best: list[int] = []
    for _ in range(_DRAWS):
        members = rng.choice(classes)
        if len(members) < len(space) + SPARE:
            continue
        drawn = rng.sample(list(members), len(space) + SPARE)
        found = _null(space, [frame ^ drawn[0] for frame in drawn[1:]])
        if len(found) > len(best) and all(_agreement(found, members) >= AGREEMENT for members in classes):
            best = found
    return best


def purity(classes: Sequence[Sequence[int]], colours: int) -> float:
    """Share of the pages whose nominal colour (frame modulo ``colours``) is the most frequent of their class."""
    total = sum(len(members) for members in classes)
    common = sum(Counter(frame % colours for frame in members).most_common(1)[0][1] for members in classes if members)
    return common / total if total else 0.0


def _agreement(masks: Sequence[int], members: Sequence[int]) -> float:
    counts = Counter(colour(masks, frame) for frame in members)
    return counts.most_common(1)[0][1] / len(members)


def _basis(vectors: Iterable[int]) -> dict[int, int]:
    """A reduced basis by pivot; a vector's pivot is its lowest bit, which no other vector of the basis has."""
    basis: dict[int, int] = {}
    for vector in vectors:
        for pivot, other in basis.items():
            if vector & pivot:
                vector ^= other
        if vector:
            lowest = vector & -vector
            for pivot, other in basis.items():
                if other & lowest:
                    basis[pivot] = other ^ vector
            basis[lowest] = vector
    return basis


def _null(space: dict[int, int], differences: list[int]) -> list[int]:
    """A basis of the masks over the space's pivots whose parity with every difference is 0.

    The pivot bits of a vector of the space are its coordinates, so every linear function on the space is one mask
    over the pivots.
    """
    pivots = sorted(space)
    everything = sum(pivots)
    rows = _basis(difference & everything for difference in differences)
    free = [bit for bit in pivots if bit not in rows]
    # In each row, the pivot equals the sum of the row's free bits. Each free bit makes one mask.
    return [bit | sum(pivot for pivot, row in rows.items() if row & bit) for bit in free]
