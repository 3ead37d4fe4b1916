"""The forest plot: what each policy does to the time, with its interval."""

from __future__ import annotations

import math
from typing import Any

import altair as alt

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis, Contrast
from pagelab.report.charts import theme
from pagelab.report.charts.rows import Rows, grouped

ROW_HEIGHT = 24
DENSE_ROW_HEIGHT = 16
"""With more than so many rows, closer together: the picture has to fit the first screen."""
MANY_ROWS = 20
_WIDE = 1.5
"""Beyond this fraction a linear axis would squash the small effects: it becomes symmetric-logarithmic."""
_LABEL_ROOM = 0.1
"""Share of the axis kept free for the last number on the right."""
_LOG_TICKS = (-99, -90, -50, -20, -10, -5, -2, 0, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000)


def forest(analysis: Analysis, width: theme.Width = "container") -> dict[str, Any]:
    """Relative shift against the baseline, one row a contrast, grouped by workload.

    Filled: a difference after Holm's correction. Hollow: none found. The bar is the unadjusted interval.
    """
    contrasts = [c for c in analysis.planned() if c.relative is not None]
    rows = grouped((w, c.policy) for w in analysis.design.workloads for c in contrasts if c.workload == w)
    values = [_value(c, rows.key(c.workload, c.policy)) for c in contrasts]
    layers = _layers(values, rows, _scale(values), list(analysis.design.policies), _title(contrasts, analysis))
    return theme.finish(layers, width, (ROW_HEIGHT if len(rows) <= MANY_ROWS else DENSE_ROW_HEIGHT) * len(rows))


def is_logarithmic(analysis: Analysis) -> bool:
    """Whether the effects reach so far that the axis is logarithmic away from zero: captions must say so."""
    contrasts = [c for c in analysis.planned() if c.relative is not None]
    return _reach([_value(c, "") for c in contrasts]) > 100 * _WIDE


def _reach(values: list[dict[str, Any]]) -> float:
    return max((max(abs(v["low"]), abs(v["high"])) for v in values), default=1.0)


def _value(contrast: Contrast, key: str) -> dict[str, Any]:
    interval = contrast.relative_interval
    estimate = 100 * (contrast.relative or 0.0)
    return {
        "row": key,
        "workload": contrast.workload,
        "policy": contrast.policy,
        "relative": estimate,
        "low": 100 * interval.low if interval else estimate,
        "high": 100 * interval.high if interval else estimate,
        "found": contrast.verdict in ("lower", "higher"),
        "shown": wording.percent(contrast.relative or 0.0),
        "interval": wording.interval_percent(interval) if interval else contrast.note or "no interval",
        "p": wording.p_value(contrast.p_holm) if contrast.p_holm is not None else "not tested",
    }


def _title(contrasts: list[Contrast], analysis: Analysis) -> str:
    baselines = sorted({c.baseline for c in contrasts})
    against = baselines[0] if len(baselines) == 1 else "the baseline"
    metrics = {analysis.metric(c.metric).label for c in contrasts}
    what = metrics.pop() if len(metrics) == 1 else "the primary metric"
    return f"change in {what} against {against} (%)"


def _scale(values: list[dict[str, Any]]) -> tuple[alt.Scale, list[int] | None]:
    reach = _reach(values)
    if reach <= 100 * _WIDE:
        low = min([v["low"] for v in values] + [-0.02 * reach, -0.1])
        high = max([v["high"] for v in values] + [0.02 * reach, 0.1])
        high += _LABEL_ROOM * (high - low)
        return alt.Scale(domain=[low, high], nice=True, zero=True), None
    low, high = (min(v["low"] for v in values), max(v["high"] for v in values))
    ticks = [t for t in _LOG_TICKS if min(low * 1.5, 0) <= t <= max(high * 1.5, 0)]
    keep = max(1, math.ceil(len(ticks) / 9))
    zero = ticks.index(0)
    ticks = [t for i, t in enumerate(ticks) if (i - zero) % keep == 0]
    return alt.Scale(type="symlog", constant=5, domain=[min(low * 1.1, 0), max(high * 1.6, 5)], nice=False), ticks


def _layers(
    values: list[dict[str, Any]],
    rows: Rows,
    scale: tuple[alt.Scale, list[int] | None],
    policies: list[str],
    title: str,
) -> alt.LayerChart:
    y = rows.axis()
    x_scale, ticks = scale
    x_axis = alt.Axis(title=title, labelExpr="(datum.value > 0 ? '+' : '') + replace(datum.label, '-', '−')")
    x_axis = alt.Axis(**(x_axis.to_dict() | ({"values": ticks} if ticks else {"tickCount": 6})))
    colours = theme.condition_colours(policies)
    shapes = theme.condition_shapes(policies)
    colour = alt.Color("policy:N", legend=None).scale(domain=policies, range=list(colours.values()))
    tooltip = [
        alt.Tooltip("workload:N"),
        alt.Tooltip("policy:N"),
        alt.Tooltip("shown:N", title="change"),
        alt.Tooltip("interval:N", title="interval, unadjusted"),
        alt.Tooltip("p:N", title="Holm"),
    ]
    base = alt.Chart(theme.rows(values))
    origin = alt.Chart(theme.rows([{"zero": 0}]))
    zero = origin.mark_rule(color="var(--zero)").encode(x=alt.X("zero:Q", scale=x_scale))
    bars = base.mark_rule(strokeWidth=2.4).encode(
        x=alt.X("low:Q", scale=x_scale, axis=x_axis), x2="high:Q", y=y, color=colour, tooltip=tooltip
    )
    size = 85 if len(rows) <= MANY_ROWS else 60
    hollow = base.mark_point(size=size, strokeWidth=2, opacity=1, filled=False, fill="var(--paper)").encode(
        x=alt.X("relative:Q", scale=x_scale),
        y=y,
        color=colour,
        shape=alt.Shape("policy:N", legend=None).scale(domain=policies, range=list(shapes.values())),
        tooltip=tooltip,
    )
    filled = hollow.transform_filter("datum.found").mark_point(size=size, strokeWidth=2, opacity=1, filled=True)
    halo = base.mark_text(
        align="left", dx=7, stroke="var(--paper)", strokeWidth=4, strokeJoin="round", aria=False
    ).encode(x=alt.X("high:Q", scale=x_scale), y=y, text="shown:N")
    numbers = halo.mark_text(align="left", dx=7, color="var(--soft)")
    return theme.layered(zero, halo, bars, hollow, filled, numbers)
