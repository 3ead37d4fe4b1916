"""When an interval may not have its level: found for all experiments at once, told in words for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.nondeterminism.dependence import ALARM
from pagelab.stats.nondeterminism.estimate import Caution, Doubt, Metric

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pagelab.stats.nondeterminism.table import Table

FEW_EXECUTIONS = 10
"""A slow mode that 1 execution in 10 takes is missed by a third of samples of ten."""

_EVERY = frozenset(Metric)
_INSIDE = frozenset({Metric.MEASUREMENT, Metric.EXECUTION})
_CONCERNS = {
    Doubt.FEW_EXECUTIONS: _EVERY,
    Doubt.UNBALANCED: frozenset({Metric.MEAN}),
    Doubt.NEGATIVE_COMPONENT: frozenset({Metric.EXECUTION}),
    Doubt.DEPENDENT_MEASUREMENTS: _INSIDE,
    Doubt.WARM_UP: _EVERY,
    Doubt.LEVEL_SHIFT: _INSIDE,
    Doubt.TREND: _EVERY,
    Doubt.DEPENDENT_EXECUTIONS: _EVERY,
    Doubt.SMALL_GROUPS: frozenset({Metric.EXECUTION}),
}


def find(table: Table) -> dict[Doubt, NDArray[np.bool_]]:
    """One mask over the experiments for each doubt. Comparisons with NaN (nothing to look at) are False."""
    columns, p = table.columns, table.dependence_p
    changed = p["change"] < ALARM
    early = 2 * columns["change_after"] <= columns["change_places"] + 1
    impact = ~np.isnan(table.grids[Metric.EXECUTION].value)
    few = (table.executions < FEW_EXECUTIONS) & (table.executions > 1)
    return {
        Doubt.FEW_EXECUTIONS: few,
        Doubt.UNBALANCED: table.fewest != table.most,
        Doubt.NEGATIVE_COMPONENT: columns["between_means"] < columns["within_share"],
        Doubt.DEPENDENT_MEASUREMENTS: p["inside"] < ALARM,
        Doubt.WARM_UP: changed & early,
        Doubt.LEVEL_SHIFT: changed & ~early,
        Doubt.TREND: p["trend"] < ALARM,
        Doubt.DEPENDENT_EXECUTIONS: p["between"] < ALARM,
        Doubt.SMALL_GROUPS: impact & (table.group_sizes == 3),
    }


def caution(table: Table, doubt: Doubt, i: int) -> Caution:
    """The doubt about experiment ``i`` in words, with what to do."""
    return Caution(doubt, _message(table, doubt, i), _CONCERNS[doubt])


def _message(table: Table, doubt: Doubt, i: int) -> str:
    at = {name: float(column[i]) for name, column in table.columns.items()}
    if doubt is Doubt.FEW_EXECUTIONS:
        return _few(int(table.executions[i]))
    if doubt is Doubt.UNBALANCED:
        return (
            f"executions have {table.fewest[i]} to {table.most[i]} measurements: they count alike, and the mean's "
            "interval is approximate"
        )
    if doubt is Doubt.NEGATIVE_COMPONENT:
        return (
            f"the variance between executions is estimated as {at['between_means'] - at['within_share']:.3g} and "
            "set to 0: the spread inside explains all of it"
        )
    if doubt is Doubt.DEPENDENT_MEASUREMENTS:
        return (
            f"neighbouring measurements are correlated ({at['lag_one']:+.2f}): {_effective(table, i)}; the mean's "
            "interval does not rely on them"
        )
    if doubt in (Doubt.WARM_UP, Doubt.LEVEL_SHIFT):
        return _change(doubt, at)
    if doubt is Doubt.TREND:
        shift = "" if np.isnan(at["trend_shift"]) else f" by {abs(at['trend_shift']):.1%}"
        way = "slower" if at["trend_s"] > 0 else "faster"
        return (
            f"executions became {way}{shift} over the schedule (tau {at['trend_tau']:+.2f}): they do not vary around "
            "one mean; quieten the machine, or interleave and repeat"
        )
    if doubt is Doubt.DEPENDENT_EXECUTIONS:
        return f"neighbouring executions are correlated ({at['means_lag_one']:+.2f}): randomise their order"
    return "groups of 3: the mean of their ratios converges slowly; run at least 5 executions of 5 measurements"


def _few(executions: int) -> str:
    unseen = 0.9**executions
    return (
        f"{executions} executions: a slow mode that 1 in 10 takes is in none of them with probability {unseen:.0%}, "
        f"and then no interval knows of it; run at least {FEW_EXECUTIONS} (better 30: {0.9**30:.0%})"
    )


def _effective(table: Table, i: int) -> str:
    time = float(table.columns["memory"][i])
    if np.isnan(time) or time <= 1:
        return "the spread inside is misjudged"
    total = table.experiments[i].executions.values.size
    bound = "at most" if table.columns["memory_truncated"][i] == 1 else "about"
    return f"{total} measurements are worth {bound} {total / time:.0f} independent ones"


def _change(doubt: Doubt, at: dict[str, float]) -> str:
    after, way = int(at["change_after"]), "slower" if at["change_shift"] > 0 else "faster"
    what = f"the first {after} measurement{'s' * (after > 1)} of the executions are {abs(at['change_shift']):.1%} {way}"
    if doubt is Doubt.WARM_UP:
        return f"{what} than the rest: leave them out (drop_first = {after})"
    return f"{what} than the last {int(at['change_places']) + 1 - after}: the executions change while they run"
