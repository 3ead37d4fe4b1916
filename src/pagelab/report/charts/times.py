"""Draws PREPAGE's boxplot, horizontally: five numbers and every execution."""

from __future__ import annotations

from typing import Any

import altair as alt

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis, Execution, Metric, Summary
from pagelab.charts import theme

ROW_HEIGHT = 46
FEW_ROWS_HEIGHT = 64


def boxplot(
    analysis: Analysis, workload: str, width: theme.Width = "container", metric_name: str | None = None
) -> dict[str, Any]:
    """A chart of one workload's executions by policy: whiskers to the extremes, box between the hinges, line at median.

    Inside a row, points run from the first execution (top) to the last (bottom), so that drift is visible. Executions
    that got fewer pages of the requested size are triangles.
    """
    metric = analysis.metric(metric_name or analysis.primary_of(workload).name)
    rows = [c for c in analysis.design.conditions if c.workload == workload]
    labels = {c.id: c.policy for c in rows}
    runs = [r for r in analysis.executions if r.analysed and r.condition in labels and metric.name in r.values]
    factor, unit = wording.display_unit(metric, [r.values[metric.name] for r in runs])
    summaries = [s for c in rows if (s := analysis.summary(c.id, metric.name)) is not None]
    layers = _layers(
        [_box(s, labels[s.condition], factor) for s in summaries],
        _points(runs, labels, metric, factor),
        [c.policy for c in rows],
        f"{metric.label} ({unit})" if unit else metric.label,
        list(analysis.design.policies),
    )
    height = (ROW_HEIGHT if len(rows) > 3 else FEW_ROWS_HEIGHT) * len(rows)
    return theme.finish(layers, width, height, labels.values())


def _box(summary: Summary, policy: str, factor: float) -> dict[str, Any]:
    fields = ("minimum", "hinge_low", "median", "hinge_high", "maximum")
    return {"policy": policy, "n": summary.n} | {f: getattr(summary, f) / factor for f in fields}


def _points(runs: list[Execution], labels: dict[str, str], metric: Metric, factor: float) -> list[dict[str, Any]]:
    """The points, each with its place inside the row, from 0 (first execution) to 1 (last)."""
    last = {c: max(1, max((r.position for r in runs if r.condition == c), default=1)) for c in labels}
    first = {c: min((r.position for r in runs if r.condition == c), default=0) for c in labels}
    return [
        {
            "policy": labels[r.condition],
            "value": r.values[metric.name] / factor,
            "order": (r.position - first[r.condition]) / max(1, last[r.condition] - first[r.condition]),
            "shown": wording.quantity(r.values[metric.name], metric, 5),
            "execution": r.execution,
            "position": r.position,
            "placed": "fewer tiles than asked" if r.short_placed else "as asked",
        }
        for r in runs
    ]


def _layers(
    boxes: list[dict[str, Any]],
    points: list[dict[str, Any]],
    rows: list[str],
    title: str,
    policies: list[str],
) -> alt.LayerChart:
    y = alt.Y("policy:N", title=None, scale=alt.Scale(domain=rows, type="band"), sort=None)
    y = y.axis(alt.Axis(grid=False))
    colours = theme.condition_colours(policies)
    colour = alt.Color("policy:N", legend=None).scale(domain=policies, range=list(colours.values()))
    stroke = alt.Stroke("policy:N", legend=None).scale(domain=policies, range=list(colours.values()))
    fill = alt.Fill("policy:N", legend=None).scale(domain=policies, range=list(colours.values()))
    x_axis = alt.Axis(title=title, grid=True, tickCount=6)
    summary_data = alt.Chart(theme.rows(boxes))

    height = 26 if len(rows) > 3 else 36

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=alt.Scale(zero=False, nice=True, padding=6), axis=x_axis)

    whisker = summary_data.mark_rule(strokeWidth=1.2).encode(x=x("minimum"), x2="maximum:Q", y=y, color=colour)
    cap = summary_data.mark_tick(thickness=1.2, size=12, opacity=1)
    ends = [cap.encode(x=x(field), y=y, color=colour) for field in ("minimum", "maximum")]
    boxed = summary_data.mark_bar(size=height, fillOpacity=0.16, strokeWidth=1.2).encode(
        x=x("hinge_low"), x2="hinge_high:Q", y=y, fill=fill, stroke=stroke
    )
    median = summary_data.mark_tick(thickness=3, size=height, opacity=1).encode(x=x("median"), y=y, color=colour)
    dots = (
        alt.Chart(theme.rows(points))
        .mark_point(size=26, strokeWidth=1.1, fillOpacity=0.75)
        .encode(
            x=x("value"),
            y=y,
            yOffset=alt.YOffset("order:Q", scale=alt.Scale(domain=[-0.35, 1.35])),
            stroke=stroke,
            fill=fill,
            # Hollow marks mean "no difference found" in the plot of effects.
            shape=alt.condition("datum.placed === 'as asked'", alt.value("circle"), alt.value("triangle-down")),
            size=alt.condition("datum.placed === 'as asked'", alt.value(26), alt.value(70)),
            tooltip=[
                alt.Tooltip("policy:N", title="policy"),
                alt.Tooltip("shown:N", title=title.split(" (")[0]),
                alt.Tooltip("execution:Q", title="execution"),
                alt.Tooltip("position:Q", title="place in the schedule"),
                alt.Tooltip("placed:N", title="placement"),
            ],
        )
    )
    return theme.layered(whisker, *ends, boxed, median, dots)
