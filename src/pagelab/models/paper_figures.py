"""MOSAIC's Figures 3 and 7 to 11 and Table 7 from the layouts of one workload: single models against measured R.

Each figure is drawn if its model was fitted. Table 7's cache loads by the program and by the walker need separate
counters, and are reported as missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import altair as alt
import numpy as np

from pagelab.analysis import wording
from pagelab.charts import theme
from pagelab.report.figure import Figure
from pagelab.report.tables import Table

from .answer import uncalibrated
from .base import Fitted, number
from .catalogue import models
from .document import MOVED, Fits, Layout, ModelFile
from .picture import measured_points

Over = Literal["c", "m"]
_TITLES = {"c": "C, walk cycles", "m": "M, TLB misses"}
_CURVE = 60
"""Number of points of a curve."""
SLOPE_ONE = "slope 1"


def figures(file: ModelFile, fits: Fits) -> list[Figure]:
    """The figures whose models were fitted, in the paper's order, not numbered yet."""
    found = [
        _figure(
            file, fits, "linear-mosmodel", ("poly1", "mosmodel"), "c",
            "A line and Mosmodel against measured run time",
            "A line in C cannot follow a run time that is no line; Mosmodel (marks: it knows H and M as well) can. "
            f"{_errors(fits, 'poly1', 'mosmodel')} (MOSAIC, Figure 3).",
        ),
        _figure(
            file, fits, "basu", ("basu",), "m",
            "Basu’s model against measured run time",
            f"The line through the layout of 4K pages, with the mean walk’s cycles as its slope. {_side(fits, 'basu')} "
            "(MOSAIC, Figure 7).",
        ),
        _figure(
            file, fits, "linear", ("poly1", SLOPE_ONE), "c",
            "The slope of the linear regression",
            f"The line of least squares, and one with a slope of 1. {_slope(file, fits)} {_errors(fits, 'poly1')} "
            "(MOSAIC, Figures 8 and 9).",
        ),
        _figure(
            file, fits, "quadratic", ("poly1", "poly2"), "c",
            "A parabola and a line against measured run time",
            f"Polynomials of degree 1 and 2 in C. {_errors(fits, 'poly1', 'poly2')} (MOSAIC, Figure 10).",
        ),
    ]  # fmt: skip
    if _is_check(file):
        found.append(
            _figure(
                file, fits, "unseen-pages", ("yaniv", "mosmodel"), "c",
                "Yaniv’s model and Mosmodel in pages that they have not seen",
                f"The square is the layout in other pages, the only test. {_errors(fits, 'yaniv', 'mosmodel')} "
                "(MOSAIC, Figure 11).",
            )
        )  # fmt: skip
    return [figure for figure in found if figure is not None]


def _is_check(file: ModelFile) -> bool:
    """Whether the only test layout is one in other pages, made by ``pagelab model check``."""
    tests = [one for one in file.layouts if one.role == "test"]
    return len(tests) == 1 and any(tests[0].extra.get(column) is not None for column in MOVED.values())


def _figure(
    file: ModelFile, fits: Fits, name: str, shown: Sequence[str], over: Over, title: str, caption: str
) -> Figure | None:
    """One figure; None if one of its models was not fitted."""
    if any(one != SLOPE_ONE and not _is_fitted(fits, one) for one in shown):
        return None
    said = wording.listing(list(shown))
    return Figure(
        id=name,
        number=0,
        section="layouts",
        title=title,
        caption=caption,
        alternative=f"Run time of {len(file.layouts)} layouts over {_TITLES[over]}, with {said}. {caption}",
        draw=lambda width: against_measured(file, fits, shown, over, width),
    )


def _is_fitted(fits: Fits, name: str) -> bool:
    one = fits.named(name)
    return one is not None and one.in_sample is not None


def _errors(fits: Fits, *names: str) -> str:
    """``Largest errors: poly1 13.0%, mosmodel 2.0%`` on the layouts that are drawn."""
    found = [f"{name} {wording.percent(_largest(fits, name)[1], signed=False)}" for name in names]
    return f"Largest error{'s' if len(names) > 1 else ''}: {', '.join(found)}"


def _largest(fits: Fits, name: str) -> tuple[str, float, float]:
    """Layout, size and sign of a fitted model's largest error, on the fitted and the test layouts."""
    one = fits.named(name)
    if one is None or one.in_sample is None:
        return "", 0.0, 0.0
    relative = {**one.in_sample.relative, **({} if one.test is None else one.test.relative)}
    worst = max(relative, key=lambda layout: abs(relative[layout]))
    return worst, abs(relative[worst]), float(np.sign(relative[worst]))


def _side(fits: Fits, name: str) -> str:
    worst, error, sign = _largest(fits, name)
    side = "below" if sign < 0 else "above"
    return f"At most {wording.percent(error, signed=False)} {side} what was measured, in {worst}"


def _slope(file: ModelFile, fits: Fits) -> str:
    """The slope of the regression, and what it means where C is in cycles of this machine."""
    one = fits.named("poly1")
    slope = 0.0 if one is None else one.parameters.get("c1", 0.0)
    if slope < 0:
        return f"Each walk cycle takes {number(-slope)} cycles off the run time."
    if uncalibrated(file):
        return f"Each walk cycle, as the simulator counts it, costs {number(slope)} cycles."
    told = "more than the walks themselves" if slope > 1 else "as much of a walk as the processor does not hide"
    return f"Each walk cycle costs {number(slope)} cycles: {told}."


