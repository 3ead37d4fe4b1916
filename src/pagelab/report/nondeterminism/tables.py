"""Makes the tables on non-determinism, which contain all data of the figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis, Metric
from pagelab.analysis.nondeterminism import words
from pagelab.analysis.nondeterminism_model import Correlated, Dependence, Experiment, Family, Number, Overhead, Ranking
from pagelab.report.tables import NONE, Table, grouped
from pagelab.stats import coverage
from pagelab.stats import nondeterminism as nd

PAIR_THRESHOLDS = (0.0, 1.0, 3.0, 10.0, 50.0)
"""Thresholds with a column in the table of pairs; the exported data have all thresholds."""


def metrics(analysis: Analysis) -> Table:
    """The table of ALLOC's four metrics for every experiment, each with its interval, and of the ranks."""
    part = analysis.nondeterminism
    ranks = _ranks(analysis)
    rows, groups = _by_group(analysis, lambda one: _metric_row(one, analysis.metric(one.column), ranks))
    level = wording.level(part.level) if part is not None else ""
    return Table(
        columns=("policy", "executions", "mean", "rank", "inside", "everything", "impact factor", "rank"),
        rows=rows,
        groups=groups,
        caption="Mean and non-determinism, by program and policy",
        note=f"In parentheses {level} intervals. Inside: the mean of the executions’ coefficients of variation. "
        "Everything: the coefficient of variation of all measurements. Impact factor: how many times larger the spread "
        "between executions is than inside. Ranks are among the program’s policies (1: no other’s interval lies "
        "wholly below), of the mean and of the impact factor; from fewer than 6 executions none can be told. "
        + _coverage(part.experiments if part is not None else ()),
    )


def _coverage(experiments: Sequence[Experiment]) -> str:
    """Sentences on the coverage of the intervals, for programs with repeated measurements and for those with one."""
    said = (
        coverage.sentence((one.executions for one in experiments if one.repeated is repeated), names)
        for repeated, names in ((True, coverage.NAMES), (False, coverage.SINGLES))
    )
    return " ".join(one for one in said if one)


def _ranks(analysis: Analysis) -> dict[tuple[str, str, str], int]:
    """(metric, group, condition) → the rank."""
    part = analysis.nondeterminism
    return {
        (ranking.metric, group, condition): rank
        for family in (part.families if part is not None else ())
        for ranking in family.rankings
        for group, ranks in ranking.ranks.items()
        for condition, rank in ranks.items()
    }


def _metric_row(one: Experiment, metric: Metric, ranks: dict[tuple[str, str, str], int]) -> tuple[str, ...]:
    def rank(name: str) -> str:
        found = ranks.get((name, one.group, one.condition))
        return NONE if found is None else str(found)

    mean = one.numbers[nd.Metric.MEAN.value]
    each = f"{one.fewest:,}" if one.fewest == one.most else f"{one.fewest:,} to {one.most:,}"
    return (
        one.condition,
        str(one.executions) if not one.repeated else f"{one.executions} × {each}",
        _quantity(mean, metric),
        rank(nd.Metric.MEAN.value),
        _percent(one.numbers[nd.Metric.MEASUREMENT.value]),
        _percent(one.numbers[nd.Metric.UNCLASSIFIED.value]),
        _times(one.numbers[nd.Metric.EXECUTION.value]),
        rank(nd.Metric.EXECUTION.value),
    )


def _quantity(found: Number, metric: Metric) -> str:
    if found.value is None:
        return NONE
    factor, unit = wording.display_unit(metric, [found.value])
    if found.low is None or found.high is None:
        return wording.quantity(found.value, metric)
    shown = [wording.digits(each / factor, 4) for each in (found.value, found.low, found.high)]
    return f"{shown[0]} ({shown[1]}–{shown[2]}) {unit}".rstrip()


