"""How much one experiment differs from another: the ratio of each metric, with an interval."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Literal

import numpy as np

from pagelab.stats.interval import Interval, IntervalMethod
from pagelab.stats.nondeterminism.columns import replicates
from pagelab.stats.nondeterminism.components import t_quantile
from pagelab.stats.nondeterminism.data import Experiment
from pagelab.stats.nondeterminism.estimate import Estimate, Metric, Refused
from pagelab.stats.nondeterminism.percentile import percentile_ends
from pagelab.stats.nondeterminism.table import Table, characterize
from pagelab.stats.refusal import Refusal, StatsRefusedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pagelab.stats.nondeterminism.data import Executions
    from pagelab.stats.nondeterminism.settings import Resampling

Verdict = Literal["lower", "higher", "undecided"]
_REPLICATE = {Metric.MEASUREMENT: 1, Metric.UNCLASSIFIED: 2, Metric.EXECUTION: 3}


@dataclass(frozen=True, slots=True)
class Change:
    """One metric, before and after."""

    metric: Metric
    base: Estimate | Refused
    new: Estimate | Refused
    percent: Estimate | Refused
    """100 (new / base - 1), with the interval of that ratio."""

    @property
    def verdict(self) -> Verdict:
        """By non-overlap of the two intervals, as in all of ALLOC's comparisons."""
        if isinstance(self.base, Refused) or isinstance(self.new, Refused):
            return "undecided"
        if self.new.interval.high < self.base.interval.low:
            return "lower"
        return "higher" if self.new.interval.low > self.base.interval.high else "undecided"


@dataclass(frozen=True, slots=True)
class Changes:
    """All metrics of two experiments."""

    changes: tuple[Change, ...]
    table: Table
    """The two experiments by themselves, ``base`` first: impact factors, diagnostics, doubts."""


def changes(base: Experiment, new: Experiment, settings: Resampling, *, ratio_level: float | None = None) -> Changes:
    """Every metric of ``base`` and ``new``, two conditions of one group, and the ratio new / base.

    The mean's ratio has Fieller's interval (:func:`ratio_of_means`); the others divide bootstrap replicates of the two,
    which are independent, and take percentiles.
    ``ratio_level``: of the ratios' intervals, where it is to differ from the level of the metrics' own.
    """
    if base.group != new.group:
        raise StatsRefusedError(Refusal.NOTHING_TO_COMPARE, f"groups {base.group!r} and {new.group!r}: not the same")
    table = characterize((base, new), settings)
    chosen = settings if ratio_level is None else replace(settings, level=ratio_level)
    drawn: list[NDArray[np.float64]] | None = None
    if min(len(base.executions), len(new.executions)) > 1:
        drawn = [
            replicates(one.executions, int(table.group_sizes[i]), one.key, chosen) for i, one in enumerate((base, new))
        ]
    found = []
    for metric in Metric:
        ends = table.estimate(0, metric), table.estimate(1, metric)
        found.append(Change(metric, *ends, _ratio(metric, *ends, base, new, drawn, chosen)))
    return Changes(tuple(found), table)


def _ratio(
    metric: Metric,
    before: Estimate | Refused,
    after: Estimate | Refused,
    base: Experiment,
    new: Experiment,
    drawn: list[NDArray[np.float64]] | None,
    settings: Resampling,
) -> Estimate | Refused:
    if isinstance(before, Refused) or isinstance(after, Refused) or drawn is None:
        name, refused = (base.condition, before) if isinstance(before, Refused) else (new.condition, after)
        assert isinstance(refused, Refused)
        return Refused(refused.refusal, f"{name}: {refused.message}")
    if metric is Metric.MEAN:
        return ratio_of_means(base.executions, new.executions, settings.level)
    column = _REPLICATE[metric]
    if before.value == 0:
        return Refused(Refusal.NO_SPREAD, f"{base.condition}: no spread, so that no percentage of it exists")
    low, high = _ratio_ends(drawn[0][:, column], drawn[1][:, column], settings.tail)
    if not (isfinite(low) and isfinite(high)):
        message = f"{base.condition}: too many resamples have no spread: run more executions"
        return Refused(Refusal.UNSTABLE_RESAMPLES, message)
    interval = Interval(100 * (low - 1), 100 * (high - 1), settings.level, None, IntervalMethod.PERCENTILE)
    return Estimate(100 * (after.value / before.value - 1), interval)


def _ratio_ends(bases: NDArray[np.float64], news: NDArray[np.float64], tail: float) -> tuple[float, float]:
    """Percentile ends of new / base. A resample without spread in the base makes it infinite; one without in both could
    be anything, and counts as 0 for the lower end and as infinite for the upper one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = news / bases
    unknown = np.isnan(ratios)
    low, _ = percentile_ends(np.where(unknown, 0.0, ratios), tail)
    _, high = percentile_ends(np.where(unknown, np.inf, ratios), tail)
    return low, high


def ratio_of_means(base: Executions, new: Executions, level: float) -> Estimate | Refused:
    """100 (new mean / base mean - 1) with Fieller's interval (1954), as Kalibera and Jones (2012) propose.

    Means are of the executions' means a and b, v their variances over their numbers. The interval is of all ratios R
    that |b - R a| <= t √(v_b + R² v_a) holds for, t with Satterthwaite's degrees of freedom at the estimated ratio.
    Refused where base's mean is not told from 0 at this level: the set of ratios is then unbounded.
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
        return Refused(Refusal.OUT_OF_REACH, "base's mean is not told from 0: run more executions")
    root = sqrt(max(0.0, t2 * (mean_a**2 * v_b + mean_b**2 * v_a - t2 * v_a * v_b)))
    ends = (mean_a * mean_b - root) / denominator, (mean_a * mean_b + root) / denominator
    return Estimate(100 * (ratio - 1), _in_percent(*ends, level))


def _in_percent(low: float, high: float, level: float) -> Interval:
    return Interval(100 * (low - 1), 100 * (high - 1), level, None, IntervalMethod.FIELLER)
