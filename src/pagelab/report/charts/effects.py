"""Draws the forest plot: each policy's effect on the primary metric, with its interval, sorted by effect."""

from __future__ import annotations

import json
from typing import Any

import altair as alt

from pagelab.analysis import wording
from pagelab.analysis.answer import NEGLIGIBLE, reach
from pagelab.analysis.limits import Limit
from pagelab.analysis.model import Analysis
from pagelab.analysis.verdict import Judged, judged_of
from pagelab.charts import theme

ROW_HEIGHT = 26
DENSE_ROW_HEIGHT = 17
"""Row height with more than :data:`MANY_ROWS` rows: the picture must fit the first screen."""
MANY_ROWS = 16
_NARROW = 560
"""Width in CSS pixels below which the short words stand at the right."""


def forest(analysis: Analysis, width: theme.Width = "container") -> dict[str, Any]:
    """A chart of changes against the baseline: one row per planned comparison, the greatest reduction first.

    Filled: a difference after Holm's correction. Hollow: none found. The bar is the unadjusted interval; an arrow shows
    where it goes beyond the axis. Shaded: negligible changes. Dashed: limits of a comparison.
    """
    judged = shown(analysis)
    keys = _keys(judged)
    low, high = _reach(analysis)
    values = [_value(one, key, low, high) for one, key in zip(judged, keys, strict=True)]
    limits = [{"limit": 100 * (one.ratio or 0.0), "text": str(one)} for one in drawn_limits(analysis)]
    layers = _layers(values, limits, (low, high), list(analysis.design.policies), _title(judged), width)
    spec = theme.finish(layers, width, (ROW_HEIGHT if len(judged) <= MANY_ROWS else DENSE_ROW_HEIGHT) * len(judged))
    if width != "container":
        theme.leave_room(spec, width, left=_longest(values, "row"), right=_longest(values, "words"))
    return spec


def shown(analysis: Analysis) -> list[Judged]:
    """The compared contrasts that have a size, sorted by it."""
    judged = judged_of(analysis.compared(), analysis.design, analysis.metrics)
    sized = [one for one in judged if one.contrast.relative is not None]
    return sorted(sized, key=lambda one: one.contrast.relative or 0.0)


def is_cut(analysis: Analysis) -> bool:
    """Whether an interval reaches beyond the axis; captions explain the arrows."""
    ends = [(i.low, i.high) for one in shown(analysis) if (i := one.contrast.relative_interval)]
    if not ends:
        return False
    low, high = _reach(analysis)
    return any(end[0] < low or end[1] > high for end in ends)


def drawn_limits(analysis: Analysis) -> list[Limit]:
    """The limits on the ratio within pairs that the axis holds, each place once."""
    if not shown(analysis):
        return []
    low, high = _reach(analysis)
    found = {one.ratio: one for one in analysis.limits if one.ratio is not None and low <= one.ratio <= high}
    return list(found.values())


def _reach(analysis: Analysis) -> tuple[float, float]:
    judged = shown(analysis)
    ends = [(i.low, i.high) for one in judged if (i := one.contrast.relative_interval)]
    limits = [one.ratio for one in analysis.limits if one.ratio is not None]
    return reach(ends or [(one.contrast.relative or 0.0,) * 2 for one in judged], limits)


def _keys(judged: list[Judged]) -> list[str]:
    """Labels of the rows; a zero-width space distinguishes equal imported names."""
    several = len({one.contrast.workload for one in judged}) > 1
    keys: list[str] = []
    for one in judged:
        key = f"{one.contrast.workload} · {one.contrast.policy}" if several else one.contrast.policy
        while key in keys:
            key += "\u200b"
        keys.append(key)
    return keys


def _value(one: Judged, key: str, low: float, high: float) -> dict[str, Any]:
    c = one.contrast
    estimate = c.relative or 0.0
    interval = c.relative_interval
    ends = (interval.low, interval.high) if interval else (estimate, estimate)
    inside = low <= estimate <= high
    return {
        "row": key,
        "workload": c.workload,
        "policy": c.policy,
        "relative": 100 * estimate if inside else None,
        "low": 100 * min(max(ends[0], low), high),
        "high": 100 * max(min(ends[1], high), low),
        "below": 100 * low if ends[0] < low else None,
        "above": 100 * high if ends[1] > high else None,
        "found": one.answer.said in ("lower", "higher"),
        "words": one.words,
        "brief": one.words.split(":")[0].split(" within")[0].split(" among")[0],
        "shown": wording.percent(estimate),
        "interval": wording.interval_percent(interval) if interval else c.note or "no interval",
        "p": wording.p_value(c.p_holm) if c.p_holm is not None else "not tested",
    }


def _title(judged: list[Judged]) -> str:
    baselines = sorted({one.contrast.baseline for one in judged})
    against = baselines[0] if len(baselines) == 1 else "the baseline"
    return f"change in {wording.in_common([one.metric for one in judged])} against {against} (%)"


