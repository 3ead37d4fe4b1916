"""Draws every execution with its measurements, in order: ALLOC's Figure 1, for each condition."""

from __future__ import annotations

from typing import Any

import altair as alt

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis
from pagelab.analysis.nondeterminism_model import Trace, TraceExecution
from pagelab.charts import theme

HEIGHT = 240
_GAP = 0.08
"""Share of an execution's place that stays empty; its measurements fill the rest."""


def executions(analysis: Analysis, trace: Trace, width: theme.Width = "container") -> dict[str, Any]:
    """A chart with executions side by side, condition after condition; measurements run from left to right.

    A bar is an execution's mean; a thin line reaches from its fastest to its slowest measurement.
    """
    metric = analysis.metric(trace.column)
    every = [one for runs in trace.executions.values() for one in runs]
    factor, unit = wording.display_unit(metric, [one.high for one in every])
    names = [name for name in trace.executions if trace.executions[name]]
    colours = theme.condition_colours(list(analysis.design.policies))
    dots: list[dict[str, Any]] = []
    bars: list[dict[str, Any]] = []
    heads: list[dict[str, Any]] = []
    start, gap = 0.0, max(1.0, 0.04 * len(every))
    for name in names:
        runs = trace.executions[name]
        heads.append({"c": name, "x": start + len(runs) / 2})
        for place, one in enumerate(runs):
            shown = wording.quantity(one.mean, metric, 5)
            bars.append(_bar(name, one, start + place, factor) | {"shown": shown})
            dots += _dots(name, one, start + place, factor)
        start += len(runs) + gap
    x = alt.Scale(domain=[0, start - gap], nice=False)
    y_axis = alt.Axis(title=f"{metric.label} ({unit})" if unit else metric.label, tickCount=5, labelColor="var(--soft)")
    y = alt.Scale(zero=False, nice=True)
    colour = alt.Color("c:N", legend=None).scale(domain=names, range=[colours.get(n, "var(--ink)") for n in names])
    x_axis = alt.Axis(title="executions, in the order in which they ran", labels=False, grid=False)
    points = (
        alt.Chart(theme.rows(dots))
        .mark_circle(size=9, opacity=0.7)
        .encode(x=alt.X("x:Q", scale=x, axis=x_axis), y=alt.Y("y:Q", scale=y, axis=y_axis), color=colour)
    )
    data = alt.Chart(theme.rows(bars))
    tips = [
        alt.Tooltip("c:N", title="policy"),
        alt.Tooltip("n:Q", title="execution"),
        alt.Tooltip("count:Q", title="measurements"),
        alt.Tooltip("shown:N", title="mean"),
    ]
    reach = data.mark_rule(strokeWidth=1, opacity=0.45).encode(
        x=alt.X("middle:Q", scale=x), y=alt.Y("low:Q", scale=y), y2="high:Q", color=colour
    )
    means = data.mark_rule(strokeWidth=2.5).encode(
        x=alt.X("x:Q", scale=x), x2="x2:Q", y=alt.Y("mean:Q", scale=y), color=colour, tooltip=tips
    )
    titles = (
        alt.Chart(theme.rows(heads))
        .mark_text(baseline="bottom", dy=-6, fontWeight=600)
        .encode(x=alt.X("x:Q", scale=x), y=alt.value(0), text="c:N", color=colour)
    )
    headed = (titles,) if len(names) > 1 else ()
    return theme.finish(theme.layered(points, reach, means, *headed), width, HEIGHT)


def _bar(name: str, one: TraceExecution, x: float, factor: float) -> dict[str, Any]:
    return {
        "c": name,
        "n": one.run,
        "count": one.count,
        "x": round(x + _GAP, 3),
        "x2": round(x + 1 - _GAP, 3),
        "middle": x + 0.5,
        "low": one.low / factor,
        "high": one.high / factor,
        "mean": one.mean / factor,
    }


def _dots(name: str, one: TraceExecution, x: float, factor: float) -> list[dict[str, Any]]:
    if one.count == 1:
        return []
    step = (1 - 2 * _GAP) / max(1, len(one.values) - 1)
    return [
        {"c": name, "x": round(x + _GAP + i * step, 4), "y": float(f"{value / factor:.6g}")}
        for i, value in enumerate(one.values)
    ]
