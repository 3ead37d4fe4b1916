"""Draws executions in a terminal: a row per condition, in which a column's height is the number of executions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from pagelab.analysis import wording
from pagelab.analysis.model import Metric

WIDTH = 41
_HEIGHTS = "▁▂▃▄▅▆▇█"
_FAR = 0.02
"""The share of times at each end that the outermost column shows: otherwise a single extreme execution would leave too
little room for all others.
"""


@dataclass(frozen=True)
class Row:
    label: str
    times: NDArray[np.float64]
    text: str


def strip(rows: Sequence[Row], metric: Metric) -> list[str]:
    """The lines to print: the axis, then the rows; in each row, the highest column has the most executions."""
    together = np.concatenate([row.times for row in rows])
    low, high = (float(value) for value in np.quantile(together, [_FAR, 1 - _FAR]))
    if low == high:
        return []
    labels = max(len(row.label) for row in rows)
    ends = wording.in_one_unit([low, high], metric, 3)
    lines = [f"{'':{labels}}  {ends[0]}{ends[1]:>{WIDTH - len(ends[0])}}"]
    for row in rows:
        places = np.clip((row.times - low) / (high - low) * (WIDTH - 1), 0, WIDTH - 1).round().astype(int)
        counts = np.bincount(places, minlength=WIDTH)
        cells = [_HEIGHTS[ceil(n / counts.max() * len(_HEIGHTS)) - 1] if n else " " for n in counts]
        lines.append(f"{row.label:<{labels}}  {''.join(cells)}  {row.text}")
    return lines


def bar(shares: Sequence[tuple[str, float]], width: int = WIDTH) -> str:
    """A bar of the parts of a whole, each with a character of its own; a part above 0 has at least one cell."""
    cells, done, so_far = "", 0, 0.0
    for number, (cell, share) in enumerate(shares):
        so_far += share
        end = width if number == len(shares) - 1 else min(width, max(round(so_far * width), done + (share > 0)))
        cells += cell * (end - done)
        done = end
    return cells
