"""Warns of predictions that extrapolate beyond the layouts that a model was fitted to."""

from __future__ import annotations

import numpy as np

from .base import number
from .points import LABELS, Array, Points, PointsWarning, independent

_FAR = 1.5
"""A point is far off at this multiple of the largest distance between neighbours, without isolated layouts."""
_MOST = 0.9
"""Share of the layouts that is most of them. The few others may be isolated, and say nothing about gaps elsewhere."""
_ISOLATED, _ISOLATED_ALONE = 3.0, 10.0
"""A layout is isolated if its neighbour is so many times farther off than those of most layouts: in several inputs, and
in one alone, in which distances scatter more."""
_NEAR = 0.02
"""A point is not far off at this share of the range of the layouts that are not isolated, however close they lie."""
_WIDE = 3.0
"""A prediction extrapolates if its interval is so many times wider than at most of the fitted layouts."""
_OUT = 0.1
"""So far outside the measured run times, as a share of their range, models without an interval extrapolate."""


def beyond(points: Points, h: float | None, m: float | None, c: float | None) -> list[PointsWarning]:
    """Warnings, with the distance, of counts outside the training layouts' ranges or far from every layout."""
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
                    f"({number(low)} to {number(high)}), by {_far(excess(values, value))}: the prediction extrapolates",
                )
            )
    if found:
        return found
    inputs = {name: values for name, values in independent(training).items() if given[name] is not None}
    if not inputs:
        return []
    rows = np.column_stack([(values - values.mean()) / values.std() for values in inputs.values()])
    place = np.array([(given[name] - values.mean()) / values.std() for name, values in inputs.items()])
    nearest = float(np.min(np.linalg.norm(rows - place, axis=1)))
    gap, gathered = _spacing(rows)
    if nearest <= max(_FAR * gap, _NEAR * gathered):
        return []
    whole = float(np.linalg.norm(np.ptp(rows, axis=0)))
    names = ", ".join(LABELS[name] for name in inputs)
    if len(inputs) == 1:
        message = (
            f"no layout that was fitted has such a {names}: the nearest differs by {_far(nearest / whole)}; the "
            "prediction rests on the form of the model alone"
        )
    else:
        far = f": the nearest is {nearest / gap:.3g} times as far as layouts have theirs" if gap > 0 else ""
        message = f"no layout that was fitted has such {names} together{far}; the prediction extrapolates"
    return [PointsWarning("extrapolation", message)]


def unlike(
    training: Points, r: float, half_width: float | None = None, widths: Array | None = None
) -> list[PointsWarning]:
    """A warning about a prediction that itself shows that it extrapolates, whatever the counts' distances are.

    ``half_width``: that of its interval, in cycles; ``widths``: of the intervals at the fitted layouts, shape
    (layouts,); None for models without intervals.
    """
    low, high = float(training.r.min()), float(training.r.max())
    out = max(low - r, r - high, 0.0)
    if out > (_OUT * (high - low) if half_width is None else half_width):
        message = (
            f"R lies outside the measured run times ({number(low)} to {number(high)}), by "
            f"{_far(excess(training.r, r))}: the prediction extrapolates"
        )
        return [PointsWarning("extrapolation", message)]
    if half_width is not None and widths is not None and 2 * half_width > _WIDE * _most(widths) > 0:
        message = (
            f"the interval is {2 * half_width / _most(widths):.3g} times as wide as at most layouts that were fitted: "
            "they say little about these counts"
        )
        return [PointsWarning("extrapolation", message)]
    return []


def judged_beyond(points: Points) -> list[PointsWarning]:
    """A warning if test layouts lie outside the training layouts: their errors then judge extrapolation."""
    if "test" not in points.roles or "train" not in points.roles:
        return []
    training, testing = points.role("train"), points.role("test")
    by = {
        name: np.array([excess(values, float(value)) for value in testing.inputs[name]])
        for name, values in training.inputs.items()
    }
    outside = np.any([each > 0 for each in by.values()], axis=0)
    if not outside.any():
        return []
    name = max(by, key=lambda one: float(by[one].max()))
    row = int(np.argmax(by[name]))
    return [
        PointsWarning(
            "extrapolation",
            f"{int(outside.sum())} of {len(testing)} test layouts lie outside the layouts that were fitted, "
            f"{testing.layouts[row]} farthest: its {LABELS[name]} by {_far(float(by[name][row]))}; errors there are "
            "of predictions that extrapolate",
        )
    ]


def excess(fitted: Array, value: float) -> float:
    """Distance of a count from the fitted layouts' range, as a share of that range; 0 inside it, infinite if all fitted
    counts are equal and this one differs."""
    low, high = float(fitted.min()), float(fitted.max())
    out = max(low - value, value - high, 0.0)
    if out == 0.0:
        return 0.0
    return out / (high - low) if high > low else float("inf")


def _far(share: float) -> str:
    if share == float("inf"):
        return "more than can be told (they are all the same)"
    return f"{100 * share:.2g}% of their range" if share < 1 else f"{share:.3g} times their range"


def _most(values: Array) -> float:
    """The value that most of the values do not exceed."""
    return float(np.quantile(values, _MOST, method="lower"))


def _spacing(rows: Array) -> tuple[float, float]:
    """The largest distance of a place to its nearest neighbour, and the range of all; both without isolated places."""
    places = np.unique(rows, axis=0)
    if len(places) < 2:
        return 0.0, 0.0
    neighbours = _neighbours(places)
    kept = neighbours <= (_ISOLATED if rows.shape[1] > 1 else _ISOLATED_ALONE) * _most(neighbours)
    return float(neighbours[kept].max()), float(np.linalg.norm(np.ptp(places[kept], axis=0)))


def _neighbours(rows: Array) -> Array:
    """Distance of each layout to its nearest neighbour."""
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    found: Array = distances.min(axis=1)
    return found
