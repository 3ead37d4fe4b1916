"""Yaniv's model: the line in walk cycles through the layouts of 4 KiB and of 2 MiB pages."""

from __future__ import annotations

from pagelab.errors import BadInputError

from .base import anchor_row
from .line import Line
from .points import Points


class Yaniv:
    """R = α·C + β through (C2M, R2M) and (C4K, R4K) (MOSAIC, section III)."""

    name = "yaniv"
    own_points: tuple[str, ...] = ("4K", "2M")

    def fit(self, points: Points) -> Line:
        """Needs the layouts of 4 KiB and of 2 MiB pages alone, with different C."""
        small, large = anchor_row(points, "4K", self.name), anchor_row(points, "2M", self.name)
        run = float(points.c[small] - points.c[large])
        if run == 0:
            raise BadInputError(
                f"cannot fit {self.name} to {points.workload}: 4K and 2M pages have the same C, and no line is told"
            )
        alpha = float(points.r[small] - points.r[large]) / run
        return Line(self.name, {"c": alpha}, float(points.r[large] - alpha * points.c[large]))
