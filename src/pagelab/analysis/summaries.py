"""Summarises each condition: five numbers, moments, an interval for the median, and reported measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from pagelab import stats
from pagelab.analysis.data import StudyData
from pagelab.analysis.model import Condition, Execution, Interval, MeasurementSummary, Metric, Summary


@dataclass(frozen=True)
class Statistic:
    """A statistic of a condition's executions, in addition to the five numbers. It is computed for every metric, and
    has a column in the table *Five-number summaries and moments, by condition*."""

    name: str
    label: str
    of: Callable[[Sequence[float]], float | None] | None = None
    """Its function of the metric's values, one value per execution; it returns None where the statistic does not exist.
    None: the statistic is a field of :class:`pagelab.analysis.model.Summary`, as the first three are. A new statistic
    has a function and needs no change of a class."""
    is_share: bool = False
    """Whether it is shown in percent; else it is shown in the metric's unit (there is no form for pure numbers)."""
    digits: int = 4

    def value(self, summary: Summary) -> float | None:
        """The statistic's value in a summary of :func:`summaries_of`."""
        found: float | None = getattr(summary, self.name) if self.of is None else summary.more[self.name]
        return found


STATISTICS = (
    Statistic("mean", "mean"),
    Statistic("sd", "sd", digits=2),
    Statistic("cv", "CV", is_share=True),
)
"""All statistics. A new one is a row here, with a function of :mod:`pagelab.stats` as ``of``."""


def interval_of(found: stats.Interval | stats.NotAchievable, scale: float = 1.0) -> tuple[Interval | None, str]:
    """The interval and an empty text, or None and the reason."""
    if isinstance(found, stats.NotAchievable):
        return None, str(found)
    return Interval(found.low * scale, found.high * scale, found.level, found.achieved), ""


def values_of(executions: tuple[Execution, ...], condition: str, metric: str) -> list[float]:
    """The metric's values of all analysed executions of a condition, in schedule order."""
    return [e.values[metric] for e in executions if e.condition == condition and e.analysed and metric in e.values]


def summaries_of(
    conditions: tuple[Condition, ...], executions: tuple[Execution, ...], metrics: tuple[Metric, ...], level: float
) -> tuple[Summary, ...]:
    """One summary for each condition and metric that has values."""
    found = []
    for condition in conditions:
        for metric in metrics:
            values = values_of(executions, condition.id, metric.name)
            if values:
                found.append(_summary(condition.id, metric.name, values, level))
    return tuple(found)


def _summary(condition: str, metric: str, values: list[float], level: float) -> Summary:
    s = stats.summarize(values)
    more = {one.name: one.of(values) for one in STATISTICS if one.of is not None}
    interval, note = interval_of(stats.median_interval(values, level=level).interval)
    return Summary(
        condition=condition,
        metric=metric,
        n=s.n,
        minimum=s.minimum,
        hinge_low=s.lower_hinge,
        median=s.median,
        hinge_high=s.upper_hinge,
        maximum=s.maximum,
        mean=s.mean,
        sd=s.sd,
        cv=s.cv,
        median_interval=interval,
        median_note=note,
        more=more,
    )


def measurements_of(
    data: StudyData, conditions: tuple[Condition, ...], executions: tuple[Execution, ...], level: float
) -> tuple[MeasurementSummary, ...]:
    """Summaries of the repeated measurements that programs reported: spread between executions and inside them."""
    if data.measurements.height == 0:
        return ()
    runs = {e.run_id: e.condition for e in executions if e.analysed}
    kept = pl.col("value").is_finite() & ~pl.col("dropped")
    usable = data.measurements.filter(kept & pl.col("run_id").is_in(list(runs)))
    usable = usable.sort("name", "run_id", "idx")  # sums in one order give the same bytes each time
    usable = usable.with_columns(pl.col("run_id").replace_strict(runs, return_dtype=pl.String).alias("condition"))
    groups = usable.partition_by("condition", "name", as_dict=True, maintain_order=True)
    order = [c.id for c in conditions]
    keys = sorted(groups, key=lambda key: (order.index(str(key[0])), str(key[1])))
    return tuple(_measurement(str(c), str(name), groups[(c, name)], level) for c, name in keys)


def _measurement(condition: str, name: str, rows: pl.DataFrame, level: float) -> MeasurementSummary:
    per_run = [part["value"].to_numpy() for part in rows.partition_by("run_id", maintain_order=True)]
    means = [float(np.mean(values)) for values in per_run]
    inside = sum(len(values) - 1 for values in per_run)
    squares = sum(float(np.sum((values - np.mean(values)) ** 2)) for values in per_run)
    location = stats.median_interval(means, level=level)
    return MeasurementSummary(
        condition=condition,
        name=name,
        unit=str(rows["unit"][0]),
        executions=len(means),
        measurements=rows.height,
        median_of_means=location.estimate,
        means_interval=interval_of(location.interval)[0],
        sd_between=float(np.std(means, ddof=1)) if len(means) > 1 else None,
        sd_within=float(np.sqrt(squares / inside)) if inside else None,
    )
