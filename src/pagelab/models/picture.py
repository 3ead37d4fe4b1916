"""The figures of a model report, as Vega-Lite specifications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import altair as alt
import numpy as np

from pagelab.charts import theme
from pagelab.errors import BadInputError

from .answer import relative_errors, shown
from .catalogue import PUBLISHED, models
from .document import Fits, ModelFile
from .over_workloads import Fitted, errors_of, models_of, over_workloads

_WAYS = ("in-sample", "one left out", "test layouts", "the paper’s largest")
_COLOURS = ("var(--zero)", "var(--c1)", "var(--c3)", "var(--c2)")
_SHAPES = ("circle", "diamond", "square", "cross")
_OF_C = ("alam", "yaniv", "poly1", "poly2", "poly3")
"""Models that use C alone and are drawn as curves over C."""
_CURVE = 60
"""Number of points of a curve."""
_LEAST = 1e-3
"""In percent; smaller errors are drawn at this value, because the axis is logarithmic."""


def errors(fits: Fits, width: theme.Width) -> dict[str, Any]:
    """Maximal errors of every model on a logarithmic axis, one mark for each way to judge."""
    rows = []
    for one in fits.models:
        if one.in_sample is None:
            continue
        found = (one.in_sample, one.left_out, one.test)
        values = [None if each is None else each.maximum for each in found] + [PUBLISHED[one.model].in_sample]
        rows += [
            {"model": one.model, "way": way, "error": max(100 * value, _LEAST)}
            for way, value in zip(_WAYS, values, strict=True)
            if value is not None
        ]
    names = [one.model for one in fits.models if one.in_sample is not None]
    used = [way for way in _WAYS if any(row["way"] == way for row in rows)]
    marks = {way: (colour, shape) for way, colour, shape in zip(_WAYS, _COLOURS, _SHAPES, strict=True)}
    legend = alt.Legend(title=None)
    colours, shapes = [marks[way][0] for way in used], [marks[way][1] for way in used]
    chart = (
        alt.Chart(theme.rows(rows))
        .mark_point(filled=True, size=60, opacity=1)
        .encode(
            x=alt.X("error:Q", scale=alt.Scale(type="log"),
                    axis=alt.Axis(title="maximal relative error (%)", values=[0.1, 1, 10, 100])),
            y=alt.Y("model:N", sort=names, title=None, axis=alt.Axis(grid=True)),
            yOffset=alt.YOffset("way:N", sort=used),
            color=alt.Color("way:N", sort=None, legend=legend).scale(domain=used, range=colours),
            shape=alt.Shape("way:N", sort=None, legend=legend).scale(domain=used, range=shapes),
            tooltip=[alt.Tooltip("model:N"), alt.Tooltip("way:N"), alt.Tooltip("error:Q", title="%", format=".3g")],
        )
    )  # fmt: skip
    return theme.finish(chart, width, 30 * max(len(names), 2))


def by_workload(
    found: Sequence[Fitted], of: Literal["maximum", "geometric_mean"], width: theme.Width
) -> dict[str, Any]:
    """Errors by workload on a logarithmic axis, one mark for each model (MOSAIC, Figures 5 and 6)."""
    names = models_of(found)
    rows = [
        {"workload": one.name, "model": name, "error": max(100 * float(getattr(errors, of)), _LEAST)}
        for one in found
        for name in names
        if (errors := errors_of(one, name)) is not None
    ]
    colours, shapes = theme.condition_colours(["", *names]), theme.condition_shapes(["", *names])
    colour, shape = _marked(names, colours, shapes)
    picked = alt.selection_point(fields=["model"], bind="legend")
    what = "maximal" if of == "maximum" else "geometric mean of the"
    chart = (
        alt.Chart(theme.rows(rows))
        .mark_point(filled=True, size=50)
        .encode(
            x=alt.X("error:Q", scale=alt.Scale(type="log"),
                    axis=alt.Axis(title=f"{what} relative error (%)", values=[0.01, 0.1, 1, 10, 100])),
            y=alt.Y("workload:N", sort=[one.name for one in found], title=None, axis=alt.Axis(grid=True)),
            color=colour,
            shape=shape,
            opacity=alt.condition(picked, alt.value(0.9), alt.value(0.06)),
            tooltip=[alt.Tooltip("workload:N"), alt.Tooltip("model:N"),
                     alt.Tooltip("error:Q", title="%", format=".3g")],
        )
        .add_params(picked)
    )  # fmt: skip
    return theme.finish(chart, width, 40 * max(len(found), 2))


def over_all(found: Sequence[Fitted], width: theme.Width) -> dict[str, Any]:
    """The largest error of every model over all workloads, beside the paper's (MOSAIC, Figure 2)."""
    every = [over_workloads(found, name) for name in models_of(found)]
    ways = ("here", "the paper’s largest")
    rows = [
        {"model": one.model, "way": way, "error": max(100 * value, _LEAST), "worst": one.worst if way == "here" else ""}
        for one in every
        for way, value in zip(ways, (one.maximum, one.paper), strict=True)
        if value is not None
    ]
    legend = alt.Legend(title=None)
    chart = (
        alt.Chart(theme.rows(rows))
        .mark_point(filled=True, size=60, opacity=1)
        .encode(
            x=alt.X("error:Q", scale=alt.Scale(type="log"),
                    axis=alt.Axis(title="maximal relative error (%)", values=[0.1, 1, 10, 100])),
            y=alt.Y("model:N", sort=[one.model for one in every], title=None, axis=alt.Axis(grid=True)),
            color=alt.Color("way:N", sort=None, legend=legend).scale(
                domain=list(ways), range=["var(--c1)", "var(--c2)"]
            ),
            shape=alt.Shape("way:N", sort=None, legend=legend).scale(domain=list(ways), range=["circle", "cross"]),
            tooltip=[alt.Tooltip("model:N"), alt.Tooltip("way:N"), alt.Tooltip("worst:N", title="worst workload"),
                     alt.Tooltip("error:Q", title="%", format=".3g")],
        )
    )  # fmt: skip
    return theme.finish(chart, width, 30 * max(len(every), 2))


