"""Layouts that contradict each other: fewer walk cycles, and yet a longer run time.

A model in which R never falls when its inputs rise predicts at least as much for the second of two layouts as for the
first, where none of the inputs is lower. Where R₁ > R₂ nevertheless, its error on one of the two is at least
(R₁ − R₂)/(R₁ + R₂): the prediction for both that makes the larger relative error least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .points import Points


@dataclass(frozen=True)
class Contradiction:
    """The two layouts that contradict each other most."""

    inputs: tuple[str, ...]
    """Of a model that rises with these: ``c``, or ``h``, ``m``, ``c``."""
    error: float
    """Least maximal relative error of any such model; 0 where no two layouts contradict each other."""
    longer: str
    """The layout with the longer run time and inputs that are nowhere higher; empty where there is none."""
    shorter: str


def contradiction(points: Points, inputs: tuple[str, ...]) -> Contradiction:
    """The largest of all pairs. KeyError for inputs that the points do not have."""
    columns = [points.inputs[name] for name in inputs]
    below = np.all([column[:, None] <= column[None, :] for column in columns], axis=0)
    error = (points.r[:, None] - points.r[None, :]) / (points.r[:, None] + points.r[None, :])
    error = np.where(below, error, 0.0)
    first, second = np.unravel_index(int(np.argmax(error)), error.shape)
    largest = float(error[first, second])
    if largest <= 0:
        return Contradiction(inputs, 0.0, "", "")
    return Contradiction(inputs, largest, points.layouts[first], points.layouts[second])
