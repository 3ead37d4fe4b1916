"""Every kind of memory in base pages or in large ones: 2 to the power of the kinds that the program uses."""

from __future__ import annotations

from itertools import product

from pagelab.layouts.footprint import Footprint
from pagelab.layouts.layout import Layout


def kinds(footprint: Footprint) -> list[Layout]:
    """A layout for each subset of the pools that are used, named after those in large pages (``4K``: none).

    In the order of a full factorial design: the last pool changes first.
    """
    found = []
    for chosen in product((False, True), repeat=len(footprint.pools)):
        large = [pool for pool, on in zip(footprint.pools, chosen, strict=True) if on]
        tiles = [at for at, (pool, _) in enumerate(footprint.tiles) if pool in large]
        found.append(footprint.at("+".join(large) or "4K", tiles))
    return found
