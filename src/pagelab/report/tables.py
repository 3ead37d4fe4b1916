"""Makes the tables of a report: headers and cells as text for HTML, with a number or a word in each cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pagelab.analysis import wording
from pagelab.analysis.frames import FramesSummary
from pagelab.analysis.model import Analysis, Contrast, Interval, Metric, Summary
from pagelab.analysis.summaries import STATISTICS, Statistic
from pagelab.stats import coverage

NONE = "–"
_TEST = {
    "pairs": "Changes are the ratios of pairs: executions that ran in one block. Two-sided test of signed ranks",
    "stratified": "Two-sided rank-sum test within blocks",
    "rank-sum": "Two-sided rank-sum test",
}
_SHIFT = {
    "pairs": "The shift is made of the pairs’ differences, as the change is of their ratios, on which the verdict "
    "rests; it is not the difference of the medians.",
    "stratified": "The shift is the median of all differences, not the difference of the medians. It and its interval "
    "ignore the blocks.",
    "rank-sum": "The shift is the median of all differences, not the difference of the medians.",
}


@dataclass(frozen=True)
class Table:
    """A table of text. ``groups[i]`` is the heading of the rows from i on; the first ``words`` columns are text, the
    rest numbers.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str
    words: int = 1
    groups: dict[int, str] | None = None
    note: str = ""


def grouped(
    parts: Sequence[tuple[str, Sequence[tuple[str, ...]]]],
) -> tuple[tuple[tuple[str, ...], ...], dict[int, str]]:
    """The rows of all parts, and the places of the headings; parts without rows are omitted."""
    rows: list[tuple[str, ...]] = []
    groups: dict[int, str] = {}
    for heading, part in parts:
        if part:
            groups[len(rows)] = heading
            rows += part
    return tuple(rows), groups


def without_empty_columns(table: Table) -> Table:
    """The table without columns of numbers in which every cell is a dash, to save space."""
    kept = [
        i for i in range(len(table.columns)) if i < table.words or any(row[i] not in (NONE, "") for row in table.rows)
    ]
    if len(kept) == len(table.columns) or not table.rows:
        return table
    columns, *rows = (tuple(line[i] for i in kept) for line in (table.columns, *table.rows))
    return replace(table, columns=columns, rows=tuple(rows))


def contrasts(analysis: Analysis) -> Table:
    """The table of planned contrasts: relative effect with both intervals, shift, p."""
    rows, groups = grouped(_by_workload(analysis, _contrast_row))
    level = wording.level(analysis.design.interval_level)
    family, factor = len(analysis.compared()), analysis.design.p_factor
    why = "executions that were added" if analysis.design.earlier_looks else "the planned looks"
    times_looks = f", times {factor} for {why}" if factor > 1 else ""
    test = f"{_TEST[analysis.design.test]}, {how_exact(analysis)}{times_looks}"
    told = f"{test}; Holm over {wording.count(family, 'comparison')}"
    told = told if analysis.design.tested else "No tests: executions are too few for any to succeed"
    return Table(
        columns=("policy", "executions", "change", f"{level} interval", "any shape", "shift", "p", "p (Holm)"),
        rows=rows,
        groups=groups,
        caption="Planned comparisons with the baseline"
        if analysis.design.tested
        else "Comparisons with the baseline, described and not tested",
        note=f"{told}. Intervals are unadjusted; “any shape” allows for a policy that changes the shape of the "
        "distribution as well." + _of_shifts(analysis),
    )


def how_exact(analysis: Analysis) -> str:
    """How the p-values of the planned contrasts are computed: ``exact``, or by an approximation."""
    by_count = [c.p_method == "exact" for c in analysis.planned() if c.p_method is not None]
    if all(by_count):
        return "exact"
    return "exact with few executions, else by a normal approximation" if any(by_count) else "by a normal approximation"


def _of_shifts(analysis: Analysis) -> str:
    """A sentence on the simulated coverage of the intervals, after a space; empty where they have their level."""
    planned = analysis.compared()
    if analysis.design.test == "pairs":
        said = coverage.sentence((c.pairs or 0 for c in planned), coverage.PAIRS)
    else:
        said = coverage.sentence_on_shifts((c.n, c.n_baseline) for c in planned)
    return f" {said}" if said else ""


