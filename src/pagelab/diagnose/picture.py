"""One picture: the executions under every pin, a dot each. Spread is seen before any figure is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from pagelab.analysis import wording
from pagelab.analysis.metrics import metric_named
from pagelab.diagnose.model import Diagnosis, Finding
from pagelab.diagnose.specs import COPIES, DEFAULT, default_names
from pagelab.report.charts import theme

ROW_HEIGHT = 30
_JITTER = 0.30
_BY_VALUE = ("pages", "cpu", "page-cache")


def executions(found: Diagnosis, times: Mapping[str, NDArray[np.float64]], width: theme.Width) -> dict[str, Any]:
    """Times by source, jittered; the number on the right is the SD ratio with its interval.

    Sources that lower the spread surely are coloured, the default is grey, all others are pale.
    """
    metric = metric_named(found.metric)
    groups: list[tuple[str, str, list[NDArray[np.float64]], str]] = [
        (DEFAULT, "c0", [times[name] for name in default_names(COPIES)], "default")
    ]
    for one in found.findings:
        if one.sd_ratio is not None:
            groups += _rows(one, times, found.default_spread.estimate * found.default_mean)
    largest = max(float(np.max(rows)) for _, _, parts, _ in groups for rows in parts)
    factor, unit = wording.display_unit(metric, [largest])
    order = [label for label, *_ in groups]
    random = np.random.default_rng(1)  # of the jitter alone
    dots: list[dict[str, Any]] = [
        {"source": label, "colour": colour, "time": float(value) / factor, "jitter": float(random.uniform(-1, 1))}
        for label, colour, parts, _ in groups
        for rows in parts
        for value in rows
    ]
    labels = [{"source": label, "text": text, "time": 1.02 * largest / factor} for label, _, _, text in groups]
    y = alt.Y("source:N", sort=order, title=None, axis=alt.Axis(grid=False, labelLimit=260))
    lowest = min(dot["time"] for dot in dots)
    scale = alt.Scale(domain=[lowest, largest / factor * 1.3], zero=False, nice=False)
    colours = alt.Color("colour:N", legend=None).scale(
        domain=["c0", "c1", "zero"], range=["var(--c0)", "var(--c1)", "var(--zero)"]
    )
    points = (
        alt.Chart(theme.rows(dots))
        .mark_circle(size=16, opacity=0.55)
        .encode(
            x=alt.X("time:Q", scale=scale, axis=alt.Axis(title=f"{metric.label} ({unit})", tickCount=6)),
            y=y,
            yOffset=alt.YOffset("jitter:Q", scale=alt.Scale(domain=[-1 / _JITTER, 1 / _JITTER])),
            color=colours,
        )
    )
    text = (
        alt.Chart(theme.rows(labels))
        .mark_text(align="left", dx=6)
        .encode(x=alt.X("time:Q", scale=scale), y=y, text="text:N")
    )
    return theme.finish(theme.layered(points, text), width, ROW_HEIGHT * len(groups))


def _rows(
    one: Finding, times: Mapping[str, NDArray[np.float64]], sd_default: float
) -> list[tuple[str, str, list[NDArray[np.float64]], str]]:
    """One row a source; one a value where its values are no draws, with each value's own ratio."""
    if one.key not in _BY_VALUE or len(one.values) == 1:
        return [(one.label, _colour(one), [times[value.name] for value in one.values], _ratio(one))]
    return [
        (value.name, _colour(one), [times[value.name]], f"× {value.cv * value.mean / sd_default:.2f}")
        for value in one.values
    ]


def _colour(one: Finding) -> str:
    return "c1" if one.verdict in ("cause", "part") else "zero"


def _ratio(one: Finding) -> str:
    found = one.sd_ratio
    return "" if found is None else f"× {found.estimate:.2f} ({found.low:.2f}–{found.high:.2f})"
