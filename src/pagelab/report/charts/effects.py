"""The forest plot: what each policy does to the time, with its interval."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import altair as alt

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis, Contrast
from pagelab.report.charts import theme

ROW_HEIGHT = 24
_WIDE = 1.0
"""Beyond a doubling, a linear axis would squash the small effects: the axis becomes symmetric-logarithmic."""
_LOG_TICKS = (-99, -90, -50, -20, -10, -5, -2, 0, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000)


def forest(analysis: Analysis, metric_name: str | None = None, width: theme.Width = "container") -> dict[str, Any]:
    """Relative shift against the baseline, one row a contrast, grouped by workload.

    Filled: a difference after Holm's correction. Hollow: none found. The bar is the unadjusted interval.
    """
    metric = metric_name or analysis.design.primary
    contrasts = [c for c in analysis.contrasts if c.metric == metric and c.relative is not None]
    grouped = len(analysis.design.workloads) > 1
    rows = _rows(contrasts, list(analysis.design.workloads), grouped)
    values = [_value(c, _key_of(c, rows)) for c in contrasts]
    layers = _layers(values, rows, _scale(values), list(analysis.design.policies), _title(contrasts, analysis))
    return theme.finish(layers, width, {"step": ROW_HEIGHT})


@dataclass(frozen=True)
class _Row:
    key: str
    """Unique, and what a screen reader says."""
    label: str
    of: tuple[str, str] | None
    """(workload, policy); None for the heading of a group."""


def _rows(contrasts: list[Contrast], workloads: list[str], grouped: bool) -> list[_Row]:
    rows: list[_Row] = []
    for workload in workloads:
        mine = [c for c in contrasts if c.workload == workload]
        if mine and grouped:
            rows.append(_Row(_unique(workload, rows), workload, None))
        for c in mine:
            rows.append(_Row(_unique(f"{workload} · {c.policy}", rows), c.policy, (workload, c.policy)))
    return rows


def _unique(key: str, rows: list[_Row]) -> str:
    """Imported names can be anything: a zero-width space tells equal keys apart."""
    while any(row.key == key for row in rows):
        key += "\u200b"
    return key


def _key_of(contrast: Contrast, rows: list[_Row]) -> str:
    return next(row.key for row in rows if row.of == (contrast.workload, contrast.policy))


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
    return f"change in {analysis.primary.label} against {against} (%)"


def _scale(values: list[dict[str, Any]]) -> tuple[alt.Scale, list[int] | None]:
    reach = max((max(abs(v["low"]), abs(v["high"])) for v in values), default=1.0)
    if reach <= 100 * _WIDE:
        low = min([v["low"] for v in values] + [-0.02 * reach, -0.1])
        high = max([v["high"] for v in values] + [0.02 * reach, 0.1])
        return alt.Scale(domain=[low, high], nice=True, zero=True), None
    low, high = (min(v["low"] for v in values), max(v["high"] for v in values))
    ticks = [t for t in _LOG_TICKS if min(low * 1.5, 0) <= t <= max(high * 1.5, 0)]
    keep = max(1, math.ceil(len(ticks) / 9))
    zero = ticks.index(0)
    ticks = [t for i, t in enumerate(ticks) if (i - zero) % keep == 0]
    return alt.Scale(type="symlog", constant=5, domain=[min(low * 1.1, 0), max(high * 1.1, 0)], nice=False), ticks


def _layers(
    values: list[dict[str, Any]],
    rows: list[_Row],
    scale: tuple[alt.Scale, list[int] | None],
    policies: list[str],
    title: str,
) -> alt.LayerChart:
    labels = json.dumps({row.key: row.label for row in rows})
    header = f"indexof({json.dumps([row.key for row in rows if row.of is None])}, datum.value) >= 0"
    y_axis = alt.Axis(
        labelExpr=f"({labels})[datum.value]",
        labelFontWeight=alt.condition(header, alt.value("bold"), alt.value("normal")),
        labelLimit=170,
        grid=False,
    )
    y = alt.Y("row:N", title=None, sort=None, scale=alt.Scale(domain=[row.key for row in rows], type="band"), axis=y_axis)
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
    points = base.mark_point(size=85, strokeWidth=2, opacity=1).encode(
        x=alt.X("relative:Q", scale=x_scale),
        y=y,
        stroke=colour,
        shape=alt.Shape("policy:N", legend=None).scale(domain=policies, range=list(shapes.values())),
        fill=alt.condition("datum.found", "policy:N", alt.value("var(--paper)"), legend=None),
        tooltip=tooltip,
    )
    return theme.layered(zero, bars, points)
