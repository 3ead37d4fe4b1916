"""Draws a TLB counter against time."""

from __future__ import annotations

from typing import Any

import altair as alt

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis, Metric
from pagelab.charts import theme

HEIGHT = 240
_PREFERRED = ("counter.tlb.walk_cycles", "counter.tlb.walks", "counter.tlb.hits")
"""MOSAIC's C, M and H in order of preference: walk cycles explain time best, walks next."""


def counter_for(analysis: Analysis, workload: str) -> Metric | None:
    """The TLB counter to draw against time: walk cycles, else walks, else second-level hits; None without any."""
    for name in _PREFERRED:
        if any(name in r.values for r in analysis.executions if r.workload == workload and r.analysed):
            return analysis.metric(name)
    return None


def tlb_scatter(analysis: Analysis, workload: str, width: theme.Width = "container") -> dict[str, Any] | None:
    """A chart with one point per execution: the counter across, the time up. None where no TLB counter counted."""
    counter = counter_for(analysis, workload)
    if counter is None:
        return None
    time = analysis.primary_of(workload)
    runs = [
        r
        for r in analysis.executions
        if r.workload == workload and r.analysed and counter.name in r.values and time.name in r.values
    ]
    if not runs:
        return None
    x_factor, x_unit = wording.display_unit(counter, [r.values[counter.name] for r in runs])
    y_factor, y_unit = wording.display_unit(time, [r.values[time.name] for r in runs])
    values = [
        {
            "policy": r.policy,
            "x": r.values[counter.name] / x_factor,
            "y": r.values[time.name] / y_factor,
            "counter": wording.quantity(r.values[counter.name], counter),
            "time": wording.quantity(r.values[time.name], time, 5),
            "execution": r.execution,
        }
        for r in runs
    ]
    policies = [c.policy for c in analysis.design.conditions if c.workload == workload]
    return _scatter(analysis, values, policies, _axis(counter, x_unit), _axis(time, y_unit), width)


def _axis(metric: Metric, unit: str) -> str:
    return f"{metric.label} ({unit})" if unit else metric.label


def _scatter(
    analysis: Analysis, values: list[dict[str, Any]], policies: list[str], x: str, y: str, width: theme.Width
) -> dict[str, Any]:
    every = list(analysis.design.policies)
    colours, shapes = theme.condition_colours(every), theme.condition_shapes(every)
    palette = [colours[p] for p in policies]
    legend = alt.Legend(title=None, columns=2 if max(map(len, policies)) > 12 else 4)
    chart = (
        alt.Chart(theme.rows(values))
        .mark_point(size=44, strokeWidth=1.4, fillOpacity=0.35)
        .encode(
            x=alt.X("x:Q", scale=alt.Scale(zero=True), axis=alt.Axis(title=x, tickCount=6)),
            y=alt.Y("y:Q", scale=alt.Scale(zero=True), axis=alt.Axis(title=y, tickCount=5, labelColor="var(--soft)")),
            color=alt.Color("policy:N", sort=None, legend=legend).scale(domain=policies, range=palette),
            fill=alt.Fill("policy:N", sort=None, legend=legend).scale(domain=policies, range=palette),
            shape=alt.Shape("policy:N", sort=None, legend=legend).scale(
                domain=policies, range=[shapes[p] for p in policies]
            ),
            tooltip=[
                alt.Tooltip("policy:N"),
                alt.Tooltip("time:N", title=y.split(" (")[0]),
                alt.Tooltip("counter:N", title=x.split(" (")[0]),
                alt.Tooltip("execution:Q"),
            ],
        )
    )
    return theme.finish(chart, width, HEIGHT)
