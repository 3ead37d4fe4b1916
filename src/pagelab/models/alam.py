"""Alam's model: every walk cycle adds a cycle to the run time of 2 MiB pages."""

from __future__ import annotations

from .base import anchor_row
from .line import Line
from .points import Points


class Alam:
    """R = C + β with β = R2M − C2M (MOSAIC, section III)."""

    name = "alam"
    own_points: tuple[str, ...] = ("2M",)

    def fit(self, points: Points) -> Line:
        """Needs the layout of 2 MiB pages alone."""
        large = anchor_row(points, "2M", self.name)
        return Line(self.name, {"c": 1.0}, float(points.r[large] - points.c[large]))
