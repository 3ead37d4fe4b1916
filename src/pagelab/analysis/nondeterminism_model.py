"""Results on non-determinism: plain frozen values for JSON; an absent value is None, with the reason."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Number:
    """An estimate with its interval, or a refusal instead."""

    value: float | None
    low: float | None = None
    high: float | None = None
    refusal: str | None = None
    """Stable name of the reason (``pagelab.stats.refusal.Refusal``)."""
    reason: str = ""
    """The reason in words, with the data that are missing."""


@dataclass(frozen=True)
class IntervalWarning:
    """Why an interval may not have its level."""

    doubt: str
    message: str
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Dependence:
    """Independence diagnostics of one experiment; each is None where there are too few values."""

    inside: float | None
    """Lag-1 correlation of neighbouring measurements, and its p."""
    inside_p: float | None
    between: float | None
    """Lag-1 correlation of neighbouring executions, and its p."""
    between_p: float | None
    change_after: int | None
    """Measurements before the most likely change of level, the change in percent, and its p."""
    change_percent: float | None
    change_p: float | None
    trend: float | None
    """Kendall's tau over the schedule, and its p."""
    trend_p: float | None
    effective: float | None
    """Effective sample size: the number of independent measurements that all measurements are worth."""
    effective_is_bound: bool
    """Whether ``effective`` is only an upper bound."""


@dataclass(frozen=True)
class Components:
    """Variance components, and the recommended numbers of executions and measurements."""

    sd_between: float | None
    """Standard deviation between executions, in the metric's unit; a negative component is set to 0."""
    sd_inside: float | None
    negative: bool
    plan: str
    """The cheapest numbers of executions and measurements for a mean within ± 1%, in words; or why they are unknown."""


@dataclass(frozen=True)
class Experiment:
    """One workload under one policy: ALLOC's four metrics, with their warnings."""

    group: str
    condition: str
    column: str
    """Name of the metric that was analysed."""
    executions: int
    fewest: int
    """Measurements of the execution with the fewest, and of the one with the most."""
    most: int
    measurements: int
    numbers: dict[str, Number]
    """Metric (mean-response-time, nondeterminism-in-measurement …) → its number."""
    group_size: int
    """Group size of the impact factor; 0 where there is none."""
    null_impact: float | None
    """The impact factor to expect where executions do not differ."""
    log_impact: Number | None
    """The geometric mean of the impact factor's ratios."""
    null_log_impact: float | None
    dependence: Dependence | None
    components: Components | None
    doubts: tuple[IntervalWarning, ...]
    left_out: tuple[str, ...]
    """Executions and values that are in no number, with reasons."""

    @property
    def repeated(self) -> bool:
        """Whether some execution has several measurements."""
        return self.most > 1


@dataclass(frozen=True)
class Share:
    """The percentages of groups in which each condition has rank 1, 2 …, at one threshold."""

    threshold: float
    percent: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Pair:
    """Comparison of two conditions alone: percentages of the groups that have both."""

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
    """Number of groups without a ratio."""


@dataclass(frozen=True)
class Ranking:
    """One metric over the groups of a family."""

    metric: str
    groups: int
    left_out: dict[str, str]
    """Group → the reason."""
    shares: tuple[Share, ...]
    pairs: tuple[Pair, ...]
    overheads: tuple[Overhead, ...]
    ranks: dict[str, dict[str, int]]
    """Group → condition → rank, at threshold 0."""
    reason: str = ""
    """Why nothing is compared."""

    def share(self, threshold: float) -> Share:
        return next(one for one in self.shares if one.threshold == threshold)


@dataclass(frozen=True)
class Balance:
    """Whether every configuration is represented equally."""

    levels: dict[str, dict[str, int]]
    unbalanced: tuple[str, ...]
    incomplete: dict[str, tuple[str, ...]]
    missing: int
    """Number of combinations of levels that no group has."""


@dataclass(frozen=True)
class Family:
    """Groups with the same conditions and the same shape of data, so that percentages can summarise them."""

    repeated: bool
    """Whether executions have several measurements (ALLOC's non-Csibe benchmarks) or one (Csibe)."""
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
    """The distributions of impact factors: ALLOC's Figure 9."""

    group_size: int
    """Group size of all its impact factors: factors of different group sizes cannot be compared."""
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Correlated:
    """Correlation of times with cache misses over the executions of one condition."""

    condition: str
    n: int
    pearson: float | None
    bootstrap: Number
    fisher: Number
    spearman: float | None
    reason: str = ""


@dataclass(frozen=True)
class Misses:
    """Time and misses of one group: means by condition, normalized as in ALLOC's Figure 10, and correlations within
    conditions.
    """

    group: str
    all_differ: bool
    """Whether the mean times of all conditions differ: ALLOC's criterion for showing a group."""
    conditions: tuple[str, ...]
    time: tuple[float, ...]
    misses: tuple[float, ...]
    normalized_time: tuple[float, ...]
    normalized_misses: tuple[float, ...]
    within: tuple[Correlated, ...]


@dataclass(frozen=True)
class MissesPart:
    """The data of ALLOC's Figure 10, or why it cannot be drawn."""

    counter: str | None
    label: str
    groups: tuple[Misses, ...]
    reason: str = ""


@dataclass(frozen=True)
class TraceExecution:
    """One execution in a plot: its measurements in order, thinned evenly where there are many."""

    run: int
    """The execution's place among those of its condition."""
    count: int
    low: float
    high: float
    mean: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class Trace:
    """The data of ALLOC's Figure 1 for one group."""

    group: str
    column: str
    step: int
    """``values`` has every ``step``-th measurement; lows, highs and means are of all."""
    executions: dict[str, tuple[TraceExecution, ...]]
    """Condition → its executions."""


@dataclass(frozen=True)
class NondeterminismPart:
    """The part of a report on non-determinism."""

    level: float
    draws: int
    """Number of ratios of which each impact factor is the mean."""
    seed: int
    speed: str
    """A sentence on speed for the first screen; empty where there is nothing to rank."""
    steadiness: str
    experiments: tuple[Experiment, ...]
    families: tuple[Family, ...]
    distribution: Distribution | None
    misses: MissesPart
    traces: tuple[Trace, ...]
    untraced: int
    """Number of groups with repeated measurements that are not in ``traces``."""
    false_alarms: float
    """Expected number of doubts that the diagnostics raise by chance alone."""
    refused: dict[str, str] = field(default_factory=dict)
    """Condition whose data cannot be used at all → the reason."""

    def experiment(self, group: str, condition: str) -> Experiment | None:
        return next((one for one in self.experiments if (one.group, one.condition) == (group, condition)), None)
