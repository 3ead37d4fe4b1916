"""The part of a report on a study that is answered as a set: figures, comparisons, and each program's part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis, Contrast, SetContrast
from pagelab.charts import theme
from pagelab.report import charts
from pagelab.report.charts import sets
from pagelab.report.figure import Figure
from pagelab.report.tables import NONE, Table, grouped
from pagelab.stats import coverage


def over_set(analysis: Analysis) -> Table:
    """The table of planned comparisons: time and spread under every policy, over all programs."""
    part = analysis.over_set
    contrasts = part.contrasts if part is not None else ()
    first = "Time" if part is None or part.is_time else "Primary metric"
    headings = {"time": first, "spread": "Spread between executions"}
    rows, groups = grouped(
        [(heading, [_row(c) for c in contrasts if c.quantity == quantity]) for quantity, heading in headings.items()]
    )
    level = wording.level(analysis.design.interval_level)
    tested = (
        f"Two-sided test of signs of the programs’ log ratios, Holm over {wording.count(len(contrasts), 'comparison')}"
    )
    tested = tested if analysis.design.tested else "No tests: programs or executions are too few for any to succeed"
    return Table(
        columns=("policy", "programs", "ratio", f"{level} interval", "below 1", "above 1", "p", "p (Holm)"),
        rows=rows,
        groups=groups,
        caption="Over the set: geometric means of the programs’ ratios to the baseline",
        note="Every program counts once and alike; configurations of one program are averaged first. Spread: "
        f"coefficient of variation of the executions. {tested}; intervals are unadjusted. "
        "Programs below and above 1 are counted, not judged. "
        + coverage.sentence_on_sets(c.programs for c in contrasts),
    )


def _row(c: SetContrast) -> tuple[str, ...]:
    interval = NONE if c.interval is None else f"{_ratio(c.interval.low)} to {_ratio(c.interval.high)}"
    return (
        c.policy,
        str(c.programs),
        _ratio(c.ratio),
        interval,
        str(c.below),
        str(c.above),
        NONE if c.p is None else wording.p_cell(c.p),
        NONE if c.p_holm is None else wording.p_cell(c.p_holm),
    )


def _ratio(value: float | None) -> str:
    if value is None:
        return NONE
    return wording.fixed(value, 3, about=1.0) if 0.1 <= value < 10 else wording.digits(value)


def program_by_program(analysis: Analysis) -> Table:
    """The table of every workload's change and spread under every policy: described, not tested."""
    if analysis.over_set is None:
        return Table((), (), "")
    spreads = {(s.workload, s.policy): (s.cv_baseline, s.cv) for s in analysis.spreads}
    rows, groups = grouped(
        [
            (
                f"{workload}, against {analysis.design.baselines.get(workload, NONE)}: "
                f"{analysis.primary_of(workload).label}",
                [
                    _program(c, spreads.get((c.workload, c.policy), (None, None)))
                    for c in analysis.on_primary()
                    if c.workload == workload
                ],
            )
            for workload in analysis.design.workloads
        ]
    )
    level = wording.level(analysis.design.interval_level)
    return Table(
        columns=("policy", "executions", "change", f"{level} interval", "spread, baseline", "spread, policy"),
        rows=rows,
        groups=groups,
        caption="Program by program: described, not tested",
        note=f"With so many programs some of these {level} intervals leave out 0 by chance alone. Spread: "
        "coefficient of variation of all executions. "
        + coverage.sentence((c.pairs or 0 for c in analysis.contrasts), coverage.PAIRS),
    )


def _program(c: Contrast, spreads: tuple[float | None, float | None]) -> tuple[str, ...]:
    return (
        c.policy,
        f"{c.n}, {c.n_baseline}",
        NONE if c.relative is None else wording.percent(c.relative),
        NONE if c.relative_interval is None else wording.interval_percent(c.relative_interval),
        *(NONE if cv is None else wording.percent(cv, signed=False) for cv in spreads),
    )


def without_ratio(analysis: Analysis) -> list[str]:
    """Sentences on programs that are in no mean, each reason once."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for c in analysis.over_set.contrasts if analysis.over_set is not None else ():
        for program, reason in c.left_out.items():
            found.setdefault((c.quantity, c.policy, reason), []).append(program)
    return [
        f"Not in the {quantity} of {policy}: {wording.listing(programs[:6])}"
        f"{f' and {len(programs) - 6} more' if len(programs) > 6 else ''} ({reason})."
        for (quantity, policy, reason), programs in found.items()
    ]


_NAMES = {"time": "set", "spread": "set-spread"}


def set_figures(analysis: Analysis, before: int) -> list[Figure]:
    """Figures of time and of the spread between executions: every program's ratio, and the geometric mean.

    The spread comes first where a difference was found only there.
    """
    part = analysis.over_set
    found: list[Figure] = []
    differing = {c.quantity for c in (part.contrasts if part else ()) if c.verdict in ("lower", "higher")}
    for quantity, name in sorted(_NAMES.items(), reverse=differing != {"spread"}):
        if part is None or not sets.drawn(part, quantity):
            continue
        time = "Time" if part.is_time else "Primary metric"
        title = time if quantity == "time" else "Spread from one execution to the next"
        cut = " Programs beyond the axis stand at its end." if sets.is_cut(part, quantity) else ""
        level = wording.level(analysis.design.interval_level)
        filled = "Filled: a difference after Holm’s correction; hollow: none found"
        filled = filled if analysis.design.tested else "Hollow: described, not tested"
        caption = (
            f"Small marks are programs, each at its own ratio to the baseline. Large marks are geometric means, bars "
            f"{level} intervals (unadjusted). {filled}.{cut}"
            if not found
            else f"Drawn as Figure {found[0].number}.{cut}"
        )
        found.append(
            Figure(
                id=name,
                number=before + len(found) + 1,
                section="set",
                title=f"{title}, program by program and over all of them",
                caption=caption,
                alternative=_description(analysis, quantity),
                draw=_of_quantity(analysis, quantity),
            )
        )
    return found


def _description(analysis: Analysis, quantity: str) -> str:
    part = analysis.over_set
    found = [] if part is None else sets.drawn(part, quantity)
    description = [
        f"{c.policy}: {wording.digits(c.ratio or 0)} times that under {c.baseline}"
        + (f", from {_ratio(c.interval.low)} to {_ratio(c.interval.high)}" if c.interval else "")
        + f", {wording.count(c.programs, 'program')}"
        for c in found
    ]
    return f"{'; '.join(description)}."


def _of_quantity(analysis: Analysis, quantity: str) -> Callable[[theme.Width], dict[str, Any]]:
    return lambda width: charts.over_set(analysis, quantity, width)
