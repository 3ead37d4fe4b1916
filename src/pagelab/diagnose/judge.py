"""From the times of an exploration to findings: pure functions of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from pagelab.diagnose.model import Confirmation, Finding, Interval, Mean, Pin, Settings, Source, Value, Verdict
from pagelab.diagnose.sources import COMBINED
from pagelab.diagnose.spread import (
    Between,
    Range,
    SpreadRatio,
    between_values,
    checked,
    log_sd,
    mean_shift,
    spread_ratio,
)
from pagelab.stats.multiplicity import holm
from pagelab.stats.refusal import Refusal, StatsRefusedError

MATERIAL = 0.5
"""A source that surely removes less than this share of the variance is ruled out as the main cause."""
ABOUT_EQUAL = 0.05
"""Sources that remove shares of the variance no further apart than this are equally good."""
Times = Mapping[str, NDArray[np.float64]]
"""Condition → one time a block; the same blocks everywhere."""


def family(sources: Sequence[Source]) -> int:
    """How many tests the false alarms are divided over."""
    active = [source for source in sources if source.left_out is None]
    return sum(1 + (len(source.pins) > 1) for source in active)


def findings(times: Times, copies: Sequence[str], sources: Sequence[Source], settings: Settings) -> list[Finding]:
    """A verdict for every source. Both tests of a source, spread and values, are in one family for Holm's method."""
    default = checked([times[name] for name in copies])
    ratios: dict[str, SpreadRatio] = {}
    between: dict[str, Between] = {}
    for number, source in enumerate(sources):
        if source.left_out is not None:
            continue
        rows = np.stack([times[pin.name] for pin in source.pins])
        seed = settings.seed + number
        ratios[source.key] = spread_ratio(default, rows, seed=seed, level=settings.level)
        if len(rows) > 1:
            between[source.key] = between_values(rows, drawn=source.drawn, seed=seed, level=settings.level)
    tests = [found.p for found in ratios.values()] + [found.p for found in between.values()]
    adjusted = holm(tests, alpha=1 - settings.level) if tests else None
    p_spread = dict(zip(ratios, adjusted.adjusted if adjusted else (), strict=False))
    p_values = dict(zip(between, adjusted.adjusted[len(ratios) :] if adjusted else (), strict=False))
    return [
        _finding(
            source,
            times,
            default,
            settings,
            ratios[source.key],
            p_spread[source.key],
            between.get(source.key),
            p_values.get(source.key),
        )
        if source.left_out is None
        else Finding(key=source.key, label=source.label, verdict="left-out", reason=source.left_out)
        for source in sources
    ]


def _finding(
    source: Source,
    times: Times,
    default: NDArray[np.float64],
    settings: Settings,
    ratio: SpreadRatio,
    p_holm: float | None,
    between: Between | None,
    share_p_holm: float | None,
) -> Finding:
    alpha = 1 - settings.level
    rows = np.stack([times[pin.name] for pin in source.pins])
    assert p_holm is not None
    try:
        shift = Interval.of(mean_shift(default, rows, level=settings.level))
    except StatsRefusedError:
        shift = None
    return Finding(
        key=source.key,
        label=source.label,
        verdict=_verdict(ratio, p_holm <= alpha),
        sd_ratio=Interval.of(ratio.ratio),
        deviation_ratio=Interval.of(ratio.deviation_ratio),
        removed=Interval.of(ratio.removed),
        p=ratio.p,
        p_holm=p_holm,
        mean_shift=shift,
        share=Interval.of(between.share) if between else None,
        share_p_holm=share_p_holm,
        values_differ=share_p_holm is not None and share_p_holm <= alpha,
        values=[_value(pin, times[pin.name]) for pin in source.pins],
    )


def _verdict(ratio: SpreadRatio, significant: bool) -> Verdict:
    if significant and falls(ratio):
        return "cause" if ratio.removed.estimate >= MATERIAL else "part"
    if significant and ratio.log_ratio.estimate > 0 and ratio.log_deviation_ratio.estimate > 0:
        return "adds"
    return "ruled-out" if ratio.removed.high < MATERIAL else "undecided"


def falls(ratio: SpreadRatio) -> bool:
    """Both measures of spread fall: a test that only one of them passes must not contradict the other."""
    return ratio.log_ratio.estimate < 0 and ratio.log_deviation_ratio.estimate < 0


def _value(pin: Pin, values: NDArray[np.float64]) -> Value:
    mean = float(values.mean())
    return Value(name=pin.name, how=pin.how, mean=mean, cv=float(values.std(ddof=1)) / mean)


def default_spread(rows: NDArray[np.float64], level: float) -> Range:
    """Coefficient of variation of the default (pooled over its copies) with the jackknife's interval of the log SD."""
    from scipy.special import stdtrit

    rows = checked(rows)
    log, error = log_sd(rows)
    reach = float(stdtrit(rows.size - rows.shape[0], (1 + level) / 2)) * error
    mean = float(rows.mean())
    estimate, low, high = (float(np.exp(log + side)) / mean for side in (0.0, -reach, reach))
    return Range(estimate, low, high, level)