def _rows(file: ModelFile, fits: Fits) -> tuple[list[dict[str, Any]], dict[str, str], dict[str, str]]:
    """One row per model and layout: measured R, R predicted from a fit without the layout (if made), and the error."""
    layouts = {one.layout: one for one in file.layouts}
    rows = []
    for one in shown(fits):
        for name, error in relative_errors(one).items():
            layout = layouts[name]
            rows.append(
                {
                    "model": one.model,
                    "layout": name,
                    "role": layout.role,
                    "measured": layout.r,
                    "predicted": layout.r * (1 + error),
                    "error": 100 * error,
                    "walks": layout.c,
                }
            )
    names = [one.model for one in shown(fits)]
    return rows, theme.condition_colours(["", *names]), theme.condition_shapes(["", *names])


def _marked(names: list[str], colours: dict[str, str], shapes: dict[str, str]) -> tuple[alt.Color, alt.Shape]:
    legend = alt.Legend(title=None)
    return (
        alt.Color("model:N", sort=None, legend=legend).scale(domain=names, range=[colours[name] for name in names]),
        alt.Shape("model:N", sort=None, legend=legend).scale(domain=names, range=[shapes[name] for name in names]),
    )


_TIPS = [
    alt.Tooltip("model:N"),
    alt.Tooltip("layout:N"),
    alt.Tooltip("measured:Q", format=".4g"),
    alt.Tooltip("predicted:Q", format=".4g"),
    alt.Tooltip("error:Q", title="error (%)", format="+.3g"),
]


def measured_against_predicted(file: ModelFile, fits: Fits, width: theme.Width) -> dict[str, Any]:
    """Predicted against measured run time; the line is a perfect model. A click on a legend name shows it alone."""
    rows, colours, shapes = _rows(file, fits)
    names = list(dict.fromkeys(row["model"] for row in rows))
    colour, shape = _marked(names, colours, shapes)
    ends = [{"x": value} for value in (min(row["measured"] for row in rows), max(row["measured"] for row in rows))]
    scale = alt.Scale(zero=False)
    line = alt.Chart(theme.rows(ends)).mark_line(color="var(--zero)").encode(x="x:Q", y=alt.Y("x:Q"))
    picked = alt.selection_point(fields=["model"], bind="legend")
    points = (
        alt.Chart(theme.rows(rows))
        .mark_point(filled=True, size=40)
        .encode(
            x=alt.X("measured:Q", scale=scale, axis=alt.Axis(title="measured R (cycles)", format=".2s")),
            y=alt.Y("predicted:Q", scale=scale, axis=alt.Axis(title="predicted R (cycles)", format=".2s")),
            color=colour,
            shape=shape,
            opacity=alt.condition(picked, alt.value(0.9), alt.value(0.06)),
            tooltip=_TIPS,
        )
        .add_params(picked)
    )  # fmt: skip
    return theme.finish(theme.layered(line, points), width, 340)


