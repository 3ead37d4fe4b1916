"""Draws a dumbbell per program: its spread from one execution to the next under every policy, on one line."""

from __future__ import annotations

from math import log10
from typing import Any

import altair as alt

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis
from pagelab.charts import theme

ROW_HEIGHT = 24
DENSE_ROW_HEIGHT = 15
MANY_ROWS = 16
MOST_ROWS = 40
"""Most rows that fit a screen; the programs with less spread are left out."""
_LEAST_PERCENT = 0.01
"""A smaller spread, or none, is drawn at this percentage, since the axis is logarithmic."""

Row = tuple[str, dict[str, float]]
"""A program, and policy → its spread in percent."""


def rows_of(analysis: Analysis) -> list[Row]:
    """Every program with a spread under at least two policies, that with the most spread first."""
    found: dict[str, dict[str, float]] = {}
    for one in analysis.spreads:
        mine = found.setdefault(one.workload, {})
        for policy, cv in ((one.baseline, one.cv_baseline), (one.policy, one.cv)):
            if cv is not None:
                mine[policy] = 100 * cv
    several = [row for row in found.items() if len(row[1]) > 1]
    return sorted(several, key=lambda row: -max(row[1].values()))


def dumbbells(analysis: Analysis, width: theme.Width = "container") -> dict[str, Any]:
    """A chart with a row per program: for each policy a mark at the coefficient of variation, joined by a line."""
    rows = rows_of(analysis)[:MOST_ROWS]
    policies = [name for name in analysis.design.policies if any(name in by_policy for _, by_policy in rows)]
    ends = [
        {"program": name, "low": max(min(by_policy.values()), _LEAST_PERCENT), "high": max(by_policy.values())}
        for name, by_policy in rows
    ]
    marks = [
        {
            "program": name,
            "policy": policy,
            "spread": max(percent, _LEAST_PERCENT),
            "shown": wording.percent(percent / 100, signed=False),
        }
        for name, by_policy in rows
        for policy, percent in by_policy.items()
    ]
    names = [name for name, _ in rows]
    height = (ROW_HEIGHT if len(rows) <= MANY_ROWS else DENSE_ROW_HEIGHT) * len(rows)
    legend = alt.Legend(title=None, columns=_columns(policies, width))
    layers = _layers(ends, marks, names, policies, list(analysis.design.policies), legend)
    return theme.finish(layers, width, height, names)


def _columns(policies: list[str], width: theme.Width) -> Any:
    """Number of columns of the legend: as many as fit on a line above the marks, also on a phone."""
    entry = 34 + 7 * max(map(len, policies))
    if width != "container":
        return max(1, width // entry)
    return alt.ExprRef(f"max(1, floor(0.6 * containerSize()[0] / {entry}))")


def _layers(
    ends: list[dict[str, Any]],
    marks: list[dict[str, Any]],
    names: list[str],
    shown: list[str],
    policies: list[str],
    legend: alt.Legend,
) -> alt.LayerChart:
    low, high = min(one["spread"] for one in marks), max(one["spread"] for one in marks)
    scale = alt.Scale(type="log", domain=[low / 1.15, high * 1.15], nice=False)
    x_axis = alt.Axis(
        title="spread from one execution to the next (coefficient of variation, %)",
        values=_ticks(low / 1.15, high * 1.15),
        format="~r",
    )
    y = alt.Y(
        "program:N",
        title=None,
        sort=None,
        scale=alt.Scale(domain=names, type="band"),
        axis=alt.Axis(grid=True, minExtent=0),
    )
    colours, shapes = theme.condition_colours(policies), theme.condition_shapes(policies)
    colour = alt.Color("policy:N", sort=None, legend=legend).scale(domain=shown, range=[colours[one] for one in shown])
    shape = alt.Shape("policy:N", sort=None, legend=legend).scale(domain=shown, range=[shapes[one] for one in shown])
    line = (
        alt.Chart(theme.rows(ends))
        .mark_rule(strokeWidth=2, color="var(--zero)")
        .encode(x=alt.X("low:Q", scale=scale, axis=x_axis), x2="high:Q", y=y)
    )
    size = 85 if len(names) <= MANY_ROWS else 50
    points = (
        alt.Chart(theme.rows(marks))
        .mark_point(size=size, filled=True, opacity=1)
        .encode(
            x=alt.X("spread:Q", scale=scale),
            y=y,
            color=colour,
            shape=shape,
            tooltip=[alt.Tooltip("program:N"), alt.Tooltip("policy:N"), alt.Tooltip("shown:N", title="spread")],
        )
    )
    return theme.layered(line, points)


def _ticks(low: float, high: float) -> list[float]:
    """Ticks at 1, 2 and 5 times each power of ten; only at 1 where the axis covers more than three powers."""
    steps = (1, 2, 5) if log10(high / low) <= 3 else (1,)
    return [step * 10.0**power for power in range(-3, 5) for step in steps if low <= step * 10.0**power <= high]
