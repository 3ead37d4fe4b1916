"""Performance non-determinism: ALLOC's statistical method (Hocko and Kalibera, ICPE 2010, section 4), in full.

Data are executions × measurements (ragged), or one measurement per execution. Every formula, source, assumption and
degenerate case is in ``docs/method/nondeterminism.md``; the resampling loops are in Rust (crates/stats).

====================== ==================================================================================
``Executions``         ``.of(rows)``, ``.labelled(execution, value, drop_first=0)``: checked data of one experiment
``Experiment``         (group, condition, executions, factors): where those data stand
``Resampling``         (seed, resamples, estimate_draws, level, threads): how intervals are made
``characterize``       (experiments, settings, *, group_size) -> ``Table``: four metrics, intervals, refusals, warnings
``groups_of``          (table, metric, conditions) -> ``Groups``: what can be compared
``ranks``              (groups, threshold): 1 + conditions that beat it; ``rank_shares``, ``pair_shares`` in percent
``changes``            (base, new, settings): every metric of two experiments, and its ratio with an interval
``overheads``          (groups, baseline, condition): significant differences, geometric mean with interval
``balance``            (experiments) -> ``Balance``: is each configuration represented alike?
``variance_components``  (executions) -> ``Components``; ``nested_components`` for three levels and more
``cheapest_plan``      (components, half_width, costs) -> ``Plan``; ``repetitions`` is Kalibera and Jones's formula
``ecdf``, ``correlation``, ``within_strategies``, ``normalized``: ALLOC's Figures 9 and 10
====================== ==================================================================================

Bad data raise ``StatsRefusedError`` when ``Executions`` is built. If an experiment is too small for a metric, the
``Table`` has a ``Refused`` in its place, and the other metrics stay. Every NaN comes with its reason.

Names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagelab.stats.nondeterminism.balanced import Balance, balance
    from pagelab.stats.nondeterminism.comparison import (
        THRESHOLDS,
        Groups,
        PairShares,
        RankShares,
        beats,
        groups_of,
        pair_shares,
        rank_shares,
        ranks,
    )
    from pagelab.stats.nondeterminism.components import Component, Components, nested_components, variance_components
    from pagelab.stats.nondeterminism.data import Executions, Experiment
    from pagelab.stats.nondeterminism.dependence import Dependence, LevelChange, Neighbours, ScheduleTrend
    from pagelab.stats.nondeterminism.estimate import Estimate, IntervalWarning, IntervalWarningKind, Metric, Refused
    from pagelab.stats.nondeterminism.misses import Correlation, correlation, normalized, within_strategies
    from pagelab.stats.nondeterminism.pair import Change, Changes, changes, ratio_of_means
    from pagelab.stats.nondeterminism.plan import Plan, cheapest_plan, repetitions
    from pagelab.stats.nondeterminism.settings import Resampling
    from pagelab.stats.nondeterminism.sizes import Ecdf, Overhead, Overheads, ecdf, geometric_mean, overheads
    from pagelab.stats.nondeterminism.table import Grid, ImpactFactor, Table, characterize

_FILES = {
    "pair": ("Change", "Changes", "changes", "ratio_of_means"),
    "balanced": ("Balance", "balance"),
    "comparison": (
        "THRESHOLDS",
        "Groups",
        "PairShares",
        "RankShares",
        "beats",
        "groups_of",
        "pair_shares",
        "rank_shares",
        "ranks",
    ),
    "components": ("Component", "Components", "nested_components", "variance_components"),
    "misses": ("Correlation", "correlation", "normalized", "within_strategies"),
    "data": ("Executions", "Experiment"),
    "dependence": ("Dependence", "LevelChange", "Neighbours", "ScheduleTrend"),
    "estimate": ("IntervalWarning", "IntervalWarningKind", "Estimate", "Metric", "Refused"),
    "sizes": ("Ecdf", "Overhead", "Overheads", "ecdf", "geometric_mean", "overheads"),
    "plan": ("Plan", "cheapest_plan", "repetitions"),
    "settings": ("Resampling",),
    "table": ("Grid", "ImpactFactor", "Table", "characterize"),
}
_HOME = {name: file for file, names in _FILES.items() for name in names}

__all__ = [
    "THRESHOLDS",
    "Balance",
    "Change",
    "Changes",
    "Component",
    "Components",
    "Correlation",
    "Dependence",
    "Ecdf",
    "Estimate",
    "Executions",
    "Experiment",
    "Grid",
    "Groups",
    "ImpactFactor",
    "IntervalWarning",
    "IntervalWarningKind",
    "LevelChange",
    "Metric",
    "Neighbours",
    "Overhead",
    "Overheads",
    "PairShares",
    "Plan",
    "RankShares",
    "Refused",
    "Resampling",
    "ScheduleTrend",
    "Table",
    "balance",
    "beats",
    "changes",
    "characterize",
    "cheapest_plan",
    "correlation",
    "ecdf",
    "geometric_mean",
    "groups_of",
    "nested_components",
    "normalized",
    "overheads",
    "pair_shares",
    "rank_shares",
    "ranks",
    "ratio_of_means",
    "repetitions",
    "variance_components",
    "within_strategies",
]


def __getattr__(name: str) -> Any:
    """Load the file that holds ``name`` and keep the name here."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
