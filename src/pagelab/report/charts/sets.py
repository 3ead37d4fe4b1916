"""Draws a set of programs: every program's ratio of time or of spread under each policy, and the geometric mean."""

from __future__ import annotations

import json
from math import exp, log
from typing import Any

import altair as alt

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis, SetContrast, SetPart
from pagelab.analysis.set_words import words
from pagelab.charts import theme

ROW_HEIGHT = 40
_NARROW = 560
"""Width in CSS pixels below which the short words stand at the right."""
_NEVER_CUT = 1.25
"""Ratios between the inverse of this and this are always on the axis."""
_SHARE = 0.9
"""Least share of the programs' ratios that the axis holds; the others stand at its ends."""


def over_set(analysis: Analysis, quantity: str, width: theme.Width = "container") -> dict[str, Any]:
    """A chart with a row per policy, on a logarithmic axis of ratios.

    A small mark is a program. The large mark and its bar are the geometric mean with its unadjusted interval; the mark
    is filled where a difference was found.
    """
    part = analysis.over_set
    assert part is not None
    shown = drawn(part, quantity)
    rows = [_row(c, part, analysis) for c in shown]
    ratios = _ratios(part, quantity)
    low, high = _reach([ratio for ratio, _ in ratios], shown)
    programs = [
        {
            "row": policy,
            "program": name,
            "ratio": min(max(ratio, low), high),
            "shown": f"{wording.digits(ratio)} times",
            # Programs are spread over the height of the row by name, so that equal ratios do not hide each other.
            "offset": (sum(map(ord, name)) * 37 % 21 - 10) / 10,
        }
        for ratio, (policy, name) in ratios
    ]
    chart = _layers(rows, programs, (low, high), list(analysis.design.policies), _title(part, quantity, shown), width)
    spec = theme.finish(chart, width, ROW_HEIGHT * len(rows))
    if width != "container":
        left, right = (max(len(row[key]) for row in rows) for key in ("row", "words"))
        theme.leave_room(spec, width, left=left, right=right)
    return spec


def drawn(part: SetPart, quantity: str) -> list[SetContrast]:
    return [c for c in part.contrasts if c.quantity == quantity and c.ratio is not None]


def is_cut(part: SetPart, quantity: str) -> bool:
    """Whether programs lie beyond the axis."""
    ratios = [ratio for ratio, _ in _ratios(part, quantity)]
    low, high = _reach(ratios, drawn(part, quantity))
    return any(not low <= ratio <= high for ratio in ratios)


def _ratios(part: SetPart, quantity: str) -> list[tuple[float, tuple[str, str]]]:
    found = []
    for one in part.programs:
        ratio = one.time if quantity == "time" else one.spread
        if ratio is not None:
            found.append((ratio, (one.policy, one.program)))
    return found


def _reach(ratios: list[float], shown: list[SetContrast]) -> tuple[float, float]:
    """The ends of the axis, symmetric around 1 on the log scale: for all intervals, and most of the programs."""
    sizes = sorted(abs(log(ratio)) for ratio in ratios)
    crowd = sizes[min(len(sizes) - 1, int(_SHARE * len(sizes)))] if sizes else 0.0
    ends = [abs(log(end)) for c in shown if c.interval for end in (c.interval.low, c.interval.high)]
    reach = 1.08 * max([crowd, *ends, 0.01])
    reach = max(reach, min(log(_NEVER_CUT), 1.08 * max(sizes, default=0.0)))
    return exp(-reach), exp(reach)


def _row(c: SetContrast, part: SetPart, analysis: Analysis) -> dict[str, Any]:
    ends = (c.interval.low, c.interval.high) if c.interval else (c.ratio, c.ratio)
    said = words(c, part, analysis.design)
    return {
        "row": c.policy,
        "policy": c.policy,
        "ratio": c.ratio,
        "low": ends[0],
        "high": ends[1],
        "found": c.verdict in ("lower", "higher"),
        "words": said,
        "brief": said.split(":")[0].split(" within")[0].split(" among")[0],
        "shown": f"{wording.digits(c.ratio or 0, 4)} times",
        "interval": f"{wording.digits(ends[0] or 0, 4)} to {wording.digits(ends[1] or 0, 4)}",
        "p": wording.p_value(c.p_holm) if c.p_holm is not None else "not tested",
    }


