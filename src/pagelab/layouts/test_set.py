"""Layouts that judge models: drawn at random, and no part of what chooses, fits or stops."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pagelab.errors import BadInputError
from pagelab.layouts.footprint import Footprint
from pagelab.layouts.layout import Layout
from pagelab.layouts.windows import random_window

FEWEST = 12
_WINDOWS = 4
_TRIES = 1000


def judges(footprint: Footprint, count: int = FEWEST, *, without: Sequence[Layout] = (), seed: int = 0) -> list[Layout]:
    """``count`` layouts of which no two coincide, and none with one of ``without``.

    Each is the union of one to four random windows, so that scattered mixtures are judged as well as single windows.
    Raises :class:`BadInputError` for fewer than :data:`FEWEST`, and where so few tiles are used that there are not as
    many different ones.
    """
    if count < FEWEST:
        raise BadInputError(f"{count} test layouts: at least {FEWEST}, or they judge nothing")
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
    raise BadInputError(
        f"{count} test layouts: the program uses {len(footprint)} tiles, of which there are not as many different "
        "layouts beside the others; give it a larger input, or take fewer layouts"
    )
