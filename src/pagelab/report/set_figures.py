"""The figures of a study that is answered as a set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis
from pagelab.charts import theme
from pagelab.report import charts
from pagelab.report.charts import sets
from pagelab.report.figure import Figure

_NAMES = {"time": "set", "spread": "set-spread"}


def over_set(analysis: Analysis, before: int) -> list[Figure]:
    """Time, and the spread between executions: every program's ratio and their geometric mean."""
    part = analysis.over_set
    found: list[Figure] = []
    for quantity, name in _NAMES.items():
        if part is None or not sets.drawn(part, quantity):
            continue
        time = "Time" if part.is_time else "Primary metric"
        title = time if quantity == "time" else "Spread from one execution to the next"
        cut = " Programs beyond the axis stand at its end." if sets.is_cut(part, quantity) else ""
        level = wording.level(analysis.design.interval_level)
        caption = (
            f"Small marks are programs, each at its own ratio to the baseline. Large marks are geometric means, bars "
            f"{level} intervals (unadjusted). Filled: a difference after Holm’s correction; hollow: none found.{cut}"
            if not found
            else f"Drawn as Figure {found[0].number}.{cut}"
        )
        found.append(
            Figure(
                id=name,
                number=before + len(found) + 1,
                section="set",
                title=f"{title}, program by program and over all of them",
                caption=caption,
                alternative=_description(analysis, quantity),
                draw=_of_quantity(analysis, quantity),
            )
        )
    return found


def _description(analysis: Analysis, quantity: str) -> str:
    part = analysis.over_set
    found = [] if part is None else sets.drawn(part, quantity)
    description = [
        f"{c.policy}: {wording.digits(c.ratio or 0)} times that under {c.baseline}"
        + (f", from {wording.digits(c.interval.low)} to {wording.digits(c.interval.high)}" if c.interval else "")
        + f", {wording.count(c.programs, 'program')}"
        for c in found
    ]
    return f"{'; '.join(description)}."


def _of_quantity(analysis: Analysis, quantity: str) -> Callable[[theme.Width], dict[str, Any]]:
    return lambda width: charts.over_set(analysis, quantity, width)
