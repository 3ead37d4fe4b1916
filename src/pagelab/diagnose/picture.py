"""Draws the pictures of a diagnosis: the executions under every pin, with a dot for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log1p, sqrt
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from pagelab.analysis import wording
from pagelab.analysis.metrics import metric_named
from pagelab.analysis.model import Analysis
from pagelab.charts import theme
from pagelab.diagnose import words
from pagelab.diagnose.model import Confirmation, Contrast, Diagnosis, Finding
from pagelab.diagnose.specs import COPIES, DEFAULT, default_names

ROW_HEIGHT = 30
_JITTER = 0.30
_BY_VALUE = ("pages", "cpu", "page-cache")
_TEXT_ROOM = 0.4
"""Room for the figures on the right, as a share of the range of times."""
_STRAYS = 0.02
"""Largest share of times at each end that may lie outside the axis (see :data:`_MARGIN`)."""
_MARGIN = 0.5
"""Times lie outside the axis only if they are this far from all others, as a share of the others' range: the axis would
leave too little room for the others.
"""
_PINNED = "something pinned"
Times = Mapping[str, NDArray[np.float64]]
"""Condition → the times of its whole blocks."""


@dataclass(frozen=True)
class Strip:
    """One row: executions as dots, and a figure on their right."""

    label: str
    colour: str
    times: list[NDArray[np.float64]]
    text: str


def executions(found: Diagnosis, times: Times, width: theme.Width) -> dict[str, Any]:
    """A chart of times by source, jittered; the number on the right is the SD ratio.

    Sources that lower the spread by their verdict are coloured, the default is grey, all others are pale.
    """
    strips = [Strip(DEFAULT, "c0", [times[name] for name in default_names(COPIES)], "default")]
    for one in found.findings:
        if one.sd_ratio is not None:
            strips += _rows(one, times, _sd_log(found.default_spread.estimate))
    return _strips(strips, found.metric, width)


def confirmation(found: Diagnosis, times: Times, width: theme.Width) -> dict[str, Any]:
    """A chart of fresh executions of the default and of the recommendation, with their spread on the right."""
    one = _one(found)
    return _strips([_against(one.of_default, times), _recommended(one, times)], found.metric, width, height=56)


def control(found: Diagnosis, times: Times, width: theme.Width) -> dict[str, Any]:
    """A chart like :func:`confirmation`, but against the control, which has all side effects of the pin."""
    one = _one(found)
    rows = [_against(each, times) for each in one.contrasts[1:]]
    return _strips([*rows, _recommended(one, times)], found.metric, width, height=56)


def default(found: Diagnosis, times: Times, width: theme.Width) -> dict[str, Any]:
    """A chart of all executions of the default, without a comparison."""
    rows = [times[name] for name in default_names(COPIES)]
    text = f"spread {words.spread(found.default_spread.estimate)}"
    return _strips([Strip(DEFAULT, "c0", rows, text)], found.metric, width, height=72)


def _one(found: Diagnosis) -> Confirmation:
    if found.confirmation is None:
        raise ValueError("nothing was confirmed")
    return found.confirmation


def _against(one: Contrast, times: Times) -> Strip:
    return Strip(one.name, "c0", [times[one.name]], f"spread {words.spread(one.cv_against)}")


def _recommended(one: Confirmation, times: Times) -> Strip:
    colour = "c1" if one.confirmed else "zero"
    return Strip(one.recommended, colour, [times[one.recommended]], f"spread {words.spread(one.cv_recommended)}")


def schedule(analysis: Analysis, width: theme.Width) -> dict[str, Any]:
    """A chart of every execution of the exploration, divided by its condition's median, by place in the schedule.

    The default is coloured.
    """
    dots = [
        {"place": run.position, "off": 100 * (ratio - 1), "what": _kind(run.policy), "policy": run.policy}
        for run in analysis.executions
        if (ratio := analysis.ratio_to_median(run)) is not None
    ]
    names = [DEFAULT, _PINNED]
    zero = alt.Chart(theme.rows([{"zero": 0}])).mark_rule(color="var(--zero)").encode(y=alt.Y("zero:Q"))
    points = (
        alt.Chart(theme.rows(dots))
        .mark_circle(size=18, opacity=0.7)
        .encode(
            x=alt.X("place:Q", scale=alt.Scale(zero=False, nice=False),
                    axis=alt.Axis(title="place in the schedule", grid=False)),
            y=alt.Y("off:Q", axis=alt.Axis(title="from its condition's median (%)", tickCount=5)),
            color=alt.Color("what:N", sort=None, legend=alt.Legend(title=None)).scale(
                domain=names, range=["var(--c1)", "var(--zero)"]
            ),
            tooltip=[alt.Tooltip("policy:N"), alt.Tooltip("place:Q"), alt.Tooltip("off:Q", format="+.1f")],
        )
    )  # fmt: skip
    return theme.finish(theme.layered(zero, points), width, 220)


def _kind(policy: str) -> str:
    return DEFAULT if policy in default_names(COPIES) else _PINNED


def _strips(strips: list[Strip], metric_name: str, width: theme.Width, height: int = ROW_HEIGHT) -> dict[str, Any]:
    metric = metric_named(metric_name)
    largest = max(float(np.max(rows)) for strip in strips for rows in strip.times)
    factor, unit = wording.display_unit(metric, [largest])
    order = [strip.label for strip in strips]
    random = np.random.default_rng(1)  # only for the jitter
    dots: list[dict[str, Any]] = [
        {
            "source": strip.label,
            "colour": strip.colour,
            "time": float(value) / factor,
            "jitter": float(random.uniform(-1, 1)),
        }
        for strip in strips
        for rows in strip.times
        for value in rows
    ]
    low, high = axis_ends(np.array([dot["time"] for dot in dots]))
    for dot in dots:
        dot["beyond"] = "lower" if dot["time"] < low else "higher" if dot["time"] > high else ""
        dot["at"] = min(max(dot["time"], low), high)
    labels = [{"source": strip.label, "text": strip.text} for strip in strips]
    y = alt.Y("source:N", sort=order, title=None, axis=alt.Axis(grid=False))
    room = 1.02 * high + _TEXT_ROOM * (high - low)
    scale = alt.Scale(domain=[low, room], zero=False, nice=False)
    colours = alt.Color("colour:N", legend=None).scale(
        domain=["c0", "c1", "zero"], range=["var(--c0)", "var(--c1)", "var(--zero)"]
    )
    title = f"{metric.label} ({unit})" if unit else metric.label

    def marked(mark: alt.Chart) -> alt.Chart:
        return mark.encode(
            x=alt.X("at:Q", scale=scale, axis=alt.Axis(title=title, tickCount=6, labelColor="var(--soft)")),
            y=y,
            yOffset=alt.YOffset("jitter:Q", scale=alt.Scale(domain=[-1 / _JITTER, 1 / _JITTER])),
            color=colours,
            tooltip=[alt.Tooltip("source:N"), alt.Tooltip("time:Q", format=".4~g")],
        )

    shapes = {"lower": "triangle-left", "higher": "triangle-right"}
    within = [dot for dot in dots if not dot["beyond"]]
    parts = [marked(alt.Chart(theme.rows(within)).mark_circle(size=16, opacity=0.55))]
    for beyond, shape in shapes.items():
        outside = [dot for dot in dots if dot["beyond"] == beyond]
        if outside:
            chart = alt.Chart(theme.rows(outside))
            parts.append(marked(chart.mark_point(shape=shape, filled=True, size=40, opacity=0.8)))
    parts.append(
        alt.Chart(theme.rows(labels)).mark_text(align="right").encode(x=alt.value("width"), y=y, text="text:N")
    )
    return theme.finish(theme.layered(*parts), width, height * len(strips), order)


def axis_ends(times: NDArray[np.float64]) -> tuple[float, float]:
    """The ends of the axis: the lowest and the highest time, without a few that lie far from all others."""
    low, high = (float(value) for value in np.quantile(times, [_STRAYS, 1 - _STRAYS]))
    margin = _MARGIN * (high - low)
    near = times[(times >= low - margin) & (times <= high + margin)]
    return float(near.min()), float(near.max())


def _rows(one: Finding, times: Times, sd_default: float) -> list[Strip]:
    """The rows of a source: one; where its values are not drawn, one per value, with the value's own ratio."""
    if one.key not in _BY_VALUE or len(one.values) == 1:
        return [Strip(one.label, _colour(one), [times[value.name] for value in one.values], _ratio(one))]
    return [
        Strip(value.name, _colour(one), [times[value.name]], f"× {value.sd_log / sd_default:.2f}")
        for value in one.values
    ]


def _sd_log(cv: float) -> float:
    return sqrt(log1p(cv**2))


def _colour(one: Finding) -> str:
    return "c1" if one.verdict in ("cause", "part") else "zero"


def _ratio(one: Finding) -> str:
    found = one.sd_ratio
    return "" if found is None else f"× {found.estimate:.2f}"
