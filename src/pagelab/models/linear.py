"""Models of the literature that are linear: Basu, Gandhi, Pham, Alam and Yaniv, each fitted to one or two layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pagelab.errors import BadInputError

from .base import anchor_row, given, needed, sum_of
from .points import LABELS, Array, Points


@dataclass(frozen=True)
class Line:
    """R = Σ slopes · inputs + intercept; slopes in cycles per count (H, M) or per cycle (C), intercept in cycles."""

    model: str
    slopes: Mapping[str, float]
    """Input (``h``, ``m``, ``c``) → slope."""
    intercept: float

    @property
    def formula(self) -> str:
        return sum_of([(slope, LABELS[name]) for name, slope in self.slopes.items()], self.intercept)

    @property
    def parameters(self) -> dict[str, float]:
        return {**{f"slope_{name}": slope for name, slope in self.slopes.items()}, "intercept": self.intercept}

    def predict(self, h: Any, m: Any, c: Any) -> Array:
        inputs = {"h": h, "m": m, "c": c}
        total: Array = np.asarray(self.intercept, dtype=np.float64)
        for name, slope in self.slopes.items():
            total = total + slope * given(inputs[name], name, self.model)
        return total


class Basu:
    """Basu's model: R is linear in TLB misses; each miss costs the mean walk of 4 KiB pages.

    R = α·M + β with α = C4K/M4K and β = R4K − C4K (MOSAIC, section III).
    """

    name = "basu"
    own_points: tuple[str, ...] = ("4K",)

    def fit(self, points: Points) -> Line:
        """Fits the line. It needs M and the layout of 4 KiB pages alone, which must have misses."""
        misses = needed(points.m, "m", points, self.name)
        small = anchor_row(points, "4K", self.name)
        if misses[small] <= 0:
            raise BadInputError(f"cannot fit {self.name} to {points.workload}: no TLB misses under 4K pages")
        alpha = float(points.c[small] / misses[small])
        return Line(self.name, {"m": alpha}, float(points.r[small] - points.c[small]))


class Gandhi:
    """Gandhi's model: as Basu's, but with the intercept from the layout of 2 MiB pages.

    R = α·M + β with α = C4K/M4K and β = R2M − C2M (MOSAIC, section III).
    """

    name = "gandhi"
    own_points: tuple[str, ...] = ("4K", "2M")

    def fit(self, points: Points) -> Line:
        """Fits the line. It needs M and the layouts of 4 KiB and of 2 MiB pages alone; the former must have misses."""
        misses = needed(points.m, "m", points, self.name)
        small = anchor_row(points, "4K", self.name)
        large = anchor_row(points, "2M", self.name)
        if misses[small] <= 0:
            raise BadInputError(f"cannot fit {self.name} to {points.workload}: no TLB misses under 4K pages")
        alpha = float(points.c[small] / misses[small])
        return Line(self.name, {"m": alpha}, float(points.r[large] - points.c[large]))


HIT_CYCLES = 7.0
"""Latency of the second-level TLB that Intel documents, in cycles; the model uses it for every processor."""


class Pham:
    """Pham's model: every cycle of translation adds a cycle to the run time.

    R = 7·H + C + β with β = R4K − C4K − 7·H4K (MOSAIC, section III).
    """

    name = "pham"
    own_points: tuple[str, ...] = ("4K",)

    def fit(self, points: Points) -> Line:
        """Fits the line. It needs H and the layout of 4 KiB pages alone."""
        hits = needed(points.h, "h", points, self.name)
        small = anchor_row(points, "4K", self.name)
        intercept = float(points.r[small] - points.c[small] - HIT_CYCLES * hits[small])
        return Line(self.name, {"h": HIT_CYCLES, "c": 1.0}, intercept)


class Alam:
    """Alam's model: from the run time with 2 MiB pages on, every further walk cycle adds a cycle.

    R = C + β with β = R2M − C2M (MOSAIC, section III).
    """

    name = "alam"
    own_points: tuple[str, ...] = ("2M",)

    def fit(self, points: Points) -> Line:
        """Fits the line. It needs the layout of 2 MiB pages alone."""
        large = anchor_row(points, "2M", self.name)
        return Line(self.name, {"c": 1.0}, float(points.r[large] - points.c[large]))


class Yaniv:
    """Yaniv's model: the line in walk cycles through the layouts of 4 KiB and of 2 MiB pages.

    R = α·C + β through (C2M, R2M) and (C4K, R4K) (MOSAIC, section III).
    """

    name = "yaniv"
    own_points: tuple[str, ...] = ("4K", "2M")

    def fit(self, points: Points) -> Line:
        """Fits the line. It needs the layouts of 4 KiB and of 2 MiB pages alone, with different C."""
        small, large = anchor_row(points, "4K", self.name), anchor_row(points, "2M", self.name)
        run = float(points.c[small] - points.c[large])
        if run == 0:
            raise BadInputError(
                f"cannot fit {self.name} to {points.workload}: 4K and 2M pages have the same C and define no line"
            )
        alpha = float(points.r[small] - points.r[large]) / run
        return Line(self.name, {"c": alpha}, float(points.r[large] - alpha * points.c[large]))