def recommended(found: Sequence[Finding], sources: Sequence[Source], sd_default: float) -> tuple[Finding, Pin] | None:
    """What to confirm: of the sources that lower the spread, what leaves the least; the simplest of about equals.

    All of them together are proposed only where they are clearly better than any alone. Of drawn values, the one
    whose mean is the middle one: not the luckiest. Sizes of pages, CPUs and cache states are no draws: each is judged
    by its own spread.
    """
    known = {source.key: source for source in sources}
    able = [one for one in found if one.verdict in ("cause", "part") and one.removed is not None]
    if not able:
        return None
    choices = [_choice(one, known[one.key].drawn, sd_default) for one in able]
    most = max(removed for _, removed in choices)
    near = [(one, name) for one, (name, removed) in zip(able, choices, strict=True) if removed >= most - ABOUT_EQUAL]
    alone = [each for each in near if each[0].key != COMBINED]
    best, name = alone[0] if alone else near[0]  # sources stand in the order of how little they ask for
    return best, next(pin for pin in known[best.key].pins if pin.name == name)


def _choice(one: Finding, drawn: bool, sd_default: float) -> tuple[str, float]:
    """The value of a source to be recommended, and the share of the default's variance that it removes."""
    if drawn:
        ordered = sorted(one.values, key=lambda value: value.mean)
        return ordered[(len(ordered) - 1) // 2].name, one.removed.estimate if one.removed else 0.0
    best = min(one.values, key=lambda value: value.cv * value.mean)
    return best.name, 1 - (best.cv * best.mean / sd_default) ** 2


def interactions(found: Sequence[Finding]) -> list[str]:
    """What the shares do not say by themselves: overlaps, and what only works together."""
    told = []
    lowering = [one for one in found if one.verdict in ("cause", "part")]
    alone = [one for one in lowering if one.key != COMBINED]
    combined = next((one for one in found if one.key == COMBINED), None)
    removed = [max(0.0, one.removed.estimate) for one in alone if one.removed is not None]
    if len(alone) > 1 and sum(removed) > 1.05:
        names = ", ".join(one.label for one in alone)
        told.append(
            f"{names}: together they would remove {sum(removed):.0%} of the variance, so they overlap: they act on the "
            "same thing (pages and frames policies, too, give heap and mappings fixed addresses)"
        )
    if combined in lowering and not alone:
        told.append("no source alone lowers the spread surely, all of them together do: they interact")
    elif combined in lowering and combined is not None and combined.sd_ratio is not None:
        best = min((one.sd_ratio.low for one in alone if one.sd_ratio is not None), default=0.0)
        if combined.sd_ratio.high < best:
            told.append("all of them together lower the spread further than any alone")
    environment = next((one for one in found if one.key == "environment"), None)
    if environment is not None and environment.values_differ:
        told.append(
            "with ASLR off, the time depends on the size of the environment: a fixed layout is one draw, lucky or not"
        )
    return told


def confirm(
    default: NDArray[np.float64],
    fresh: NDArray[np.float64],
    finding: Finding,
    pin: Pin,
    settings: Settings,
) -> Confirmation:
    """The only figures to be quoted: from executions that had no part in choosing what is recommended."""
    rows, others = checked(default), checked(fresh)
    ratio = spread_ratio(rows, others, seed=settings.seed, level=settings.level)
    shift = mean_shift(rows, others, level=settings.level)
    inside = -settings.unchanged < shift.low and shift.high < settings.unchanged
    mean: Mean = "unchanged" if inside else "changed" if shift.excludes_zero else "undecided"
    cvs = [sqrt(float(each.var(axis=1, ddof=1).mean())) / float(each.mean()) for each in (rows, others)]
    return Confirmation(
        recommended=pin.name,
        source=finding.label,
        how=pin.how,
        executions=rows.shape[1],
        cv_default=cvs[0],
        cv_recommended=cvs[1],
        sd_ratio=Interval.of(ratio.ratio),
        deviation_ratio=Interval.of(ratio.deviation_ratio),
        p=ratio.p,
        mean_shift=Interval.of(shift),
        mean=mean,
        confirmed=ratio.p <= 1 - settings.level and falls(ratio),
    )


def whole_blocks(times: Times) -> dict[str, NDArray[np.float64]]:
    """Only the blocks in which every condition has a value (missing ones are NaN)."""
    whole = np.isfinite(np.stack(list(times.values()))).all(axis=0)
    if not whole.any():
        raise StatsRefusedError(Refusal.INCOMPLETE_BLOCKS, "no block is complete: in each, some execution failed")
    return {name: values[whole] for name, values in times.items()}
