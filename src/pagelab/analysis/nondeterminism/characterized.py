"""Turns rows of the statistics' table into plain values: each experiment by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pagelab.analysis import wording
from pagelab.analysis.model import Metric as Column
from pagelab.analysis.nondeterminism_model import Components, Dependence, Experiment, IntervalWarning, Number
from pagelab.stats import nondeterminism as nd
from pagelab.stats.refusal import StatsRefusedError

PRECISION = 0.01
"""Half-width of the mean's interval that a recommended plan aims for, as a fraction of the mean."""


@dataclass(frozen=True)
class Sample:
    """The data of one experiment, with their labels."""

    experiment: nd.Experiment
    column: Column
    wall_s: float | None
    """Mean wall time of an execution; None where it is not known."""
    left_out: tuple[str, ...]


def number(found: nd.Estimate | nd.Refused) -> Number:
    if isinstance(found, nd.Refused):
        return Number(None, refusal=found.refusal.value, reason=found.message)
    return Number(found.value, found.interval.low, found.interval.high)


def refused(error: StatsRefusedError) -> Number:
    return Number(None, refusal=error.refusal.value, reason=str(error))


def experiment_of(table: nd.Table, i: int, sample: Sample, level: float) -> Experiment:
    """All results on experiment ``i`` of the table."""
    own = table.experiments[i]
    impact = table.impact(i)
    known = None if isinstance(impact, nd.Refused) else impact
    return Experiment(
        group=own.group,
        condition=own.condition,
        column=sample.column.name,
        executions=len(own.executions),
        fewest=int(table.fewest[i]),
        most=int(table.most[i]),
        measurements=own.executions.values.size,
        numbers={metric.value: number(table.estimate(i, metric)) for metric in nd.Metric},
        group_size=0 if known is None else known.group_size,
        null_impact=None if known is None else known.null,
        log_impact=None if known is None else number(known.log_mean),
        null_log_impact=None if known is None else known.null_log_mean,
        dependence=_dependence(table.dependence(i)),
        components=_components(sample, level),
        doubts=tuple(
            IntervalWarning(one.kind.value, one.message, tuple(m.value for m in nd.Metric if m in one.metrics))
            for one in table.interval_warnings(i)
        ),
        left_out=sample.left_out,
    )


def _dependence(found: nd.Dependence) -> Dependence:
    inside, between, change, trend = found.inside, found.between, found.change, found.trend
    return Dependence(
        inside=None if inside is None else inside.correlation,
        inside_p=None if inside is None else inside.p_value,
        between=None if between is None else between.correlation,
        between_p=None if between is None else between.p_value,
        change_after=None if change is None else change.after,
        change_percent=None if change is None else change.percent,
        change_p=None if change is None else change.p_value,
        trend=None if trend is None else trend.tau,
        trend_p=None if trend is None else trend.p_value,
        effective=found.effective_measurements,
        effective_is_bound=found.is_lower_bound,
    )


def _components(sample: Sample, level: float) -> Components | None:
    executions = sample.experiment.executions
    if len(executions) < 2:
        return None
    found = nd.variance_components(executions, level=level)
    inside, between = found.levels
    return Components(
        sd_between=None if between.variance is None else math.sqrt(between.variance),
        sd_inside=None if inside.variance is None else math.sqrt(inside.variance),
        negative=bool(found.negative),
        plan=_plan(found, sample),
    )


def _plan(found: nd.Components, sample: Sample) -> str:
    costs = _costs(found.mean, sample)
    if costs is None:
        return "what an execution and a measurement cost is not known, because the metric is no time"
    try:
        plan = nd.cheapest_plan(
            found, half_width=PRECISION * found.mean, execution_cost=costs[0], measurement_cost=costs[1]
        )
    except StatsRefusedError as error:
        return str(error)
    each = wording.count(plan.measurements, "measurement")
    factor, unit = wording.time_unit([plan.cost])
    cost = f"{wording.digits(plan.cost / factor, 2)} {unit}"
    return f"{wording.count(plan.executions, 'execution')} of {each} ({cost})"


def _costs(mean: float, sample: Sample) -> tuple[float, float] | None:
    """Seconds for starting an execution (with its warm-up), and for each measurement; None where they are not known."""
    unit_s = wording.SECONDS.get(sample.column.unit)
    if unit_s is None or sample.wall_s is None:
        return None
    measurement_s = mean * unit_s
    per_execution = sample.experiment.executions.values.size / len(sample.experiment.executions)
    return max(0.0, sample.wall_s - per_execution * measurement_s), measurement_s


def shared_size(table: nd.Table) -> int | None:
    """The group size that all impact factors can share; None where they already share one, or there is none."""
    sizes = {int(size) for size in table.group_sizes if size}
    return min(sizes) if len(sizes) > 1 else None
