"""Draws the distribution of impact factors on a logarithmic axis: ALLOC's Figure 9."""

from __future__ import annotations

from typing import Any

import altair as alt

from pagelab.analysis.model import Analysis
from pagelab.analysis.nondeterminism_model import Distribution
from pagelab.charts import theme

HEIGHT = 260
_DASHES = ([1, 0], [7, 3], [2, 3], [9, 3, 2, 3])
"""Dashes of the lines, so that they differ not only in colour."""


def impact_factors(analysis: Analysis, found: Distribution, width: theme.Width = "container") -> dict[str, Any]:
    """A chart with a line per condition: the share of programs whose impact factor is at most x. Left is steadier."""
    values = [value for curve in found.curves for value in curve.values]
    low, high = min(values) / 1.15, max(values) * 1.15
    names = [curve.condition for curve in found.curves]
    every = theme.condition_colours(list(analysis.design.policies))
    points = []
    for curve in found.curves:
        steps = [(low, 0.0), *zip(curve.values, curve.fractions, strict=True), (high, 1.0)]
        points += [{"condition": curve.condition, "x": x, "y": 100 * y} for x, y in steps]
    legend = alt.Legend(title=None, symbolType="stroke", symbolStrokeWidth=2)
    lines = (
        alt.Chart(theme.rows(points))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X(
                "x:Q",
                scale=alt.Scale(type="log", domain=[low, high], nice=False),
                axis=alt.Axis(title="impact factor (logarithmic axis)", tickCount=6, format="~g"),
            ),
            y=alt.Y(
                "y:Q",
                scale=alt.Scale(domain=[0, 100]),
                axis=alt.Axis(title="programs at or below it (%)", tickCount=5, labelColor="var(--soft)"),
            ),
            color=alt.Color("condition:N", sort=None, legend=legend).scale(
                domain=names, range=[every.get(name, "var(--ink)") for name in names]
            ),
            strokeDash=alt.StrokeDash("condition:N", sort=None, legend=legend).scale(
                domain=names, range=[_DASHES[i % len(_DASHES)] for i in range(len(names))]
            ),
            tooltip=[
                alt.Tooltip("condition:N"),
                alt.Tooltip("x:Q", title="impact factor", format=".3~g"),
                alt.Tooltip("y:Q", title="programs (%)", format=".0f"),
            ],
        )
    )
    return theme.finish(lines, width, HEIGHT)
