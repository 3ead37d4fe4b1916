"""A fitted model that is linear in its inputs: what Basu, Gandhi, Pham, Alam and Yaniv give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .base import given, sum_of
from .points import LABELS, Array


@dataclass(frozen=True)
class Line:
    """R = Σ slopes · inputs + intercept; slopes in cycles a count (H, M) or cycles a cycle (C), intercept in cycles."""

    model: str
    slopes: Mapping[str, float]
    """By input: ``h``, ``m``, ``c``."""
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