def _percent(found: Number) -> str:
    if found.value is None or found.low is None or found.high is None:
        return NONE
    shown = [wording.percent(each, signed=False).rstrip("%") for each in (found.value, found.low, found.high)]
    return f"{shown[0]} ({shown[1]}–{shown[2]}) %"


def _times(found: Number) -> str:
    if found.value is None or found.low is None or found.high is None:
        return NONE
    shown = [wording.digits(each) for each in (found.value, found.low, found.high)]
    return f"{shown[0]} ({shown[1]}–{shown[2]})"


def components(analysis: Analysis) -> Table:
    """The table of variance components, independence diagnostics, and the recommended numbers for the next study."""
    rows, groups = _by_group(analysis, lambda one: _component_row(one, analysis.metric(one.column)))
    return Table(
        columns=(
            "policy",
            "sd between",
            "sd inside",
            "impact by chance",
            "geometric mean",
            "neighbours inside",
            "effective measurements",
            "level change",
            "neighbouring executions",
            "trend",
            "for a mean within ± 1%",
        ),
        rows=rows,
        groups=groups,
        caption="Variance components and independence",
        note="Deviations between executions and inside; a negative component counts as 0. Impact by chance: what the "
        "impact factor would be if executions did not differ; geometric mean of its ratios: about 1 then. Neighbours: "
        "lag-1 correlation, with p where it is below 1%. Effective measurements: how many independent ones all are "
        "worth. Level change: the likeliest place of a change at one place in all executions. Trend: Kendall’s tau "
        "over the schedule. The last column is the cheapest plan, if the spread stays as it was.",
    )


def _component_row(one: Experiment, metric: Metric) -> tuple[str, ...]:
    found, seen = one.components, one.dependence
    between = None if found is None else found.sd_between
    inside = None if found is None else found.sd_inside
    return (
        one.condition,
        NONE if between is None else wording.quantity(between, metric, 2),
        NONE if inside is None else wording.quantity(inside, metric, 2),
        NONE if one.null_impact is None else wording.digits(one.null_impact),
        NONE if one.log_impact is None else _times(one.log_impact),
        NONE if seen is None else _with_p(seen.inside, seen.inside_p),
        _effective(one, seen),
        NONE if seen is None else _level_change(seen),
        NONE if seen is None else _with_p(seen.between, seen.between_p),
        NONE if seen is None else _with_p(seen.trend, seen.trend_p),
        NONE if found is None else found.plan,
    )


def _with_p(value: float | None, p: float | None) -> str:
    if value is None:
        return NONE
    shown = f"{value:+.2f}".replace("-", wording.MINUS)
    return f"{shown} ({wording.p_value(p)})" if p is not None and p < 0.01 else shown


def _effective(one: Experiment, seen: Dependence | None) -> str:
    if seen is None or seen.effective is None or not one.repeated:
        return NONE
    return f"{'at most ' if seen.effective_is_bound else ''}{seen.effective:,.0f} of {one.measurements:,}"


def _level_change(seen: Dependence) -> str:
    if seen.change_after is None or seen.change_percent is None or seen.change_p is None or seen.change_p >= 0.01:
        return "none found" if seen.change_after is not None else NONE
    return f"{wording.percent(seen.change_percent / 100)} in the first {seen.change_after}"


def best(analysis: Analysis) -> Table:
    """The table of ALLOC's Figures 6 and 8: how often each condition is best, by the least difference that counts."""

    def rows_of(family: Family, ranking: Ranking) -> list[tuple[str, ...]]:
        return [(name, *(f"{share.percent[name][0]:.0f}" for share in ranking.shares)) for name in family.conditions]

    rows, groups = _by_ranking(analysis, rows_of)
    return Table(
        columns=("policy", *(f"{threshold:g}%" for threshold in nd.THRESHOLDS)),
        rows=rows,
        groups=groups,
        caption="Percent of programs in which no other policy’s interval lies below, by the least difference",
        note="Hocko and Kalibera’s Figures 6 (mean) and 8 (spread between executions). Differences are in percent of "
        "the smaller value.",
    )


