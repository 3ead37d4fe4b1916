"""Random windows: a window of random length at a random place has large pages (MOSAIC, section VI-B)."""

from __future__ import annotations

import random

from pagelab.errors import BadInputError
from pagelab.layouts.footprint import Footprint
from pagelab.layouts.layout import Layout


def random_window(footprint: Footprint, draw: random.Random) -> tuple[int, int]:
    """Positions [start, end): every length from one tile to all is equally likely, then every place where it fits."""
    length = draw.randint(1, len(footprint))
    start = draw.randint(0, len(footprint) - length)
    return start, start + length


def random_windows(footprint: Footprint, count: int, seed: int, prefix: str = "random") -> list[Layout]:
    """``count`` layouts with a random window each, drawn by ``seed`` (and ``prefix``); some may coincide.

    Raises :class:`BadInputError` for fewer than one.
    """
    if count < 1:
        raise BadInputError(f"{count} random windows: at least 1")
    draw = random.Random(f"{prefix} {seed}")
    return [footprint.window(f"{prefix}-{at}", *random_window(footprint, draw)) for at in range(count)]
