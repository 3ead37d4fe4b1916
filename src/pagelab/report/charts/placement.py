"""What the kernel gave: resident memory by page size, one bar a condition."""

from __future__ import annotations

from typing import Any

import altair as alt

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis, PlacementSummary
from pagelab.report.charts import theme
from pagelab.report.charts.rows import grouped

ROW_HEIGHT = 22


def bars(analysis: Analysis, width: theme.Width = "container") -> dict[str, Any] | None:
    """Share of resident memory by the size of the page that maps it, with the total. None when nothing was reported."""
    by_id = {c.id: c for c in analysis.design.conditions}
    known = [p for p in analysis.placements if sum(s.bytes for s in p.by_size) > 0]
    sizes = sorted({share.page_bytes for p in known for share in p.by_size if share.bytes > 0})
    if not sizes:
        return None
    rows = grouped((by_id[p.condition].workload, by_id[p.condition].policy) for p in known)
    values = []
    for p in known:
        condition = by_id[p.condition]
        values += _values(p, condition.policy, rows.key(condition.workload, condition.policy), sizes)
    names = [wording.page_size(s) for s in sizes]
    colour = alt.Color(
        "size:N", sort=None, legend=alt.Legend(title="page size", titleOrient="left", symbolType="square")
    )
    chart = alt.Chart(theme.rows(values))
    stack = chart.mark_bar(size=13, stroke="var(--paper)", strokeWidth=1).encode(
        x=alt.X(
            "share:Q",
            stack="zero",
            scale=alt.Scale(domain=[0, 112], nice=False),
            axis=alt.Axis(title="share of resident memory (%)", values=[0, 25, 50, 75, 100]),
        ),
        y=rows.axis(),
        order=alt.Order("rank:Q"),
        color=colour.scale(domain=names, range=[theme.page_size_colour(s) for s in sizes]),
        tooltip=[
            alt.Tooltip("policy:N"),
            alt.Tooltip("size:N", title="page size"),
            alt.Tooltip("shown:N", title="resident"),
            alt.Tooltip("percent:N", title="share"),
        ],
    )
    totals = chart.transform_filter("datum.first").mark_text(align="left", dx=5, color="var(--soft)")
    text = totals.encode(x=alt.datum(100), y=rows.axis(), text="total:N")
    return theme.finish(theme.layered(stack, text), width, ROW_HEIGHT * len(rows))


def _values(placement: PlacementSummary, policy: str, key: str, sizes: list[int]) -> list[dict[str, Any]]:
    present = [s for s in placement.by_size if s.bytes > 0]
    total = sum(s.bytes for s in present)
    return [
        {
            "row": key,
            "policy": policy,
            "size": wording.page_size(s.page_bytes),
            "rank": sizes.index(s.page_bytes),
            "share": 100 * s.bytes / total,
            "shown": wording.size(s.bytes),
            "percent": wording.share(s.bytes / total),
            "total": wording.size(total),
            "first": s is present[0],
        }
        for s in present
    ]
