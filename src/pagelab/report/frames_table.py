"""The table of frame placement: placed as asked, fallbacks, out of reach, kept."""

from __future__ import annotations

from pagelab.analysis import wording
from pagelab.analysis.frames import FramesSummary
from pagelab.analysis.model import Analysis
from pagelab.report.tables import NONE, Table, grouped

REASONS = {
    "larger-page": "larger pages",
    "file": "page cache of files",
    "shared": "shared memory",
    "locked-readonly": "locked or read-only",
    "stack-in-use": "stack in use",
    "early": "in use before the library",
    "other": "other",
}
"""Why bytes could not be placed, in words; a reason that is not here is shown by its name."""


def frames(analysis: Analysis) -> Table:
    """One row a strategy of a condition."""
    summaries = analysis.frames.summaries if analysis.frames else ()
    parts = []
    for workload in analysis.design.workloads:
        mine = [one for one in summaries if analysis.condition(one.condition).workload == workload]
        parts.append((workload, [_row(analysis, one) for one in mine]))
    rows, groups = grouped(parts)
    return Table(
        columns=("policy", "strategy", "out of reach", "colours", "pages", "placed", "worst", "fallbacks", "kept"),
        rows=rows,
        groups=groups,
        words=3,
        caption="Frames asked and got",
        note="Pages asked for, placed and out of reach: medians over executions. Placed: on a frame as wanted, at the "
        "time. Worst: the worst execution. Fallbacks: pages on another colour or frame, and pages that the kernel "
        "filled, of all executions. Kept: of the placed pages still resident at the end, those on the same frame.",
    )


def _row(analysis: Analysis, one: FramesSummary) -> tuple[str, ...]:
    reach = [f"{REASONS.get(reason, reason)} {wording.size(size)}" for reason, size in one.out_of_reach if size]
    return (
        analysis.condition(one.condition).policy,
        one.strategy,
        ", ".join(reach) or NONE,
        f"{one.colours:,}",
        f"{one.requested_pages:,.0f}",
        NONE if one.placed_median is None else wording.share(one.placed_median),
        NONE if one.placed_least is None else wording.share(one.placed_least),
        f"{one.fallback_pages + one.zero_pages:,}",
        NONE if one.kept is None else wording.share(one.kept),
    )
