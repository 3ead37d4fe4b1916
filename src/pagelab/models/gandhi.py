"""Gandhi's model: linear in the misses of the TLB, each as long as the mean walk of 4 KiB pages."""

from __future__ import annotations

from pagelab.errors import BadInputError

from .base import anchor_row, needed
from .line import Line
from .points import Points


class Gandhi:
    """R = α·M + β with α = C4K/M4K and β = R2M − C2M (MOSAIC, section III)."""

    name = "gandhi"
    own_points: tuple[str, ...] = ("4K", "2M")

    def fit(self, points: Points) -> Line:
        """Needs M and the layouts of 4 KiB and of 2 MiB pages alone, with misses under 4 KiB pages."""
        misses = needed(points.m, "m", points, self.name)
        small = anchor_row(points, "4K", self.name)
        large = anchor_row(points, "2M", self.name)
        if misses[small] <= 0:
            raise BadInputError(f"cannot fit {self.name} to {points.workload}: no TLB misses under 4K pages")
        alpha = float(points.c[small] / misses[small])
        return Line(self.name, {"m": alpha}, float(points.r[large] - points.c[large]))
