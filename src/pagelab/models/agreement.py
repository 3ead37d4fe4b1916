"""Compares simulated counts with counts of the hardware, layout by layout.

A ratio that is the same in all layouts is a scale, and cancels in fitted models. A ratio that differs between layouts
is an error that predictions from simulated counts keep.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .points import LABELS, Points

SIMULATED = "simulated_"
"""Prefix of the extra columns that hold the simulated H, M and C of counted points."""


@dataclass(frozen=True)
class Agreement:
    """Ratios of simulated to counted values of one input, over the layouts in which any event was counted."""

    input: str
    """H, M or C."""
    median: float
    low: float
    lowest: str
    """Name of the layout with the ratio ``low``."""
    high: float
    highest: str


def agreements(points: Points) -> list[Agreement]:
    """Returns one `Agreement` for each counted input that was also simulated and is above 0 in some layout."""
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
