"""Draws drift: every execution, in the order of the runs."""

from __future__ import annotations

from typing import Any

import altair as alt

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis
from pagelab.charts import theme

HEIGHT = 220


def drift(analysis: Analysis, width: theme.Width = "container") -> dict[str, Any] | None:
    """A chart of each execution's primary metric, divided by its condition's median, by place in the schedule.

    Failed runs are crosses below. A flat cloud means that the machine stayed the same. None where there is nothing to
    draw.
    """
    values = []
    for run in analysis.executions:
        ratio = analysis.ratio_to_median(run)
        if ratio is None:
            continue
        metric = analysis.primary_of(run.workload)
        values.append(
            {
                "position": run.position,
                "deviation": 100 * (ratio - 1),
                "policy": run.policy,
                "workload": run.workload,
                "shown": wording.percent(ratio - 1),
                "time": wording.quantity(run.values[metric.name], metric, 5),
            }
        )
    failures = [{"position": f.position, "condition": f.condition, "status": f.status} for f in analysis.failures]
    if not values:
        return None
    return theme.finish(_layers(analysis, values, failures), width, HEIGHT)


def _layers(analysis: Analysis, values: list[dict[str, Any]], failures: list[dict[str, Any]]) -> alt.LayerChart:
    policies = list(analysis.design.policies)
    colours, shapes = theme.condition_colours(policies), theme.condition_shapes(policies)
    legend = alt.Legend(title=None, columns=2 if max(map(len, policies)) > 12 else 4)
    x_axis = alt.Axis(title="place in the schedule", grid=False)
    x = alt.X("position:Q", scale=alt.Scale(zero=False, nice=False), axis=x_axis)
    y_axis = alt.Axis(
        title="from its condition's median (%)",
        tickCount=5,
        labelColor="var(--soft)",
        labelExpr="(datum.value > 0 ? '+' : '') + replace(datum.label, '-', '−')",
    )
    zero = alt.Chart(theme.rows([{"zero": 0}])).mark_rule(color="var(--zero)").encode(y=alt.Y("zero:Q"))
    points = (
        alt.Chart(theme.rows(values))
        .mark_point(size=26, strokeWidth=1.2, fillOpacity=0.4)
        .encode(
            x=x,
            y=alt.Y("deviation:Q", axis=y_axis),
            color=alt.Color("policy:N", sort=None, legend=legend).scale(domain=policies, range=list(colours.values())),
            fill=alt.Fill("policy:N", sort=None, legend=legend).scale(domain=policies, range=list(colours.values())),
            shape=alt.Shape("policy:N", sort=None, legend=legend).scale(domain=policies, range=list(shapes.values())),
            tooltip=[
                alt.Tooltip("workload:N"),
                alt.Tooltip("policy:N"),
                alt.Tooltip("position:Q", title="place"),
                alt.Tooltip("time:N", title=analysis.primary.label),
                alt.Tooltip("shown:N", title="from the median"),
            ],
        )
    )
    layers = [zero, points]
    if failures:
        layers.append(
            alt.Chart(theme.rows(failures))
            .mark_text(text="×", fontSize=16, color="var(--c7)", baseline="bottom")
            .encode(
                x=x,
                y=alt.value(HEIGHT),
                tooltip=[alt.Tooltip("condition:N"), alt.Tooltip("status:N"), alt.Tooltip("position:Q", title="place")],
            )
        )
    return theme.layered(*layers)
