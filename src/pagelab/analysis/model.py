"""The `Analysis` of a study: plain frozen values for reports, exports and notebooks.

`pagelab.analysis.analyse` builds an `Analysis` from a study's data, as a pure function: the same store gives the same
value, byte for byte when written as JSON. It holds no NaN and no infinity; a value that could not be computed is
``None``, and a sentence beside it gives the reason. Times are in seconds, sizes in bytes.
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
"""Verdict on a policy against its baseline; ``lower`` and ``higher`` only where Holm's p is within the level. Contrasts
on secondary metrics are ``descriptive``."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval. ``level`` is the requested one; ``achieved`` is the coverage of the order statistics."""

    low: float
    high: float
    level: float
    achieved: float | None = None


@dataclass(frozen=True)
class Metric:
    """A quantity of which each execution has one value."""

    name: str
    """Its column: ``wall_s``, ``counter.tlb.walks``, or ``measure.<name>`` (the execution's mean)."""
    label: str
    unit: str
    """``s``, ``B``, ``1`` (a count), or the unit that the program reported."""
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
    """Executions planned (with a precision stop, at most); ``None`` for imported data and for a condition left out."""
    finished: int
    """Executions with a record, without warm-ups."""
    analysed: int
    """Finished executions that have a time: status ``ok``."""
    short_placed: int
    """Analysed executions with a warning ``placement-shortfall``."""
    failures: dict[str, int] = field(default_factory=dict)
    """Status → number of executions that have no time to analyse."""
    warmups: int = 0
    left_out: str | None = None
    """Why the condition was not run on this machine."""


@dataclass(frozen=True)
class Design:
    name: str
    question: str
    question_given: bool
    """False where pagelab wrote the question because the study does not state one."""
    workloads: tuple[str, ...]
    policies: tuple[str, ...]
    conditions: tuple[Condition, ...]
    baselines: dict[str, str]
    """Workload → the policy with which the others are compared."""
    executions: int | None
    blocks: int | None
    seed: int | None
    schedule: str
    level: float
    """1 − level is the probability, which the tests allow, of at least one false difference."""
    test: Literal["pairs", "rank-sum", "stratified"]
    """``pairs``: sizes and test are within the blocks of the schedule; ``stratified``: only the test is; ``rank-sum``:
    neither."""
    answer: Literal["each", "set"]
    """What the study tests: every program by itself, or the programs as a set."""
    tested: bool
    """False: with so few executions or programs no result could reach the level, so everything is only described."""
    drop_first: dict[str, int]
    """Workload → number of warm-up measurements at the start of each execution, which no mean includes; only workloads
    that have any."""
    interval_level: float
    """Level of every interval shown: ``level``, or higher in a study with a precision stop or with added executions
    (docs/method: precision stop, adding executions)."""
    p_factor: int
    """Factor on every p before Holm: the number of looks of a precision stop, else 1; doubled for each time that
    executions were added to a finished study."""
    earlier_looks: tuple[int, ...]
    """Numbers of executions with which the study had ended before more were added."""
    primary: str
    """Name of the study's primary metric."""
    primaries: dict[str, str]
    """Workload → name of its primary metric."""
    stop: str
    """How the number of executions was decided, in words."""
    precision_stop: bool
    precision_missed: bool
    """Whether the study ended at the maximum of its precision stop, with intervals wider than the target."""
    looks: tuple[str, ...]
    """The decision of each look of a precision stop, in words."""
    imported_from: str | None
    complete: bool
    commands: dict[str, str]
    """Workload → its command line, quoted for a shell; empty for imported data."""
    policy_texts: dict[str, str]
    """Policy → its TOML as it was used; empty for imported data."""
    notes: tuple[str, ...] = ()
    """Sentences that come first among the caveats, such as on missing values of the primary metrics."""
    remarks: tuple[str, ...] = ()
    """Sentences on missing values of other metrics, last among the caveats."""


@dataclass(frozen=True)
class Summary:
    """Summary of one metric in one condition; the unit of analysis is the execution."""

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
    """Whether the contrast is planned (on the primary metric) and shares Holm's correction; all others are
    descriptive."""
    n: int
    n_baseline: int
    timed_out: int
    """Executions of the policy that the time limit ended: a test of times counts them as slowest; sizes omit them."""
    timed_out_baseline: int
    median: float | None
    median_baseline: float | None
    w: float | None
    """R's W: the policy's rank sum less n(n+1)/2, where n counts the tested executions."""
    w_expected: float | None
    """The mean of W where the policy makes no difference."""
    untested: int
    """Executions that a test within blocks leaves out, since their block holds only one of the two conditions."""
    pairs_tested: int | None
    """Blocks in which both conditions finished or timed out; None where blocks are ignored, or nothing is tested."""
    pairs: int | None
    """Blocks in which both conditions finished, from which sizes are computed; None where blocks are ignored."""
    narrower: float | None
    """Spread of the differences within pairs, divided by that between executions of different blocks: below 1 where
    blocks help."""
    p: float | None
    """Two-sided p of this contrast alone."""
    p_holm: float | None
    """p times ``Design.p_factor``, after Holm over the planned contrasts; it is compared with 1 − level."""
    p_method: str | None
    """``exact``, or ``normal`` where counting would take too long."""
    ties: bool
    smallest_p: float | None
    """The smallest two-sided p that these sample sizes can give, before Holm."""
    shift: float | None
    """Hodges–Lehmann estimate, policy − baseline, in the metric's unit."""
    shift_interval: Interval | None
    relative: float | None
    """Median of all pairwise ratios policy / baseline, less 1 (a fraction of the baseline)."""
    relative_interval: Interval | None
    shift_any_shape: Interval | None
    """Interval for a policy that also changes the shape of the distribution; never shorter than ``shift_interval``."""
    relative_any_shape: Interval | None
    separated: bool
    """Whether all executions of one condition lie on the same side of all executions of the other."""
    verdict: Verdict
    sentence: str
    note: str = ""