def _by_workload(
    analysis: Analysis, row: Callable[[Contrast, Metric], tuple[str, ...]]
) -> list[tuple[str, list[tuple[str, ...]]]]:
    return [
        (
            f"{w}, against {analysis.design.baselines.get(w, NONE)}",
            [row(c, analysis.metric(c.metric)) for c in analysis.compared() if c.workload == w],
        )
        for w in analysis.design.workloads
    ]


def _contrast_row(c: Contrast, metric: Metric) -> tuple[str, ...]:
    late = f" (+{c.timed_out})" if c.timed_out else "", f" (+{c.timed_out_baseline})" if c.timed_out_baseline else ""
    return (
        c.policy,
        f"{c.n}{late[0]}, {c.n_baseline}{late[1]}",
        wording.percent(c.relative) if c.relative is not None else NONE,
        wording.interval_percent(c.relative_interval) if c.relative_interval else NONE,
        wording.interval_percent(c.relative_any_shape) if c.relative_any_shape else NONE,
        wording.quantity(c.shift, metric, 3) if c.shift is not None else NONE,
        wording.p_cell(c.p) if c.p is not None else NONE,
        wording.p_cell(c.p_holm) if c.p_holm is not None else NONE,
    )


def shifts(analysis: Analysis) -> Table:
    """The table of planned contrasts in the metric's own unit."""

    def row(c: Contrast, metric: Metric) -> tuple[str, ...]:
        return (
            c.policy,
            wording.quantity(c.median_baseline, metric) if c.median_baseline is not None else NONE,
            wording.quantity(c.median, metric) if c.median is not None else NONE,
            wording.quantity(c.shift, metric, 3) if c.shift is not None else NONE,
            wording.interval_quantity(c.shift_interval, metric) if c.shift_interval else NONE,
            wording.interval_quantity(c.shift_any_shape, metric) if c.shift_any_shape else NONE,
        )

    rows, groups = grouped(_by_workload(analysis, row))
    level = wording.level(analysis.design.interval_level)
    return Table(
        columns=("policy", "median, baseline", "median, policy", "shift", f"{level} interval", "any shape"),
        rows=rows,
        groups=groups,
        caption="Shifts: Hodges–Lehmann estimates",
        note=_SHIFT[analysis.design.test] + _of_shifts(analysis),
    )


def times(analysis: Analysis) -> Table:
    """The table of five-number summaries and moments of the primary metric, for every condition."""
    parts = []
    for workload in analysis.design.workloads:
        metric = analysis.primary_of(workload)
        mine = [c for c in analysis.design.conditions if c.workload == workload and not c.left_out]
        summaries = [analysis.summary(c.id, metric.name) for c in mine]
        scale = wording.display_unit(metric, [s.maximum for s in summaries if s])
        part = [
            (c.policy, *(_five(s, scale[0]) if s else ("0", *([NONE] * (6 + len(STATISTICS))))))
            for c, s in zip(mine, summaries, strict=True)
        ]
        parts.append((f"{workload}: {metric.label}{f' ({scale[1]})' if scale[1] else ''}", part))
    rows, groups = grouped(parts)
    level = wording.level(analysis.design.interval_level)
    head = ("policy", "n", "least", "lower hinge", "median", f"{level} interval of the median", "upper hinge", "most")
    return Table(
        columns=(*head, *(one.label for one in STATISTICS)),
        rows=rows,
        groups=groups,
        caption="Five-number summaries and moments, by condition",
        note=coverage.sentence((int(row[1]) for row in rows), coverage.MEDIANS),
    )


def _five(s: Summary, factor: float) -> tuple[str, ...]:
    def show(value: float) -> str:
        return wording.digits(value / factor, 4)

    return (
        str(s.n),
        show(s.minimum),
        show(s.hinge_low),
        show(s.median),
        _span(s.median_interval, factor),
        show(s.hinge_high),
        show(s.maximum),
        *(_statistic(one, s, factor) for one in STATISTICS),
    )


