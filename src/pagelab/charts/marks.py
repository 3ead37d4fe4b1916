"""Draws results of simulations: lines over the number of colours (PAGING's figures), and executions by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from pagelab.charts import theme

HEIGHT = 300
LINES = 8
"""Most lines that readers can distinguish."""


@dataclass(frozen=True)
class Line:
    """One line: its label and its points (colours, value); a ``dashed`` line is modelled, not simulated."""

    name: str
    points: Sequence[tuple[int, float]]
    dashed: bool = False


def over_colours(
    lines: Sequence[Line],
    title: str,
    y_title: str,
    series: str,
    *,
    around: tuple[float, float] | None = None,
    width: theme.Width = theme.PAPER_WIDTH,
) -> dict[str, Any]:
    """A chart of lines over the number of colours, on a logarithmic axis; ``series`` is the heading of the legend.

    ``around``: values that the vertical axis includes at least, so that a tiny difference does not look large.
    """
    names = list(dict.fromkeys(line.name for line in lines))
    marks = theme.condition_colours(names)
    shapes = theme.condition_shapes(names)
    values = [
        {"name": line.name, "colours": colours, "value": value, "kind": "model" if line.dashed else "simulated"}
        for line in lines
        for colours, value in line.points
    ]
    counts: list[float] = sorted({colours for line in lines for colours, _ in line.points})
    legend = alt.Legend(title=series, columns=7)
    scale = alt.Scale(zero=False)
    if around is not None:
        shown = [*around, *(row["value"] for row in values)]
        scale = alt.Scale(zero=False, domain=[min(shown), max(shown)], nice=True)
    encoding: dict[str, Any] = {
        "x": alt.X(
            "colours:Q",
            scale=alt.Scale(type="log", base=2, domain=[counts[0], max(counts[-1], 2 * counts[0])]),
            axis=alt.Axis(title="colours", values=counts, grid=False, format="d"),
        ),
        "y": alt.Y("value:Q", scale=scale, axis=alt.Axis(title=y_title)),
        "color": alt.Color("name:N", sort=None, legend=legend).scale(domain=names, range=list(marks.values())),
        "tooltip": [
            alt.Tooltip("name:N", title=series),
            alt.Tooltip("colours:Q"),
            alt.Tooltip("value:Q", title=y_title, format=".5g"),
            alt.Tooltip("kind:N"),
        ],
    }
    base = alt.Chart(theme.rows(values)).encode(**encoding)
    dash: dict[str, Any] = {"strokeDash": alt.value([1, 0])}
    if any(line.dashed for line in lines):
        both = not all(line.dashed for line in lines)
        key = alt.Legend(title=None, symbolType="stroke") if both else None
        dash["strokeDash"] = alt.StrokeDash("kind:N", sort=None, legend=key).scale(
            domain=["simulated", "model"], range=[[1, 0], [5, 4]]
        )
    drawn = base.mark_line(strokeWidth=1.8).encode(detail="kind:N", **dash)
    points = base.mark_point(size=46, filled=True, opacity=1).encode(
        shape=alt.Shape("name:N", sort=None, legend=legend).scale(domain=names, range=list(shapes.values()))
    )
    chart = theme.layered(drawn, points).properties(title=title)
    return theme.finish(chart, width, HEIGHT)


ROW_PX = 26


def executions_by_row(
    rows: Mapping[tuple[str, str], Sequence[float]],
    title: str,
    x_title: str,
    *,
    width: theme.Width = theme.PAPER_WIDTH,
) -> dict[str, Any]:
    """A chart of executions: ``rows`` is (group, condition) → one value per execution.

    A condition has the same colour and shape in all groups.
    """
    names = list(dict.fromkeys(condition for _, condition in rows))
    colours, shapes = theme.condition_colours(names), theme.condition_shapes(names)
    labels = [f"{group}: {condition}" for group, condition in rows]
    values = [
        {"row": f"{group}: {condition}", "condition": condition, "value": value}
        for (group, condition), several in rows.items()
        for value in several
    ]
    chart = (
        alt.Chart(theme.rows(values))
        .mark_point(size=46, opacity=0.55, filled=True)
        .encode(
            x=alt.X("value:Q", scale=alt.Scale(zero=False), axis=alt.Axis(title=x_title)),
            y=alt.Y("row:N", sort=labels, axis=alt.Axis(title=None, grid=True)),
            color=alt.Color("condition:N", sort=None, legend=None).scale(domain=names, range=list(colours.values())),
            shape=alt.Shape("condition:N", sort=None, legend=None).scale(domain=names, range=list(shapes.values())),
            tooltip=[alt.Tooltip("row:N"), alt.Tooltip("value:Q", title=x_title, format=".5g")],
        )
        .properties(title=title)
    )
    return theme.finish(chart, width, ROW_PX * max(1, len(rows)), labels)
