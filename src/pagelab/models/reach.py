"""How far a prediction reaches beyond the layouts that a model was fitted to."""

from __future__ import annotations

import numpy as np

from .base import number
from .points import LABELS, Array, Points, PointsWarning, independent

_FAR = 1.5
"""Times the widest gap between neighbouring layouts."""


def beyond(points: Points, h: float | None, m: float | None, c: float | None) -> list[PointsWarning]:
    """Warnings for counts outside those of the training layouts, or far from all of them together."""
    training = points.role("train")
    given = {"h": h, "m": m, "c": c}
    found = []
    for name, values in training.inputs.items():
        value = given[name]
        if value is None:
            continue
        low, high = float(values.min()), float(values.max())
        if not low <= value <= high:
            found.append(
                PointsWarning(
                    "extrapolation",
                    f"{LABELS[name]} = {number(value)} lies outside the layouts that were fitted "
                    f"({number(low)} to {number(high)}): the prediction extrapolates",
                )
            )
    if found:
        return found
    inputs = {name: values for name, values in independent(training).items() if given[name] is not None}
    if len(inputs) < 2:
        return []
    rows = np.column_stack([(values - values.mean()) / values.std() for values in inputs.values()])
    place = np.array([(given[name] - values.mean()) / values.std() for name, values in inputs.items()])
    if float(np.min(np.linalg.norm(rows - place, axis=1))) > _FAR * _widest(rows):
        names = ", ".join(LABELS[name] for name in inputs)
        message = f"no layout that was fitted has such {names} together: the prediction extrapolates"
        found.append(PointsWarning("extrapolation", message))
    return found


def _widest(rows: Array) -> float:
    """The largest distance from a layout to its nearest neighbour."""
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    return float(distances.min(axis=1).max())
