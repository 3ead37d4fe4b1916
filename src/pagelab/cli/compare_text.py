"""The text of ``pagelab compare``."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagelab.analysis.compare import Compared, Comparison
    from pagelab.analysis.gates import InPairs, Judgement
    from pagelab.analysis.model import Metric as Column
    from pagelab.stats.nondeterminism import Change, Estimate, Refused
    from pagelab.stats.paired_mean import MeanRatio
    from pagelab.study.sides import Sides

_SHOWN = 20
"""Machine differences shown; all of them are in the JSON."""


def text(found: Comparison, sides: Sides | None, again: str | None, why: str = "") -> str:
    """The whole text; ``again`` is the command that repeats this comparison, where there is one.

    ``why``: why a metric other than wall time is compared.
    """
    from pagelab.analysis import wording
    from pagelab.analysis.compare import told_unfinished

    heading = f"{found.metric.label}, B against A; intervals at {wording.level(found.level)}"
    if found.gate_level != found.level:
        count = len(found.judgements)
        heading += f", changes at {wording.level(round(found.gate_level, 6))} (divided over {count} judgements)"
    unfinished = [f"warning: {told_unfinished(found.unfinished)}"] if found.unfinished else []
    lines = list(found.caveats)
    named = [f"{side}: {one.told()}" for side, one in zip("AB", sides or (), strict=False)]
    in_pairs = found.in_pairs
    if in_pairs is not None:
        verdict, *screen = _first_screen(in_pairs, found, named, again)
        lines += [verdict, *unfinished, *screen, ""]
        if why:
            lines[-1:-1] = [f"{found.metric.label} is compared: {why}"]
    else:
        lines += [*unfinished, *named]
    lines.append(heading)
    if in_pairs is not None and not found.compared and not isinstance(in_pairs.mean, str):
        lines += ["", _mean_of_pairs(in_pairs, in_pairs.mean, found.metric)]
    for one in found.compared:
        lines += ["", *_condition(one, found.metric, {str(judged.gate.metric) for judged in found.judgements})]
    lines += ["", *_notes(found)]
    for judgement in found.judgements:
        lines.append(f"{judgement.outcome}: {judgement.gate.text} in {judgement.condition}: {judgement.reason}")
    return "\n".join(lines)


def _first_screen(found: InPairs, whole: Comparison, named: list[str], again: str | None) -> list[str]:
    """The verdict; what A and B are; both on one axis; and the next command, or the caveats, where there are any."""
    from pagelab.analysis import answer, wording

    told, facts = found.answer, answer.facts(found.answer, whole.metric)
    sentence = answer.sentence(told, whole.metric, "B", "A")
    judged = [one for one in whole.judgements if one.gate.metric == "ratio"]
    lines = [f"{sentence}{_interval(found)}: {_outcome(judged)}" if judged else f"{sentence} ({', '.join(facts)})"]
    lines += [f"{found.failed}; only those that ended well are compared"] if found.failed.any else []
    lines += ["", *named, "", *_picture(found, whole, judged), ""]
    lines += [", ".join(facts)] if judged else []
    missing = max((one.needed for one in whole.judgements if one.needed is not None), default=None)
    made = max(found.failed.a[1], found.failed.b[1])
    repeated = f"{again or 'the same with'}{_limits(whole)}"
    more = answer.more(told, made, found.seconds_a_block, lambda n: f"{repeated} --executions {n}")
    if not whole.unfinished:  # else the warning has the next command
        if missing is not None and again is not None:  # the limit is what was asked
            lines.append(f"next: {again}{_limits(whole)} --executions {missing}")
        elif more:
            lines.append(more)
    if found.narrower is not None and found.narrower >= 1:
        lines.append("pairs were not more accurate: the two executions of a pair differ as much as any two")
    if found.pairs.left_out:
        lines.append(f"{wording.count(found.pairs.left_out, 'execution')} without a partner in the same block left out")
    late = [f"{n} of {len(found.pairs)} of {side}" for side, n in zip("AB", found.late, strict=True) if n]
    if late:
        counted = f"executions in pairs that timed out: {wording.listing(late)}"
        lines.append(f"{counted}; the test counts them as slower than all that finished, and no size includes them")
    return lines if lines[-1] else lines[:-1]


def _limits(whole: Comparison) -> str:
    return "".join(f" --fail-if {shlex.quote(one.gate.text)}" for one in whole.judgements)


def _interval(found: InPairs) -> str:
    """`` (44.2–47.1%)``: the interval that is compared with the limit, at the level of the judgements."""
    from pagelab.analysis import answer
    from pagelab.analysis.model import Interval
    from pagelab.stats import NotAchievable

    ends = found.ends
    if ends is None or found.answer.change is None or isinstance(ends, NotAchievable):
        return ""
    return f" ({answer.sized(found.answer, Interval(ends.low / 100, ends.high / 100, ends.level))})"


def _outcome(judged: list[Judgement]) -> str:
    """``FAIL, limit 3%``: the worst of the judgements."""
    order = ("fail", "inconclusive", "pass")
    worst = min(judged, key=lambda one: order.index(one.outcome))
    return f"{worst.outcome.upper()}, limit {_limit(worst)}"


def _limit(one: Judgement) -> str:
    return f"{one.gate.limit_percent:g}%".replace("-", "−")


def _picture(found: InPairs, whole: Comparison, judged: list[Judgement]) -> list[str]:
    """A and B on one axis, with the limits."""
    import numpy as np

    from pagelab.analysis import answer, wording
    from pagelab.cli.forest import LIMIT, Row, forest

    told, finished = found.answer, found.pairs.finished
    sides = [values[np.isfinite(values)] for values in (found.pairs.baseline, found.pairs.treatment)]
    if len(finished):
        sides = [finished.baseline, finished.treatment]
    medians = [float(np.median(values)) for values in sides if values.size]
    texts = iter(f"median {each}" for each in wording.in_one_unit(medians, whole.metric))
    shown = [next(texts) if values.size else "none finished" for values in sides]
    low, high = (None, None) if told.interval is None else (told.interval.low, told.interval.high)
    rows = [
        Row("A", None, None, None, shown[0]),
        Row("B", told.change, low, high, f"{answer.words(told, whole.metric)}; {shown[1]}"),
    ]
    limits = sorted({one.gate.limit_percent / 100 for one in judged})
    lines = [f"{whole.metric.label}, {wording.count(len(finished), 'pair')}; change against A", *forest(rows, limits)]
    drawn = [limit for limit in limits if any(LIMIT in line for line in lines)]
    named = wording.listing(list(dict.fromkeys(_limit(one) for one in judged)))
    return [*lines, f"{LIMIT} limit {named}"] if drawn else lines


def _condition(one: Compared, column: Column, limited: set[str]) -> list[str]:
    """``limited``: the metrics on which limits are set."""
    from pagelab.stats import coverage
    from pagelab.stats.nondeterminism import Refused

    table = one.found.table
    lines = [f"{one.condition}: {table.executions[0]} executions in A, {table.executions[1]} in B"]
    missing: dict[str, list[str]] = {}
    for change in one.found.changes:
        if isinstance(change.base, Refused) and isinstance(change.new, Refused) and isinstance(change.percent, Refused):
            missing.setdefault(change.percent.message, []).append(_LABEL[change.metric.value])
        else:
            lines.append(f"  {_LABEL[change.metric.value]:<16}{_change(change, column, one)}")
    # Commands that are timed as a whole have no spread inside: that is said only to whoever set a limit on it.
    if not table.is_single.all() or limited & {"nondeterminism-in-measurement", "nondeterminism-in-execution"}:
        lines += [f"  {' and '.join(names)} cannot be told: {reason}" for reason, names in missing.items()]
    told = coverage.sentence_on_changes(
        table.executions.tolist(), single=bool(table.is_single.all()), in_pairs=one.in_pairs is not None
    )
    lines += [f"  {told}"] if told else []
    notes: dict[str, list[str]] = {}
    for i, side in enumerate("AB"):
        for caution in table.interval_warnings(i):
            notes.setdefault(caution.message, []).append(side)
    lines += [f"  warning on {' and '.join(sides)}: {message}" for message, sides in notes.items()]
    return lines + [f"  left out of {note}" for note in one.left_out]


def _mean_of_pairs(found: InPairs, mean: MeanRatio, column: Column) -> str:
    """The line of the mean where spreads were refused: a mean of numbers that can be 0 has a change, too."""
    from pagelab.analysis import wording

    finished, low, high = found.pairs.finished, mean.interval.low, mean.interval.high
    a, b = (wording.quantity(float(values.mean()), column) for values in (finished.baseline, finished.treatment))
    ends = f"{wording.end(low / 100)} to {wording.end(high / 100)}"
    return f"  {_LABEL['mean-response-time']:<16}{a} → {b}: {wording.percent(mean.percent / 100)} ({ends})"


_VERDICT = {
    "lower": ", lower",
    "higher": ", higher",
    "undecided": "",
    "cannot-tell": ", higher or lower: not said below 6 executions",
}
_LABEL = {
    "mean-response-time": "mean",
    "nondeterminism-in-measurement": "measurement",
    "unclassified-nondeterminism": "unclassified",
    "nondeterminism-in-execution": "execution",
}


def _change(change: Change, column: Column, one: Compared) -> str:
    from pagelab.stats.nondeterminism import Metric, Refused

    before, after = (_value(change, side, column) for side in (change.base, change.new))
    if isinstance(change.percent, Refused):
        return f"{before} → {after}: {change.percent.message}"
    from pagelab.analysis import wording

    value, interval = change.percent.value, change.percent.interval
    if one.in_pairs is not None and change.metric is Metric.MEAN:
        if isinstance(one.in_pairs.mean, str):
            return f"{before} → {after}: {one.in_pairs.mean}"
        value, interval = one.in_pairs.mean.percent, one.in_pairs.mean.interval
    ends = f"{wording.end(interval.low / 100)} to {wording.end(interval.high / 100)}"
    # Of pairs, the first line has the verdict: by another rule a second could contradict it.
    verdict = "" if one.in_pairs is not None else _VERDICT[change.verdict]
    return f"{before} → {after}: {wording.percent(value / 100)} ({ends}){verdict}"


def _value(change: Change, side: Estimate | Refused, column: Column) -> str:
    from pagelab.analysis import wording
    from pagelab.stats.nondeterminism import Metric, Refused

    if isinstance(side, Refused):
        return "–"
    if change.metric is Metric.MEAN:
        return wording.quantity(side.value, column)
    if change.metric is Metric.EXECUTION:
        return f"{wording.digits(side.value)} times"
    return wording.percent(side.value, signed=False)


def _notes(found: Comparison) -> list[str]:
    from pagelab.analysis import wording

    lines = [f"not compared: {name}: {reason}" for name, reason in found.refused]
    for side, names in (("A", found.only_base), ("B", found.only_new)):
        if names:
            lines.append(f"only in {side}: {', '.join(names)}")
    if found.planned_looks > 1:
        lines.append(
            f"a precision stop could end it at any of {found.planned_looks} planned looks, which share the error: "
            f"judged at {wording.level(found.level)}"
        )
    if found.earlier_looks:
        lines.append(
            f"executions were added after {wording.count(found.earlier_looks, 'look')}, each of which had twice the "
            f"error of the next: judged at {wording.level(found.level)}"
        )
    if not found.same_plan:
        lines.append("the two studies were planned differently")
    if found.machine is None:
        lines.append("whether the machine changed is not known: a study has no record of it")
    elif not found.machine:
        lines.append("the machine is the same in all that is recorded")
    else:
        lines.append(f"the machine differs in {wording.count(len(found.machine), 'fact')}:")
        lines += [f"  {one.key}: {one.base} → {one.new}" for one in found.machine[:_SHOWN]]
        if len(found.machine) > _SHOWN:
            lines.append(f"  … and {len(found.machine) - _SHOWN} more; see them with --json")
    return lines
