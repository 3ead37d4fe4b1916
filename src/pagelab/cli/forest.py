"""A forest plot in a terminal: one row a condition, its interval on a linear axis, and words at the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagelab.analysis import wording
from pagelab.analysis.answer import NEGLIGIBLE, reach

WIDTH = 41
"""Columns of the axis: odd, so that a symmetric one has a middle."""

LIMIT = "┊"


@dataclass(frozen=True)
class Row:
    label: str
    change: float | None
    low: float | None
    high: float | None
    words: str


def forest(rows: list[Row], marks: Sequence[float] = ()) -> list[str]:
    """The rows in their order, under an axis in percent. Dotted: changes of at most 3%. ``marks``: limits."""
    ends = [(row.low, row.high) for row in rows if row.low is not None and row.high is not None]
    if not ends:
        return [f"{row.label}  {row.words}" for row in rows]
    low, high = reach(ends, marks)
    labels = max(len(row.label) for row in rows)

    def place(value: float) -> int:
        return round((value - low) / (high - low) * (WIDTH - 1))

    lines = [" " * (labels + 2) + _axis(low, high, place(0.0))]
    for row in rows:
        cells = ["·" if abs(low + i * (high - low) / (WIDTH - 1)) <= NEGLIGIBLE else " " for i in range(WIDTH)]
        cells[place(0.0)] = "│"
        for mark in marks:
            if low <= mark <= high:
                cells[place(mark)] = LIMIT
        if row.low is not None and row.high is not None and row.change is not None:
            first, last = max(0, place(row.low)), min(WIDTH - 1, place(row.high))
            for i in range(first, last + 1):
                cells[i] = "─"
            if row.low < low:
                cells[0] = "◀"
            if row.high > high:
                cells[-1] = "▶"
            if low <= row.change <= high:
                cells[place(row.change)] = "●"
        lines.append(f"{row.label:<{labels}}  {''.join(cells)}  {row.words}")
    return lines


def _axis(low: float, high: float, zero: int) -> str:
    ends = wording.percent(low).replace(".0%", "%"), wording.percent(high).replace(".0%", "%")
    line = [" "] * WIDTH
    line[: len(ends[0])] = ends[0]
    line[WIDTH - len(ends[1]) :] = ends[1]
    if len(ends[0]) < zero < WIDTH - len(ends[1]) - 1:
        line[zero] = "0"
    return "".join(line)
