"""Differences of two experiments: the ratio of each metric, with an interval."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, sqrt
from typing import TYPE_CHECKING, Literal

from pagelab.stats.interval import Interval, IntervalMethod
from pagelab.stats.nondeterminism.comparison import FEWEST
from pagelab.stats.nondeterminism.components import t_quantile
from pagelab.stats.nondeterminism.estimate import Estimate, Metric, Refused
from pagelab.stats.nondeterminism.exchange import Exchanged, exchange
from pagelab.stats.nondeterminism.table import Table, characterize
from pagelab.stats.refusal import Refusal, StatsRefusedError, baseline_near_zero, error_rate

if TYPE_CHECKING:
    from pagelab.stats.nondeterminism.data import Executions, Experiment
    from pagelab.stats.nondeterminism.settings import Resampling

LARGEST_LOG = 20.0
"""Largest log of a ratio at an interval's end: a factor of about 500 million, beyond which an interval says nothing."""
Verdict = Literal["lower", "higher", "undecided", "cannot-tell"]


@dataclass(frozen=True, slots=True)
class Change:
    """One metric, before and after."""

    metric: Metric
    base: Estimate | Refused
    new: Estimate | Refused
    percent: Estimate | Refused
    """100 (new / base - 1), with the interval of that ratio."""
    executions: int
    """Executions of the experiment that has fewer."""

    @property
    def verdict(self) -> Verdict:
        """The verdict by disjoint intervals, as in ALLOC's comparisons; none with few executions."""
        if isinstance(self.base, Refused) or isinstance(self.new, Refused):
            return "undecided"
        if self.executions < FEWEST:
            return "cannot-tell"
        if self.new.interval.high < self.base.interval.low:
            return "lower"
        return "higher" if self.new.interval.low > self.base.interval.high else "undecided"


@dataclass(frozen=True, slots=True)
class Changes:
    """All metrics of two experiments."""

    changes: tuple[Change, ...]
    table: Table
    """The two experiments by themselves, ``base`` first: impact factors, diagnostics, warnings."""

    def exchanged(self, metric: Metric, ratio: float, tail: float) -> Exchanged:
        """The permutation test of "new / base = ``ratio``" (:mod:`.exchange`)."""
        base, new = self.table.experiments
        chosen = self.table.settings
        seed = (chosen.seed ^ base.key ^ new.key) % 2**63
        return exchange(metric, base.executions, new.executions, ratio, seed=seed, tail=tail, choices=chosen.resamples)


def changes(base: Experiment, new: Experiment, settings: Resampling, *, ratio_level: float | None = None) -> Changes:
    """Every metric of ``base`` and ``new``, two conditions of one group, and the ratio new / base.

    The mean's ratio has Fieller's interval (:func:`ratio_of_means`), those of the spreads Student's on the log scale
    (:func:`_ratio_of_spreads`).
    ``ratio_level``: of the ratios' intervals, where it is to differ from the level of the metrics' own.
    """
    if base.group != new.group:
        raise StatsRefusedError(Refusal.NOTHING_TO_COMPARE, f"groups {base.group!r} and {new.group!r}: not the same")
    table = characterize((base, new), settings)
    level = settings.level if ratio_level is None else ratio_level
    error_rate(level)
    fewer = min(len(base.executions), len(new.executions))
    found = []
    for metric in Metric:
        ends = table.estimate(0, metric), table.estimate(1, metric)
        found.append(Change(metric, *ends, _ratio(metric, table, level), fewer))
    return Changes(tuple(found), table)


def _ratio(metric: Metric, table: Table, level: float) -> Estimate | Refused:
    for i, one in enumerate(table.experiments):
        found = table.estimate(i, metric)
        if isinstance(found, Refused):
            return Refused(found.refusal, f"{one.condition}: {found.message}")
    if metric is Metric.MEAN:
        base, new = table.experiments
        return ratio_of_means(base.executions, new.executions, level)
    return _ratio_of_spreads(metric, table, level)


def _ratio_of_spreads(metric: Metric, table: Table, level: float) -> Estimate | Refused:
    """Difference of the centres on the log scale ± t √(sum of squared errors), Satterthwaite's degrees of freedom."""
    value, centre, error = table.log_scale(metric)
    for i, one in enumerate(table.experiments):
        if value[i] == 0:
            return Refused(Refusal.NO_SPREAD, f"{one.condition}: no spread, so that no percentage of it exists")
    variances = error**2
    total = float(variances.sum())
    percent = 100 * float(value[1] / value[0] - 1)
    if total == 0:
        return Estimate(percent, Interval(percent, percent, level, None, IntervalMethod.LOG_T))
    degrees = total**2 / float((variances**2 / (table.executions - 1)).sum())
    half = float(t_quantile(degrees, level)) * sqrt(total)
    ends = [float(centre[1] - centre[0]) + side * half for side in (-1, 1)]
    if ends[1] > LARGEST_LOG:
        enough = ceil(int(table.executions.min()) * (ends[1] / LARGEST_LOG) ** 2) + 1
        return Refused(
            Refusal.OUT_OF_REACH,
            f"the ratio of the spreads cannot be bounded; about {enough} executions of each would be enough",
        )
    low, high = (100 * (exp(end) - 1) for end in ends)
    return Estimate(percent, Interval(low, high, level, None, IntervalMethod.LOG_T))


def ratio_of_means(base: Executions, new: Executions, level: float) -> Estimate | Refused:
    """100 (new mean / base mean - 1) with Fieller's interval (1954), as Kalibera and Jones (2012) propose.

    Means are of the executions' means a and b, v their variances over their numbers. The interval is of all ratios R
    that |b - R a| <= t √(v_b + R² v_a) holds for, t with Satterthwaite's degrees of freedom at the estimated ratio.
    Refused if base's mean is not distinguishable from 0 at this level: the set of ratios is then unbounded.
    """
    if min(len(base), len(new)) < 2:
        return Refused(Refusal.ONE_EXECUTION, "one execution has no spread: run at least 2 more (better 10 in all)")
    a, b = base.means, new.means
    mean_a, mean_b = float(a.mean()), float(b.mean())
    v_a, v_b = float(a.var(ddof=1)) / a.size, float(b.var(ddof=1)) / b.size
    ratio = mean_b / mean_a
    parts = v_b, ratio**2 * v_a
    if sum(parts) == 0:
        return Estimate(100 * (ratio - 1), _in_percent(ratio, ratio, level))
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / (b.size - 1) + parts[1] ** 2 / (a.size - 1))
    t2 = float(t_quantile(degrees, level)) ** 2
    denominator = mean_a**2 - t2 * v_a
    if denominator <= 0:
        enough = ceil(len(base) * t2 * v_a / mean_a**2) + 1 if mean_a else None
        return Refused(Refusal.OUT_OF_REACH, baseline_near_zero(enough))
    root = sqrt(max(0.0, t2 * (mean_a**2 * v_b + mean_b**2 * v_a - t2 * v_a * v_b)))
    ends = (mean_a * mean_b - root) / denominator, (mean_a * mean_b + root) / denominator
    return Estimate(100 * (ratio - 1), _in_percent(*ends, level))


def _in_percent(low: float, high: float, level: float) -> Interval:
    return Interval(100 * (low - 1), 100 * (high - 1), level, None, IntervalMethod.FIELLER)
