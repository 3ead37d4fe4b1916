"""The `Analysis` of a study: plain frozen values for reports, exports and notebooks.

An `Analysis` is built from a store by `pagelab.analysis.analyse` and is a pure function of it: the same
store gives the same value, byte for byte when written as JSON. It holds no NaN and no infinity; what could not be
computed is ``None`` and a sentence nearby says why. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from pagelab.analysis.frames import FramesPart
from pagelab.analysis.limits import Limit
from pagelab.analysis.nondeterminism_model import NondeterminismPart

SCHEMA = "pagelab.analysis/1"

Verdict = Literal["lower", "higher", "no-difference", "not-testable", "descriptive"]
"""Of a policy against its baseline; ``lower`` and ``higher`` only when Holm's p is within the level. Contrasts on
secondary metrics are ``descriptive``."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval. ``level`` is the requested one; ``achieved`` is the exact coverage of the orders used."""

    low: float
    high: float
    level: float
    achieved: float | None = None


@dataclass(frozen=True)
class Metric:
    """Something every execution has one value of."""

    name: str
    """Column: ``wall_s``, ``counter.tlb.walks``, or ``measure.<name>`` (the execution's mean)."""
    label: str
    unit: str
    """``s``, ``B``, ``1`` (a count), or what the program reported."""
    kind: Literal["time", "memory", "count", "counter", "measurement"]
    description: str = ""


@dataclass(frozen=True)
class Condition:
    """One cell of the design: a workload under a policy."""

    id: str
    workload: str
    policy: str
    is_baseline: bool
    planned: int | None
    """Executions planned (for a precision stop, at most); ``None`` for imported data and what was left out."""
    finished: int
    """Executions with a record, warm-ups not counted."""
    analysed: int
    """Of these, those with a time: status ``ok``."""
    short_placed: int
    """Analysed, but with a warning ``placement-shortfall``."""
    failures: dict[str, int] = field(default_factory=dict)
    """Count by status, of executions that have no time to analyse."""
    warmups: int = 0
    left_out: str | None = None
    """Why this machine did not run it."""


@dataclass(frozen=True)
class Design:
    name: str
    question: str
    question_given: bool
    """False when the question was written by pagelab because the study does not state one."""
    workloads: tuple[str, ...]
    policies: tuple[str, ...]
    conditions: tuple[Condition, ...]
    baselines: dict[str, str]
    """Workload → the policy that the others are compared with."""
    executions: int | None
    blocks: int | None
    seed: int | None
    schedule: str
    level: float
    """1 − level is the chance of even one false difference that the tests allow."""
    test: Literal["pairs", "rank-sum", "stratified"]
    """``pairs``: sizes and test within the blocks of the schedule; ``stratified``: the test alone; ``rank-sum``."""
    answer: Literal["each", "set"]
    """What is answered: every program by itself, or the programs as a set."""
    tested: bool
    """False: no result could reach the level with so few executions or programs; everything is described."""
    drop_first: dict[str, int]
    """Workload → warm-up measurements at the start of each execution, in no mean; only those that have any."""
    interval_level: float
    """Of every interval shown: ``level``, or higher in a study with a precision stop, or with executions added
    (docs/method: precision stop, adding executions)."""
    p_factor: int
    """By which every p is multiplied before Holm: the looks of a precision stop; twice as much for each time that
    executions were added to a finished study; 1 for a fixed number."""
    earlier_looks: tuple[int, ...]
    """Executions with which the study had come to its end before more were added."""
    primary: str
    """Name of the study's primary metric."""
    primaries: dict[str, str]
    """Workload → name of its primary metric, where a workload has its own."""
    stop: str
    """In words: how the number of executions was decided."""
    precision_stop: bool
    precision_missed: bool
    """The study ended at the maximum of its precision stop, with intervals wider than the target."""
    looks: tuple[str, ...]
    """What each look of a precision stop decided."""
    imported_from: str | None
    complete: bool
    commands: dict[str, str]
    """Workload → its command line, quoted for a shell; empty for imported data."""
    policy_texts: dict[str, str]
    """Policy → its TOML as it was run; empty for imported data."""
    notes: tuple[str, ...] = ()
    """What is missing of the primary metrics."""
    remarks: tuple[str, ...] = ()
    """What is missing of other metrics: the least of the caveats."""


@dataclass(frozen=True)
class Summary:
    """One condition, one metric: the unit is the execution."""

    condition: str
    metric: str
    n: int
    minimum: float
    hinge_low: float
    median: float
    hinge_high: float
    maximum: float
    mean: float
    sd: float | None
    """Sample standard deviation (n − 1); ``None`` for n = 1."""
    cv: float | None
    median_interval: Interval | None
    median_note: str = ""
    """Why there is no interval."""
    more: dict[str, float | None] = field(default_factory=dict)
    """Further statistics, by the names of :data:`pagelab.analysis.summaries.STATISTICS`."""