def _title(part: SetPart, quantity: str, shown: list[SetContrast]) -> str:
    baselines = sorted({c.baseline for c in shown})
    against = baselines[0] if len(baselines) == 1 else "the baseline"
    what = ("time" if part.is_time else "primary metric") if quantity == "time" else "spread between executions"
    return f"{what}, as a multiple of that under {against}"


def _layers(
    rows: list[dict[str, Any]],
    programs: list[dict[str, Any]],
    ends: tuple[float, float],
    policies: list[str],
    title: str,
    width: theme.Width,
) -> alt.LayerChart:
    scale = alt.Scale(type="log", domain=list(ends), nice=False)
    axis = alt.Axis(title=title, format="~r", values=_ticks(ends[1]))
    domain = alt.Scale(domain=[row["row"] for row in rows], type="band")
    limit = theme.label_limit(width, 0.38)
    y = alt.Y("row:N", title=None, sort=None, scale=domain, axis=alt.Axis(grid=False, minExtent=0))
    bare = alt.Y("row:N", title=None, sort=None, scale=domain, axis=None)
    right = alt.Axis(
        grid=False, orient="right", labelExpr=_words(rows, width), labelLimit=limit, labelColor="var(--soft)"
    )
    beside = alt.Y("row:N", title=None, sort=None, scale=domain, axis=right)
    colours, shapes = theme.condition_colours(policies), theme.condition_shapes(policies)
    colour = alt.Color("row:N", legend=None).scale(domain=policies, range=list(colours.values()))
    shape = alt.Shape("row:N", legend=None).scale(domain=policies, range=list(shapes.values()))
    one = alt.Chart(theme.rows([{"one": 1}]))
    equal = one.mark_rule(color="var(--zero)").encode(x=alt.X("one:Q", scale=scale))
    base = alt.Chart(theme.rows(rows))
    crowd = (
        alt.Chart(theme.rows(programs))
        .mark_point(size=14, filled=True, opacity=0.35)
        .encode(
            x=alt.X("ratio:Q", scale=scale, axis=axis),
            y=y,
            yOffset=alt.YOffset("offset:Q", scale=alt.Scale(domain=[-1.6, 1.6])),
            color=colour,
            tooltip=[
                alt.Tooltip("program:N"),
                alt.Tooltip("row:N", title="policy"),
                alt.Tooltip("shown:N", title="ratio"),
            ],
        )
    )
    tooltip = [
        alt.Tooltip("policy:N"),
        alt.Tooltip("shown:N", title="geometric mean"),
        alt.Tooltip("interval:N", title="interval, unadjusted"),
        alt.Tooltip("p:N", title="Holm"),
        alt.Tooltip("words:N", title="said"),
    ]
    bars = base.mark_rule(strokeWidth=2.8).encode(
        x=alt.X("low:Q", scale=scale), x2="high:Q", y=bare, color=colour, tooltip=tooltip
    )
    hollow = base.mark_point(size=95, strokeWidth=2, opacity=1, filled=False, fill="var(--paper)").encode(
        x=alt.X("ratio:Q", scale=scale), y=bare, color=colour, shape=shape, tooltip=tooltip
    )
    filled = hollow.transform_filter("datum.found").mark_point(size=95, strokeWidth=2, opacity=1, filled=True)
    said = base.mark_text(text="", aria=False).encode(y=beside)
    chart = theme.layered(equal, crowd, bars, hollow, filled, said)
    chart.resolve = alt.Resolve(axis=alt.AxisResolveMap(y="independent"))
    return chart


_STEPS = (
    (2, 5, 10, 50),
    (1.5, 2, 3, 5),
    (1.2, 1.5, 2),
    (1.1, 1.2, 1.3, 1.5),
    (1.05, 1.1, 1.2),
    (1.02, 1.05, 1.1),
    (1.01, 1.02),
)
"""Ratios above 1 for ticks, which stand also at their inverses; the axis uses the first row of which it holds two."""


def _ticks(high: float) -> list[float]:
    for steps in _STEPS:
        inside = [step for step in steps if step <= high]
        if len(inside) > 1:
            return [round(1 / step, 3) for step in reversed(inside)] + [1.0, *map(float, inside)]
    return [1.0]


def _words(rows: list[dict[str, Any]], width: theme.Width) -> str:
    full, brief = (json.dumps({row["row"]: row[key] for row in rows}) for key in ("words", "brief"))
    if width != "container":
        return f"({full})[datum.value]"
    return f"(containerSize()[0] < {_NARROW} ? {brief} : {full})[datum.value]"
