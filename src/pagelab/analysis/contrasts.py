"""Compares every policy with the baseline of its workload: test, Holm, shift, relative effect, spread."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from pagelab.analysis import sentences
from pagelab.analysis.answer import rejects
from pagelab.analysis.model import (
    Condition,
    Contrast,
    Design,
    Execution,
    Metric,
    Spread,
    Summary,
    Verdict,
)
from pagelab.analysis.planned_test import Tested, counts_as_slowest, of_test, paired, test_of
from pagelab.analysis.summaries import interval_of, values_of
from pagelab.stats import Interval as Ends
from pagelab.stats import (
    NotAchievable,
    Pairs,
    StatsRefusedError,
    blocks_pay,
    hodges_lehmann,
    holm,
    paired_ratio,
    paired_shift,
    relative_effect,
    summarize,
)


@dataclass(frozen=True)
class _Pair:
    condition: Condition
    baseline: Condition
    metric: Metric
    planned: bool
    primary: bool


def contrasts_of(
    design: Design, executions: tuple[Execution, ...], metrics: tuple[Metric, ...]
) -> tuple[Contrast, ...]:
    """Planned contrasts first, in the order of the design, with Holm over all of them; then the secondary metrics.

    In a study that is answered as a set, or without tests, no contrast is planned: those on the primary metric are
    described like the others.

    A planned contrast of a condition without executions keeps its place in Holm's family; only conditions that were
    left out on this machine before the study began are not in the family.
    """
    pairs = list(_pairs(design, metrics))
    found = [_contrast(pair, executions, design) for pair in pairs]
    planned = [c for c in found if c.planned]
    if planned:
        looked = [None if c.p is None else min(1.0, c.p * design.p_factor) for c in planned]
        adjusted = holm(looked, alpha=_alpha(design.level))
        planned = [replace(c, p_holm=p) for c, p in zip(planned, adjusted.adjusted, strict=True)]
    left = len(planned) - sum(c.p_holm is not None and rejects(c.p_holm, _alpha(design.level)) for c in planned)
    family = sentences.Family(len(planned), left)
    return tuple(_judged(c, design, metrics, family) for c in planned + [c for c in found if not c.planned])


def _alpha(level: float) -> float:
    return round(1 - level, 12)


def _pairs(design: Design, metrics: tuple[Metric, ...]) -> list[_Pair]:
    known = {m.name: m for m in metrics}
    pairs = []
    for condition in design.conditions:
        baseline = next((c for c in design.conditions if c.workload == condition.workload and c.is_baseline), None)
        if condition.is_baseline or baseline is None or condition.left_out or baseline.left_out:
            continue
        primary = design.primaries.get(condition.workload, design.primary)
        planned = design.answer == "each" and design.tested
        pairs.append(_Pair(condition, baseline, known[primary], planned, primary=True))
        pairs += [_Pair(condition, baseline, m, planned=False, primary=False) for m in metrics if m.name != primary]
    return [p for p in pairs if p.planned] + [p for p in pairs if not p.planned]


def _contrast(pair: _Pair, executions: tuple[Execution, ...], design: Design) -> Contrast:
    x = values_of(executions, pair.condition.id, pair.metric.name)
    y = values_of(executions, pair.baseline.id, pair.metric.name)
    late = _timed_out(pair, pair.condition, executions), _timed_out(pair, pair.baseline, executions)
    empty = _untested(pair, x, y, late)
    test = _test(pair, executions, design) if pair.planned else None
    if test:
        empty = replace(
            empty,
            w=test.w,
            w_expected=test.w_expected,
            p=test.p,
            p_method=test.p_method,
            ties=test.ties,
            smallest_p=test.smallest_p,
            untested=test.untested,
            pairs_tested=test.pairs,
        )
    if not x or not y:
        return empty
    size = _within_pairs(pair, executions, design) if design.test == "pairs" else _over_all(x, y, design.interval_level)
    if size is None:
        return replace(empty, note="no block has executions of both")
    stopped = design.precision_stop
    interval, note = interval_of(size.shift.shown(stopped=stopped))
    relative = size.ratio
    slowest = [inf] * late[0], [inf] * late[1]
    pay = blocks_pay(size.pairs) if size.pairs else None
    return replace(
        empty,
        ties=test.ties if test else size.ties,
        pairs=len(size.pairs) if size.pairs else None,
        narrower=pay.narrower if pay else None,
        shift=size.shift.estimate,
        shift_interval=interval,
        relative=relative.estimate / 100 if relative else None,
        relative_interval=interval_of(relative.shown(stopped=stopped), 0.01)[0] if relative else None,
        shift_any_shape=interval_of(size.shift.any_shape)[0],
        relative_any_shape=interval_of(relative.any_shape, 0.01)[0] if relative else None,
        separated=max(x + slowest[0]) < min(y) or min(x) > max(y + slowest[1]),
        note=note or size.why,
    )


@dataclass(frozen=True)
class _Estimate:
    estimate: float
    interval: Ends | NotAchievable
    any_shape: Ends | NotAchievable

    def shown(self, *, stopped: bool) -> Ends | NotAchievable:
        """The interval to report: in a study with a precision stop the one that its looks judged (docs/method.md)."""
        return self.any_shape if stopped else self.interval


@dataclass(frozen=True)
class Size:
    """The size of a difference, in the metric's unit and in percent."""

    shift: _Estimate
    ratio: _Estimate | None
    why: str
    """Why there is no percentage."""
    ties: bool
    pairs: Pairs | None = None


