"""Results on non-determinism: plain frozen values, JSON-ready; an absent value is None, with the reason."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Number:
    """An estimate with its interval, or the refusal in its place."""

    value: float | None
    low: float | None = None
    high: float | None = None
    refusal: str | None = None
    """Stable name of the reason (``pagelab.stats.refusal.Refusal``)."""
    reason: str = ""
    """In words, with what to add."""


@dataclass(frozen=True)
class IntervalWarning:
    """Why an interval may not have its level."""

    doubt: str
    message: str
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Dependence:
    """Independence diagnostics of one experiment; None with too few values."""

    inside: float | None
    """Lag-1 correlation of neighbouring measurements, and its p."""
    inside_p: float | None
    between: float | None
    """Of neighbouring executions."""
    between_p: float | None
    change_after: int | None
    """Measurements before the most likely change of level, the change in percent, and its p."""
    change_percent: float | None
    change_p: float | None
    trend: float | None
    """Kendall's tau over the schedule, and its p."""
    trend_p: float | None
    effective: float | None
    """Measurements' worth of independent ones, of all."""
    effective_is_bound: bool
    """At most so many."""


@dataclass(frozen=True)
class Components:
    """Variance components, and the recommended numbers of executions and measurements."""

    sd_between: float | None
    """Between executions, in the metric's unit; a negative component is set to 0."""
    sd_inside: float | None
    negative: bool
    plan: str
    """The cheapest numbers of executions and measurements for a mean within ± 1%, in words; or why there are none."""


@dataclass(frozen=True)
class Experiment:
    """One workload under one policy: ALLOC's four metrics, with their warnings."""

    group: str
    condition: str
    column: str
    """Name of the metric that was analysed."""
    executions: int
    fewest: int
    """Measurements of the execution that has fewest, and of the one that has most."""
    most: int
    measurements: int
    numbers: dict[str, Number]
    """By metric: mean-response-time, nondeterminism-in-measurement …"""
    group_size: int
    """Of the impact factor; 0 where there is none."""
    null_impact: float | None
    """The impact factor where nothing differs between executions."""
    log_impact: Number | None
    """Geometric mean of the ratios."""
    null_log_impact: float | None
    dependence: Dependence | None
    components: Components | None
    doubts: tuple[IntervalWarning, ...]
    left_out: tuple[str, ...]
    """Executions and values that are in no number, with the reason."""

    @property
    def repeated(self) -> bool:
        """Several measurements in some execution."""
        return self.most > 1


@dataclass(frozen=True)
class Share:
    """Percentages of groups in which each condition has rank 1, 2 …, at one threshold."""

    threshold: float
    percent: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Pair:
    """Two conditions alone, over the groups that have both: percentages of groups."""

    first: str
    second: str
    threshold: float
    groups: int
    better: float
    worse: float


@dataclass(frozen=True)
class Overhead:
    """A condition against the baseline: significant differences, and the mean over all groups."""

    condition: str
    baseline: str
    groups: int
    significant: int
    lowest: tuple[str, float] | None
    """The greatest significant reduction: group and percent."""
    highest: tuple[str, float] | None
    mean: Number
    """Geometric mean of all ratios less 1, in percent."""
    zero: int
    """Groups without a ratio."""


@dataclass(frozen=True)
class Ranking:
    """One metric over the groups of a family."""

    metric: str
    groups: int
    left_out: dict[str, str]
    """Group to the reason."""
    shares: tuple[Share, ...]
    pairs: tuple[Pair, ...]
    overheads: tuple[Overhead, ...]
    ranks: dict[str, dict[str, int]]
    """Group to condition to rank, at threshold 0."""
    reason: str = ""
    """Why nothing is compared."""

    def share(self, threshold: float) -> Share:
        return next(one for one in self.shares if one.threshold == threshold)


@dataclass(frozen=True)
class Balance:
    """Is every configuration represented alike?"""

    levels: dict[str, dict[str, int]]
    unbalanced: tuple[str, ...]
    incomplete: dict[str, tuple[str, ...]]
    missing: int
    """Combinations of levels that no group has."""


@dataclass(frozen=True)
class Family:
    """Groups with the same conditions and the same shape of data, which percentages can summarise."""

    repeated: bool
    """Several measurements an execution (ALLOC's non-Csibe benchmarks); else one (Csibe)."""
    baseline: str | None
    conditions: tuple[str, ...]
    groups: tuple[str, ...]
    rankings: tuple[Ranking, ...]
    balance: Balance

    def ranking(self, metric: str) -> Ranking | None:
        return next((one for one in self.rankings if one.metric == metric), None)


@dataclass(frozen=True)
class Curve:
    """Empirical distribution of impact factors under one condition."""

    condition: str
    values: tuple[float, ...]
    fractions: tuple[float, ...]


@dataclass(frozen=True)
class Distribution:
    """ALLOC's Figure 9."""

    group_size: int
    """Of every impact factor in it: factors of different group sizes do not compare."""
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Correlated:
    """Executions of one condition: do times follow cache misses?"""

    condition: str
    n: int
    pearson: float | None
    bootstrap: Number
    fisher: Number
    spearman: float | None
    reason: str = ""


@dataclass(frozen=True)
class Misses:
    """One group: means by condition, normalized as in ALLOC's Figure 10, and correlations within conditions."""

    group: str
    all_differ: bool
    """The mean times of all conditions differ: ALLOC's criterion for looking at it."""
    conditions: tuple[str, ...]
    time: tuple[float, ...]
    misses: tuple[float, ...]
    normalized_time: tuple[float, ...]
    normalized_misses: tuple[float, ...]
    within: tuple[Correlated, ...]


@dataclass(frozen=True)
class MissesPart:
    """ALLOC's Figure 10, or why it cannot be drawn."""

    counter: str | None
    label: str
    groups: tuple[Misses, ...]
    reason: str = ""


@dataclass(frozen=True)
class TraceExecution:
    """One execution in a plot: its measurements in order, thinned evenly where there are many."""

    run: int
    """Place among the executions of its condition."""
    count: int
    low: float
    high: float
    mean: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class Trace:
    """ALLOC's Figure 1 of one group."""

    group: str
    column: str
    step: int
    """Every so many-th measurement is in ``values``; lows, highs and means are of all."""
    executions: dict[str, tuple[TraceExecution, ...]]
    """By condition."""


@dataclass(frozen=True)
class NondeterminismPart:
    """Non-determinism in a report."""

    level: float
    draws: int
    """Ratios that each impact factor is the mean of."""
    seed: int
    speed: str
    """In words, for the first screen; empty where there is nothing to rank."""
    steadiness: str
    experiments: tuple[Experiment, ...]
    families: tuple[Family, ...]
    distribution: Distribution | None
    misses: MissesPart
    traces: tuple[Trace, ...]
    untraced: int
    """Groups with repeated measurements that are not among ``traces``."""
    false_alarms: float
    """Doubts from diagnostics that chance alone is expected to raise."""
    refused: dict[str, str] = field(default_factory=dict)
    """Conditions whose data cannot be used at all, with the reason."""

    def experiment(self, group: str, condition: str) -> Experiment | None:
        return next((one for one in self.experiments if (one.group, one.condition) == (group, condition)), None)
