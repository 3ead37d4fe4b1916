"""Draws shares of ranks by condition: ALLOC's Figures 4, 5 and 7, as bars that add up to all programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import altair as alt

from pagelab.analysis import wording
from pagelab.analysis.nondeterminism import words
from pagelab.analysis.nondeterminism_model import Family, NondeterminismPart, Ranking
from pagelab.charts import theme

ROW_HEIGHT = 26
_LEAST_LABELLED = 7.0
"""Least percentage that is written on its bar; a narrower bar has no room for it."""
_STRONGEST, _PALEST = 8, 1
_TITLE_START = -70
"""Start of a heading, left of the bars, where its row has no label; so it also fits on a phone."""
_SHADES = 3
"""The first ranks have shades of their own; all later ranks share the palest."""


def panels(part: NondeterminismPart, metrics: Sequence[str]) -> list[tuple[str, Family, Ranking]]:
    """Title, family and ranking of each of ``metrics`` that can be ranked, in that order.

    A ranking in which every condition is best in all programs is left out.
    """
    found = []
    for metric in metrics:
        for family in part.families:
            ranking = family.ranking(metric)
            if ranking is not None and ranking.groups >= words.FEWEST_GROUPS and not words.all_alike(ranking):
                title = f"{words.NAMES[metric][:1].upper()}{words.NAMES[metric][1:]}"
                found.append((f"{title}: {_programs(family, ranking.groups)}", family, ranking))
    return found


def _programs(family: Family, count: int) -> str:
    """The number of programs in few words, for a phone."""
    return f"{wording.count(count, 'program')}, {'repeated' if family.repeated else 'whole'}"


def ranks(part: NondeterminismPart, metrics: Sequence[str], width: theme.Width = "container") -> dict[str, Any] | None:
    """A chart with a bar per condition, divided by rank. None where fewer than two programs or equal ranks exist."""
    shown = panels(part, metrics)
    if not shown:
        return None
    most = max(len(family.conditions) for _, family, _ in shown)
    rows: list[dict[str, str]] = []
    bars: list[dict[str, Any]] = []
    for title, family, ranking in shown:
        rows.append({"row": title, "label": "", "title": title})
        rows += [{"row": _key(title, name), "label": name, "title": ""} for name in family.conditions]
        bars += _bars(title, family, ranking)
    return theme.finish(_layers(rows, bars, most), width, ROW_HEIGHT * len(rows), [row["label"] for row in rows])


def _key(title: str, condition: str) -> str:
    """A unique key for a row, since conditions have the same names in every panel."""
    return f"{title} · {condition}"


def _bars(title: str, family: Family, ranking: Ranking) -> list[dict[str, Any]]:
    found = []
    for name in family.conditions:
        start = 0.0
        for rank, percent in enumerate(ranking.share(0.0).percent[name], start=1):
            if percent:
                found.append(
                    {
                        "row": _key(title, name),
                        "condition": name,
                        "rank": rank_name(rank),
                        "start": round(start, 6),
                        "end": round(start + percent, 6),
                        "label": f"{percent:.0f}%" if percent >= _LEAST_LABELLED else "",
                        "dark": rank == 1,
                    }
                )
            start += percent
    return found


def rank_name(rank: int) -> str:
    return {1: "best", 2: "second", 3: "third"}.get(rank, f"{rank}th")


def _layers(rows: list[dict[str, str]], bars: list[dict[str, Any]], most: int) -> alt.LayerChart:
    names = [rank_name(rank) for rank in range(1, most + 1)]
    shades = [f"var(--s{max(_PALEST, _STRONGEST - 3 * min(rank, _SHADES))})" for rank in range(most)]
    x_axis = alt.Axis(title="programs (%)", tickCount=5, labelColor="var(--soft)")
    x = alt.X("start:Q", scale=alt.Scale(domain=[0, 100], nice=False), axis=x_axis)
    labels = json.dumps({row["row"]: row["label"] for row in rows})
    axis = alt.Axis(labelExpr=f"({labels})[datum.value]", grid=False)
    scale = alt.Scale(domain=[row["row"] for row in rows], type="band")
    y = alt.Y("row:N", title=None, sort=None, scale=scale, axis=axis)
    data = alt.Chart(theme.rows(bars))
    drawn = data.mark_bar(height={"band": 0.72}, stroke="var(--paper)", strokeWidth=1).encode(
        x=x,
        x2="end:Q",
        y=y,
        color=alt.Color("rank:N", sort=None, legend=alt.Legend(title=None)).scale(domain=names, range=shades),
        tooltip=[alt.Tooltip("condition:N"), alt.Tooltip("rank:N"), alt.Tooltip("label:N", title="programs")],
    )
    text = (
        data.transform_calculate(middle="(datum.start + datum.end) / 2")
        .mark_text(fontSize=11)
        .encode(
            x=alt.X("middle:Q"),
            y=y,
            text="label:N",
            color=alt.condition("datum.dark", alt.value("var(--paper)"), alt.value("var(--ink)")),
        )
    )
    titles = (
        alt.Chart(theme.rows([row for row in rows if row["title"]]))
        .mark_text(align="left", fontWeight=600, baseline="middle", dy=3)
        .encode(x=alt.value(_TITLE_START), y=y, text="title:N")
    )
    return theme.layered(drawn, text, titles)