def pairs(analysis: Analysis) -> Table:
    """The table of two policies alone, over all programs that have both."""

    def rows_of(_: Family, ranking: Ranking) -> list[tuple[str, ...]]:
        found: dict[tuple[str, str], dict[float, tuple[int, str]]] = {}
        for one in ranking.pairs:
            shown = f"{one.better:.0f} / {one.worse:.0f}"
            found.setdefault((one.first, one.second), {})[one.threshold] = (one.groups, shown)
        return [
            (f"{first} against {second}", str(at[0.0][0]), *(at[threshold][1] for threshold in PAIR_THRESHOLDS))
            for (first, second), at in found.items()
        ]

    rows, groups = _by_ranking(analysis, rows_of)
    return Table(
        columns=("pair", "programs", *(f"{threshold:g}%" for threshold in PAIR_THRESHOLDS)),
        rows=rows,
        groups=groups,
        caption="Two policies alone: percent of programs in which the first is better / worse without overlap",
        note="By the least difference that counts. More programs can have both of two policies than all of them, so "
        "these percentages rest on other programs than the ranks.",
    )


def overheads(analysis: Analysis) -> Table:
    """The table of sizes of differences (ALLOC 4.4, 5.5)."""
    rows, groups = _by_ranking(analysis, lambda _, ranking: [_overhead_row(one) for one in ranking.overheads])
    return Table(
        columns=("policy", "against", "no overlap", "greatest reduction", "greatest increase", "mean change"),
        rows=rows,
        groups=groups,
        words=2,
        caption="How large the differences are",
        note="Greatest among those whose intervals do not overlap. Mean change: geometric mean of the ratios of all "
        "programs, with Student’s interval of their logarithms over programs. "
        + coverage.sentence((one.groups for one in _all_overheads(analysis)), coverage.MEANS, "programs"),
    )


def _all_overheads(analysis: Analysis) -> list[Overhead]:
    families = analysis.nondeterminism.families if analysis.nondeterminism is not None else ()
    return [one for family in families for ranking in family.rankings for one in ranking.overheads]


def _overhead_row(one: Overhead) -> tuple[str, ...]:
    ends = [NONE if end is None else f"{wording.percent(end[1] / 100)} ({end[0]})" for end in (one.lowest, one.highest)]
    mean = NONE
    if one.mean.value is not None and one.mean.low is not None and one.mean.high is not None:
        shown = [wording.percent(each / 100) for each in (one.mean.value, one.mean.low, one.mean.high)]
        mean = f"{shown[0]} ({shown[1]} to {shown[2]})"
    return (one.condition, one.baseline, f"{one.significant} of {one.groups}", *ends, mean)


def correlations(analysis: Analysis) -> Table:
    """The table of correlations of time with cache misses, over the executions within each policy."""
    part = analysis.nondeterminism
    rows, groups = grouped(
        [(one.group, [_correlation_row(each) for each in one.within]) for one in (part.misses.groups if part else ())]
    )
    label = part.misses.label if part is not None else ""
    return Table(
        columns=("policy", "executions", "r", "bootstrap interval", "Fisher’s interval", "rank correlation"),
        rows=rows,
        groups=groups,
        caption=f"Do slow executions have more {label}? Correlation over the executions within each policy",
        note="Within one policy, other differences between policies (its own work, page sizes) cannot pass for an "
        "effect of misses. The counter is of the whole execution, not of the measured operations alone. "
        + coverage.sentence(
            (each.n for one in (part.misses.groups if part else ()) for each in one.within), coverage.CORRELATIONS
        ),
    )


