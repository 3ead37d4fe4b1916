"""Makes the figures on non-determinism; their captions name the corresponding figures of ALLOC."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis
from pagelab.analysis.nondeterminism import words
from pagelab.analysis.nondeterminism_model import Misses, NondeterminismPart, Trace
from pagelab.charts import theme
from pagelab.report import charts
from pagelab.report.charts import program_spreads
from pagelab.report.charts.ranks import panels
from pagelab.report.figure import Figure, slug
from pagelab.stats.nondeterminism import Metric

MANY_GROUPS = 6
"""From this many programs on, the answer can be how often each policy was best."""
MOST_ROWS = 30
"""Most comparisons for which the plot of effects fits a screen and is the answer, for programs timed as a whole."""
MOST_MISSES = 6
SHOWN = (Metric.MEAN.value, Metric.EXECUTION.value)
"""The metrics of ALLOC's Figures 4, 5 and 7; ALLOC has only sentences on the other two metrics (5.2, 5.3)."""
OTHERS = (Metric.MEASUREMENT.value, Metric.UNCLASSIFIED.value)
_RANKED = (
    "Bars add up to all programs. Best: no other policy’s {level} interval lies wholly below, so that several can be "
    "best at once; intervals are not corrected for their number."
)


def is_the_answer(analysis: Analysis) -> bool:
    """Whether the spread and the ranks over programs come first on the page.

    They do where many programs were measured repeatedly, as in studies of non-determinism, or where there are too many
    comparisons for a row each; but not where the study is answered as a set, nor where no ranks differ.
    """
    part = analysis.nondeterminism
    if part is None or analysis.over_set is not None or not panels(part, SHOWN):
        return False
    repeated, every = (
        sum(len(family.groups) for family in part.families if family.repeated or whole) for whole in (False, True)
    )
    return repeated >= MANY_GROUPS or (every >= MANY_GROUPS and len(analysis.compared()) > MOST_ROWS)


def programs(analysis: Analysis, before: int) -> list[Figure]:
    """The spread of each program under every policy; only for studies of non-determinism or of a set."""
    rows = program_spreads.rows_of(analysis) if is_the_answer(analysis) or analysis.over_set is not None else []
    if len(rows) < words.FEWEST_GROUPS:
        return []
    shown, rest = rows[: program_spreads.MOST_ROWS], len(rows) - program_spreads.MOST_ROWS
    left_out = f" {wording.count(rest, 'program')} that spread less are not drawn." if rest > 0 else ""
    description = "; ".join(
        f"{name}: "
        + ", ".join(f"{policy} {wording.percent(value / 100, signed=False)}" for policy, value in found.items())
        for name, found in shown
    )
    return [
        Figure(
            id="programs",
            number=before + 1,
            section="programs",
            title="Spread from one execution to the next, program by program",
            caption="A mark is the coefficient of variation of a program’s executions under one policy, on a "
            f"logarithmic axis: further left is steadier. Described, not tested.{left_out}",
            alternative=f"{description}.",
            draw=lambda width: charts.dumbbells(analysis, width),
        )
    ]


def ranks(analysis: Analysis, before: int) -> list[Figure]:
    """The figure of ranks in mean time, and in spread between executions."""
    title = "How often each policy was best: speed, and steadiness from one execution to the next"
    return _ranks(analysis, before, "ranks", SHOWN, title, "Hocko and Kalibera’s Figures 4, 5 and 7. ")


def other_ranks(analysis: Analysis, before: int) -> list[Figure]:
    """The figure of ranks in spread inside executions, and in the spread of everything."""
    title = "How often each policy was best: spread inside executions, and of everything together"
    return _ranks(analysis, before, "ranks-others", OTHERS, title, "Drawn as the ranks of speed. ")


def _ranks(analysis: Analysis, before: int, name: str, metrics: tuple[str, ...], title: str, lead: str) -> list[Figure]:
    part = analysis.nondeterminism
    shown = [] if part is None else panels(part, metrics)
    if part is None or not shown:
        return []
    description = "; ".join(
        f"{panel}: "
        + ", ".join(f"{one} best in {percent[0]:.0f}%" for one, percent in ranking.share(0.0).percent.items())
        for panel, _, ranking in shown
    )
    caption = _RANKED.format(level=wording.level(part.level)) if name == "ranks" else ""
    return [
        Figure(
            id=name,
            number=before + 1,
            section=name,
            title=title,
            caption=(lead + caption).strip(),
            alternative=f"{description}.",
            draw=lambda width: charts.ranks(part, metrics, width) or {},
        )
    ]


