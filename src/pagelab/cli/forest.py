"""A forest plot in a terminal: one row a condition, its interval on a linear axis, and words at the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagelab.analysis import wording
from pagelab.analysis.answer import NEGLIGIBLE, reach
from pagelab.cli.lines import columns_of
from pagelab.terminal import plain

WIDTH = 41
"""Columns of the axis: odd, so that a symmetric one has a middle."""

LIMIT = "┊"
_LONGEST = 30
"""Columns of a label: with the axis, the words begin within 80 columns."""


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
    shown = _labels([row.label for row in rows])
    labels = max(columns_of(label) for label in shown)

    def place(value: float) -> int:
        return round((value - low) / (high - low) * (WIDTH - 1))

    lines = [" " * (labels + 2) + _axis(low, high, place(0.0))]
    for row, label in zip(rows, shown, strict=True):
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
        lines.append(f"{label}{' ' * (labels - columns_of(label))}  {''.join(cells)}  {row.words}")
    return lines


def _labels(labels: Sequence[str]) -> list[str]:
    """The labels in a line each; long ones without the beginning that all share, and cut in their middle."""
    whole = [plain(label) for label in labels]
    if max(map(columns_of, whole)) <= _LONGEST:
        return whole
    same = next((at for at, signs in enumerate(zip(*whole, strict=False)) if len(set(signs)) > 1), 0)
    begun = [f"…{label[same:]}" if same > 2 else label for label in whole]
    return [_cut(label) for label in begun]


def _cut(label: str) -> str:
    """The label, or its beginning and its end."""
    if columns_of(label) <= _LONGEST:
        return label
    head, tail = label, ""
    while columns_of(head) + columns_of(tail) >= _LONGEST:
        head = head[:-1]
        if columns_of(tail) < _LONGEST // 2 - 1:
            tail = label[len(label) - len(tail) - 1 :]
    return f"{head}…{tail}"


def _axis(low: float, high: float, zero: int) -> str:
    ends = wording.percent(low).replace(".0%", "%"), wording.percent(high).replace(".0%", "%")
    line = [" "] * WIDTH
    line[: len(ends[0])] = ends[0]
    line[WIDTH - len(ends[1]) :] = ends[1]
    if len(ends[0]) < zero < WIDTH - len(ends[1]) - 1:
        line[zero] = "0"
    return "".join(line)
