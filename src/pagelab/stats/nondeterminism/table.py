"""ALLOC's four metrics for any number of experiments at once, each with its interval, its refusals and its warnings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp
from typing import TYPE_CHECKING

import numpy as np

from pagelab import _native
from pagelab.stats.interval import Interval, IntervalMethod
from pagelab.stats.nondeterminism.components import t_quantile
from pagelab.stats.nondeterminism.dependence import ALARM, Dependence, dependence_at, p_values
from pagelab.stats.nondeterminism.estimate import Estimate, IntervalWarning, IntervalWarningKind, Metric, Refused
from pagelab.stats.refusal import Refusal, StatsRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pagelab.stats.nondeterminism.data import Executions
    from pagelab.stats.nondeterminism.settings import Resampling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pagelab.stats.nondeterminism.data import Experiment
    from pagelab.stats.nondeterminism.settings import Resampling

FEW_EXECUTIONS = 10
"""A slow mode that 1 execution in 10 takes is missed by a third of samples of ten."""

_EVERY = frozenset(Metric)
_INSIDE = frozenset({Metric.MEASUREMENT, Metric.EXECUTION})
_CONCERNS = {
    IntervalWarningKind.FEW_EXECUTIONS: _EVERY,
    IntervalWarningKind.UNBALANCED: frozenset({Metric.MEAN}),
    IntervalWarningKind.NEGATIVE_COMPONENT: frozenset({Metric.EXECUTION}),
    IntervalWarningKind.DEPENDENT_MEASUREMENTS: _INSIDE,
    IntervalWarningKind.WARM_UP: _EVERY,
    IntervalWarningKind.LEVEL_SHIFT: _INSIDE,
    IntervalWarningKind.TREND: _EVERY,
    IntervalWarningKind.DEPENDENT_EXECUTIONS: _EVERY,
    IntervalWarningKind.SMALL_GROUPS: frozenset({Metric.EXECUTION}),
}

SMALLEST_GROUP = 3
"""The mean ratio of groups of two does not exist: the expectation of 1/s diverges."""
_COLUMN = {Metric.MEASUREMENT: "within", Metric.UNCLASSIFIED: "pooled", Metric.EXECUTION: "impact"}


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """One metric of all experiments, as arrays over the experiments; NaN exactly where ``refused`` has a reason."""

    metric: Metric
    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    refused: Mapping[int, Refused]


@dataclass(frozen=True)
class Table:
    """The result of :func:`characterize`: experiments have an index, and metrics are arrays over it (:meth:`grid`)."""

    experiments: Sequence[Experiment]
    settings: Resampling
    group_sizes: NDArray[np.uint64]
    """Group sizes of the impact factor; 0 if it is refused for lack of data."""
    columns: Mapping[str, NDArray[np.float64]]
    """Every number from the native loops, by column; NaN: does not exist."""

    @cached_property
    def executions(self) -> NDArray[np.int64]:
        return np.array([len(one.executions) for one in self.experiments], dtype=np.int64)

    @cached_property
    def fewest(self) -> NDArray[np.int64]:
        """Number of measurements in the execution that has the fewest."""
        return np.array([one.executions.counts.min() for one in self.experiments], dtype=np.int64)

    @cached_property
    def most(self) -> NDArray[np.int64]:
        return np.array([one.executions.counts.max() for one in self.experiments], dtype=np.int64)

    @cached_property
    def is_single(self) -> NDArray[np.bool_]:
        """Whether each execution has one measurement (ALLOC's Csibe)."""
        return np.asarray(self.most == 1)

    @cached_property
    def dependence_p(self) -> Mapping[str, NDArray[np.float64]]:
        return p_values(self.columns)

    @cached_property
    def grids(self) -> Mapping[Metric, Grid]:
        return {metric: self._grid(metric) for metric in Metric}

    def grid(self, metric: Metric) -> Grid:
        """Estimates, interval ends and refusals of one metric."""
        return self.grids[metric]

    @cached_property
    def warned(self) -> Mapping[IntervalWarningKind, NDArray[np.bool_]]:
        """For each warning, whether it applies to each experiment."""
        return _find(self)

    def estimate(self, i: int, metric: Metric) -> Estimate | Refused:
        grid = self.grids[metric]
        if i in grid.refused:
            return grid.refused[i]
        method = IntervalMethod.HIERARCHICAL_T if metric is Metric.MEAN else IntervalMethod.LOG_T
        ends = float(grid.low[i]), float(grid.high[i])
        return Estimate(float(grid.value[i]), Interval(*ends, self.settings.level, None, method))

    def impact(self, i: int) -> ImpactFactor | Refused:
        """The impact factor with the values that are shown beside it."""
        found = self.estimate(i, Metric.EXECUTION)
        if isinstance(found, Refused):
            return found
        at = {name: float(column[i]) for name, column in self.columns.items()}
        factor = exp(t_quantile(self.executions[i] - 1, self.settings.level) * at["impact_error"])
        # If a group between executions has no spread, the geometric mean is 0 and does not exclude small values.
        high = at["log_impact"] * factor if at["log_impact"] > 0 else found.interval.high
        log_interval = Interval(at["log_impact"] / factor, high, self.settings.level, None, IntervalMethod.LOG_T)
        return ImpactFactor(
            estimate=found,
            group_size=int(self.group_sizes[i]),
            null=at["null_impact"],
            log_mean=Estimate(at["log_impact"], log_interval),
            null_log_mean=at["null_log_impact"],
            draw_error=at["draw_error"],
        )

    def dependence(self, i: int) -> Dependence:
        return dependence_at(self.columns, self.dependence_p, i, self.experiments[i].executions.values.size)

    def interval_warnings(self, i: int) -> tuple[IntervalWarning, ...]:
        """Every warning about the intervals of experiment ``i``, in words."""
        return tuple(_warning(self, kind, i) for kind, where in self.warned.items() if where[i])

    def _grid(self, metric: Metric) -> Grid:
        columns = self.columns
        refused = self._refused(metric)
        if metric is Metric.MEAN:
            value = columns["mean"].copy()
            with np.errstate(invalid="ignore"):
                spread = np.sqrt(columns["between_means"] / self.executions)
                half = t_quantile(np.maximum(self.executions - 1, 1), self.settings.level) * spread
            low, high = value - half, value + half
        else:
            value, centre, error = self.log_scale(metric)
            half = t_quantile(np.maximum(self.executions - 1, 1), self.settings.level) * error
            with np.errstate(over="ignore", invalid="ignore"):
                low, high = np.where(value == 0, 0.0, np.exp([centre - half, centre + half]))
        for i in refused:
            value[i] = low[i] = high[i] = np.nan
        return Grid(metric, value, low, high, refused)

    def log_scale(self, metric: Metric) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """For a metric of spread: estimate, centre of its interval on the log scale, and its standard error there."""
        name = _COLUMN[metric]
        value = self.columns[name].copy()
        with np.errstate(divide="ignore"):
            centre = np.log(value)
        return value, centre + self.columns.get(name + "_shift", 0.0), self.columns[name + "_error"]

    def _refused(self, metric: Metric) -> dict[int, Refused]:
        found: dict[int, Refused] = {}
        one = self.executions == 1
        for i in np.flatnonzero(one):
            message = "one execution: its spread cannot be told from chance; run at least 2 more (better 10 in all)"
            found[int(i)] = Refused(Refusal.ONE_EXECUTION, message)
        if metric in (Metric.MEASUREMENT, Metric.EXECUTION):
            for i in np.flatnonzero((self.fewest == 1) & ~one):
                message = "an execution with one measurement has no spread inside: measure at least 3 times (better 20)"
                if not self.is_single[i]:
                    message += ", or leave that execution out"
                found[int(i)] = Refused(Refusal.ONE_MEASUREMENT, message)
        if metric is Metric.EXECUTION:
            for place in range(len(self.experiments)):
                reason = None if place in found else self._refused_impact(place)
                if reason is not None:
                    found[place] = reason
        return found

    def _refused_impact(self, i: int) -> Refused | None:
        columns = self.columns
        if self.group_sizes[i] == 0:
            message = (
                f"groups of {min(self.executions[i], self.fewest[i])}: the mean ratio of their standard deviations "
                f"does not exist below {SMALLEST_GROUP}; run at least 3 executions (better 10) of 3 "
                "measurements (better 20)"
            )
            return Refused(Refusal.GROUP_SIZE, message)
        if columns["zeros"][i] > 0 or np.isnan(columns["impact"][i]):
            message = (
                f"groups of {self.group_sizes[i]} equal measurements occur inside an execution: no ratio to their "
                "spread exists; use a finer clock, or measure more work at a time; the unclassified "
                "non-determinism stands"
            )
            return Refused(Refusal.NO_SPREAD_WITHIN, message)
        return None


@dataclass(frozen=True, slots=True)
class ImpactFactor:
    """Non-determinism in execution: mean ratio of the spread between executions to the spread inside."""

    estimate: Estimate
    group_size: int
    null: float
    """The mean ratio where measurements are exchanged between executions: what "no effect" looks like; above 1."""
    log_mean: Estimate
    """Geometric mean of the ratios: about 1 where nothing differs."""
    null_log_mean: float
    draw_error: float
    """Standard error of the estimate that comes from the number of draws, not from the data."""


def characterize(experiments: Sequence[Experiment], settings: Resampling, *, group_size: int | None = None) -> Table:
    """All metrics of all experiments (ALLOC 4.2). Names of group and condition must not repeat.

    ``group_size``: of the impact factor; None takes min(executions, fewest measurements), the least of all experiments
    of a group that can have an impact factor, for those of different group sizes do not compare. A given one that an
    experiment cannot fill is refused as a whole.
    """
    seen: set[tuple[str, str]] = set()
    for one in experiments:
        name = one.group, one.condition
        if name in seen:
            raise StatsRefusedError(Refusal.DUPLICATE, f"group {one.group!r}, condition {one.condition!r}: given twice")
        seen.add(name)
    sizes = np.array(
        [min(len(one.executions), int(one.executions.counts.min())) for one in experiments], dtype=np.uint64
    )
    if group_size is not None:
        if group_size < SMALLEST_GROUP or (sizes < group_size).any():
            least = int(sizes.min()) if sizes.size else 0
            message = (
                f"group size {group_size}: not within {SMALLEST_GROUP} ... {least}, what every experiment can fill"
            )
            raise StatsRefusedError(Refusal.GROUP_SIZE, message)
        sizes = np.full_like(sizes, group_size)
    sizes[sizes < SMALLEST_GROUP] = 0
    shared: dict[str, np.uint64] = {}
    for one, size in zip(experiments, sizes, strict=True):
        if size:
            shared[one.group] = min(size, shared.get(one.group, size))
    sizes = np.array(
        [shared[one.group] if size else 0 for one, size in zip(experiments, sizes, strict=True)], dtype=np.uint64
    )
    found = columns([one.executions for one in experiments], sizes, [one.key for one in experiments], settings)
    return Table(tuple(experiments), settings, sizes, found)


def _find(table: Table) -> dict[IntervalWarningKind, NDArray[np.bool_]]:
    """One mask over the experiments for each warning. Comparisons with NaN (nothing to look at) are False."""
    columns, p = table.columns, table.dependence_p
    changed = p["change"] < ALARM
    early = 2 * columns["change_after"] <= columns["change_places"] + 1
    impact = ~np.isnan(table.grids[Metric.EXECUTION].value)
    few = (table.executions < FEW_EXECUTIONS) & (table.executions > 1)
    return {
        IntervalWarningKind.FEW_EXECUTIONS: few,
        IntervalWarningKind.UNBALANCED: table.fewest != table.most,
        IntervalWarningKind.NEGATIVE_COMPONENT: columns["between_means"] < columns["within_share"],
        IntervalWarningKind.DEPENDENT_MEASUREMENTS: p["inside"] < ALARM,
        IntervalWarningKind.WARM_UP: changed & early,
        IntervalWarningKind.LEVEL_SHIFT: changed & ~early,
        IntervalWarningKind.TREND: p["trend"] < ALARM,
        IntervalWarningKind.DEPENDENT_EXECUTIONS: p["between"] < ALARM,
        IntervalWarningKind.SMALL_GROUPS: impact & (table.group_sizes == 3),
    }


def _warning(table: Table, kind: IntervalWarningKind, i: int) -> IntervalWarning:
    """The warning about experiment ``i`` in words, with what to do."""
    return IntervalWarning(kind, _message(table, kind, i), _CONCERNS[kind])


def _message(table: Table, kind: IntervalWarningKind, i: int) -> str:
    at = {name: float(column[i]) for name, column in table.columns.items()}
    if kind is IntervalWarningKind.FEW_EXECUTIONS:
        return _few(int(table.executions[i]))
    if kind is IntervalWarningKind.UNBALANCED:
        return (
            f"executions have {table.fewest[i]} to {table.most[i]} measurements: they count alike, and the mean's "
            "interval is approximate"
        )
    if kind is IntervalWarningKind.NEGATIVE_COMPONENT:
        return (
            f"the variance between executions is estimated as {at['between_means'] - at['within_share']:.3g} and "
            "set to 0: the spread inside explains all of it"
        )
    if kind is IntervalWarningKind.DEPENDENT_MEASUREMENTS:
        return (
            f"neighbouring measurements are correlated ({at['lag_one']:+.2f}): {_effective(table, i)}; the mean's "
            "interval does not rely on them"
        )
    if kind in (IntervalWarningKind.WARM_UP, IntervalWarningKind.LEVEL_SHIFT):
        return _change(kind, at)
    if kind is IntervalWarningKind.TREND:
        shift = "" if np.isnan(at["trend_shift"]) else f" by {abs(at['trend_shift']):.1%}"
        way = "slower" if at["trend_s"] > 0 else "faster"
        return (
            f"executions became {way}{shift} over the schedule (tau {at['trend_tau']:+.2f}): they do not vary around "
            "one mean; quieten the machine, or interleave and repeat"
        )
    if kind is IntervalWarningKind.DEPENDENT_EXECUTIONS:
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


def _change(kind: IntervalWarningKind, at: dict[str, float]) -> str:
    after, way = int(at["change_after"]), "slower" if at["change_shift"] > 0 else "faster"
    what = f"the first {after} measurement{'s' * (after > 1)} of the executions are {abs(at['change_shift']):.1%} {way}"
    if kind is IntervalWarningKind.WARM_UP:
        return f"{what} than the rest: leave them out (drop_first = {after})"
    return f"{what} than the last {int(at['change_places']) + 1 - after}: the executions change while they run"


def columns(
    experiments: Sequence[Executions], groups: NDArray[np.uint64], keys: Sequence[int], settings: Resampling
) -> Mapping[str, NDArray[np.float64]]:
    """One value per experiment and column; ``report.rs`` in crates/stats defines the columns. NaN: there is no value.

    ``groups``: group sizes of the impact factor, 0 leaves it out. ``keys``: addresses of the random streams.
    """
    names = _native.stats_columns()
    if not experiments:
        return {name: np.empty(0) for name in names}
    values = np.concatenate([one.values for one in experiments])
    sizes = np.array([one.values.size for one in experiments], dtype=np.uint64)
    counts = np.array([len(one) for one in experiments], dtype=np.uint64)
    starts = np.cumsum(sizes) - sizes
    ends = np.concatenate([one.ends for one in experiments]) + np.repeat(starts, counts.astype(np.int64))
    rows = _native.stats_reports(
        values,
        ends,
        np.cumsum(counts),
        np.ascontiguousarray(groups, dtype=np.uint64),
        np.array(keys, dtype=np.uint64),
        seed=settings.seed,
        estimate_draws=settings.estimate_draws,
        null_draws=settings.estimate_draws,
        threads=settings.threads,
    )
    table = np.frombuffer(rows).reshape(len(experiments), len(names))
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(names)}
