"""Draws mean time and cache misses of each condition on one axis: ALLOC's Figure 10."""

from __future__ import annotations

from typing import Any

import altair as alt

from pagelab.analysis.nondeterminism_model import Misses
from pagelab.charts import theme

HEIGHT = 200


def time_and_misses(found: Misses, label: str, width: theme.Width = "container") -> dict[str, Any]:
    """A chart with two lines over the conditions, each centred on its mean and scaled to ±1.

    Where misses determine the time, the lines lie on each other.
    """
    names = ["time", label]
    values = [
        {"condition": condition, "what": what, "value": value}
        for what, series in zip(names, (found.normalized_time, found.normalized_misses), strict=True)
        for condition, value in zip(found.conditions, series, strict=True)
    ]
    legend = alt.Legend(title=None, symbolType="circle")
    colours = ["var(--c1)", "var(--c2)"]
    base = alt.Chart(theme.rows(values)).encode(
        x=alt.X(
            "condition:N", sort=None, title=None,
            axis=alt.Axis(labelAngle=0, grid=False, labelLimit=110, labelColor="var(--ink)"),
        ),
        y=alt.Y(
            "value:Q",
            scale=alt.Scale(domain=[-1.08, 1.08], nice=False),
            axis=alt.Axis(title="normalized", values=[-1, -0.5, 0, 0.5, 1], labelColor="var(--soft)"),
        ),
        color=alt.Color("what:N", sort=None, legend=legend).scale(domain=names, range=colours),
        tooltip=[
            alt.Tooltip("what:N", title="what"),
            alt.Tooltip("condition:N"),
            alt.Tooltip("value:Q", title="normalized", format=".2f"),
        ],
    )  # fmt: skip
    dashes = alt.StrokeDash("what:N", sort=None, legend=legend).scale(domain=names, range=[[1, 0], [6, 3]])
    shapes = alt.Shape("what:N", sort=None, legend=legend).scale(domain=names, range=["circle", "square"])
    lines = base.mark_line(strokeWidth=1.8).encode(strokeDash=dashes)
    points = base.mark_point(filled=True, size=60, opacity=1).encode(shape=shapes)
    return theme.finish(theme.layered(lines, points), width, HEIGHT)
