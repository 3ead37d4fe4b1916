"""Statistics on NumPy arrays: pure functions, frozen results, typed refusals, without study, store or file.

Each topic has one file. Every formula, source, assumption and degenerate case is in ``docs/method.md``.
The unit of every test and interval is the **execution** (its mean); arrays are one-dimensional and finite, one value
per execution. ``treatment`` always comes before ``baseline``; positive shifts mean "treatment is larger".

======================= ===================================================================================
``execution_means``     (execution, value, *, drop_first=0) -> ``ExecutionMeans``: measurements to executions
``summarize``           (values) -> ``Summary``: n, min, lower hinge, median, upper hinge, max, mean, sd, cv
``rank_sum``            (treatment, baseline, *, alternative, method, timed_out) -> ``RankSum``: exact, ties allowed
``pairs_of``            (treatment, baseline, *, treatment_blocks, baseline_blocks) -> ``Pairs``: one of each in a block
``signed_rank``         (differences, *, alternative, method) -> ``SignedRank``: exact, ties and zeros allowed
``paired_shift``        (differences, *, level=0.95) -> ``PairedShift``: Walsh averages; ``paired_ratio`` in percent
``blocks_pay``          (pairs) -> ``BlocksPay`` | None: how much pairing narrowed, a description
``stratified_rank_sum`` (treatment, baseline, *, treatment_blocks, baseline_blocks, …) -> ``StratifiedRankSum``
``hodges_lehmann``      (treatment, baseline, *, level=0.95) -> ``Shift``: estimate, exact-order and any-shape interval
``relative_effect``     (treatment, baseline, *, level=0.95) -> ``RelativeEffect``: percent, with both intervals
``median_interval``     (values, *, level=0.95) -> ``Location``: sample median, order-statistic interval
``mean_interval``       (values, *, level=0.95, seed, resamples=10_000) -> ``Location``: bootstrap of executions
``set_ratio``           (ratios, *, level=0.95, seed=1) -> ``SetRatio``: geometric mean over programs, its interval, p
``spread_ratio``        (pairs) -> float: of the coefficients of variation, one program's part in a set
``factorial_effects``   (values, *, level=0.95) -> ``FactorialEffect``s: main effects, interactions of a 2^k design
``holm``                (p_values, *, alpha=0.05) -> ``Holm``: None in the family = planned, but not testable
``smallest_p``          (n_treatment, n_baseline, *, alternative) -> ``Fraction``: 2/C(n+m, n)
``reachable``           (n_treatment, n_baseline, *, contrasts, alpha=0.05) -> ``Reach``: can the level be reached?
``PrecisionPlan``       (looks, target_relative_half_width, level=0.95): a sequential stop on interval width only
``decide``              (plan, look, executions, contrasts) -> ``Decision``: stop or go on, at a planned look
======================= ===================================================================================

A study that a precision stop ended reports ``any_shape`` intervals, computed at ``plan.level_at(look)`` (medians and
means too) and labelled with ``plan.level``. It reports ``plan.adjusted_p(p, look)`` in place of p, before Holm.

An interval is ``Interval`` or ``NotAchievable`` (with the smallest n that suffices): match on the type. Bad input
raises ``StatsRefusedError`` with a ``Refusal``; nothing returns NaN. A value that does not exist (the standard
deviation of one value) is ``None``.

Names load on first use, so that importing this package costs the command line nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagelab.stats.aggregate import ExecutionMeans, execution_means
    from pagelab.stats.attainable_p import Reach, reachable, smallest_p
    from pagelab.stats.factorial import FactorialEffect, factorial_effects
    from pagelab.stats.interval import Interval, IntervalMethod, NotAchievable
    from pagelab.stats.mean import mean_interval
    from pagelab.stats.median import Location, median_interval
    from pagelab.stats.multiplicity import Holm, holm
    from pagelab.stats.paired import (
        BlocksPay,
        PairedRatio,
        PairedShift,
        Pairs,
        blocks_pay,
        paired_ratio,
        paired_shift,
        pairs_of,
    )
    from pagelab.stats.precision import Contrast, Decision, PrecisionPlan, StopReason, decide
    from pagelab.stats.rank_test import Alternative, PValueMethod, RankSum, rank_sum
    from pagelab.stats.refusal import Refusal, StatsRefusedError
    from pagelab.stats.relative import RelativeEffect, relative_effect
    from pagelab.stats.set_mean import SetRatio, set_ratio, spread_ratio
    from pagelab.stats.shift import Shift, hodges_lehmann
    from pagelab.stats.stratified import StratifiedRankSum, stratified_rank_sum
    from pagelab.stats.summary import Summary, summarize
    from pagelab.stats.wilcoxon import SignedRank, signed_rank

_HOME = {
    "ExecutionMeans": "aggregate",
    "execution_means": "aggregate",
    "FactorialEffect": "factorial",
    "factorial_effects": "factorial",
    "Interval": "interval",
    "IntervalMethod": "interval",
    "NotAchievable": "interval",
    "mean_interval": "mean",
    "Location": "median",
    "median_interval": "median",
    "Holm": "multiplicity",
    "holm": "multiplicity",
    "Contrast": "precision",
    "Decision": "precision",
    "PrecisionPlan": "precision",
    "StopReason": "precision",
    "decide": "precision",
    "Alternative": "rank_test",
    "PValueMethod": "rank_test",
    "RankSum": "rank_test",
    "rank_sum": "rank_test",
    "Reach": "attainable_p",
    "reachable": "attainable_p",
    "smallest_p": "attainable_p",
    "Refusal": "refusal",
    "StatsRefusedError": "refusal",
    "RelativeEffect": "relative",
    "relative_effect": "relative",
    "SetRatio": "set_mean",
    "set_ratio": "set_mean",
    "spread_ratio": "set_mean",
    "Shift": "shift",
    "hodges_lehmann": "shift",
    "BlocksPay": "paired",
    "PairedRatio": "paired",
    "PairedShift": "paired",
    "Pairs": "paired",
    "blocks_pay": "paired",
    "paired_ratio": "paired",
    "paired_shift": "paired",
    "pairs_of": "paired",
    "SignedRank": "wilcoxon",
    "signed_rank": "wilcoxon",
    "StratifiedRankSum": "stratified",
    "stratified_rank_sum": "stratified",
    "Summary": "summary",
    "summarize": "summary",
}

__all__ = [
    "Alternative",
    "BlocksPay",
    "Contrast",
    "Decision",
    "ExecutionMeans",
    "FactorialEffect",
    "Holm",
    "Interval",
    "IntervalMethod",
    "Location",
    "NotAchievable",
    "PValueMethod",
    "PairedRatio",
    "PairedShift",
    "Pairs",
    "PrecisionPlan",
    "RankSum",
    "Reach",
    "Refusal",
    "RelativeEffect",
    "SetRatio",
    "Shift",
    "SignedRank",
    "StatsRefusedError",
    "StopReason",
    "StratifiedRankSum",
    "Summary",
    "blocks_pay",
    "decide",
    "execution_means",
    "factorial_effects",
    "hodges_lehmann",
    "holm",
    "mean_interval",
    "median_interval",
    "paired_ratio",
    "paired_shift",
    "pairs_of",
    "rank_sum",
    "reachable",
    "relative_effect",
    "set_ratio",
    "signed_rank",
    "smallest_p",
    "spread_ratio",
    "stratified_rank_sum",
    "summarize",
]


def __getattr__(name: str) -> Any:
    """Load the file that holds ``name`` and keep the name here.

    No file has the name of something that it exports, because importing a submodule binds its name in this package.
    """
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
