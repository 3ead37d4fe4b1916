"""Growing windows: an ever larger part of the space, from its beginning, has large pages (MOSAIC, section VI-B)."""

from __future__ import annotations

from pagelab.errors import BadInputError
from pagelab.layouts.footprint import Footprint
from pagelab.layouts.layout import Layout


def growing(footprint: Footprint, count: int) -> list[Layout]:
    """``count`` layouts; the window of the i-th covers the first i/(count-1) of the space, rounded down to whole tiles.

    So the first has base pages only and the last large pages only; one alone has base pages. The paper's N is
    ``count - 1``. Raises :class:`BadInputError` for fewer than one.
    """
    if count < 1:
        raise BadInputError(f"{count} growing windows: at least 1")
    steps = max(count - 1, 1)
    return [footprint.window(f"growing-{at}-of-{steps}", 0, at * len(footprint) // steps) for at in range(count)]
