"""The layouts of a campaign: growing, random and sliding windows in the paper's proportions (MOSAIC, section VI-B)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pagelab.errors import BadInputError
from pagelab.layouts.anchors import anchors
from pagelab.layouts.footprint import Footprint
from pagelab.layouts.growing import growing
from pagelab.layouts.layout import Distinct, distinct
from pagelab.layouts.random_windows import random_windows
from pagelab.layouts.sliding import SHARES, sliding

PAPER = 54
"""9 growing windows, 9 random ones, 9 sliding ones for each of four shares of misses."""
FEWEST = 2 + 1 + len(SHARES)


def shares(count: int) -> tuple[int, int, tuple[int, ...]]:
    """How many of ``count`` layouts are growing, random, and sliding for each share: a sixth, a sixth, and the rest.

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
    """``count`` layouts over ``footprint``; those that coincide are merged, and which is told.

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