def _layers(
    values: list[dict[str, Any]],
    limits: list[dict[str, Any]],
    ends: tuple[float, float],
    policies: list[str],
    title: str,
    width: theme.Width,
) -> alt.LayerChart:
    scale = alt.Scale(domain=[100 * ends[0], 100 * ends[1]], nice=False, zero=False)
    x_axis = alt.Axis(
        title=title,
        tickCount=6,
        labelExpr="(datum.value > 0 ? '+' : '') + replace(datum.label, '-', '−')",
        labelFlush=False,
    )
    rows = alt.Scale(domain=[value["row"] for value in values], type="band")
    labels = alt.Axis(grid=False, minExtent=0)
    y = alt.Y("row:N", title=None, sort=None, scale=rows, axis=labels)
    right = alt.Axis(
        grid=False,
        orient="right",
        labelExpr=_words(values, width),
        labelLimit=theme.label_limit(width, 0.5),
        labelColor="var(--soft)",
        minExtent=0,
    )
    bare = alt.Y("row:N", title=None, sort=None, scale=rows, axis=None)
    beside = alt.Y("row:N", title=None, sort=None, scale=rows, axis=right)
    colours = theme.condition_colours(policies)
    shapes = theme.condition_shapes(policies)
    colour = alt.Color("policy:N", legend=None).scale(domain=policies, range=list(colours.values()))
    tooltip = [
        alt.Tooltip("workload:N"),
        alt.Tooltip("policy:N"),
        alt.Tooltip("shown:N", title="change"),
        alt.Tooltip("interval:N", title="interval, unadjusted"),
        alt.Tooltip("p:N", title="Holm"),
        alt.Tooltip("words:N", title="said"),
    ]
    base = alt.Chart(theme.rows(values))
    zone = alt.Chart(theme.rows([{"from": -100 * NEGLIGIBLE, "to": 100 * NEGLIGIBLE}]))
    shade = zone.mark_rect(color="var(--rule)", opacity=0.55).encode(x=alt.X("from:Q", scale=scale), x2="to:Q")
    origin = alt.Chart(theme.rows([{"zero": 0}]))
    zero = origin.mark_rule(color="var(--zero)").encode(x=alt.X("zero:Q", scale=scale))
    bars = base.mark_rule(strokeWidth=2.4).encode(
        x=alt.X("low:Q", scale=scale, axis=x_axis), x2="high:Q", y=y, color=colour, tooltip=tooltip
    )
    size = 85 if len(values) <= MANY_ROWS else 60
    hollow = (
        base.transform_filter("isValid(datum.relative)")
        .mark_point(size=size, strokeWidth=2, opacity=1, filled=False, fill="var(--paper)")
        .encode(
            x=alt.X("relative:Q", scale=scale),
            y=bare,
            color=colour,
            shape=alt.Shape("policy:N", legend=None).scale(domain=policies, range=list(shapes.values())),
            tooltip=tooltip,
        )
    )
    filled = hollow.transform_filter("datum.found").mark_point(size=size, strokeWidth=2, opacity=1, filled=True)
    arrows = [
        base.transform_filter(f"isValid(datum.{side})")
        .mark_point(size=70, shape=shape, filled=True, opacity=1, clip=False)
        .encode(x=alt.X(f"{side}:Q", scale=scale), y=bare, color=colour, tooltip=tooltip)
        for side, shape in (("below", "triangle-left"), ("above", "triangle-right"))
    ]
    words = base.mark_text(text="", aria=False).encode(y=beside)
    chart = theme.layered(shade, zero, *_at_limits(limits, scale), bars, hollow, filled, *arrows, words)
    chart.resolve = alt.Resolve(axis=alt.AxisResolveMap(y="independent"))
    return chart


def _at_limits(limits: list[dict[str, Any]], scale: alt.Scale) -> list[alt.Chart]:
    """A dashed line at each limit, with its words above the rows."""
    if not limits:
        return []
    base = alt.Chart(theme.rows(limits)).encode(x=alt.X("limit:Q", scale=scale))
    line = base.mark_rule(color="var(--ink)", strokeDash=[4, 3], strokeWidth=1.4)
    return [line, base.mark_text(y=-4, baseline="bottom", color="var(--soft)").encode(text="text:N")]


def _words(values: list[dict[str, Any]], width: theme.Width) -> str:
    """An expression for the words of each row, which are shorter in a narrow picture."""
    full, brief = (json.dumps({value["row"]: value[key] for value in values}) for key in ("words", "brief"))
    return (
        f"({full})[datum.value]"
        if width != "container"
        else (f"(containerSize()[0] < {_NARROW} ? {brief} : {full})[datum.value]")
    )


def _longest(values: list[dict[str, Any]], key: str) -> int:
    return max(len(value[key]) for value in values)
