"""Makes findings from the times of an exploration, and confirms the recommendation: pure functions of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelab.diagnose import allocate
from pagelab.diagnose.model import (
    Confirmation,
    Contrast,
    Finding,
    Interval,
    Mean,
    Pin,
    Result,
    Settings,
    Source,
    Typical,
    Value,
    Verdict,
    lowering,
)
from pagelab.diagnose.sources import COMBINED
from pagelab.diagnose.spread import (
    RESOLUTION,
    SMALLEST_BLOCKS,
    Between,
    Group,
    Range,
    SpreadRatio,
    between_values,
    block_effects,
    checked,
    coefficient_of_variation,
    log_sd,
    logs,
    mean_shift,
    permutations_for,
    spread_ratio,
    weighted_variances,
)
from pagelab.diagnose.words import shares
from pagelab.stats.multiplicity import holm
from pagelab.stats.refusal import Refusal, StatsRefusedError

MATERIAL = 0.5
"""A source that removes less than this share of the variance is ruled out as the main cause."""
ABOUT_EQUAL = 0.05
"""Sources are equally good where the shares of the variance that they remove differ by no more than this."""
REFUTED = 0.5
"""A finding is refuted where fresh executions exclude that it removes this share of what it seemed to remove."""
MOST_LATE = 0.1
"""If more than this share of the executions reach the time limit, the spread is not known."""
Times = Mapping[str, NDArray[np.float64]]
"""Condition → one time per block, with the same blocks for all conditions; NaN where there is none."""
Late = Mapping[str, int]
"""Condition → number of its executions that the time limit ended."""


def family(sources: Sequence[Source]) -> int:
    """Number of tests over which the error is divided."""
    active = [source for source in sources if source.left_out is None]
    return sum(1 + (len(source.pins) > 1) for source in active)


def default_rows(times: Times, copies: Sequence[str], late: Late, timeout_s: float | None) -> NDArray[np.float64]:
    """Times of the default: copies × whole blocks. Refuses a default with too few finished executions."""
    executions = sum(len(times[name]) for name in copies)
    ended = sum(late.get(name, 0) for name in copies)
    if ended > MOST_LATE * executions:
        raise StatsRefusedError(
            Refusal.INCOMPLETE_BLOCKS,
            f"{ended} of {executions} executions by default did not end within --timeout {timeout_s:g}, so that their "
            f"spread is not known; give them more: --timeout {2 * (timeout_s or 0):g}",
        )
    (rows,) = whole_blocks([stacked(times, copies)])
    if rows.shape[1] < SMALLEST_BLOCKS:
        raise StatsRefusedError(
            Refusal.INCOMPLETE_BLOCKS,
            f"executions by default failed in {len(times[copies[0]]) - rows.shape[1]} of {len(times[copies[0]])} "
            f"blocks; a spread needs {SMALLEST_BLOCKS} without a failure",
        )
    return checked(rows)


def findings(
    times: Times,
    copies: Sequence[str],
    sources: Sequence[Source],
    settings: Settings,
    late: Late | None = None,
    permutations: int | None = None,
) -> list[Finding]:
    """A verdict on every source against its control, from the blocks in which all executions of both ended.

    The two tests of every source (spread and values) are in one family for Holm's method.
    """
    tests = family(sources)
    permutations = permutations or permutations_for(settings.level, tests)
    ratios: dict[str, SpreadRatio] = {}
    between: dict[str, Between] = {}
    rows: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
    reasons = {source.key: source.left_out for source in sources if source.left_out is not None}
    refusals: list[StatsRefusedError] = []
    for number, source in enumerate(sources):
        if source.left_out is not None:
            continue
        try:
            control, pinned, block_effect = _compared(times, source, copies, late or {})
            rows[source.key] = control, pinned
            how: Any = {"seed": settings.seed + number, "level": settings.level, "permutations": permutations}
            ratios[source.key] = spread_ratio(control, pinned, tests=tests, block_effect=block_effect, **how)
            if len(pinned) > 1:
                between[source.key] = between_values(pinned, drawn=source.drawn, **how)
        except StatsRefusedError as error:
            reasons[source.key] = str(error)
            refusals.append(error)
    if refusals and not ratios and all(error.refusal is Refusal.NO_SPREAD for error in refusals):
        raise refusals[0]
    # A planned test without data keeps its place in the family: otherwise the failures would choose it.
    planned = [(source.key, "spread") for source in sources if source.left_out is None]
    planned += [(source.key, "values") for source in sources if source.left_out is None and len(source.pins) > 1]
    made = {(key, "spread"): found.p for key, found in ratios.items()}
    made |= {(key, "values"): found.p for key, found in between.items() if key in ratios}
    adjusted = holm([made.get(test) for test in planned], alpha=1 - settings.level).adjusted if planned else ()
    corrected = dict(zip(planned, adjusted, strict=True))
    found = [
        Finding(key=one.key, label=one.label, verdict="left-out", reason=reasons[one.key], against=one.against)
        if one.key in reasons
        else _finding(
            one,
            *rows[one.key],
            settings,
            ratios[one.key],
            corrected[one.key, "spread"],
            between.get(one.key),
            corrected.get((one.key, "values")),
        )
        for one in sources
    ]
    return [_without_a_draws_spread(one, found) for one in found]


def _without_a_draws_spread(one: Finding, found: Sequence[Finding]) -> Finding:
    """The finding on the environment's size, which is not called a cause where ASLR is one.

    Every size is pinned with ASLR off: the variance that this removes is due to ASLR, and the size only draws the
    layout. One draw may have less relative spread than another only because it is slower.
    """
    able = {each.key for each in lowering(found)}
    called = one.key == "environment" and {"aslr", "environment"} <= able
    return one.model_copy(update={"verdict": "ruled-out"}) if called else one


def _compared(
    times: Times, source: Source, copies: Sequence[str], late: Late
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64] | None]:
    """Control and pinned values of a source, each conditions × whole blocks, and the effects of these blocks."""
    names = [control.name for control in source.controls] or list(copies), [pin.name for pin in source.pins]
    for part in names:
        executions = sum(len(times[name]) for name in part)
        ended = sum(late.get(name, 0) for name in part)
        if ended > MOST_LATE * executions:
            raise StatsRefusedError(
                Refusal.INCOMPLETE_BLOCKS,
                f"{ended} of {executions} executions did not end within --timeout, so their spread is not known",
            )
    parts = [stacked(times, part) for part in names]
    control, pinned = whole_blocks(parts)
    if control.shape[1] < SMALLEST_BLOCKS:
        total = len(times[names[1][0]])
        raise StatsRefusedError(
            Refusal.INCOMPLETE_BLOCKS,
            f"only {control.shape[1]} of {total} blocks have no failed execution of this source or of its control",
        )
    return control, pinned, other_block_effects(times, [*names[0], *names[1]], _whole(parts))


def other_block_effects(
    times: Times, compared: Sequence[str], blocks: NDArray[np.bool_] | None = None
) -> NDArray[np.float64] | None:
    """Effects of these blocks, estimated from all conditions except the compared ones.

    So the estimate does not depend on which of the compared conditions is called pinned: the permutations stay exact.
    """
    others = [row for name, row in times.items() if name not in compared]
    if not others:
        return None
    rows = np.stack(others)
    return block_effects(rows if blocks is None else rows[:, blocks])


def machines_share(times: Times, copies: Sequence[str], level: float) -> Range | None:
    """Share of the variance of the default's log times that all executions of a block have in common.

    The interval is a jackknife over blocks, of Fisher's transform of the share's root. None where the share is unknown
    or may be 0 (where Fisher's interval of the correlation with the block effect reaches 0). Where a block is left out
    and the others have nothing in common, the share without it is 0: one odd block alone says little.
    """
    from scipy.special import ndtri, stdtrit

    parts = [stacked(times, copies)]
    whole = _whole(parts)
    block_effect = other_block_effects(times, copies, whole)
    rows = logs(parts[0][:, whole])
    n = rows.shape[1]
    if block_effect is None or n < SMALLEST_BLOCKS:
        return None
    r = _correlation(rows.mean(axis=0), block_effect)
    if np.arctanh(min(r, 1 - 1e-12)) - float(ndtri((1 + level) / 2)) / sqrt(n - 3) <= 0:
        return None
    middle = _in_common(rows, block_effect)
    without = np.array([_in_common(np.delete(rows, i, axis=1), np.delete(block_effect, i)) for i in range(n)])
    error = sqrt((n - 1) * float(((without - without.mean()) ** 2).mean()))
    reach = float(stdtrit(n - 1, (1 + level) / 2)) * error
    low, estimate, high = (float(np.tanh(max(0.0, z))) ** 2 for z in (middle - reach, middle, middle + reach))
    return Range(estimate, low, high, level)


def _in_common(rows: NDArray[np.float64], block_effect: NDArray[np.float64]) -> float:
    """Fisher's transform of the root of the share that the block effect explains."""
    means = rows.mean(axis=0)
    r = _correlation(means, block_effect)
    if r <= 0:
        return 0.0
    root = r * sqrt(float(means.var(ddof=1)) / float(rows.var(axis=1, ddof=1).mean()))
    return float(np.arctanh(min(root, 1 - 1e-6)))


def _correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """0 where either has no spread beyond the resolution of the clock."""
    if min(float(first.var()), float(second.var())) <= RESOLUTION:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


TWO = 0.125
"""Executions take one of two times where at most this share of the variance of log times is left within the two parts.
In a normal distribution 36% is left, in a uniform one 25% (less than this share in 1.3% of 1,000 simulations with 24
executions, in none with 48)."""
FEWEST_OF_A_MODE = 0.1
"""Least share of the executions that the rarer of two times must have."""


def typical(values: NDArray[np.float64]) -> Typical:
    """The two times that executions take, or the range of most of them: a description, no test.

    It uses the best split into a fast and a slow part (least squares of log times; Fisher, "On grouping for maximum
    homogeneity", 1958).
    """
    ordered = np.sort(values.ravel())
    logarithms, n = np.log(ordered), ordered.size
    least = max(3, int(np.ceil(FEWEST_OF_A_MODE * n)))
    total = float(((logarithms - logarithms.mean()) ** 2).sum())
    if n >= 2 * least and ordered[0] < ordered[-1]:
        within = {
            k: sum(float(((part - part.mean()) ** 2).sum()) for part in (logarithms[:k], logarithms[k:]))
            for k in range(least, n - least + 1)
        }
        best = min(within, key=lambda k: within[k])
        if within[best] <= TWO * total:
            return Typical(low=float(np.median(ordered[:best])), high=float(np.median(ordered[best:])), two=True)
    low, high = np.quantile(ordered, [0.1, 0.9])
    return Typical(low=float(low), high=float(high), two=False)


def _finding(
    source: Source,
    control: NDArray[np.float64],
    pinned: NDArray[np.float64],
    settings: Settings,
    ratio: SpreadRatio,
    p_holm: float | None,
    between: Between | None,
    share_p_holm: float | None,
) -> Finding:
    alpha = 1 - settings.level
    assert p_holm is not None
    return Finding(
        key=source.key,
        label=source.label,
        verdict=_verdict(ratio, p_holm <= alpha),
        against=source.against,
        blocks=pinned.shape[1],
        sd_ratio=Interval.of(ratio.ratio),
        deviation_ratio=Interval.of(ratio.deviation_ratio),
        sd_ratio_beside=None if ratio.ratio_beside is None else Interval.of(ratio.ratio_beside),
        rests_beside=ratio.rests_beside,
        removed=Interval.of(ratio.removed),
        most_removed=ratio.most_removed,
        p=ratio.p,
        p_holm=p_holm,
        mean_shift=_mean_shift(control, pinned, settings),
        share=Interval.of(between.share) if between and between.share else None,
        share_p_holm=share_p_holm,
        values_differ=share_p_holm is not None and share_p_holm <= alpha,
        values=[_value(pin, row) for pin, row in zip(source.pins, pinned, strict=True)],
    )


def _mean_shift(control: NDArray[np.float64], pinned: NDArray[np.float64], settings: Settings) -> Interval | None:
    """None where executions differ so much that the shift has no interval; that says nothing about the spread."""
    try:
        return Interval.of(mean_shift(control, pinned, level=settings.level))
    except StatsRefusedError:
        return None


def _of_mean(shift: Interval | None, settings: Settings) -> Mean:
    if shift is None:
        return "undecided"
    if -settings.unchanged < shift.low and shift.high < settings.unchanged:
        return "unchanged"
    return "changed" if shift.low > 0 or shift.high < 0 else "undecided"


def _verdict(ratio: SpreadRatio, significant: bool) -> Verdict:
    if significant and falls(ratio):
        return "cause" if ratio.removed.estimate >= MATERIAL else "part"
    if significant and ratio.direction > 0:
        return "adds"
    return "ruled-out" if ratio.most_removed < MATERIAL else "undecided"


def falls(ratio: SpreadRatio) -> bool:
    """Whether both measures of spread fall: where only one passes the test, the other must not contradict it."""
    return ratio.direction < 0


def _value(pin: Pin, values: NDArray[np.float64]) -> Value:
    sd = float(np.log(values).std(ddof=1))
    return Value(name=pin.name, how=pin.how, mean=float(values.mean()), cv=coefficient_of_variation(sd), sd_log=sd)


def default_spread(rows: NDArray[np.float64], level: float) -> Range:
    """Geometric coefficient of variation of the default, pooled over its copies, with a jackknife interval."""
    from scipy.special import stdtrit

    rows = checked(rows)
    logarithm, error = log_sd(rows)
    reach = float(stdtrit(rows.size - rows.shape[0], (1 + level) / 2)) * error
    estimate, low, high = (coefficient_of_variation(float(np.exp(logarithm + side))) for side in (0.0, -reach, reach))
    return Range(estimate, low, high, level)


def recommended(found: Sequence[Finding], sources: Sequence[Source], sd_default: float) -> tuple[Finding, Pin] | None:
    """The pin to confirm: of the :func:`lowering` sources, the one that leaves the least spread; of near ties, the
    simplest.

    ``sd_default``: standard deviation of the default's log times. A pin that leaves more is not proposed: a source can
    lower the spread of its control and still have more spread than the default. The combination of all sources is
    proposed only where no source alone is the main cause, or where, by the intervals, it lowers the spread further than
    each main cause does. Of drawn values, the one with the middle mean is taken, not the luckiest. Page sizes, CPUs and
    cache states are not drawn: each is judged by its own spread, and of about equal ones the fastest is taken.
    """
    known = {source.key: source for source in sources}
    choices = [(one, *_choice(one, known[one.key].drawn, sd_default)) for one in lowering(found)]
    choices = [each for each in choices if each[2] > 0 and not _is_no_better(each[0], found)]
    if not choices:
        return None
    most = max(removed for _, _, removed in choices)
    near = [(one, name) for one, name, removed in choices if removed >= most - ABOUT_EQUAL]
    alone = [each for each in near if each[0].key != COMBINED]
    best, name = alone[0] if alone else near[0]  # sources are ordered: those that require least come first
    return best, next(pin for pin in known[best.key].pins if pin.name == name)


def _is_no_better(one: Finding, found: Sequence[Finding]) -> bool:
    """Whether ``one`` is the combination of all sources, and a single source may lower the spread as far."""
    mains = [each.sd_ratio for each in lowering(found) if each.key != COMBINED and each.verdict == "cause"]
    lows = [ratio.low for ratio in mains if ratio is not None]
    return one.key == COMBINED and bool(lows) and (one.sd_ratio is None or one.sd_ratio.high >= min(lows))


CLEARED = 0.1
"""A fix does not contain a source that is not the main cause and, by its estimate, makes less than this share of the
variance."""


def without_cleared(pin: Pin, found: Sequence[Finding], sources: Sequence[Source]) -> Pin:
    """The combination without the parts that add spread, or that are not the main cause and make less than
    :data:`CLEARED`; unchanged if no part or every part would go.

    Several causes of a quarter each are each "not the main cause": by the verdict alone, nothing would remain. The
    remaining combination is confirmed in fresh executions.
    """
    combined = next(source for source in sources if source.key == COMBINED)
    owner = {each.name: source.key for source in sources if source.key != COMBINED for each in source.pins}
    pins = {each.name: each for source in sources for each in source.pins}
    cleared = {one.key for one in found if _is_cleared(one)}
    kept = [pins[name] for name in combined.parts if owner.get(name) not in cleared]
    if not kept or len(kept) == len(combined.parts):
        return pin
    keys = {key: value for each in kept for key, value in each.keys.items()}
    return Pin(name="-and-".join(each.name for each in kept), keys=keys, how=_together(kept))


def _is_cleared(one: Finding) -> bool:
    if one.verdict == "ruled-out":
        return one.removed is not None and one.removed.estimate < CLEARED
    return one.verdict == "adds"


def _together(pins: Sequence[Pin]) -> str:
    """A command with the options of all pins, followed by the settings that have no option."""
    if len(pins) == 1:
        return pins[0].how
    command = "pagelab run "
    flags = [each.how.removeprefix(command).split(" (or: ")[0] for each in pins if each.how.startswith(command)]
    rest = [each.how for each in pins if not each.how.startswith(command)]
    return ", ".join([command + " ".join(flags), *rest]) if flags else ", ".join(rest)


def _choice(one: Finding, drawn: bool, sd_default: float) -> tuple[str, float]:
    """The value of a source to recommend, and the share of the default's variance that it removes."""
    if drawn:
        ordered = sorted(one.values, key=lambda value: value.mean)
        pooled = sqrt(sum(value.sd_log**2 for value in one.values) / len(one.values))
        return ordered[(len(ordered) - 1) // 2].name, 1 - (pooled / sd_default) ** 2

    def removed(value: Value) -> float:
        return 1 - (value.sd_log / sd_default) ** 2

    most = max(removed(value) for value in one.values)
    best = min((value for value in one.values if removed(value) >= most - ABOUT_EQUAL), key=lambda value: value.mean)
    return best.name, removed(best)


def interactions(
    found: Sequence[Finding], times: Times, copies: Sequence[str], sources: Sequence[Source], level: float
) -> list[str]:
    """Sentences on relations between rows of the table; only those that a test supports.

    Variances of independent causes add, and so do the variances that their pins remove. A difference between that sum
    and the variance that all pins together remove is an interaction, or an overlap, only where its interval excludes 0.
    """
    able = lowering(found)
    alone = [one for one in able if one.key != COMBINED]
    combined = next((one for one in found if one.key == COMBINED), None)
    sentences = []
    if len(alone) > 1 and (beyond := _sum_beyond_all(alone, times, copies, sources, level)):
        sentences.append(
            f"{', '.join(one.label for one in alone)}: what they remove, each alone, adds up to more than all of the "
            f"variance ({beyond}): they overlap, and act on the same thing"
        )
    if combined in able and combined is not None and combined.removed is not None:
        gone = combined.removed
        judged_of = f"{gone.estimate:.0%} of the variance ({shares(gone)})"
        surplus = _surplus(times, copies, sources, level)
        if surplus is not None and surplus.low > 0:
            sentences.append(
                f"all of them together remove {judged_of}, more than the sum of what each removes alone: they act "
                "together, and pinning a single one does not show it"
            )
        elif not alone:
            sentences.append(
                f"all of them together remove {judged_of}; no single source is large enough to be seen with "
                f"{combined.blocks} executions of each"
            )
        elif combined.sd_ratio is not None:
            best = min((one.sd_ratio.low for one in alone if one.sd_ratio is not None), default=0.0)
            if combined.sd_ratio.high < best:
                sentences.append("all of them together lower the spread further than any alone")
    return sentences


def _sum_beyond_all(
    alone: Sequence[Finding], times: Times, copies: Sequence[str], sources: Sequence[Source], level: float
) -> str | None:
    """The sum of these sources' effects, in words, if its interval lies above the default's variance; else None."""
    known = {source.key: source for source in sources}
    parts = [(list(copies), -1.0)]
    for one in alone:
        source = known[one.key]
        parts.append(([control.name for control in source.controls] or list(copies), 1.0))
        parts.append(([pin.name for pin in source.pins], -1.0))
    found = _on_both_scales(times, parts, level)
    if found is None or found[0].low <= 0:
        return None
    return f"{1 + found[0].estimate / found[1]:.0%}"


def _surplus(times: Times, copies: Sequence[str], sources: Sequence[Source], level: float) -> Range | None:
    """Variance that the combined pins remove beyond the sum of the variances that the single pins remove.

    All are compared with the default: a side effect of a pin is also one of the combination.
    """
    combined = next((source for source in sources if source.key == COMBINED and source.left_out is None), None)
    if combined is None or not combined.parts:
        return None
    parts = [(list(copies), 1.0), ([combined.pins[0].name], -1.0)]
    for name in combined.parts:
        if not any(name == pin.name for each in sources if each.left_out is None for pin in each.pins):
            return None
        parts += [(list(copies), -1.0), ([name], 1.0)]
    found = _on_both_scales(times, parts, level)
    return None if found is None else found[0]


def _on_both_scales(times: Times, parts: Sequence[tuple[list[str], float]], level: float) -> tuple[Range, float] | None:
    """The weighted sum of the parts' variances, and the default's (the first part's), on the log scale.

    Variances add on the log scale where causes multiply, and on the scale of times where causes add. Which of the two
    holds is not known: a sum that is above 0 on only one scale is reported as touching 0.
    """
    weights: dict[tuple[str, ...], float] = {}
    for names, weight in parts:
        weights[tuple(names)] = weights.get(tuple(names), 0.0) + weight
    try:
        rows = dict(zip(weights, whole_blocks([stacked(times, names) for names in weights]), strict=True))
        groups = [Group(rows[names], weight) for names, weight in weights.items() if weight != 0]
        ranges = [weighted_variances(groups, level=level, scale=scale) for scale in ("log", "time")]
    except StatsRefusedError:
        return None
    of_default = float(logs(rows[tuple(parts[0][0])]).var(axis=1, ddof=1).mean())
    found = min(ranges, key=lambda each: each.low > 0)
    log_range = ranges[0]
    if found.low > 0:
        return log_range, of_default
    return Range(log_range.estimate, min(0.0, log_range.low), log_range.high, level), of_default


def plan_confirmation(
    times: Times, copies: Sequence[str], source: Source, pin: Pin, settings: Settings
) -> list[allocate.Effect]:
    """The effects of ``pin`` (or of all drawn values) in the exploration, against the default and the control."""
    pinned = [each.name for each in source.pins] if source.drawn else [pin.name]
    controls = [control.name for control in source.controls_of(pin)]
    found = []
    for names in (list(copies), controls):
        if names:
            first, second = whole_blocks([stacked(times, names), stacked(times, pinned)])
            found.append(allocate.Effect.of(logs(first), logs(second), 1 - settings.level))
    return found


def confirm(
    fresh: Times,
    finding: Finding,
    pin: Pin,
    control: tuple[str, str] | None,
    seen: Sequence[allocate.Effect],
    settings: Settings,
    permutations: int | None = None,
) -> Confirmation:
    """The figures to quote, from executions that had no part in the choice of the recommendation.

    ``control``: name and words of the control, from which the pin must differ as well as from the default; ``seen``:
    the effects in the exploration, against the default and against the control. The cause is confirmed where both
    contrasts are significant, and refuted where one of them excludes half of the effect that was seen.
    """
    against = [("default", "the default"), *([control] if control is not None else [])]
    rows = whole_blocks([stacked(fresh, [name]) for name in (*(name for name, _ in against), pin.name)])
    executions = rows[0].shape[1]
    permutations = permutations or permutations_for(settings.level, 1)
    contrasts = [
        _contrast(
            rows[number],
            rows[-1],
            against[number],
            seen[number],
            settings,
            permutations or permutations_for(settings.level, 1),
        )
        for number in range(len(against))
    ]
    results = {one.result for one in contrasts}
    result: Result = "refuted" if "refuted" in results else "undecided" if "undecided" in results else "confirmed"
    shift = _mean_shift(rows[0], rows[-1], settings)
    needed = max(effect.executions() for effect in seen)
    sds = float(rows[0].std(ddof=1)), float(rows[-1].std(ddof=1))
    return Confirmation(
        recommended=pin.name,
        source=finding.label,
        how=pin.how,
        executions=executions,
        cv_default=_cv(rows[0]),
        cv_recommended=_cv(rows[-1]),
        contrasts=contrasts,
        result=result,
        mean_shift=shift,
        mean=_of_mean(shift, settings),
        needed=needed,
        enough=max(needed, allocate.for_mean(sds, float(rows[0].mean()), settings.unchanged, settings.level)),
        needed_for_half=max(effect.of_half().executions() for effect in seen) if executions >= needed else None,
    )


def _contrast(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    against: tuple[str, str],
    seen: allocate.Effect,
    settings: Settings,
    permutations: int,
) -> Contrast:
    ratio = spread_ratio(first, second, seed=settings.seed, level=settings.level, permutations=permutations)
    result: Result = "undecided"
    if ratio.p <= 1 - settings.level and falls(ratio):
        result = "confirmed"
    elif ratio.removed.high < REFUTED * seen.removed:
        result = "refuted"
    return Contrast(
        name=against[0],
        against=against[1],
        cv_against=_cv(first),
        sd_ratio=Interval.of(ratio.ratio),
        deviation_ratio=Interval.of(ratio.deviation_ratio),
        removed=Interval.of(ratio.removed),
        p=ratio.p,
        seen=seen.removed,
        power=seen.power(first.shape[1]),
        power_of_half=seen.of_half().power(first.shape[1]),
        result=result,
    )


def _cv(rows: NDArray[np.float64]) -> float:
    return coefficient_of_variation(sqrt(float(np.log(rows).var(axis=1, ddof=1).mean())))


def stacked(times: Times, names: Sequence[str]) -> NDArray[np.float64]:
    """The times of ``names`` as an array: conditions × blocks."""
    return np.stack([times[name] for name in names])


def _whole(groups: Sequence[NDArray[np.float64]]) -> NDArray[np.bool_]:
    """A mask of the blocks in which every condition of all groups has a value (missing values are NaN)."""
    return np.asarray(np.isfinite(np.concatenate(list(groups))).all(axis=0))


def whole_blocks(groups: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """The groups, reduced to the blocks in which every condition of all groups has a value."""
    whole = _whole(groups)
    if not whole.any():
        raise StatsRefusedError(Refusal.INCOMPLETE_BLOCKS, "no block is complete: in each, some execution failed")
    return [group[:, whole] for group in groups]
