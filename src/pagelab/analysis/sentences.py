"""Writes conclusions in plain words: a difference with its interval, or the size of a change that would be found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pagelab.analysis import wording
from pagelab.analysis.answer import is_estimated, rejects, stands
from pagelab.analysis.model import Contrast, Design, Interval, Metric, Spread


@dataclass(frozen=True)
class Family:
    """The planned contrasts over which Holm corrects."""

    size: int
    undecided: int
    """Those that the tests do not reject: the least number by which Holm multiplies the p of each of them."""


def contrast(c: Contrast, metric: Metric, design: Design, family: Family) -> str:
    """One or two sentences on one contrast."""
    if c.shift is None:
        return _none_in_time(c, metric, family) if c.verdict in ("lower", "higher") else _missing(c, metric)
    if not c.planned:
        return _descriptive(c, metric)
    if c.verdict in ("lower", "higher"):
        return _found(c, metric, family)
    return _not_found(c, metric, design, family)


def _verb(c: Contrast, metric: Metric) -> str:
    lower = c.verdict == "lower"
    if metric.name == "wall_s":
        return f"{'shortens' if lower else 'lengthens'} {c.workload}"
    return f"{'lowers' if lower else 'raises'} the {metric.label} of {c.workload}"


_MANYFOLD = 2.0
"""From this relative effect on (three times as much), a factor is easier to read than a percentage."""


def _amount(c: Contrast, metric: Metric) -> str:
    """The size of a difference: ``by 38.1%``; ``89.7-fold`` for very large increases."""
    if c.relative is None:
        return f"by {wording.quantity(abs(c.shift or 0.0), metric, 3)}"
    return _relative(c.relative)


def _relative(effect: float) -> str:
    if effect >= _MANYFOLD:
        return f"{wording.digits(1 + effect)}-fold"
    return f"by {wording.percent(abs(effect), signed=False)}" if abs(effect) >= 5e-5 else "by less than 0.01%"


def _size_interval(c: Contrast, metric: Metric) -> str:
    """The interval of a found effect, as sizes without signs where all of it lies on one side of 0."""
    interval = c.relative_interval if c.relative is not None else c.shift_interval
    if interval is None:
        return f"no interval: {c.note}" if c.note else "no interval"
    name = f"{wording.level(interval.level)} interval"
    if c.relative is None:
        return f"{name} {wording.interval_quantity(interval, metric)}"
    if c.relative >= _MANYFOLD:
        return f"{name} {wording.factor(1 + interval.low, 3)}–{wording.factor(1 + interval.high, 3)}"
    low, high = sorted((abs(interval.low), abs(interval.high)))
    if interval.low * interval.high > 0:
        return f"{name} {wording.end(low, signed=False).rstrip('%')}–{wording.end(high, signed=False)}"
    return f"{name} {wording.interval_percent(interval)}"


def _p(c: Contrast, family: int) -> str:
    if c.p_holm is None:
        return "not tested"
    method = "" if c.p_method == "exact" else ", normal approximation"
    return f"{wording.p_value(c.p_holm)}{', Holm' if family > 1 else ''}{method}"


def _sized(c: Contrast) -> bool:
    """Whether the headline's rule gives a size, and ties do not make it 0."""
    size, ends = (c.relative, c.relative_interval) if c.relative is not None else (c.shift, c.shift_interval)
    made = (c.n + c.timed_out, c.n_baseline + c.timed_out_baseline)
    numbers = None if c.pairs_tested is not None else ((c.n, c.n_baseline), made)
    exists = is_estimated(c.pairs or 0, c.pairs_tested or 0, numbers)
    towards: Literal["lower", "higher"] = "lower" if c.verdict == "lower" else "higher"
    return size != 0 and stands(towards, size, ends, late=c.timed_out + c.timed_out_baseline > 0, exists=exists)


def _unsized(c: Contrast, metric: Metric, family: Family) -> str:
    lead = f"{c.policy} {_verb(c, metric)} ({_p(c, family.size)})"
    if c.timed_out or c.timed_out_baseline:
        told = "the size of the difference cannot be estimated from the executions that finished"
    elif (c.relative if c.relative is not None else c.shift) == 0:
        told = f"most differences are 0, and so is the estimate of its size ({_size_interval(c, metric)})"
    else:
        told = "its size is not known: the estimate over all executions, which ignores the blocks, points the other way"
    return f"{lead}; {told}.{_late(c)}"


def _found(c: Contrast, metric: Metric, family: Family) -> str:
    if not _sized(c):
        return _unsized(c, metric, family)
    text = f"{c.policy} {_verb(c, metric)} {_amount(c, metric)} ({_size_interval(c, metric)}, {_p(c, family.size)})"
    if c.median is not None and c.median_baseline is not None:
        medians = wording.in_one_unit([c.median_baseline, c.median], metric)
        # Where the machine drifts, the ratio within pairs differs from the ratio of the medians.
        text += (
            f": the median goes from {medians[0]} to {medians[1]}"
            if c.pairs is None
            else f" within {wording.count(c.pairs, 'pair')}; medians of all executions: {medians[0]}, then {medians[1]}"
        )
    text += "."
    if c.separated:
        side = "below" if c.verdict == "lower" else "above"
        text += f" Each of its {c.n} executions lies {side} all {c.n_baseline} of {c.baseline}."
    return text + _late(c)