@dataclass(frozen=True)
class Spread:
    """The scatter of a policy's executions and of its baseline's. Descriptive: no test."""

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
    """``time``: each program's primary metric; ``spread``: coefficient of variation of each program's executions."""
    programs: int
    """Number of programs that have a ratio; the configurations of one program count as one."""
    left_out: dict[str, str]
    """Program without a ratio → the reason."""
    ratio: float | None
    interval: Interval | None
    """Unadjusted interval of the ratio."""
    p: float | None
    p_holm: float | None
    """p after Holm over all comparisons of the set."""
    p_method: str | None
    """``exact``, or ``drawn`` for more than 14 programs."""
    below: int
    """Number of programs whose own ratio is below 1: described, not tested."""
    above: int
    verdict: Verdict
    timed_out: int = 0
    """Executions under the policy that timed out: they are in no ratio, so nothing in the policy's favour is said."""
    timed_out_baseline: int = 0


@dataclass(frozen=True)
class SetProgram:
    """One program's ratios under one policy: described, not tested."""

    program: str
    policy: str
    baseline: str
    configurations: int
    time: float | None
    """Ratio to the baseline, as geometric mean over the program's configurations."""
    spread: float | None


@dataclass(frozen=True)
class SetPart:
    """The results of a study that is answered as a set."""

    is_time: bool
    """Whether every primary metric is a time, so that a ratio above 1 is slower."""
    contrasts: tuple[SetContrast, ...]
    """Contrasts by policy, time before spread; they share Holm's correction."""
    programs: tuple[SetProgram, ...]


@dataclass(frozen=True)
class WarningGroup:
    """All warnings of one kind, severity and message shape, with the executions from which they came."""

    kind: str
    severity: str
    message: str
    """The first message in schedule order, unchanged."""
    count: int
    executions: int
    conditions: tuple[str, ...]
    different_messages: int
    run_ids: tuple[int, ...]
    objects: tuple[dict[str, Any], ...]
    """Distinct typed warnings, as stored in the records (at most 20)."""


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
    """One execution, with everything that the plots need; executions are in schedule order."""

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
    """Metric name → value; metrics that were not measured are absent."""


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
    """Facts that changed while the study ran; empty where none did."""


@dataclass(frozen=True)
class Drift:
    """Order effects in the schedule: each execution's primary metric, divided by the median of its condition."""

    executions: int
    first_third: float | None
    last_third: float | None
    """This and the attribute before it: medians of that ratio in the last and the first third of the schedule."""
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
    """Sentences that a reader must know before believing the answer."""
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
    """The limits where two commands or settings were compared with limits."""

    def metric(self, name: str) -> Metric:
        """The metric called *name*. Raises KeyError where the study has none."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise KeyError(name)

    @property
    def primary(self) -> Metric:
        return self.metric(self.design.primary)

    def primary_of(self, workload: str) -> Metric:
        """The metric of the planned contrasts of *workload*."""
        return self.metric(self.design.primaries.get(workload, self.design.primary))

    def condition(self, condition_id: str) -> Condition:
        """The condition with this id. Raises KeyError where there is none."""
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
        """Primary metric of *run* divided by the median of its condition; None where undefined."""
        metric = self.primary_of(run.workload).name
        summary = self.summary(run.condition, metric)
        if not run.analysed or summary is None or summary.median <= 0 or metric not in run.values:
            return None
        return run.values[metric] / summary.median

    def planned(self) -> tuple[Contrast, ...]:
        """The contrasts that share Holm's correction; none in a study that is answered as a set, or without tests."""
        return tuple(c for c in self.contrasts if c.planned)

    def compared(self) -> tuple[Contrast, ...]:
        """The contrasts of the answer: :meth:`planned`; without tests the same contrasts, described; none for a set."""
        return () if self.over_set is not None else self.on_primary()

    def on_primary(self) -> tuple[Contrast, ...]:
        """The contrasts on the primary metric of their workload, planned or described."""
        return tuple(c for c in self.contrasts if c.metric == self.primary_of(c.workload).name)

    def to_dict(self) -> dict[str, Any]:
        """The analysis as data for JSON: dicts, lists, strings, finite numbers and ``None``."""
        return asdict(self)


@dataclass(frozen=True)
class SizeShare:
    """The bytes that pages of one size map, as median over executions."""

    page_bytes: int
    bytes: float


@dataclass(frozen=True)
class PlacementSummary:
    """Page sizes and memory of one condition, over its executions."""

    condition: str
    asked: str
    """The page sizes that the policy requested, by region, in words."""
    by_size: tuple[SizeShare, ...]
    """Sizes of the pages in the memory whose placement was measured."""
    resident_bytes: float
    """Bytes of that memory, as median over executions."""
    peak_bytes: float
    """Median of the largest process's peak; it includes memory that was given back before placement was measured."""
    tiles_asked: int | None
    """Whole, touched tiles with a page size from the policy, summed over executions."""
    tiles_got: int | None
    fraction_least: float | None
    """The share in the worst execution."""
    fraction_median: float | None
    short_runs: int
    executions: int
