"""The two layouts that every campaign has: base pages only, and large pages wherever the program has memory."""

from __future__ import annotations

from pagelab.layouts.footprint import Footprint
from pagelab.layouts.layout import Layout


def anchors(footprint: Footprint) -> tuple[Layout, Layout]:
    """Named by their page sizes, ``4K`` and (with the usual tiles) ``2M``."""
    large = f"{footprint.page_bytes >> 20}M" if footprint.page_bytes < 1 << 30 else f"{footprint.page_bytes >> 30}G"
    return Layout("4K", ()), footprint.window(large, 0, len(footprint))