def factors(analysis: Analysis, before: int) -> list[Figure]:
    """The figure of impact factors: ALLOC's Figure 9."""
    found = None if analysis.nondeterminism is None else analysis.nondeterminism.distribution
    if found is None or max(len(curve.values) for curve in found.curves) < words.FEWEST_GROUPS:
        return []
    description = "; ".join(
        f"{curve.condition}: half of the programs at or below {wording.digits(_median(curve.values, curve.fractions))}"
        for curve in found.curves
    )
    return [
        Figure(
            id="impact-factors",
            number=before + 1,
            section="factors",
            title="How many times larger the spread between executions is than inside",
            caption="Hocko and Kalibera’s Figure 9: for each policy, the share of programs whose impact factor is at "
            "most so large. The line further left and higher is the steadier policy; about 1 means that executions do "
            f"not differ. All factors are of groups of {found.group_size}.",
            alternative=f"Impact factors. {description}.",
            draw=lambda width: charts.impact_factors(analysis, found, width),
        )
    ]


def _median(values: tuple[float, ...], fractions: tuple[float, ...]) -> float:
    return next(value for value, fraction in zip(values, fractions, strict=True) if fraction >= 0.5)


def traces(analysis: Analysis, before: int) -> list[Figure]:
    """Figures like ALLOC's Figure 1, for the programs whose executions differ most."""
    part = analysis.nondeterminism
    found: list[Figure] = []
    used: set[str] = set()
    for trace in () if part is None else part.traces:
        found.append(
            Figure(
                id=f"executions-{slug(trace.group, used)}",
                number=before + len(found) + 1,
                section="traces",
                title=f"{trace.group}: executions with their measurements",
                caption=_trace_caption(part, trace, found),
                alternative=_trace_words(analysis, trace),
                draw=_of_trace(analysis, trace),
            )
        )
    return found


def _trace_caption(part: NondeterminismPart | None, trace: Trace, drawn: list[Figure]) -> str:
    thinned = f" One in {trace.step} measurements is drawn; bars and lines are of all." if trace.step > 1 else ""
    if drawn:
        return f"Drawn as Figure {drawn[0].number}.{thinned}"
    untraced = part.untraced if part is not None else 0
    rest = f" {wording.count(untraced, 'program')} whose executions differ less are not drawn." if untraced else ""
    return (
        "Hocko and Kalibera’s Figure 1. An execution is a bar at its mean, a thin line from its fastest to its slowest "
        "measurement, and its measurements as points, from left to right as they were taken. Bars at one height: no "
        f"spread between executions.{thinned}{rest}"
    )


def _trace_words(analysis: Analysis, trace: Trace) -> str:
    metric = analysis.metric(trace.column)
    description = []
    for name, runs in trace.executions.items():
        low, high = min(one.mean for one in runs), max(one.mean for one in runs)
        ends = wording.in_one_unit([low, high], metric)
        description.append(f"{name}: means of {wording.count(len(runs), 'execution')} from {ends[0]} to {ends[1]}")
    return f"{metric.label} of {trace.group}. {'; '.join(description)}."


def _of_trace(analysis: Analysis, trace: Trace) -> Callable[[theme.Width], dict[str, Any]]:
    return lambda width: charts.executions(analysis, trace, width)


def misses(analysis: Analysis, before: int) -> list[Figure]:
    """Figures like ALLOC's Figure 10: programs whose times differ under all policies; else those that differ most."""
    part = analysis.nondeterminism
    if part is None or not part.misses.groups:
        return []
    chosen = [one for one in part.misses.groups if one.all_differ][:MOST_MISSES]
    if not chosen:
        chosen = sorted(part.misses.groups, key=_reach, reverse=True)[:1]
    used: set[str] = set()
    return [
        Figure(
            id=f"misses-{slug(one.group, used)}",
            number=before + place,
            section="misses",
            title=f"{one.group}: time and {part.misses.label}",
            caption=_misses_caption(one) if place == 1 else f"Drawn as Figure {before + 1}.",
            alternative=_misses_words(one, part.misses.label),
            draw=_of_misses(one, part.misses.label),
        )
        for place, one in enumerate(chosen, start=1)
    ]


def _reach(one: Misses) -> float:
    """How many times the greatest mean time is the least one."""
    low, high = min(one.time), max(one.time)
    return high / low if low > 0 else inf if high > low else 1.0


def _misses_caption(one: Misses) -> str:
    description = (
        "Hocko and Kalibera’s Figure 10: means of each policy, centred and scaled to ±1. Where the two lines lie on "
        "each other, the policies’ times differ as their cache misses do."
    )
    if not one.all_differ:
        description += (
            " No program’s mean times differ under all policies, which theirs did; this is the one that differs most."
        )
    return description


def _misses_words(one: Misses, label: str) -> str:
    description = "; ".join(
        f"{condition}: time {time:+.2f}, {label} {count:+.2f}"
        for condition, time, count in zip(one.conditions, one.normalized_time, one.normalized_misses, strict=True)
    )
    return f"Normalized means of {one.group}. {description}."


def _of_misses(one: Misses, label: str) -> Callable[[theme.Width], dict[str, Any]]:
    return lambda width: charts.time_and_misses(one, label, width)


MAKERS = (programs, ranks, traces, other_ranks, factors, misses)
"""The functions that make figures, in reading order."""
