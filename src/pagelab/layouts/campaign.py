"""Makes the layouts of a campaign: growing, random and sliding windows in the paper's proportions (MOSAIC, VI-B).

A campaign fits models to these, and judges them by other layouts, drawn at random.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pagelab.errors import BadInputError
from pagelab.layouts.footprint import Footprint
from pagelab.layouts.layout import Distinct, Layout, distinct
from pagelab.layouts.windows import SHARES, growing, random_window, random_windows, sliding


def kinds(footprint: Footprint) -> list[Layout]:
    """A layout for each subset of the used pools: the subset's pools in large pages, the others in base pages.

    Named after the pools in large pages (``4K``: none), in the order of a full factorial design, in which the last
    pool changes first.
    """
    found = []
    for chosen in product((False, True), repeat=len(footprint.pools)):
        large = [pool for pool, on in zip(footprint.pools, chosen, strict=True) if on]
        tiles = [at for at, (pool, _) in enumerate(footprint.tiles) if pool in large]
        found.append(footprint.at("+".join(large) or "4K", tiles))
    return found


def anchors(footprint: Footprint) -> tuple[Layout, Layout]:
    """The two layouts that every campaign has: base pages only, and large pages wherever the program has memory.

    Named by their page sizes, ``4K`` and (with the usual tiles) ``2M``.
    """
    large = f"{footprint.page_bytes >> 20}M" if footprint.page_bytes < 1 << 30 else f"{footprint.page_bytes >> 30}G"
    return Layout("4K", ()), footprint.window(large, 0, len(footprint))


PAPER = 54
"""9 growing windows, 9 random ones, 9 sliding ones for each of four shares of misses."""
FEWEST = 2 + 1 + len(SHARES)


def shares(count: int) -> tuple[int, int, tuple[int, ...]]:
    """Divides ``count`` layouts: a sixth growing, a sixth random, and the rest sliding, for each share of misses.

    At least two grow: the anchors. Raises :class:`BadInputError` for fewer than :data:`FEWEST`.
    """
    if count < FEWEST:
        raise BadInputError(f"{count} layouts: at least {FEWEST} (two growing, one random, one sliding for each share)")
    grow, drawn = max(2, round(count / 6)), max(1, round(count / 6))
    each, more = divmod(count - grow - drawn, len(SHARES))
    return grow, drawn, tuple(each + (at < more) for at in range(len(SHARES)))


def campaign(
    footprint: Footprint, misses: NDArray[np.float64] | None = None, count: int = PAPER, seed: int = 0
) -> Distinct:
    """``count`` layouts over ``footprint``; those that coincide are merged, and the result lists the merged ones.

    ``misses``: of each tile with base pages; without them, windows that would slide are random. The anchors keep
    their names. Raises :class:`BadInputError`.
    """
    grow, drawn, slide = shares(count)
    layouts = [*growing(footprint, grow), *random_windows(footprint, drawn, seed)]
    for share, number in zip(SHARES, slide, strict=True):
        layouts += sliding(footprint, misses, share, number, seed)
    small, large = anchors(footprint)
    layouts[0], layouts[grow - 1] = small, large
    return distinct(layouts)


FEWEST_JUDGES = 12
"""Layouts that judge models."""
_WINDOWS = 4
_TRIES = 1000


def judges(
    footprint: Footprint, count: int = FEWEST_JUDGES, *, without: Sequence[Layout] = (), seed: int = 0
) -> list[Layout]:
    """``count`` random layouts that only judge models: choosing, fitting and stopping do not use them.

    No two of them coincide, and none with one of ``without``.
    Each is the union of one to four random windows, so that scattered mixtures are judged as well as single windows.
    Raises :class:`BadInputError` for fewer than :data:`FEWEST_JUDGES`, and where so few tiles are used that there are
    not as many different ones.
    """
    if count < FEWEST_JUDGES:
        raise BadInputError(f"{count} test layouts: at least {FEWEST_JUDGES}, or they judge nothing")
    draw = random.Random(f"test {seed}")
    taken = {layout.tiles for layout in without}
    found: list[Layout] = []
    for _ in range(count * _TRIES):
        windows = [random_window(footprint, draw) for _ in range(draw.randint(1, _WINDOWS))]
        positions = {at for start, end in windows for at in range(start, end)}
        layout = footprint.at(f"test-{len(found)}", positions)
        if layout.tiles not in taken:
            taken.add(layout.tiles)
            found.append(layout)
            if len(found) == count:
                return found
    fewer = f", or take fewer tests (at least {FEWEST_JUDGES})" if count > FEWEST_JUDGES else ""
    raise BadInputError(
        f"{count} test layouts: the program uses {len(footprint)} tiles, which have fewer different layouts beside "
        f"the others; give it a larger input{fewer}"
    )
