"""Pham's model: every cycle of translation adds a cycle to the run time."""

from __future__ import annotations

from .base import anchor_row, needed
from .line import Line
from .points import Points

HIT_CYCLES = 7.0
"""Latency of the second-level TLB that Intel documents, which the model takes for every processor."""


class Pham:
    """R = 7·H + C + β with β = R4K − C4K − 7·H4K (MOSAIC, section III)."""

    name = "pham"
    own_points: tuple[str, ...] = ("4K",)

    def fit(self, points: Points) -> Line:
        """Needs H and the layout of 4 KiB pages alone."""
        hits = needed(points.h, "h", points, self.name)
        small = anchor_row(points, "4K", self.name)
        intercept = float(points.r[small] - points.c[small] - HIT_CYCLES * hits[small])
        return Line(self.name, {"h": HIT_CYCLES, "c": 1.0}, intercept)