@dataclass(frozen=True)
class Contrast:
    """A policy against the baseline of its workload, on one metric."""

    workload: str
    policy: str
    baseline: str
    metric: str
    planned: bool
    """Planned contrasts on the primary metric share Holm's correction; all others are descriptive."""
    n: int
    n_baseline: int
    timed_out: int
    """Executions of the policy that the time limit ended: slowest in the test on wall time, absent from the sizes."""
    timed_out_baseline: int
    median: float | None
    median_baseline: float | None
    w: float | None
    """R's W: the policy's rank sum less n(n+1)/2; n is of the executions that were tested."""
    w_expected: float | None
    """Its mean where the policy makes no difference."""
    untested: int
    """Executions that a test within blocks left out, since their block holds one of the two conditions only."""
    pairs: int | None
    """Blocks in which both finished, which the sizes are of; None where blocks are ignored."""
    narrower: float | None
    """Spread of the pairs' differences over that of two executions of different blocks: below 1 where blocks pay."""
    p: float | None
    """Two-sided, of this contrast alone."""
    p_holm: float | None
    """Compared with 1 − level: p, times the looks of a precision stop, after Holm over the planned contrasts."""
    p_method: str | None
    """``exact``, or ``normal`` where counting would take too long."""
    ties: bool
    smallest_p: float | None
    """The smallest two-sided p these sample sizes can give, before Holm."""
    shift: float | None
    """Hodges–Lehmann estimate, policy − baseline, in the metric's unit."""
    shift_interval: Interval | None
    relative: float | None
    """Median of all pairwise ratios policy / baseline, less 1 (a fraction of the baseline)."""
    relative_interval: Interval | None
    shift_any_shape: Interval | None
    """Never shorter than ``shift_interval``: for a policy that changes the shape of the distribution too."""
    relative_any_shape: Interval | None
    separated: bool
    """Every execution of one lies beyond every execution of the other."""
    verdict: Verdict
    sentence: str
    note: str = ""


@dataclass(frozen=True)
class Spread:
    """The scatter of a policy's executions, and of its baseline's. Descriptive: no test."""

    workload: str
    policy: str
    baseline: str
    metric: str
    iqr_share: float | None
    """(upper hinge − lower hinge) / median."""
    iqr_share_baseline: float | None
    range_share: float | None
    """(maximum − minimum) / median."""
    range_share_baseline: float | None
    cv: float | None
    cv_baseline: float | None
    sentence: str


@dataclass(frozen=True)
class SetContrast:
    """A policy against the baseline over the programs of a set: the geometric mean of the programs' ratios."""

    policy: str
    baseline: str
    quantity: Literal["time", "spread"]
    """``time``: on each program's primary metric; ``spread``: of its executions, by coefficients of variation."""
    programs: int
    """Programs that have a ratio: with their configurations, where they have several, as one."""
    left_out: dict[str, str]
    """Programs that have none, with the reason."""
    ratio: float | None
    interval: Interval | None
    """Of the ratio, unadjusted."""
    p: float | None
    p_holm: float | None
    """After Holm over all comparisons of the set."""
    p_method: str | None
    """``exact``, or ``drawn`` of more than 14 programs."""
    below: int
    """Programs whose own ratio is below 1: described, not judged."""
    above: int
    verdict: Verdict


@dataclass(frozen=True)
class SetProgram:
    """One program's part under one policy: described, not tested."""

    program: str
    policy: str
    baseline: str
    configurations: int
    time: float | None
    """Ratio to the baseline, the geometric mean over its configurations."""
    spread: float | None


@dataclass(frozen=True)
class SetPart:
    """A study that is answered as a set."""

    is_time: bool
    """Every primary metric is a time: ratios above 1 are slower."""
    contrasts: tuple[SetContrast, ...]
    """By policy, time before spread: they share Holm's correction."""
    programs: tuple[SetProgram, ...]


@dataclass(frozen=True)
class WarningGroup:
    """All warnings of one kind, severity and message shape, with the executions they came from."""

    kind: str
    severity: str
    message: str
    """The first message in schedule order, verbatim."""
    count: int
    executions: int
    conditions: tuple[str, ...]
    different_messages: int
    run_ids: tuple[int, ...]
    objects: tuple[dict[str, Any], ...]
    """Distinct typed warnings, as they stand in the records (at most 20)."""


@dataclass(frozen=True)
class Failure:
    run_id: int
    position: int
    condition: str
    execution: int
    warmup: bool
    status: str
    message: str


@dataclass(frozen=True)
class Execution:
    """One execution, in schedule order, with everything the plots need."""

    run_id: int
    position: int
    block: int | None
    workload: str
    policy: str
    condition: str
    execution: int
    warmup: bool
    status: str
    analysed: bool
    short_placed: bool
    values: dict[str, float]
    """Metric name → value; what was not measured is absent."""


