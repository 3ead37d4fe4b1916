"""What the kernel gave: resident memory by page size, one bar a condition."""

from __future__ import annotations

from typing import Any

import altair as alt

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis
from pagelab.report.charts import theme

ROW_HEIGHT = 26


def bars(analysis: Analysis, workload: str, width: theme.Width = "container") -> dict[str, Any] | None:
    """Median resident bytes by the size of the page that maps them. None when no execution reported placement."""
    labels = {c.id: c.policy for c in analysis.design.conditions if c.workload == workload}
    mine = [p for p in analysis.placements if p.condition in labels and p.by_size]
    sizes = sorted({share.page_bytes for p in mine for share in p.by_size if share.bytes > 0})
    if not sizes:
        return None
    largest = max(sum(s.bytes for s in p.by_size) for p in mine)
    factor, unit = wording.byte_unit(largest)
    values = [
        {
            "policy": labels[p.condition],
            "size": wording.page_size(s.page_bytes),
            "rank": sizes.index(s.page_bytes),
            "amount": s.bytes / factor,
            "shown": wording.size(s.bytes),
            "share": wording.percent(s.bytes / sum(t.bytes for t in p.by_size), signed=False),
        }
        for p in mine
        for s in p.by_size
        if s.bytes > 0
    ]
    names = [wording.page_size(s) for s in sizes]
    chart = (
        alt.Chart(theme.rows(values))
        .mark_bar(size=16, stroke="var(--paper)", strokeWidth=1)
        .encode(
            x=alt.X("amount:Q", stack="zero", axis=alt.Axis(title=f"resident memory ({unit})", tickCount=5)),
            y=alt.Y(
                "policy:N",
                sort=None,
                title=None,
                scale=alt.Scale(domain=list(labels.values())),
                axis=alt.Axis(grid=False, labelLimit=150),
            ),
            order=alt.Order("rank:Q"),
            color=alt.Color("size:N", sort=None, legend=alt.Legend(title="page size", symbolType="square")).scale(
                domain=names, range=[theme.page_size_colour(s) for s in sizes]
            ),
            tooltip=[
                alt.Tooltip("policy:N"),
                alt.Tooltip("size:N", title="page size"),
                alt.Tooltip("shown:N", title="resident"),
                alt.Tooltip("share:N"),
            ],
        )
    )
    return theme.finish(chart, width, {"step": ROW_HEIGHT})
