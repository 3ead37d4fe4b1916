"""Draws resident memory by page size, with one bar per condition."""

from __future__ import annotations

from typing import Any

import altair as alt

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis, PlacementSummary
from pagelab.charts import theme
from pagelab.charts.rows import grouped

ROW_HEIGHT = 22


def bars(analysis: Analysis, width: theme.Width = "container") -> dict[str, Any] | None:
    """A chart of shares of the peak by page size; memory given back before the end is an empty outline.

    None where nothing was reported, and where every bar would be full of pages of one size: the table shows that.
    """
    by_id = {c.id: c for c in analysis.design.conditions}
    known = [p for p in analysis.placements if p.resident_bytes > 0]
    sizes = sorted({share.page_bytes for p in known for share in p.by_size if share.bytes > 0})
    if not sizes or (len(sizes) == 1 and all(_is_full(p) for p in known)):
        return None
    rows = grouped((by_id[p.condition].workload, by_id[p.condition].policy) for p in known)
    keys = {p.condition: rows.key(by_id[p.condition].workload, by_id[p.condition].policy) for p in known}
    parts = [v for p in known for v in _parts(p, by_id[p.condition].policy, keys[p.condition], sizes)]
    wholes = [{"row": keys[p.condition], "whole": 100, "shown": _whole(p)} for p in known]
    y = rows.axis()
    x_axis = alt.Axis(title="share of peak memory (%)", values=[0, 25, 50, 75, 100])
    scale = alt.Scale(domain=[0, 128], nice=False)
    names = [wording.page_size(s) for s in sizes]
    colour = alt.Color(
        "size:N", sort=None, legend=alt.Legend(title="page size", titleOrient="left", symbolType="square")
    )
    totals = alt.Chart(theme.rows(wholes))
    outline = totals.mark_bar(size=13, fillOpacity=0, stroke="var(--rule)", strokeWidth=1).encode(
        x=alt.X("whole:Q", scale=scale, axis=x_axis), y=y
    )
    stack = (
        alt.Chart(theme.rows(parts))
        .mark_bar(size=13)
        .encode(
            x=alt.X("share:Q", stack="zero", scale=scale, axis=x_axis),
            y=y,
            order=alt.Order("rank:Q"),
            color=colour.scale(domain=names, range=[theme.page_size_colour(s) for s in sizes]),
            tooltip=[
                alt.Tooltip("policy:N"),
                alt.Tooltip("size:N", title="page size"),
                alt.Tooltip("shown:N", title="resident"),
                alt.Tooltip("percent:N", title="of the peak"),
            ],
        )
    )
    text = totals.mark_text(align="left", dx=5, color="var(--soft)").encode(
        x=alt.X("whole:Q", scale=scale), y=y, text="shown:N"
    )
    return theme.finish(theme.layered(outline, stack, text), width, ROW_HEIGHT * len(rows), rows.labels)


def _most(placement: PlacementSummary) -> float:
    """The peak, or the resident bytes where they are more: several processes can exceed the largest one's peak."""
    return max(placement.peak_bytes, sum(s.bytes for s in placement.by_size))


def _is_full(placement: PlacementSummary) -> bool:
    """Whether the bar looks full: too little memory was given back to be seen."""
    return sum(s.bytes for s in placement.by_size) >= 0.995 * _most(placement)


def _whole(placement: PlacementSummary) -> str:
    return wording.size(_most(placement))


def _parts(placement: PlacementSummary, policy: str, key: str, sizes: list[int]) -> list[dict[str, Any]]:
    whole = _most(placement)
    return [
        {
            "row": key,
            "policy": policy,
            "size": wording.page_size(s.page_bytes),
            "rank": sizes.index(s.page_bytes),
            "share": 100 * s.bytes / whole,
            "shown": wording.size(s.bytes),
            "percent": wording.share(s.bytes / whole),
        }
        for s in placement.by_size
        if s.bytes > 0
    ]
