"""Simulated counts beside counted ones, layout by layout.

A ratio that is the same in all layouts is a scale, which cancels in fitted models. What differs between layouts stays
in predictions from simulated counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .points import LABELS, Points

SIMULATED = "simulated_"
"""Begins the names of the further columns that have simulated H, M and C of counted points."""


@dataclass(frozen=True)
class Agreement:
    """Simulated over counted, of the layouts in which events were counted at all."""

    input: str
    """H, M or C."""
    median: float
    low: float
    lowest: str
    """The layout of ``low``."""
    high: float
    highest: str


def agreements(points: Points) -> list[Agreement]:
    """One for each input of counted points that was simulated as well; none where it was counted nowhere."""
    found = []
    for name, counted in points.inputs.items():
        simulated = points.extra.get(f"{SIMULATED}{name}")
        if points.source != "counted" or simulated is None:
            continue
        rows = np.flatnonzero((counted > 0) & np.isfinite(simulated))
        if rows.size == 0:
            continue
        ratios = simulated[rows] / counted[rows]
        low, high = int(np.argmin(ratios)), int(np.argmax(ratios))
        found.append(
            Agreement(
                input=LABELS[name],
                median=float(np.median(ratios)),
                low=float(ratios[low]),
                lowest=points.layouts[rows[low]],
                high=float(ratios[high]),
                highest=points.layouts[rows[high]],
            )
        )
    return found