def _over_all(x: list[float], y: list[float], level: float) -> Size:
    shift = hodges_lehmann(x, y, level=level)
    absolute = _Estimate(shift.estimate, shift.interval, shift.any_shape)
    try:
        ratio = relative_effect(x, y, level=level)
    except StatsRefusedError as error:
        return Size(absolute, None, str(error), shift.ties)
    return Size(absolute, _Estimate(ratio.percent, ratio.interval, ratio.any_shape), "", shift.ties)


def _within_pairs(pair: _Pair, executions: tuple[Execution, ...], design: Design) -> Size | None:
    """The size within the pairs in which both executions finished; None where there is no such pair."""
    name, level = pair.metric.name, design.interval_level
    sides = [
        [e for e in executions if e.condition == condition.id and e.analysed and name in e.values]
        for condition in (pair.condition, pair.baseline)
    ]
    pairs = paired(sides[0], sides[1], name)
    return None if pairs is None else size_within(pairs, level)


def size_within(pairs: Pairs, level: float) -> Size:
    """The size within pairs of executions that finished."""
    shift = paired_shift(pairs.apart("difference"), level=level)
    absolute = _Estimate(shift.estimate, shift.interval, shift.any_shape)
    sizes = np.abs(pairs.apart())
    ties = bool(np.unique(sizes).size < sizes.size)
    if pairs.scale == "difference":
        return Size(absolute, None, "a value is zero or negative: no percentage exists", ties, pairs)
    ratio = paired_ratio(pairs, level=level)
    return Size(absolute, _Estimate(ratio.percent, ratio.interval, ratio.any_shape), "", ties, pairs)


def _test(pair: _Pair, executions: tuple[Execution, ...], design: Design) -> Tested | None:
    groups = [
        of_test((e for e in executions if e.condition == condition.id), pair.metric)
        for condition in (pair.condition, pair.baseline)
    ]
    return test_of(groups[0], groups[1], pair.metric.name, test=design.test)


def _timed_out(pair: _Pair, condition: Condition, executions: tuple[Execution, ...]) -> int:
    """Number of executions that the time limit ended, if the metric is the primary one and a time."""
    if not pair.primary:
        return 0
    return sum(e.condition == condition.id and counts_as_slowest(e, pair.metric) for e in executions)


def _untested(pair: _Pair, x: list[float], y: list[float], late: tuple[int, int]) -> Contrast:
    return Contrast(
        workload=pair.condition.workload,
        policy=pair.condition.policy,
        baseline=pair.baseline.policy,
        metric=pair.metric.name,
        planned=pair.planned,
        n=len(x),
        n_baseline=len(y),
        timed_out=late[0],
        timed_out_baseline=late[1],
        median=summarize(x).median if x else None,
        median_baseline=summarize(y).median if y else None,
        w=None,
        w_expected=None,
        untested=0,
        pairs_tested=None,
        pairs=None,
        narrower=None,
        p=None,
        p_holm=None,
        p_method=None,
        ties=False,
        smallest_p=None,
        shift=None,
        shift_interval=None,
        relative=None,
        relative_interval=None,
        shift_any_shape=None,
        relative_any_shape=None,
        separated=False,
        verdict="not-testable",
        sentence="",
    )


def _judged(contrast: Contrast, design: Design, metrics: tuple[Metric, ...], family: sentences.Family) -> Contrast:
    metric = next(m for m in metrics if m.name == contrast.metric)
    judged = replace(contrast, verdict=_verdict(contrast, _alpha(design.level)))
    return replace(judged, sentence=sentences.contrast(judged, metric, design, family))


def _verdict(contrast: Contrast, alpha: float) -> Verdict:
    if not contrast.planned:
        return "descriptive"
    if contrast.p_holm is None:
        return "not-testable"
    if not rejects(contrast.p_holm, alpha):
        return "no-difference"
    # The direction of the test: with ties, the shift can be 0 although the ranks differ.
    return "lower" if (contrast.w or 0.0) < (contrast.w_expected or 0.0) else "higher"


def spreads_of(design: Design, summaries: tuple[Summary, ...], contrasts: tuple[Contrast, ...]) -> tuple[Spread, ...]:
    """The spread of each policy and of its baseline, on the primary metrics. Descriptive."""
    by_key = {(s.condition, s.metric): s for s in summaries}
    ids = {(c.workload, c.policy): c.id for c in design.conditions}
    found = []
    for c in contrasts:
        mine = by_key.get((ids[c.workload, c.policy], c.metric))
        base = by_key.get((ids[c.workload, c.baseline], c.metric))
        if c.metric != design.primaries.get(c.workload, design.primary) or mine is None or base is None:
            continue
        spread = Spread(
            workload=c.workload,
            policy=c.policy,
            baseline=c.baseline,
            metric=c.metric,
            iqr_share=_share(mine.hinge_high - mine.hinge_low, mine),
            iqr_share_baseline=_share(base.hinge_high - base.hinge_low, base),
            range_share=_share(mine.maximum - mine.minimum, mine),
            range_share_baseline=_share(base.maximum - base.minimum, base),
            cv=mine.cv,
            cv_baseline=base.cv,
            sentence="",
        )
        found.append(replace(spread, sentence=sentences.spread(spread, min(mine.n, base.n))))
    return tuple(found)


def _share(width: float, summary: Summary) -> float | None:
    return width / summary.median if summary.median > 0 and summary.n > 1 else None
