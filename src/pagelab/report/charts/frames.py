"""Draws the number of pages by cache colour under each policy."""

from __future__ import annotations

import json
from typing import Any

import altair as alt

from pagelab.analysis import wording
from pagelab.analysis.frames import FramesSummary
from pagelab.analysis.model import Analysis
from pagelab.charts import theme
from pagelab.charts.rows import Rows, grouped

ROW_HEIGHT = 44
MOST_BARS = 64
"""With more colours than this, neighbouring colours share a bar."""
MOST_ROWS = 12
_HIGHEST = 2.5
"""Bars are cut at this many times the even share, so that one crowded colour does not flatten the others."""
_ROOM = 0.8
"""Share of a row's height that its bars may fill."""


def shown(analysis: Analysis) -> list[FramesSummary]:
    """The strategies that the plot shows: the first ``MOST_ROWS`` that placed anything."""
    found = analysis.frames.summaries if analysis.frames else ()
    return [one for one in found if sum(one.placed_by_colour) + sum(one.fallback_by_colour) > 0][:MOST_ROWS]


def label(analysis: Analysis, one: FramesSummary) -> str:
    """The label of a strategy: its policy, with the strategy where the policy has several."""
    policy = analysis.condition(one.condition).policy
    several = analysis.frames and sum(other.condition == one.condition for other in analysis.frames.summaries) > 1
    return f"{policy}: {one.strategy}" if several else policy


def pages_by_colour(analysis: Analysis, width: theme.Width = "container") -> dict[str, Any] | None:
    """A chart with a row per condition and strategy and a bar per colour: its pages divided by the even share.

    None where nothing was placed.
    """
    summaries = shown(analysis)
    if not summaries:
        return None
    named = [(analysis.condition(one.condition).workload, label(analysis, one)) for one in summaries]
    rows = grouped(dict.fromkeys(named))
    at = {row.of: index for index, row in enumerate(rows.rows)}
    policies = list(analysis.design.policies)
    heights = [_heights(one) for one in summaries]
    highest = min(_HIGHEST, max(1.2, *(top for row in heights for _, top in row)))
    bars = [
        bar
        for one, name, row in zip(summaries, named, heights, strict=True)
        for bar in _bars(one, analysis.condition(one.condition).policy, at[name], row, highest)
    ]
    even = [{"y": at[name] + 1 - _ROOM / highest} for name in dict.fromkeys(named)]
    return theme.finish(_layers(bars, even, rows, policies), width, ROW_HEIGHT * len(rows), rows.labels)


def _heights(one: FramesSummary) -> list[tuple[float, float]]:
    """For each bar, the pages placed as requested and all pages of its colours, divided by the even share."""
    count = len(one.placed_by_colour)
    bars = min(MOST_BARS, count)
    even = (sum(one.placed_by_colour) + sum(one.fallback_by_colour)) / bars
    found = []
    for bar in range(bars):
        low, high = bar * count // bars, (bar + 1) * count // bars
        # Where the colours do not divide evenly among the bars, a bar with more colours must not look crowded.
        weight = (high - low) * bars / count
        placed, missed = sum(one.placed_by_colour[low:high]), sum(one.fallback_by_colour[low:high])
        found.append((placed / even / weight, (placed + missed) / even / weight))
    return found


def _bars(
    one: FramesSummary, policy: str, row: int, heights: list[tuple[float, float]], highest: float
) -> list[dict[str, Any]]:
    floor, unit = row + 1, _ROOM / highest
    bars, count = [], len(one.placed_by_colour)
    for index, (placed, whole) in enumerate(heights):
        low, high = index * count // len(heights), (index + 1) * count // len(heights)
        pages = sum(one.placed_by_colour[low:high]) + sum(one.fallback_by_colour[low:high])
        common = {
            "policy": policy,
            "from": 100 * index / len(heights),
            "to": 100 * (index + 1) / len(heights),
            "colours": str(low) if high - low == 1 else f"{low}–{high - 1}",
            "pages": wording.digits(pages, 4),
        }
        placed, whole = min(placed, highest), min(whole, highest)
        bars.append(common | {"base": floor, "top": floor - unit * placed, "what": "placed as asked"})
        if whole > placed:
            bars.append(
                common
                | {"base": floor - unit * placed, "top": floor - unit * whole, "what": "wanted, but not available"}
            )
    return bars


def _layers(bars: list[dict[str, Any]], even: list[dict[str, Any]], rows: Rows, policies: list[str]) -> alt.LayerChart:
    labels = json.dumps([row.label for row in rows.rows])
    heading = f"{json.dumps([row.of is None for row in rows.rows])}[floor(datum.value)]"
    y_axis = alt.Axis(
        title=None,
        values=[index + 0.5 for index in range(len(rows))],
        labelExpr=f"({labels})[floor(datum.value)]",
        labelFontWeight=alt.condition(heading, alt.value("bold"), alt.value("normal")),
        grid=False,
    )
    scale = alt.Scale(domain=[len(rows), 0], nice=False, zero=False)
    x = alt.X(
        "from:Q",
        scale=alt.Scale(domain=[0, 100], nice=False),
        axis=alt.Axis(title="colours, from the first to the last (%)", values=[0, 25, 50, 75, 100], grid=False),
    )
    colours = theme.condition_colours(policies)
    opacity = alt.condition("datum.what === 'placed as asked'", alt.value(0.85), alt.value(0.3))
    marks = (
        alt.Chart(theme.rows(bars))
        .mark_rect(stroke=None)
        .encode(
            x=x,
            x2="to:Q",
            y=alt.Y("base:Q", scale=scale, axis=y_axis),
            y2="top:Q",
            color=alt.Color("policy:N", legend=None).scale(domain=policies, range=list(colours.values())),
            opacity=opacity,
            tooltip=[
                alt.Tooltip("policy:N"),
                alt.Tooltip("colours:N", title="colour"),
                alt.Tooltip("pages:N", title="pages an execution"),
                alt.Tooltip("what:N", title="shown here"),
            ],
        )
    )
    line = (
        alt.Chart(theme.rows(even))
        .mark_rule(color="var(--ink)", strokeDash=[3, 3], strokeWidth=1)
        .encode(y=alt.Y("y:Q", scale=scale, axis=y_axis))
    )
    return theme.layered(marks, line)