def against_measured(
    file: ModelFile, fits: Fits, shown: Sequence[str], over: Over, width: theme.Width
) -> dict[str, Any]:
    """Chart of measured R over C or M: curves of models that use this input alone, marks of models that use more."""
    names, rows, marks = list(shown), list[dict[str, Any]](), list[dict[str, Any]]()
    at = np.linspace(*_span(file, over), _CURVE)
    for name in shown:
        if name == SLOPE_ONE:
            rows += _line(name, at, at + _intercept(fits))
        elif name == "mosmodel":
            marks += _marks(file, fits, name, over)
        else:
            fitted = _fitted(file, fits, name)
            values = fitted.predict(None, *((None, at) if over == "c" else (at, None)))
            rows += _line(name, at, values)
    colours = theme.condition_colours(["", *names])
    colour = alt.Color("model:N", sort=None, legend=alt.Legend(title=None)).scale(
        domain=names, range=[colours[name] for name in names]
    )
    x = alt.X("x:Q", scale=alt.Scale(zero=False), axis=alt.Axis(title=_TITLES[over], format=".2s"))
    y = alt.Y("r:Q", scale=alt.Scale(zero=False), axis=alt.Axis(title="R (cycles)", format=".2s"))
    picked = alt.selection_point(fields=["model"], bind="legend")
    faded = alt.condition(picked, alt.value(0.9), alt.value(0.06))
    layers = [
        alt.Chart(theme.rows(rows))
        .mark_line(strokeWidth=2)
        .encode(x=x, y=y, color=colour, opacity=faded, tooltip=[alt.Tooltip("model:N")])
        .add_params(picked)
    ]
    if marks:
        tips = [alt.Tooltip("model:N"), alt.Tooltip("layout:N"), alt.Tooltip("r:Q", title="predicted", format=".4g")]
        layers.append(
            alt.Chart(theme.rows(marks))
            .mark_point(filled=True, size=40, shape="diamond")
            .encode(x=x, y=y, color=colour, opacity=faded, tooltip=tips)
        )
    return theme.finish(theme.layered(*layers, _measured(file, over, x, y)), width, 300)


def _measured(file: ModelFile, over: Over, x: alt.X, y: alt.Y) -> alt.Chart:
    rows = [
        {"layout": one.layout, "role": "test layout" if one.role == "test" else "layout", "x": value, "r": one.r}
        for one in file.layouts
        if (value := _count(one, over)) is not None
    ]
    return measured_points(rows, "x", over.upper(), x, y)


def _count(one: Layout, over: Over) -> float | None:
    return one.c if over == "c" else one.m


def _span(file: ModelFile, over: Over) -> tuple[float, float]:
    values = [value for one in file.layouts if (value := _count(one, over)) is not None]
    return min(values), max(values)


def _line(name: str, at: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    return [{"model": name, "x": x, "r": r} for x, r in zip(at.tolist(), values.tolist(), strict=True)]


def _intercept(fits: Fits) -> float:
    one = fits.named("poly1")
    return 0.0 if one is None else one.parameters.get("c0", 0.0)


def _marks(file: ModelFile, fits: Fits, name: str, over: Over) -> list[dict[str, Any]]:
    """Each layout's prediction by the fit to all training layouts."""
    fitted = _fitted(file, fits, name)
    points = file.points()
    predicted = fitted.predict(points.h, points.m, points.c).tolist()
    return [
        {"model": name, "layout": one.layout, "x": _count(one, over), "r": r}
        for one, r in zip(file.layouts, predicted, strict=True)
    ]


def _fitted(file: ModelFile, fits: Fits, name: str) -> Fitted:
    points, model = file.points(), models(fits.seed)[name]
    return model.fit(points if model.own_points else points.role("train"))


def anchors_table(file: ModelFile) -> Table | None:
    """Table of run time and TLB counts with 4K and with 2M pages alone (MOSAIC, Table 7); None without both layouts."""
    rows = {
        size: next((one for one in file.layouts if one.layout == name), None) for size, name in file.anchors.items()
    }
    small, large = rows.get("4K"), rows.get("2M")
    if small is None or large is None:
        return None
    known: list[tuple[str, float | None, float | None]] = [
        ("run time, cycles", small.r, large.r),
        ("walk cycles", small.c, large.c),
        ("TLB misses", small.m, large.m),
        ("hits in the second-level TLB", small.h, large.h),
        ("table entries read by walks", small.extra.get("table_reads"), large.extra.get("table_reads")),
    ]
    found = [(name, number(a), number(b), _less(a, b)) for name, a, b in known if a is not None and b is not None]
    return Table(
        columns=("", "4K", "2M", "difference"),
        rows=tuple(found),
        caption="Run time and counts in 4K and in 2M pages alone (MOSAIC, Table 7)",
        note=f"R is measured; the counts are {file.source}. The paper’s loads of L1, L2 and L3 by the program and by "
        "the walker need counters of both, and are not here.",
    )


def _less(small: float, large: float) -> str:
    return wording.percent(large / small - 1) if small else "–"
