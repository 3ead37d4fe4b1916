"""Chooses the next command after a study: to measure an undecided comparison further, or to use a finding."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import sqrt
from pathlib import Path

import polars as pl

from pagelab.analysis import set_words
from pagelab.analysis.answer import further, needs
from pagelab.analysis.commands import are_two_commands
from pagelab.analysis.data import StudyData
from pagelab.analysis.model import Analysis
from pagelab.analysis.verdict import Judged, judged_of
from pagelab.errors import quoted
from pagelab.stats.precision import looked_level
from pagelab.study.answering import fewest_for_tests, looked_at, set_unreachable
from pagelab.study.budget import MOST_BLOCKS, MOST_OF_A_COMMAND, lasts, minutes_for
from pagelab.study.plan import Condition
from pagelab.study.progress import shown_duration
from pagelab.study.resuming import resume_command
from pagelab.study.setting import AXES
from pagelab.study.sides import again, alone, chosen, kept, measured, words_of

_QUICK = "-quick"
_WHOLE = "the whole study: more executions and configurations of each program"
_PILOT_BLOCKS = 2
"""As many blocks as the pilot of ``pagelab try`` takes, at most."""


@dataclass(frozen=True)
class Following:
    command: str
    why: str
    table: str | None = None
    """Where nothing remains to be done: the file of a whole report that has every number, beside ``analysis.json``."""


def following_of(analysis: Analysis, data: StudyData) -> Following:
    """The next command and its purpose."""
    where = quoted(data.directory)
    if not analysis.design.complete and analysis.design.imported_from is None:
        return Following(resuming(data, where), "the study is not finished")
    if analysis.over_set is not None:
        return _of_set(analysis, data, where)
    undecided = _undecided_limits(data)
    if undecided is not None:
        return undecided
    judged = judged_of(analysis.compared(), analysis.design, analysis.metrics)
    if are_two_commands(data.plan):
        return _compare(judged, data, where)
    if not analysis.design.tested and _extensible(analysis):
        return _with_tests(data, where)
    unknown = sorted(
        (one for one in judged if _needs_more(one) and one.contrast.n and one.contrast.n_baseline),
        key=lambda one: one.answer.needed or one.answer.fewest,
    )
    # In one boot, ``pagelab try`` would answer another question than a study of many boots.
    for one in unknown if data.plan.reboots is None else ():
        asked = _try(one, analysis, data)
        if asked is not None:
            return asked
    if unknown and _extensible(analysis):
        return _resume(unknown[0], analysis, data, where)
    if analysis.failures:
        return Following(f"pagelab study status {where}", "the failed runs, and the files of their output")
    found = [one for one in judged if one.answer.said in ("lower", "higher")]
    for one in found:
        used = _run(one, analysis, data)
        if used is not None:
            return used
    return Following(f"pagelab report {where}", "every number of it, as CSV and JSON", "contrasts.csv")


def _needs_more(one: Judged) -> bool:
    """Whether more executions may decide; where some timed out, some of the next would, too."""
    return one.answer.said == "cannot-tell" and not one.answer.late


def _with_tests(data: StudyData, where: str) -> Following:
    """The fewest executions with which the comparisons, now only described, could be tested."""
    executions = fewest_for_tests(looked_at(data.plan))
    return Following(
        resuming(data, where, f" --executions {executions}"),
        f"tests need {executions} executions of each condition: {_longer(data, executions)} more, and a further look, "
        "which is judged more strictly",
    )


def _resume(one: Judged, analysis: Analysis, data: StudyData, where: str) -> Following:
    """More executions of the whole study, as a further look at it."""
    c = one.contrast
    needed = _needed(one, data)
    executions = max(needed, (analysis.design.executions or one.answer.pairs) + 1)
    # A study with different numbers of executions is extended to the same number for all programs.
    of_all = "" if executions == needed else f", the study goes on to {executions:,} of every condition"
    return Following(
        resuming(data, where, f" --executions {executions}"),
        f"{_aim(one, data)} for {c.workload} under {c.policy} needs about {needed:,} executions of each{of_all}: "
        f"{_longer(data, executions)} more, and a further look, which is judged more strictly",
    )


def _needed(one: Judged, data: StudyData) -> int:
    """Executions of each condition for the next look: at least twice the present ones."""
    return max(_wanted(one, data), 2 * _made(one, data))


def _wanted(one: Judged, data: StudyData) -> int:
    """Executions of each condition, at a further look, for ±3%, or for an answer."""
    ends = one.answer.interval
    strictly = 1.0 if ends is None else _wider(ends.level) ** 2
    return further(one.answer, _made(one, data), strictly=strictly)


def _wider(level: float, programs: int | None = None) -> float:
    """How many times as wide a further look makes the interval of the same data: by normal quantiles, or over so many
    programs by Student's.
    """
    from scipy.special import ndtri, stdtrit

    levels = (level, looked_level(level, 2))
    now, then = (
        float(ndtri(p) if programs is None else stdtrit(programs - 1, p)) for p in ((1 + x) / 2 for x in levels)
    )
    return then / now


def _made(one: Judged, data: StudyData) -> int:
    """Executions of each condition of this comparison so far, with those that failed or have no value."""
    both = [each.name for each in _both(one, data)]
    return max((number for name, _, number in _durations(data).iter_rows() if name in both), default=0)


def _aim(one: Judged, data: StudyData) -> str:
    """What the next executions are likely to give."""
    return needs(one.answer) if one.answer.needed and _needed(one, data) == _wanted(one, data) else "an answer"


def resuming(data: StudyData, where: str, more: str = "") -> str:
    """The command that continues the study."""
    return resume_command(where, data.meta, data.plan, more)


def _longer(data: StudyData, executions: int) -> str:
    """The time until every condition has ``executions``, in words."""
    time = shown_duration(_longer_s(data, executions))
    return time if data.plan.reboots is None else f"{time} besides the boots"


def _longer_s(data: StudyData, executions: int) -> float:
    """Seconds until every condition has ``executions``, from its mean duration so far."""
    of_each = _durations(data).iter_rows()
    return float(sum(max(0, executions - had) * (mean or 0.0) for _, mean, had in of_each))


def _durations(data: StudyData) -> pl.DataFrame:
    """Of each condition the mean duration of its executions, and their number."""
    return data.runs.filter(~pl.col("warmup")).group_by("condition").agg(pl.col("duration_s").mean(), pl.len())


def _of_set(analysis: Analysis, data: StudyData, where: str) -> Following:
    """The next step after a study of a set: the full form of a quick study, its failures, more executions, or all
    numbers.
    """
    name = analysis.design.name
    if name.endswith(_QUICK) and analysis.design.imported_from is None:
        spec = name.removesuffix(_QUICK)
        source = Path(data.source) if data.source else None
        if source is not None and not source.is_relative_to(Path(str(files("pagelab.benchmarks")))):
            spec = str(source)
        return Following(
            f"pagelab study run {shlex.quote(spec)}",
            _WHOLE,
        )
    if analysis.failures:
        return Following(f"pagelab study status {where}", "the failed runs, and the files of their output")
    assert analysis.over_set is not None
    answers = [set_words.answer_to(c, analysis.over_set, analysis.design) for c in analysis.over_set.contrasts]
    if any(one.said == "cannot-tell" for one in answers) and _extensible(analysis) and _can_be_looked_at(data):
        executions = 2 * data.plan.executions
        programs = max(c.programs for c in analysis.over_set.contrasts)
        as_wide = _wider(analysis.design.interval_level, programs) / sqrt(2)
        return Following(
            resuming(data, where, f" --executions {executions}"),
            f"twice the executions, {_longer(data, executions)} more: intervals {as_wide:.2f} times as wide, "
            "where executions differ more than programs do; a further look, which is judged more strictly",
        )
    return Following(f"pagelab report {where}", "every program’s ratio, as CSV and JSON", "set_programs.csv")


def _can_be_looked_at(data: StudyData) -> bool:
    """Whether a further look with twice the executions could find a difference over this set."""
    further = looked_at(data.plan).model_copy(update={"executions": 2 * data.plan.executions})
    return not set_unreachable(further)


def _extensible(analysis: Analysis) -> bool:
    """Whether executions can be added."""
    return analysis.design.imported_from is None and not analysis.design.precision_stop


def _undecided_limits(data: StudyData) -> Following | None:
    """The same comparison with enough executions to decide its limits; None where all are decided, or none can be."""
    needed = max((one.needed for one in data.limits if one.needed is not None), default=None)
    words = None if needed is None else again(kept(data.plan))
    if words is None:
        return None
    more = [*words, *measured(data.plan), *_limits(data), "--executions", str(needed)]
    return Following(
        f"{_there(data.plan.conditions)}{shlex.join(more)}",
        f"if the change stays what it is, {needed:,} executions of each decide",
    )


def _limits(data: StudyData) -> list[str]:
    return [word for one in data.limits for word in ("--fail-if", one.text)]


def _compare(judged: tuple[Judged, ...], data: StudyData, where: str) -> Following:
    """More executions of both commands where the comparison is undecided; else the data that a report omits."""
    words = again(kept(data.plan))
    for one in judged:
        if _needs_more(one) and words is not None:
            executions = further(one.answer, _made(one, data))
            more = [*words, *measured(data.plan), *_limits(data), "--executions", str(executions)]
            aim = needs(one.answer) if one.answer.needed else "an answer"
            command = f"{_there(data.plan.conditions)}{shlex.join(more)}"
            return Following(command, f"{aim} needs about {executions:,} executions of each")
    return Following(f"pagelab compare {where}", "means and spreads beside the ratio; limits with --fail-if")


def _try(one: Judged, analysis: Analysis, data: StudyData) -> Following | None:
    """This comparison alone, in pairs, with the minutes for ±3%; None where ``pagelab try`` cannot run it."""
    c = one.contrast
    command = _command(one, analysis, data)
    settings = _settings(one, data)
    block_s = _block_s(one, data)
    # A study that begins anew has one look at its end, and need not have twice the executions of this one.
    executions = further(one.answer, _made(one, data))
    if not command or not settings or block_s is None or not _known_to_try(one, data) or executions > MOST_BLOCKS:
        return None
    minutes = minutes_for(executions, block_s, spent_s=_PILOT_BLOCKS * block_s)
    if minutes > MOST_OF_A_COMMAND:
        return None
    words = ["pagelab", "try", *settings, *measured(data.plan, one.metric.name), "--minutes", f"{minutes:g}", "--"]
    there = _there(_both(one, data))
    aim = needs(one.answer) if one.answer.needed else "an answer"
    why = f"{aim} for {c.workload} under {c.policy} needs about {executions:,} executions of each"
    return Following(f"{there}{shlex.join(words)} {command}", f"{why}, {shown_duration(60 * minutes)}")


def _command(one: Judged, analysis: Analysis, data: StudyData) -> str | None:
    """The program's command line; None where it alone would be another piece of work: with input, with files that are
    flushed, between other steps, in an environment with fewer variables, or with measurements that are left out.
    """
    for condition in _both(one, data):
        ran = condition.request
        if ran.stdin != "null" or ran.flush.mode != "none" or ran.env.unset or ran.env.clear:
            return None
        if ran.scheduler is not None or ran.node is not None or ran.user is not None:
            return None
        if condition.setup or condition.teardown or condition.drop_first:
            return None
    if data.plan.setup or data.plan.teardown:
        return None
    return analysis.design.commands.get(one.contrast.workload)


def _both(one: Judged, data: StudyData) -> list[Condition]:
    """The two conditions of a comparison."""
    c = one.contrast
    policies = (c.policy, c.baseline)
    return [each for each in data.plan.conditions if each.workload == c.workload and each.policy in policies]


def _there(conditions: Sequence[Condition]) -> str:
    """``cd DIR && `` where the study ran its programs in another directory than this."""
    for condition in conditions:
        place = condition.request.cwd
        if place is not None and place != str(Path.cwd()):
            return f"cd {quoted(place)} && "
    return ""


def _settings(one: Judged, data: StudyData) -> list[str] | None:
    """The words of the two settings, the baseline's first; None where they are not two values of one axis."""
    c = one.contrast
    by_policy = {each.policy: each for each in data.plan.conditions if each.workload == c.workload}
    if not by_policy.keys() >= {c.policy, c.baseline}:
        return None
    base, mine = (chosen(by_policy[name]) for name in (c.baseline, c.policy))
    words, different = [], 0
    for axis in dict.fromkeys([*AXES, *base, *mine]):
        values = [side.get(axis, "kernel" if axis in AXES else None) for side in (base, mine)]
        if axis == "policy" or None in values:
            return None
        different += values[0] != values[1]
        if values != ["kernel", "kernel"]:
            words += words_of(axis, [str(value) for value in dict.fromkeys(values)])
    return words if different == 1 else None


def _block_s(one: Judged, data: StudyData) -> float | None:
    """Seconds that one execution of each took so far, with the launcher and the records."""
    both = [each.name for each in _both(one, data)]
    seconds = [mean for name, mean, _ in _durations(data).iter_rows() if name in both and mean]
    return lasts(data.plan, seconds) if len(seconds) == 2 else None


def _known_to_try(one: Judged, data: StudyData) -> bool:
    """Whether ``pagelab try`` can measure the metric: every run or the program reports it, without a pattern."""
    if one.metric.name in ("wall_s", "user_s", "cpu_s"):
        return True
    patterns = {c.request.measurements.regex for c in data.plan.conditions if c.workload == one.contrast.workload}
    return one.metric.name.startswith("measure.") and patterns == {None}


def _run(one: Judged, analysis: Analysis, data: StudyData) -> Following | None:
    """One run under the policy with the greatest effect: requested and actual placement."""
    c = one.contrast
    mine = next((each for each in _both(one, data) if each.policy == c.policy), None)
    command = None if mine is None or not _command(one, analysis, data) or not chosen(mine) else alone(mine)
    if command is None:
        return None
    return Following(
        f"{_there(_both(one, data))}{command}", f"one run under {c.policy}: requested and actual placement"
    )