@dataclass(frozen=True)
class MeasurementSummary:
    """A measurement that the program reported, for one condition."""

    condition: str
    name: str
    unit: str
    executions: int
    measurements: int
    median_of_means: float
    means_interval: Interval | None
    sd_between: float | None
    """Standard deviation of the executions' means."""
    sd_within: float | None
    """Pooled standard deviation inside executions."""


@dataclass(frozen=True)
class Difference:
    """A fact about the machine or its settings that was not the same in all executions."""

    key: str
    values: tuple[tuple[str, int], ...]
    """(value, number of executions), most frequent first."""
    executions_without: int


@dataclass(frozen=True)
class Fact:
    group: str
    key: str
    value: str


@dataclass(frozen=True)
class Machine:
    known: bool
    facts: tuple[Fact, ...]
    differences: tuple[Difference, ...]
    """What changed while the study ran; empty when nothing did."""


@dataclass(frozen=True)
class Drift:
    """Order effects: each execution's primary metric over the median of its condition, along the schedule."""

    executions: int
    first_third: float | None
    last_third: float | None
    """Medians of that ratio in the first and the last third of the schedule."""
    tau: float | None
    """Kendall's tau-b of ratio and position."""
    sentence: str


@dataclass(frozen=True)
class Analysis:
    schema: str
    created_by: str
    design: Design
    headline: str
    """The answer in one sentence."""
    answers: tuple[str, ...]
    """One sentence per planned contrast, in the order of the design; of a set one per policy."""
    caveats: tuple[str, ...]
    """What a reader must know before believing the answer."""
    metrics: tuple[Metric, ...]
    executions: tuple[Execution, ...]
    summaries: tuple[Summary, ...]
    contrasts: tuple[Contrast, ...]
    spreads: tuple[Spread, ...]
    placements: tuple[PlacementSummary, ...]
    measurements: tuple[MeasurementSummary, ...]
    failures: tuple[Failure, ...]
    warnings: tuple[WarningGroup, ...]
    drift: Drift
    machine: Machine
    frames: FramesPart | None = None
    """None for a study in which no policy placed frames."""
    nondeterminism: NondeterminismPart | None = None
    """None for a study without a value of its metric."""
    over_set: SetPart | None = None
    """None for a study that tests every program by itself."""
    limits: tuple[Limit, ...] = ()
    """Of two commands or settings that were compared with limits."""

    def metric(self, name: str) -> Metric:
        """The metric called *name*. KeyError when the study has none."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise KeyError(name)

    @property
    def primary(self) -> Metric:
        return self.metric(self.design.primary)

    def primary_of(self, workload: str) -> Metric:
        """The metric that the planned contrasts of *workload* are on."""
        return self.metric(self.design.primaries.get(workload, self.design.primary))

    def condition(self, condition_id: str) -> Condition:
        """The condition with this id. KeyError when there is none."""
        for condition in self.design.conditions:
            if condition.id == condition_id:
                return condition
        raise KeyError(condition_id)

    def summary(self, condition_id: str, metric: str) -> Summary | None:
        return self._summaries.get((condition_id, metric))

    @cached_property
    def _summaries(self) -> dict[tuple[str, str], Summary]:
        return {(one.condition, one.metric): one for one in self.summaries}

    def ratio_to_median(self, run: Execution) -> float | None:
        """Primary metric of *run* over the median of its condition; None if undefined."""
        metric = self.primary_of(run.workload).name
        summary = self.summary(run.condition, metric)
        if not run.analysed or summary is None or summary.median <= 0 or metric not in run.values:
            return None
        return run.values[metric] / summary.median

    def planned(self) -> tuple[Contrast, ...]:
        """The contrasts that share Holm's correction; none in a study that is answered as a set, or without tests."""
        return tuple(c for c in self.contrasts if c.planned)

    def compared(self) -> tuple[Contrast, ...]:
        """What the answer is about: :meth:`planned`, or without tests the same, described; none of a set."""
        return () if self.over_set is not None else self.on_primary()

    def on_primary(self) -> tuple[Contrast, ...]:
        """The contrasts on the primary metric of their workload, planned or described."""
        return tuple(c for c in self.contrasts if c.metric == self.primary_of(c.workload).name)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: dicts, lists, strings, finite numbers and ``None``."""
        return asdict(self)


@dataclass(frozen=True)
class SizeShare:
    """Median over executions of the bytes that pages of one size map."""

    page_bytes: int
    bytes: float


@dataclass(frozen=True)
class PlacementSummary:
    """Of one condition, over its executions."""

    condition: str
    asked: str
    """In words: the sizes that the policy named, by region."""
    by_size: tuple[SizeShare, ...]
    """Of the memory whose placement was measured."""
    resident_bytes: float
    """Median over executions of that."""
    peak_bytes: float
    """Median of the largest process's peak: memory given back unseen is in this and not in ``by_size``."""
    tiles_asked: int | None
    """Whole, touched tiles that a policy named, summed over executions."""
    tiles_got: int | None
    fraction_least: float | None
    """The worst execution's share."""
    fraction_median: float | None
    short_runs: int
    executions: int