def along_walks(file: ModelFile, fits: Fits, width: theme.Width) -> dict[str, Any]:
    """Measured R against C, and the models that use C alone as curves (MOSAIC, Figures 3 and 7 to 9)."""
    names, curves = _curves(file, fits)
    measured = [
        {"layout": one.layout, "role": "test layout" if one.role == "test" else "layout", "walks": one.c, "r": one.r}
        for one in file.layouts
    ]
    x = alt.X("walks:Q", scale=alt.Scale(zero=False), axis=alt.Axis(title="C, walk cycles", format=".2s"))
    y = alt.Y("r:Q", scale=alt.Scale(zero=False), axis=alt.Axis(title="R (cycles)", format=".2s"))
    points = measured_points(measured, "walks", "C", x, y)
    if not names:
        return theme.finish(points, width, 340)
    colours = theme.condition_colours(["", *names])
    legend = alt.Legend(title=None)
    picked = alt.selection_point(fields=["model"], bind="legend")
    lines = (
        alt.Chart(theme.rows(curves))
        .mark_line(strokeWidth=2)
        .encode(
            x=x,
            y=y,
            color=alt.Color("model:N", sort=None, legend=legend).scale(
                domain=names, range=[colours[name] for name in names]
            ),
            opacity=alt.condition(picked, alt.value(0.9), alt.value(0.06)),
            tooltip=[alt.Tooltip("model:N")],
        )
        .add_params(picked)
    )
    return theme.finish(theme.layered(lines, points), width, 340)


def measured_points(rows: list[dict[str, Any]], field: str, title: str, x: alt.X, y: alt.Y) -> alt.Chart:
    """Marks of layouts as they were measured, test layouts as squares; rows have ``layout``, ``role``, ``r`` and
    ``field``, which has this title.
    """
    chart: alt.Chart = (
        alt.Chart(theme.rows(rows))
        .mark_point(filled=True, size=40, color="var(--zero)", opacity=0.9)
        .encode(
            x=x,
            y=y,
            shape=alt.Shape("role:N", sort=None, legend=alt.Legend(title=None)).scale(
                domain=["layout", "test layout"], range=["circle", "square"]
            ),
            tooltip=[
                alt.Tooltip("layout:N"),
                alt.Tooltip(f"{field}:Q", title=title, format=".4g"),
                alt.Tooltip("r:Q", title="R", format=".4g"),
            ],
        )
    )
    return chart


def _curves(file: ModelFile, fits: Fits) -> tuple[list[str], list[dict[str, Any]]]:
    """Names and curve rows of the models that use C alone, fitted as they were for the report."""
    points = file.points()
    training, every = points.role("train"), models(fits.seed)
    at = np.linspace(float(points.c.min()), float(points.c.max()), _CURVE)
    names, rows = [], []
    for name in _OF_C:
        fit = fits.named(name)
        if fit is None or fit.in_sample is None:
            continue
        model = every[name]
        try:
            fitted = model.fit(points if model.own_points else training)
        except BadInputError:
            continue
        names.append(name)
        r = fitted.predict(None, None, at)
        rows += [{"model": name, "walks": c, "r": value} for c, value in zip(at.tolist(), r.tolist(), strict=True)]
    return names, rows


def residuals(file: ModelFile, fits: Fits, width: theme.Width) -> dict[str, Any]:
    """Errors against walk cycles. A click on a legend name shows it alone."""
    rows, colours, shapes = _rows(file, fits)
    names = list(dict.fromkeys(row["model"] for row in rows))
    colour, shape = _marked(names, colours, shapes)
    zero = alt.Chart(theme.rows([{"zero": 0}])).mark_rule(color="var(--zero)").encode(y=alt.Y("zero:Q"))
    picked = alt.selection_point(fields=["model"], bind="legend")
    points = (
        alt.Chart(theme.rows(rows))
        .mark_point(filled=True, size=40)
        .encode(
            x=alt.X("walks:Q", scale=alt.Scale(zero=False), axis=alt.Axis(title="C, walk cycles", format=".2s")),
            y=alt.Y("error:Q", axis=alt.Axis(title="predicted over measured − 1 (%)")),
            color=colour,
            shape=shape,
            opacity=alt.condition(picked, alt.value(0.9), alt.value(0.06)),
            tooltip=_TIPS,
        )
        .add_params(picked)
    )
    return theme.finish(theme.layered(zero, points), width, 280)
