"""Makes warnings about doubtful and refused intervals, for the terminal, the JSON and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pagelab.analysis.nondeterminism.families import INSIDE
from pagelab.analysis.nondeterminism_model import Experiment, IntervalWarning
from pagelab.record import RunWarning, WarningKind
from pagelab.stats.nondeterminism import IntervalWarningKind

Severity = Literal["info", "warning", "serious"]
KINDS: Mapping[IntervalWarningKind, tuple[WarningKind, Severity]] = {
    IntervalWarningKind.FEW_EXECUTIONS: (WarningKind.INTERVAL_DOUBTFUL, "info"),
    IntervalWarningKind.UNBALANCED: (WarningKind.INTERVAL_DOUBTFUL, "info"),
    IntervalWarningKind.NEGATIVE_COMPONENT: (WarningKind.INTERVAL_DOUBTFUL, "info"),
    IntervalWarningKind.SMALL_GROUPS: (WarningKind.INTERVAL_DOUBTFUL, "info"),
    IntervalWarningKind.DEPENDENT_MEASUREMENTS: (WarningKind.MEASUREMENTS_DEPENDENT, "info"),
    IntervalWarningKind.DEPENDENT_EXECUTIONS: (WarningKind.MEASUREMENTS_DEPENDENT, "warning"),
    IntervalWarningKind.WARM_UP: (WarningKind.LEVEL_CHANGES_INSIDE, "warning"),
    IntervalWarningKind.LEVEL_SHIFT: (WarningKind.LEVEL_CHANGES_INSIDE, "warning"),
    IntervalWarningKind.TREND: (WarningKind.TREND_OVER_SCHEDULE, "warning"),
}
"""Warning of the statistics about an interval → its kind and severity; a test ensures that none is missing."""
OF_STATISTICS = frozenset(kind.value for kind, _ in KINDS.values()) | {WarningKind.STATISTIC_REFUSED.value}
"""Kinds of warnings that the analysis raises about its own numbers."""


def interval_warnings(
    experiments: Sequence[Experiment], refused: Mapping[str, str]
) -> tuple[tuple[str, RunWarning], ...]:
    """Pairs of condition (``group/condition``) and warning, in the order of the study."""
    found: list[tuple[str, RunWarning]] = []
    for one in experiments:
        name = f"{one.group}/{one.condition}"
        found += [(name, _typed(name, doubt)) for doubt in one.doubts]
        found += [(name, warning) for warning in _refusals(name, one)]
    for name, reason in refused.items():
        data = {"condition": name}
        found.append((name, _warning(WarningKind.STATISTIC_REFUSED, "warning", f"{name}: {reason}", data)))
    return tuple(found)


def of_kind(condition: str, of: IntervalWarningKind, message: str, metrics: Sequence[str]) -> RunWarning:
    """The typed warning of the kind ``of`` about one condition."""
    kind, severity = KINDS[of]
    data = {"doubt": of.value, "condition": condition, "metrics": list(metrics)}
    return _warning(kind, severity, f"{condition}: {message}", data)


def _typed(condition: str, found: IntervalWarning) -> RunWarning:
    return of_kind(condition, IntervalWarningKind(found.doubt), found.message, found.metrics)


def _refusals(condition: str, one: Experiment) -> list[RunWarning]:
    """One warning per reason; a missing spread inside executions of one measurement is no warning."""
    inside = {metric.value for metric in INSIDE}
    reasons: dict[tuple[str, str], list[str]] = {}
    for metric, number in one.numbers.items():
        if number.refusal is not None and (one.repeated or metric not in inside):
            reasons.setdefault((number.refusal, number.reason), []).append(metric)
    return [
        _warning(
            WarningKind.STATISTIC_REFUSED,
            "warning" if len(metrics) == len(one.numbers) else "info",
            f"{condition}: {reason}",
            {"refusal": refusal, "condition": condition, "metrics": metrics},
        )
        for (refusal, reason), metrics in reasons.items()
    ]


def _warning(kind: WarningKind, severity: Severity, message: str, data: Mapping[str, object]) -> RunWarning:
    return RunWarning(kind=kind, severity=severity, message=message, data=dict(data))
