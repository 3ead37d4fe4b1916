"""The figures of a report, in reading order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pagelab.analysis import wording
from pagelab.analysis.answer import NEGLIGIBLE
from pagelab.analysis.model import Analysis
from pagelab.charts import theme
from pagelab.report import charts, over_set
from pagelab.report.figure import Figure, slug
from pagelab.report.nondeterminism import figures as nondeterminism

_BOXPLOT = (
    "Whiskers reach the fastest and the slowest execution, the box holds the middle half, the line is the median; "
    "every execution is a point, the first of each row at its top, the last at its bottom. The axis does not "
    "start at zero."
)


def figures_of(analysis: Analysis) -> tuple[Figure, ...]:
    """All figures, numbered in reading order; none without data."""
    found: list[Figure] = []
    first: tuple[Callable[[Analysis, int], list[Figure]], ...]
    answers, spread = (_effects, _times), nondeterminism.MAKERS
    if analysis.over_set is not None:
        first = (over_set.set_figures, *spread, _times)
    elif nondeterminism.is_the_answer(analysis):
        first = (*spread, *answers)
    else:
        first = (*answers, *spread)
    for make in (*first, _tlb, _placement, _colours, _drift):
        found += make(analysis, len(found))
    return tuple(found)


def first_picture(analysis: Analysis, figures: tuple[Figure, ...]) -> Figure | None:
    """The picture that shows the answer.

    In a study of non-determinism it is the spread of each program, or how often each policy was best. In other studies
    it is the set, else the effects; where nothing is compared, the times.
    """
    if nondeterminism.is_the_answer(analysis):
        return figures[0]
    return next((f for section in ("set", "effects", "times") for f in figures if f.section == section), None)


def _effects(analysis: Analysis, before: int) -> list[Figure]:
    planned = [c for c in analysis.compared() if c.relative is not None]
    if not planned:
        return []
    level = wording.level(analysis.design.interval_level)
    cut = " Arrows mark values outside." if charts.is_cut(analysis) else ""
    cut += " Dashed: the limit." if charts.drawn_limits(analysis) else ""
    what = "ratios of pairs" if analysis.design.test == "pairs" else "ratios between executions"
    has_bars = any(c.relative_interval is not None for c in planned)
    bars = f", bars {level} intervals (unadjusted)" if has_bars else f"; none has a {level} interval yet"
    filled = "Filled: a difference after Holm's correction; hollow: none found"
    filled = filled if analysis.design.tested else "Hollow: described, not tested"
    base = sorted({c.baseline for c in planned})
    against = f"Zero is {base[0]}. " if len(base) == 1 else "Zero is the baseline of each program. "
    return [
        Figure(
            id="effects",
            number=before + 1,
            section="effects",
            title=f"Change in {_primary_label(analysis)} against the baseline",
            caption=f"{against}Points are {what}{bars}. {filled}. "
            f"Shaded: within ±{100 * NEGLIGIBLE:g}%, which counts as the "
            f"same.{cut}",
            alternative=" ".join(c.sentence for c in planned),
            draw=lambda width: charts.forest(analysis, width),
        )
    ]


def _primary_label(analysis: Analysis) -> str:
    return wording.in_common([analysis.primary_of(w) for w in analysis.design.workloads])


def _times(analysis: Analysis, before: int) -> list[Figure]:
    found: list[Figure] = []
    used: set[str] = set()
    for workload in analysis.design.workloads:
        metric = analysis.primary_of(workload)
        rows = [
            (c, s)
            for c in analysis.design.conditions
            if c.workload == workload and (s := analysis.summary(c.id, metric.name)) is not None
        ]
        if not rows:
            continue
        description = "; ".join(
            f"{c.policy}: median {wording.quantity(s.median, metric)}, from {wording.quantity(s.minimum, metric)} to "
            f"{wording.quantity(s.maximum, metric)}, {wording.count(s.n, 'execution')}"
            for c, s in rows
        )
        short = " Triangles got fewer pages of the asked size." if any(c.short_placed for c, _ in rows) else ""
        found.append(
            Figure(
                id=f"times-{slug(workload, used)}",
                number=before + len(found) + 1,
                section="times",
                title=f"{workload}: {metric.label} by policy",
                caption=(_BOXPLOT if not found else f"Drawn as Figure {found[0].number}.") + short,
                alternative=f"{metric.label} of {workload}. {description}.",
                draw=_of_workload(charts.boxplot, analysis, workload),
            )
        )
    return found


def _of_workload(
    chart: Callable[[Analysis, str, theme.Width], dict[str, Any] | None], analysis: Analysis, workload: str
) -> Callable[[theme.Width], dict[str, Any]]:
    """A function that draws ``chart`` for one workload. A lambda in the loop would always draw the last workload."""
    return lambda width: chart(analysis, workload, width) or {}


def _tlb(analysis: Analysis, before: int) -> list[Figure]:
    found: list[Figure] = []
    used: set[str] = set()
    for workload in analysis.design.workloads:
        spec = charts.tlb_scatter(analysis, workload)
        counter = charts.counter_for(analysis, workload)
        if spec is None or counter is None:
            continue
        description = "; ".join(
            f"{c.policy}: {wording.quantity(s.median, counter)}"
            for c in analysis.design.conditions
            if c.workload == workload and (s := analysis.summary(c.id, counter.name)) is not None
        )
        time = analysis.primary_of(workload).label
        found.append(
            Figure(
                id=f"tlb-{slug(workload, used)}",
                number=before + len(found) + 1,
                section="tlb",
                title=f"{workload}: {counter.label} and {time}",
                caption=f"One point an execution; both axes start at zero. "
                f"{counter.label[:1].upper()}{counter.label[1:]}: {counter.description}."
                if not found
                else f"Drawn as Figure {found[0].number}.",
                alternative=f"Median {counter.label} of {workload}. {description}.",
                draw=_of_workload(charts.tlb_scatter, analysis, workload),
            )
        )
    return found


def _placement(analysis: Analysis, before: int) -> list[Figure]:
    if charts.bars(analysis) is None:
        return []
    description = "; ".join(
        f"{p.condition}: "
        + ", ".join(f"{wording.size(s.bytes)} in {wording.page_size(s.page_bytes)} pages" for s in p.by_size if s.bytes)
        for p in analysis.placements
        if p.by_size
    )
    return [
        Figure(
            id="memory",
            number=before + 1,
            section="memory",
            title="Memory by page size",
            caption="Memory whose placement was measured, by the size of the page that mapped it, in shares of the "
            "peak on the right. Empty: given back unseen. Medians over executions.",
            alternative=f"Resident memory by page size. {description}.",
            draw=lambda width: charts.bars(analysis, width) or {},
        )
    ]


def _colours(analysis: Analysis, before: int) -> list[Figure]:
    if charts.pages_by_colour(analysis) is None or analysis.frames is None:
        return []
    description = "; ".join(
        f"{one.condition} ({one.strategy}, {one.colours} colours): {one.requested_pages:,.0f} pages"
        + ("" if one.placed_median is None else f", {wording.share(one.placed_median)} placed as asked")
        for one in analysis.frames.summaries
    )
    return [
        Figure(
            id="colours",
            number=before + 1,
            section="frames",
            title="Pages placed, by cache colour",
            caption="One bar a colour (or a group of neighbouring colours), as high as the pages that were wanted "
            "there, means over executions; pale: wanted there, and placed elsewhere. The dashed line is the even "
            "share. Bars are cut at two and a half times of it.",
            alternative=f"Pages placed by cache colour. {description}.",
            draw=lambda width: charts.pages_by_colour(analysis, width) or {},
        )
    ]


def _drift(analysis: Analysis, before: int) -> list[Figure]:
    if charts.drift(analysis) is None:
        return []
    crosses = " Crosses are executions that failed." if analysis.failures else ""
    return [
        Figure(
            id="schedule",
            number=before + 1,
            section="schedule",
            title="Every execution in the order in which it ran",
            caption="Distance from the median of its own condition. A flat cloud means a machine that stayed the "
            f"same.{crosses}",
            alternative=analysis.drift.sentence,
            draw=lambda width: charts.drift(analysis, width) or {},
        )
    ]
