"""Simulated executions as points, a row for each configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from pagelab.charts import theme

ROW_PX = 26


def executions_by_row(
    rows: Mapping[tuple[str, str], Sequence[float]],
    title: str,
    x_title: str,
    *,
    width: theme.Width = theme.PAPER_WIDTH,
) -> dict[str, Any]:
    """``rows``: (group, condition) → one value an execution. A condition has one colour and shape in all groups."""
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
            y=alt.Y("row:N", sort=labels, axis=alt.Axis(title=None, labelLimit=320, grid=True)),
            color=alt.Color("condition:N", sort=None, legend=None).scale(domain=names, range=list(colours.values())),
            shape=alt.Shape("condition:N", sort=None, legend=None).scale(domain=names, range=list(shapes.values())),
            tooltip=[alt.Tooltip("row:N"), alt.Tooltip("value:Q", title=x_title, format=".5g")],
        )
        .properties(title=title)
    )
    return theme.finish(chart, width, ROW_PX * max(1, len(rows)))
