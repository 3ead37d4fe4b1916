"""Compares conditions over all programs: ranks, pairs, overheads, balance, distribution of impact factors (ALLOC 4.3,
4.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from pagelab.analysis.nondeterminism.characterized import number, refused
from pagelab.analysis.nondeterminism_model import Balance, Curve, Distribution, Family, Overhead, Pair, Ranking, Share
from pagelab.stats import nondeterminism as nd
from pagelab.stats.refusal import StatsRefusedError

INSIDE = (nd.Metric.MEASUREMENT, nd.Metric.EXECUTION)
"""Metrics that do not exist for executions with one measurement."""


def family_of(table: nd.Table, conditions: Sequence[str], baseline: str | None, *, repeated: bool) -> Family:
    """The family of the experiments in ``table``, whose groups were planned with the same conditions."""
    metrics = [metric for metric in nd.Metric if repeated or metric not in INSIDE]
    return Family(
        repeated=repeated,
        baseline=baseline,
        conditions=tuple(conditions),
        groups=tuple(dict.fromkeys(one.group for one in table.experiments)),
        rankings=tuple(_ranking(table, metric, conditions, baseline) for metric in metrics),
        balance=_balance(table),
    )


def _ranking(table: nd.Table, metric: nd.Metric, conditions: Sequence[str], baseline: str | None) -> Ranking:
    try:
        groups = nd.groups_of(table, metric, conditions)
    except StatsRefusedError as error:
        return Ranking(metric.value, 0, {}, (), (), (), {}, str(error))
    places = nd.ranks(groups)
    return Ranking(
        metric=metric.value,
        groups=len(groups),
        left_out=dict(groups.left_out),
        shares=tuple(Share(one.threshold_percent, dict(one.percent)) for one in nd.rank_shares(groups)),
        pairs=_pairs(table, metric, conditions, baseline),
        overheads=_overheads(groups, baseline, table.settings),
        ranks={
            name: {condition: int(rank) for condition, rank in zip(groups.conditions, row, strict=True)}
            for name, row in zip(groups.names, places, strict=True)
        },
    )


def _pairs(table: nd.Table, metric: nd.Metric, conditions: Sequence[str], baseline: str | None) -> tuple[Pair, ...]:
    """Comparisons of all pairs of conditions; the baseline is second, so that "better" refers to the policy."""
    found: list[Pair] = []
    for first, second in combinations(conditions, 2):
        one, other = (second, first) if first == baseline else (first, second)
        try:
            shares = nd.pair_shares(table, metric, one, other)
        except StatsRefusedError:  # no group has both: the ranking's reason states that
            continue
        found += [Pair(one, other, s.threshold_percent, s.groups, s.better, s.worse) for s in shares]
    return tuple(found)


def _overheads(groups: nd.Groups, baseline: str | None, settings: nd.Resampling) -> tuple[Overhead, ...]:
    if baseline not in groups.conditions:
        return ()
    return tuple(
        _overhead(groups, baseline, name, settings) for name in groups.conditions if baseline and name != baseline
    )


def _overhead(groups: nd.Groups, baseline: str, condition: str, settings: nd.Resampling) -> Overhead:
    try:
        found = nd.overheads(groups, baseline, condition, level=settings.level)
    except StatsRefusedError as error:
        return Overhead(condition, baseline, len(groups), 0, None, None, refused(error), 0)
    lower = [one for one in found.significant if one.percent < 0]
    higher = [one for one in found.significant if one.percent > 0]
    return Overhead(
        condition=condition,
        baseline=baseline,
        groups=found.groups,
        significant=len(found.significant),
        lowest=(lower[0].group, lower[0].percent) if lower else None,
        highest=(higher[-1].group, higher[-1].percent) if higher else None,
        mean=number(found.mean_percent),
        zero=found.zero,
    )


def _balance(table: nd.Table) -> Balance:
    found = nd.balance(table.experiments)
    return Balance(
        levels={factor: dict(levels) for factor, levels in found.levels.items()},
        unbalanced=found.unbalanced,
        incomplete=dict(found.incomplete),
        missing=found.missing_count,
    )


def distribution_of(table: nd.Table) -> Distribution | None:
    """The distribution of all impact factors, or None without any; the table's group sizes must be equal."""
    grid = table.grid(nd.Metric.EXECUTION)
    names = np.array([one.condition for one in table.experiments])
    curves = []
    for condition in dict.fromkeys(names.tolist()):
        values = grid.value[(names == condition) & (grid.value > 0)]
        if values.size:
            found = nd.ecdf(values)
            curves.append(Curve(condition, tuple(found.value.tolist()), tuple(found.fraction.tolist())))
    sizes = table.group_sizes[table.group_sizes > 0]
    return Distribution(int(sizes.min()), tuple(curves)) if curves else None
