"""Finds two layouts that contradict each other: one has fewer walk cycles, but runs longer.

Take a model in which R never falls when its inputs rise, and two layouts; no input of the second is lower than that of
the first. The model then predicts at least as much for the second. If the measured R₁ > R₂, its relative error on one
of the two is at least (R₁ − R₂)/(R₁ + R₂), which the best common prediction reaches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .points import Points


@dataclass(frozen=True)
class Contradiction:
    """The two layouts that contradict each other most."""

    inputs: tuple[str, ...]
    """The inputs with which the model rises: ``c``, or ``h``, ``m``, ``c``."""
    error: float
    """The smallest maximal relative error that such a model can have; 0 if no two layouts contradict each other."""
    longer: str
    """The layout that runs longer though none of its inputs is higher; empty if there is none."""
    shorter: str


def contradiction(points: Points, inputs: tuple[str, ...]) -> Contradiction:
    """Returns the largest contradiction of all pairs of layouts. KeyError for inputs that the points do not have."""
    columns = [points.inputs[name] for name in inputs]
    below = np.all([column[:, None] <= column[None, :] for column in columns], axis=0)
    error = (points.r[:, None] - points.r[None, :]) / (points.r[:, None] + points.r[None, :])
    error = np.where(below, error, 0.0)
    first, second = np.unravel_index(int(np.argmax(error)), error.shape)
    largest = float(error[first, second])
    if largest <= 0:
        return Contradiction(inputs, 0.0, "", "")
    return Contradiction(inputs, largest, points.layouts[first], points.layouts[second])
