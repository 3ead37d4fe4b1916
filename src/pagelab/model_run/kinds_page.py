"""The page of a design over kinds of memory: its effects, and R of every combination."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt

from pagelab.charts import theme
from pagelab.machine.provenance import pagelab_version
from pagelab.model_run.kinds_answer import combination_rows, effect_rows, facts
from pagelab.model_run.kinds_document import KindsDocument
from pagelab.models.page import written
from pagelab.report import shell
from pagelab.report.figure import Figure
from pagelab.report.tables import Table

_ROW_PX = 30


def write(found: KindsDocument, out: Path) -> Path:
    """Writes page, figures (SVG) and ``report.json`` into ``out``; returns the page's path.

    Raises `BadInputError` if ``out`` holds anything but a report.
    """
    text = found.model_dump_json(by_alias=True, indent=1) + "\n"
    return written(out, f"pagelab {pagelab_version()}", figures_of(found), {"report.json": text}, render(found))


def render(found: KindsDocument) -> str:
    """The whole page as HTML."""
    text = found.model_dump_json(by_alias=True, indent=1).encode()
    return shell.render(
        "kinds.html.j2",
        figures_of(found),
        created_by=f"pagelab {pagelab_version()}",
        downloads=[
            shell.download("report.json", text, "application/json", "everything this page says (pagelab.model-kinds/1)")
        ],
        effects=_table(effect_rows(found), "Effects of 2M pages; intervals are of each effect alone"),
        combinations=_table(combination_rows(found), "R of every combination"),
        facts=facts(found),
        found=found,
    )


def _table(rows: list[list[str]], caption: str) -> Table:
    return Table(columns=tuple(rows[0]), rows=tuple(tuple(row) for row in rows[1:]), caption=caption)


def figures_of(found: KindsDocument) -> tuple[Figure, ...]:
    """The figures, in reading order."""
    effects = "; ".join(f"{row[0]} {row[1]} ({row[2]})" for row in effect_rows(found)[1:])
    times = "; ".join(f"{row[0]} {row[1]}" for row in combination_rows(found)[1:])
    return (
        Figure(
            id="effects",
            number=1,
            section="first",
            title="Effects of 2M pages by kind of memory",
            caption="A mark is the change of R when this kind has 2M pages instead of 4K pages, averaged over the page "
            "sizes of the other kinds; of several kinds (×), what they change together beside their own effects. Lines "
            f"are {100 * found.level:g}% intervals over blocks. Filled: seen after Holm’s correction.",
            alternative=f"Effects of 2M pages on R: {effects}.",
            draw=lambda width: effects_chart(found, width),
        ),
        Figure(
            id="combinations",
            number=2,
            section="combinations",
            title="Run time of every combination of page sizes",
            caption=f"The {found.estimator} of the executions of each. Kinds that are not named have 4K pages.",
            alternative=f"R ({found.unit}) by what is in 2M pages: {times}.",
            draw=lambda width: combinations_chart(found, width),
        ),
    )


def effects_chart(found: KindsDocument, width: theme.Width) -> dict[str, Any]:
    """Chart of the effects with intervals, one per row; a line marks "no effect"."""
    names = [" × ".join(one.kinds) for one in found.effects]
    rows = [
        {
            "effect": name,
            "percent": one.percent,
            "low": one.percent if one.low_percent is None else one.low_percent,
            "high": one.percent if one.high_percent is None else one.high_percent,
            "seen": "seen" if one.seen else "not seen",
        }
        for name, one in zip(names, found.effects, strict=True)
    ]
    y = alt.Y("effect:N", sort=names, title=None, axis=alt.Axis(grid=True))
    axis = alt.Axis(title="change of R by 2M pages (%)")
    zero = alt.Chart(theme.rows([{"zero": 0}])).mark_rule(color="var(--zero)").encode(x=alt.X("zero:Q", axis=axis))
    base = alt.Chart(theme.rows(rows))
    lines = base.mark_rule(strokeWidth=2, color="var(--c1)").encode(y=y, x=alt.X("low:Q", axis=axis), x2="high:Q")
    marks = base.mark_point(size=70, filled=True, opacity=1, stroke="var(--c1)").encode(
        y=y,
        x=alt.X("percent:Q", axis=axis),
        fill=alt.Fill("seen:N", legend=None).scale(domain=["seen", "not seen"], range=["var(--c1)", "var(--paper)"]),
        tooltip=[
            alt.Tooltip("effect:N"),
            alt.Tooltip("percent:Q", title="%", format="+.3g"),
            alt.Tooltip("low:Q", format="+.3g"),
            alt.Tooltip("high:Q", format="+.3g"),
            alt.Tooltip("seen:N", title="after Holm"),
        ],
    )
    return theme.finish(theme.layered(zero, lines, marks), width, _ROW_PX * max(2, len(rows)), names)


def combinations_chart(found: KindsDocument, width: theme.Width) -> dict[str, Any]:
    """Chart of R, one combination per row."""
    names = [" + ".join(one.large) or "nothing" for one in found.combinations]
    rows = [
        {"combination": name, "r": one.r, "runs": one.runs, "misses": one.m}
        for name, one in zip(names, found.combinations, strict=True)
    ]
    tips = [alt.Tooltip("combination:N"), alt.Tooltip("r:Q", title="R", format=".4g"), alt.Tooltip("runs:Q")]
    if found.counts is not None:
        tips.append(alt.Tooltip("misses:Q", title="M", format=".3g"))
    chart = (
        alt.Chart(theme.rows(rows))
        .mark_point(size=70, filled=True, opacity=1, color="var(--c1)")
        .encode(
            x=alt.X("r:Q", scale=alt.Scale(zero=False), axis=alt.Axis(title=f"R ({found.unit})")),
            y=alt.Y("combination:N", sort=names, title="in 2M pages", axis=alt.Axis(grid=True)),
            tooltip=tips,
        )
    )
    return theme.finish(chart, width, _ROW_PX * max(2, len(rows)), names)