def _correlation_row(one: Correlated) -> tuple[str, ...]:
    def ends(found: Number) -> str:
        if found.low is None or found.high is None:
            return NONE
        return f"{wording.fixed(found.low)} to {wording.fixed(found.high)}"

    shown = [NONE if x is None else f"{x:.2f}".replace("-", wording.MINUS) for x in (one.pearson, one.spearman)]
    return (one.condition, str(one.n), shown[0], ends(one.bootstrap), ends(one.fisher), shown[1])


MAKERS = (metrics, components, best, pairs, overheads, correlations)


def balance_sentences(analysis: Analysis) -> list[str]:
    """Sentences for each family: whether every configuration is represented equally, and which programs are in no
    percentage.
    """
    part = analysis.nondeterminism
    lines = []
    for family in part.families if part is not None else ():
        if len(family.groups) < words.FEWEST_GROUPS:
            continue
        found = family.balance
        levels = "; ".join(
            f"{factor}: {', '.join(f'{level} {n}' for level, n in counts.items())}"
            for factor, counts in found.levels.items()
            if len(counts) > 1
        )
        text = f"{words.programs(family, len(family.groups))}"
        text += f", by factor: {levels}." if levels else "."
        if found.unbalanced:
            text += (
                f" Not balanced over {wording.listing(found.unbalanced)}: the percentages speak more for what is there "
                "more often."
            )
        if 0 < found.missing <= len(family.groups):
            were = "was" if found.missing == 1 else "were"
            text += f" {wording.count(found.missing, 'combination')} of levels {were} not run."
        lines.append(text)
        for ranking in family.rankings:
            lines += [
                f"Not in the ranks of {words.NAMES[ranking.metric]}: {group} ({reason})."
                for group, reason in ranking.left_out.items()
            ]
            lines += [f"No ranks of {words.NAMES[ranking.metric]}: {ranking.reason}."] if ranking.reason else []
    return lines


def refusals(analysis: Analysis) -> list[str]:
    """Sentences on missing statistics and the data that they need: each reason once, with its experiments."""
    part = analysis.nondeterminism
    found: dict[tuple[str, str], list[str]] = {}
    for one in part.experiments if part is not None else ():
        for metric, number in one.numbers.items():
            inside = metric in (nd.Metric.MEASUREMENT.value, nd.Metric.EXECUTION.value)
            if number.value is None and (one.repeated or not inside):
                found.setdefault((metric, number.reason), []).append(f"{one.group}/{one.condition}")
    lines = [
        f"No {words.NAMES[metric]} of {wording.listing(names[:4])}"
        f"{f' and {len(names) - 4} more' if len(names) > 4 else ''}: {reason}."
        for (metric, reason), names in found.items()
    ]
    return lines + [f"Nothing of {name}: {why}." for name, why in (part.refused.items() if part is not None else ())]


def _by_group(
    analysis: Analysis, row: Callable[[Experiment], tuple[str, ...]]
) -> tuple[tuple[tuple[str, ...], ...], dict[int, str]]:
    part = analysis.nondeterminism
    experiments = part.experiments if part is not None else ()
    names = dict.fromkeys(one.group for one in experiments)
    return grouped(
        [
            (
                f"{name}: {analysis.metric(_column(experiments, name)).label}",
                [row(o) for o in experiments if o.group == name],
            )
            for name in names
        ]
    )


def _column(experiments: Sequence[Experiment], group: str) -> str:
    return next(one.column for one in experiments if one.group == group)


def _by_ranking(
    analysis: Analysis, rows_of: Callable[[Family, Ranking], list[tuple[str, ...]]]
) -> tuple[tuple[tuple[str, ...], ...], dict[int, str]]:
    part = analysis.nondeterminism
    parts = [
        (
            f"{words.NAMES[ranking.metric][:1].upper()}{words.NAMES[ranking.metric][1:]}, "
            f"{words.programs(family, ranking.groups)}",
            rows_of(family, ranking),
        )
        for family in (part.families if part is not None else ())
        for ranking in family.rankings
        if ranking.groups >= words.FEWEST_GROUPS
    ]
    return grouped(parts)