def _statistic(one: Statistic, s: Summary, factor: float) -> str:
    value = one.value(s)
    if value is None:
        return NONE
    return wording.percent(value, signed=False) if one.is_share else wording.digits(value / factor, one.digits)


def _span(interval: Interval | None, factor: float) -> str:
    if interval is None:
        return NONE
    return f"{wording.digits(interval.low / factor, 4)} to {wording.digits(interval.high / factor, 4)}"


def spread(analysis: Analysis) -> Table:
    """The table of the scatter of each condition's executions, as shares of the median."""
    parts = []
    for workload in analysis.design.workloads:
        metric = analysis.primary_of(workload)
        rows = []
        for c in analysis.design.conditions:
            s = analysis.summary(c.id, metric.name)
            if c.workload == workload and s is not None and s.n > 1 and s.median > 0:
                shares = [(s.hinge_high - s.hinge_low) / s.median, (s.maximum - s.minimum) / s.median]
                cv = wording.percent(s.cv, signed=False) if s.cv is not None else NONE
                rows.append((c.policy, str(s.n), *(wording.percent(x, signed=False) for x in shares), cv))
        parts.append((workload, rows))
    rows_, groups = grouped(parts)
    return Table(
        columns=("policy", "n", "middle half", "all executions", "CV"),
        rows=rows_,
        groups=groups,
        caption="Does a policy make the program more predictable? Spread in percent of the median",
        note="Described, not tested. Small n: a rough guide.",
    )


def secondary(analysis: Analysis) -> Table:
    """The table of medians of all other metrics, with the change against the baseline. Descriptive."""
    parts = []
    changes = {(c.workload, c.policy, c.metric): c for c in analysis.contrasts}
    for workload in analysis.design.workloads:
        primary = analysis.primary_of(workload).name
        mine = [c for c in analysis.design.conditions if c.workload == workload]
        rows = []
        for metric in analysis.metrics:
            for c in mine:
                summary = analysis.summary(c.id, metric.name)
                if metric.name != primary and summary is not None:
                    contrast = changes.get((workload, c.policy, metric.name))
                    rows.append(_secondary_row(metric, c.policy, c.is_baseline, summary, contrast))
        parts.append((workload, rows))
    rows_, groups = grouped(parts)
    return Table(
        columns=("metric", "policy", "n", "median", "interval of the median", "change", "interval of the change"),
        rows=rows_,
        groups=groups,
        words=2,
        caption="Everything else that was measured: medians, and changes against the baseline",
        note="Descriptive: no test, intervals unadjusted. "
        + coverage.sentence((s.n for s in analysis.summaries), coverage.MEDIANS | coverage.SHIFTS),
    )


def _secondary_row(
    metric: Metric, policy: str, baseline: bool, s: Summary, contrast: Contrast | None
) -> tuple[str, ...]:
    factor, unit = wording.display_unit(metric, [s.median])
    interval = f"{_span(s.median_interval, factor)} {unit}".rstrip() if s.median_interval else NONE
    change = span = "baseline" if baseline else NONE
    if contrast is not None and contrast.relative is not None:
        change = wording.percent(contrast.relative)
        span = wording.interval_percent(contrast.relative_interval) if contrast.relative_interval else NONE
    elif contrast is not None and contrast.shift is not None:
        change = wording.quantity(contrast.shift, metric, 3)
        span = wording.interval_quantity(contrast.shift_interval, metric) if contrast.shift_interval else NONE
    return (
        metric.label,
        policy,
        str(s.n),
        wording.quantity(s.median, metric),
        interval,
        change,
        "" if baseline else span,
    )