def _late(c: Contrast) -> str:
    """Sentences on timed-out executions, and on those that a test within blocks cannot use."""
    parts = [f"{n} of {name}" for name, n in ((c.policy, c.timed_out), (c.baseline, c.timed_out_baseline)) if n]
    late = (
        f" Timed-out executions ({wording.listing(parts)}) count as slowest in the test and have no part in the sizes."
        if parts
        else ""
    )
    return late + (
        f" {wording.count(c.untested, 'execution')} without a counterpart in the same block "
        f"{'has' if c.untested == 1 else 'have'} no part in the test."
        if c.untested
        else ""
    )


def _not_found(c: Contrast, metric: Metric, design: Design, family: Family) -> str:
    alpha = 1 - design.level
    lead = f"No difference found between {c.policy} and {c.baseline} for {c.workload} ({_p(c, family.size)})."
    if metric.name != "wall_s":
        lead = lead.replace(f" for {c.workload}", f" in the {metric.label} of {c.workload}")
    lead += _late(c)
    if c.smallest_p is not None and not rejects(c.smallest_p * family.undecided * design.p_factor, alpha):
        numbers = c.n + c.timed_out, c.n_baseline + c.timed_out_baseline
        pairs = wording.count(c.pairs_tested or 0, "pair")
        count = pairs if design.test == "pairs" else f"{numbers[0]} against {numbers[1]}"
        among = wording.count(family.size, "planned contrast")
        if family.undecided < family.size:
            among += f", of which {family.undecided} found nothing,"
        return (
            f"Cannot tell whether {c.policy} changes {c.workload}: with {count}{_of_executions(design)} and "
            f"{among} no difference could have been found: the smallest possible p is "
            f"{wording.digits(c.smallest_p, 2)} before correction.{_late(c)}"
        )
    return f"{lead}{_detectable(c, metric)}"


def _of_executions(design: Design) -> str:
    return " of executions" if design.test == "pairs" else " executions"


def _detectable(c: Contrast, metric: Metric) -> str:
    interval = c.relative_interval if c.relative is not None else c.shift_interval
    if interval is None:
        return f" There is no interval: {c.note}." if c.note else ""
    shown = (
        wording.interval_percent(interval) if c.relative is not None else wording.interval_quantity(interval, metric)
    )
    text = f" The data are compatible with changes from {shown} ({wording.level(interval.level)} interval, unadjusted)"
    if _excludes_zero(interval):
        return f"{text}; that leaves out 0, but after the correction for several contrasts it is not enough."
    return f"{text}."


def _excludes_zero(interval: Interval) -> bool:
    return interval.low > 0 or interval.high < 0


def _none_in_time(c: Contrast, metric: Metric, family: Family) -> str:
    """A sentence where one side never finished within the time limit, so that there is a direction and no size."""
    late, other = (c.policy, c.baseline) if c.n == 0 else (c.baseline, c.policy)
    return (
        f"{c.policy} {_verb(c, metric)} ({_p(c, family.size)}): no execution under {late} ended within the time limit, "
        f"as those under {other} did; the size of the difference cannot be estimated."
    )


def _missing(c: Contrast, metric: Metric) -> str:
    who = [name for name, n in ((c.policy, c.n), (c.baseline, c.n_baseline)) if n == 0]
    return f"{c.workload}: no result for {c.policy}; no {metric.label} from {wording.listing(who)}."


def _descriptive(c: Contrast, metric: Metric) -> str:
    if c.relative is not None:
        change = wording.percent(c.relative)
        interval = f" ({wording.interval_percent(c.relative_interval)})" if c.relative_interval else ""
    else:
        change = wording.quantity(c.shift or 0.0, metric, 3)
        interval = f" ({wording.interval_quantity(c.shift_interval, metric)})" if c.shift_interval else ""
    return f"{c.workload}, {c.policy}: {metric.label} {change}{interval} against {c.baseline}."


def no_differences(found: list[Contrast]) -> str:
    """One paragraph on several contrasts of a workload in which no difference was found."""
    first = found[0]
    least = min(c.p_holm or 1.0 for c in found)
    p = "p = 1" if least >= 0.9995 else wording.p_value(least).replace("=", "≥")
    parts = [f"{wording.interval_percent(c.relative_interval)} under {c.policy}" for c in found if c.relative_interval]
    level = wording.level(first.relative_interval.level) if first.relative_interval else ""
    return (
        f"No difference from {first.baseline} found under {wording.listing([c.policy for c in found])} ({p}, Holm). "
        f"The data are compatible with changes of {wording.listing(parts)} ({level} intervals, unadjusted)."
    )


def can_be_grouped(c: Contrast) -> bool:
    """Whether no difference was found and no special remark is needed."""
    interval = c.relative_interval
    return c.verdict == "no-difference" and interval is not None and not _excludes_zero(interval) and not _late(c)


def spread(s: Spread, n: int) -> str:
    """A sentence that compares the middle halves and the ranges of a policy and of its baseline."""
    if s.iqr_share is None or s.iqr_share_baseline is None or s.range_share is None or s.range_share_baseline is None:
        return f"{s.workload}, {s.policy}: one execution has no spread."
    few = " Few executions: a rough guide." if n < 10 else ""

    def show(share: float) -> str:
        return wording.percent(share, signed=False)

    return (
        f"{s.workload}: the middle half of the executions spans {show(s.iqr_share)} of the median under {s.policy}, "
        f"{show(s.iqr_share_baseline)} under {s.baseline}; all of them span {show(s.range_share)} and "
        f"{show(s.range_share_baseline)}.{few}"
    )