def placement(analysis: Analysis) -> Table:
    """The table of requested and actual page sizes."""
    parts = []
    for workload in analysis.design.workloads:
        ids = {c.id: c.policy for c in analysis.design.conditions if c.workload == workload}
        rows = []
        for p in analysis.placements:
            if p.condition in ids:
                tiles = f"{p.tiles_got:,} of {p.tiles_asked:,}" if p.tiles_asked and p.tiles_got is not None else NONE
                worst = wording.share(p.fraction_least) if p.fraction_least is not None else NONE
                # Pages that were counted one by one can be a little more than the kernel's own peak.
                part = "all" if p.resident_bytes >= p.peak_bytes else wording.size(p.resident_bytes)
                seen = f"{part} of {wording.size(p.peak_bytes)}"
                sizes = ", ".join(
                    f"{wording.page_size(s.page_bytes)}: {wording.size(s.bytes)}" for s in p.by_size if s.bytes
                )
                rows.append((ids[p.condition], p.asked, sizes or NONE, seen, tiles, worst))
        parts.append((workload, rows))
    rows_, groups = grouped(parts)
    return Table(
        columns=("policy", "asked", "got (median)", "of the peak", "tiles as asked", "worst execution"),
        rows=rows_,
        groups=groups,
        words=3,
        caption="Placement asked and got",
        note="Got: memory whose placement was measured, beside the peak. Tiles: whole tiles of the asked size, "
        "touched by the program, summed over executions.",
    )


def measurements(analysis: Analysis) -> Table:
    """The table of repeated measurements inside executions."""
    parts = []
    for workload in analysis.design.workloads:
        ids = {c.id: c.policy for c in analysis.design.conditions if c.workload == workload}
        rows = []
        for m in analysis.measurements:
            if m.condition in ids:
                metric = analysis.metric(f"measure.{m.name}")
                rows.append(
                    (
                        m.name,
                        ids[m.condition],
                        str(m.executions),
                        f"{m.measurements:,}",
                        wording.quantity(m.median_of_means, metric),
                        wording.interval_quantity(m.means_interval, metric) if m.means_interval else NONE,
                        wording.quantity(m.sd_between, metric, 2) if m.sd_between is not None else NONE,
                        wording.quantity(m.sd_within, metric, 2) if m.sd_within is not None else NONE,
                    )
                )
        parts.append((workload, rows))
    rows_, groups = grouped(parts)
    return Table(
        columns=(
            "operation",
            "policy",
            "executions",
            "measurements",
            "median of means",
            "interval",
            "sd between",
            "sd within",
        ),
        rows=rows_,
        groups=groups,
        words=2,
        caption="Measurements inside executions",
        note="The unit is the execution: its mean. “Between”: deviation of these means; “within”: inside executions.",
    )


def conditions(analysis: Analysis) -> Table:
    """The table of the design with counts: planned, finished, analysed, failed."""
    rows, groups = grouped(
        [
            (
                workload,
                [
                    (
                        c.policy + (" (baseline)" if c.is_baseline else ""),
                        NONE if c.planned is None else str(c.planned),
                        str(c.finished),
                        str(c.analysed),
                        "left out" if c.left_out else ", ".join(f"{n} {s}" for s, n in c.failures.items()) or "0",
                        str(c.short_placed),
                    )
                    for c in analysis.design.conditions
                    if c.workload == workload
                ],
            )
            for workload in analysis.design.workloads
        ]
    )
    return Table(
        columns=("policy", "planned", "finished", "analysed", "failed", "short-placed"),
        rows=rows,
        groups=groups,
        caption="Conditions and executions",
    )


def failures(analysis: Analysis) -> Table:
    """The table of executions that have no time to analyse."""
    return Table(
        columns=("condition", "event", "message", "place", "execution"),
        rows=tuple(
            (f.condition, f.status, f.message, str(f.position), "warm-up" if f.warmup else str(f.execution))
            for f in analysis.failures
        ),
        words=3,
        caption="Executions without a time",
    )


REASONS = {
    "larger-page": "larger pages",
    "file": "page cache of files",
    "shared": "shared memory",
    "locked-readonly": "locked or read-only",
    "stack-in-use": "stack in use",
    "early": "in use before the library",
    "other": "other",
}
"""Reason why bytes could not be placed → its words; other reasons are shown by name."""


def frames(analysis: Analysis) -> Table:
    """The table of frame placement: one row per strategy of a condition."""
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
