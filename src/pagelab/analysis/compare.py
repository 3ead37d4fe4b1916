"""Compares two studies of the same conditions: changes, their intervals, and differences of the machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal

import numpy as np
import polars as pl

from pagelab.analysis.answer import Evidence, judged, rejects
from pagelab.analysis.contrasts import size_within
from pagelab.analysis.data import StudyData
from pagelab.analysis.design import not_in_turn, stand_alone
from pagelab.analysis.following import resuming
from pagelab.analysis.gates import Gate, InPairs, Judgement, Lost, Outcome, judge, overall
from pagelab.analysis.machine import machine_of
from pagelab.analysis.metrics import executions_of as runs_of
from pagelab.analysis.metrics import metric_named, metrics_of, samples_of
from pagelab.analysis.model import Metric as Column
from pagelab.analysis.planned_test import of_test, paired, test_of
from pagelab.analysis.summaries import interval_of
from pagelab.errors import BadInputError, quoted
from pagelab.stats import Pairs, blocks_pay, paired_ratio
from pagelab.stats.nondeterminism import Changes, Experiment, Resampling, changes
from pagelab.stats.paired_mean import MeanRatio, paired_mean_ratio
from pagelab.stats.precision import looked_level
from pagelab.stats.refusal import StatsRefusedError
from pagelab.study.answering import factor_of_looks
from pagelab.study.sides import LEVEL

BASE: Literal["A"] = "A"
NEW: Literal["B"] = "B"
TOGETHER = "A against B"
"""Name of the condition where two commands ran in one study."""


@dataclass(frozen=True)
class Settings:
    """Settings of the comparison."""

    level: float = LEVEL
    resamples: int = 4999
    seed: int = 1


@dataclass(frozen=True)
class Compared:
    """One condition that both studies have."""

    condition: str
    found: Changes
    left_out: tuple[str, ...]
    """Executions and measurements that are in neither number, with reasons."""
    in_pairs: InPairs | None = None
    """None for two studies: nothing was interleaved."""


@dataclass(frozen=True)
class MachineDifference:
    """One fact that differs between the records of the two studies."""

    key: str
    base: str
    new: str


@dataclass(frozen=True)
class Unfinished:
    """A side of which planned executions have no run."""

    side: Literal["A", "B"]
    done: int
    planned: int
    resume: str
    """The command that continues its study."""

    def __str__(self) -> str:
        return f"{self.done:,} of {self.planned:,} executions of {self.side}"


@dataclass(frozen=True)
class Comparison:
    """The result of ``pagelab compare``."""

    metric: Column
    level: float
    gate_level: float
    """Level of the changes' intervals; its error is divided over all judgements if there are several (Bonferroni)."""
    compared: tuple[Compared, ...]
    only_base: tuple[str, ...]
    only_new: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    """Conditions whose data could not be used, with the reason."""
    judgements: tuple[Judgement, ...]
    machine: tuple[MachineDifference, ...] | None
    """None where a study has no record of its machine."""
    same_plan: bool
    in_pairs: InPairs | None = None
    """Two commands, within their blocks, also where the means were refused; None for two studies."""
    earlier_looks: int = 0
    """How often a study had ended before executions were added; each time halves the error of ``level``. Of two
    studies the sum, so that every look at one or both of them has an error of its own."""
    planned_looks: int = 1
    """At how many looks a precision stop could end it (of two studies: combinations of looks); they share the error."""
    unfinished: tuple[Unfinished, ...] = ()
    """Sides that are not whole: no limit is judged then, as p-values hold only for the planned number of executions."""
    caveats: tuple[str, ...] = ()
    """Why the two sides of one study are compared like two studies, and what that may hide."""

    @property
    def outcome(self) -> Outcome:
        """The outcome of all gates together; ``pass`` without gates."""
        return overall(self.judgements)


def compare(
    base: StudyData,
    new: StudyData,
    *,
    gates: tuple[Gate, ...] = (),
    metric: str | None = None,
    settings: Settings | None = None,
    one_study: bool = False,
) -> Comparison:
    """Compares every condition that both studies have, by name. No common condition, or no such metric, is bad input.

    ``one_study``: the two come from one study (:func:`sides_of`), and are compared within its blocks if it is tested
    there.
    """
    unpaired = _why_unpaired(base) if one_study else "two studies have none"
    stray = [gate.text for gate in gates if gate.metric == "ratio" and unpaired]
    if stray:
        raise BadInputError(
            f'--fail-if "{stray[0]}": a ratio needs pairs, and {unpaired}; judge the mean: '
            f'--fail-if "{stray[0].replace("ratio", "mean")}"'
        )
    chosen, earlier = settings or Settings(), _earlier_looks(base, None if one_study else new)
    planned = _planned_looks(base, None if one_study else new)
    asked, chosen = chosen.level, replace(chosen, level=looked_level(chosen.level, planned * 2**earlier))
    column = _column(base, new, metric)
    names = [_conditions(data) for data in (base, new)]
    common = [name for name in names[0] if name in names[1]]
    if not common:
        raise BadInputError(
            f"no condition is in both studies: A has {', '.join(names[0]) or 'none'}; "
            f"B has {', '.join(names[1]) or 'none'}; give the policies that are the same one name in both study.toml"
        )
    count = len(gates) * len(common)
    gate_level = 1 - (1 - chosen.level) / count if count > 1 else chosen.level
    resampling = Resampling(seed=chosen.seed, resamples=chosen.resamples, level=chosen.level)
    compared, refused, judgements = [], [], []
    in_pairs = None if unpaired else _in_pairs(base, new, column, asked, gate_level)
    for condition in common:
        late, failed = _lost(base, new, condition)
        found: Changes | str
        try:
            one = replace(_compared(base, new, condition, column, resampling, gate_level), in_pairs=in_pairs)
            found = one.found
            compared.append(one)
        except StatsRefusedError as error:
            found = str(error)
            refused.append((condition, found))
        judgements += [judge(gate, condition, found, gate_level, in_pairs, chosen.seed, late, failed) for gate in gates]
    unfinished = _unfinished(base, new, one_study)
    if unfinished:
        why = told_unfinished(unfinished)
        judgements = [Judgement(one.gate, one.condition, "inconclusive", why) for one in judgements]
    return Comparison(
        metric=column,
        level=chosen.level,
        gate_level=gate_level,
        compared=tuple(compared),
        only_base=tuple(name for name in names[0] if name not in names[1]),
        only_new=tuple(name for name in names[1] if name not in names[0]),
        refused=tuple(refused),
        judgements=tuple(judgements),
        machine=_machine(base, new, asked=one_study),
        same_plan=base.plan.digest == new.plan.digest,
        in_pairs=in_pairs,
        earlier_looks=earlier,
        planned_looks=planned,
        unfinished=unfinished,
        caveats=_caveats(base, new, unpaired) if one_study and unpaired else (),
    )


def _earlier_looks(base: StudyData, new: StudyData | None) -> int:
    return sum(len(data.plan.earlier_looks) for data in (base, new) if data is not None)


def _planned_looks(base: StudyData, new: StudyData | None) -> int:
    """The number of looks at which the data may have been ended: of two studies, every look of one with every one of
    the other.
    """
    plans = [data.plan.precision for data in (base, new) if data is not None]
    return prod(len(precision.looks) for precision in plans if precision is not None)


def _why_unpaired(data: StudyData) -> str:
    """Why the executions of a study are not judged in pairs; empty where they are."""
    if data.origin is not None:
        return f"the executions of {data.origin} were imported, so of no two is known that they ran as a pair"
    if data.plan.test != "pairs":
        return f'the study has test = "{data.plan.test}"'
    return ""


def _caveats(base: StudyData, new: StudyData, unpaired: str) -> tuple[str, ...]:
    told = f"A and B are compared like two studies, not in pairs: {unpaired}."
    places = [data.runs["position"].to_list() for data in (base, new)]
    if base.origin is None or not all(map(stand_alone, places)):
        return (told,)
    first, second = (BASE, NEW) if min(places[0]) < min(places[1]) else (NEW, BASE)
    return told, not_in_turn(base.origin, first, second)


def _unfinished(base: StudyData, new: StudyData, one_study: bool) -> tuple[Unfinished, ...]:
    found = []
    sides: tuple[tuple[Literal["A", "B"], StudyData], ...] = ((BASE, base), (NEW, new))
    for number, (side, data) in enumerate(sides):
        if not data.complete:
            conditions = data.plan.conditions[number : number + 1] if one_study else data.plan.active()
            planned = sum(map(data.plan.executions_of, conditions))
            done = data.runs.filter(~pl.col("warmup")).height
            found.append(Unfinished(side, done, planned, resuming(data, quoted(data.directory))))
    return tuple(found)


def told_unfinished(found: tuple[Unfinished, ...]) -> str:
    """``6 of 60 executions of A and 6 of 60 executions of B are done; go on with: pagelab study resume DIR``."""
    commands = dict.fromkeys(one.resume for one in found)
    return f"only {' and '.join(map(str, found))} are done; go on with: {'; '.join(commands)}"


def sides_of(data: StudyData) -> tuple[StudyData, StudyData]:
    """Splits a study of two commands (:mod:`pagelab.study.pair`) into two studies of one condition.

    Any other study is bad input: nothing pairs the conditions of different workloads.
    """
    names = list(dict.fromkeys(one.name for one in data.plan.conditions))
    if len(names) != 2:
        raise BadInputError(
            f"{data.plan.name}: one study of {len(names)} conditions; name two studies, or two commands in quotes; "
            "to compare the policies of one study: pagelab report DIR"
        )
    return _side(data, names[0]), _side(data, names[1])


def _side(data: StudyData, condition: str) -> StudyData:
    runs = data.runs.filter(pl.col("condition") == condition)
    kept = set(runs["run_id"])
    return replace(
        data,
        runs=runs.with_columns(condition=pl.lit(TOGETHER)),
        measurements=data.measurements.filter(pl.col("run_id").is_in(list(kept))),
        records=tuple((run, record) for run, record in data.records if run in kept),
    )


def _conditions(data: StudyData) -> list[str]:
    return data.runs.filter(~pl.col("warmup"))["condition"].unique(maintain_order=True).to_list()


def _column(base: StudyData, new: StudyData, wanted: str | None) -> Column:
    known = [{one.name: one for one in metrics_of(data)} for data in (base, new)]
    both = [each for each in known[0] if each in known[1]]
    name = wanted or base.plan.metric
    if name in both:
        return known[0][name]
    raise BadInputError(
        f"metric {metric_named(name).name}: not in {'A' if name not in known[0] else 'B'}; "
        f"in both: {', '.join(both) or 'none'}; choose one with --metric"
    )


def _compared(
    base: StudyData, new: StudyData, condition: str, column: Column, settings: Resampling, gate_level: float
) -> Compared:
    left_out: list[str] = []

    def experiment(side: str, data: StudyData) -> Experiment:
        executions, notes = samples_of(data, condition, column, f"{side}, {condition}, {column.label}")
        left_out.extend(f"{side}: {note}" for note in notes)
        return Experiment(condition, side, executions)

    found = changes(experiment(BASE, base), experiment(NEW, new), settings, ratio_level=gate_level)
    return Compared(condition, found, tuple(left_out))


def _lost(base: StudyData, new: StudyData, condition: str) -> tuple[Lost, Lost]:
    """The executions of both sides that timed out, and those that failed otherwise."""
    late, failed = [], []
    for data in (base, new):
        ended = data.runs.filter((pl.col("condition") == condition) & ~pl.col("warmup"))["status"]
        late.append((int((ended == "timed-out").sum()), ended.len()))
        failed.append((int((~ended.is_in(["ok", "timed-out"])).sum()), ended.len()))
    return Lost("timed out", *late), Lost("failed", *failed)


def _in_pairs(base: StudyData, new: StudyData, column: Column, level: float, gate_level: float) -> InPairs | None:
    """The comparison within blocks, judged as the report judges it; None where fewer than two blocks have both sides.

    ``level`` is that before any looks; ``gate_level`` is after them.
    """
    sides = [of_test(runs_of(data, (column,)), column) for data in (new, base)]
    every = paired(sides[0], sides[1], column.name)
    test = test_of(sides[0], sides[1], column.name, test="pairs")
    if every is None or test is None or len(every) < 2:
        return None
    finished, factor, stopped = every.finished, factor_of_looks(base.plan), base.plan.precision is not None
    size = size_within(finished, looked_level(level, factor)) if len(finished) else None
    ratio = None if size is None or size.ratio is None else size.ratio
    p = min(1.0, test.p * factor)
    direction: Literal["lower", "higher"] = "lower" if test.w < test.w_expected else "higher"
    found = Evidence(
        p=p,
        towards=direction if rejects(p, 1 - level) else None,
        change=None if ratio is None else ratio.estimate / 100,
        interval=None if ratio is None else interval_of(ratio.shown(stopped=stopped), 0.01)[0],
        shift=None if size is None else size.shift.estimate,
        shift_interval=None if size is None else interval_of(size.shift.shown(stopped=stopped))[0],
        pairs=len(finished),
        tested=len(every),
        late=sum(column.name not in e.values for e in (*sides[0], *sides[1])),
    )
    pay = blocks_pay(finished) if len(finished) else None
    long = [value for data in (base, new) if isinstance(value := data.runs["duration_s"].median(), float)]
    return InPairs(
        pairs=every,
        answer=judged(found, level=level, family=factor),
        ratio=paired_ratio(finished, level=gate_level) if ratio is not None else None,
        mean=_mean(finished, gate_level),
        any_shape=stopped,
        narrower=None if pay is None else pay.narrower,
        seconds_a_block=sum(long) if len(long) == 2 else None,
        late=(int(np.isposinf(every.baseline).sum()), int(np.isposinf(every.treatment).sum())),
        failed=_lost(base, new, TOGETHER)[1],
    )


def _mean(pairs: Pairs, level: float) -> MeanRatio | str:
    if len(pairs) == 0:
        return "no pair of executions finished"
    try:
        return paired_mean_ratio(pairs, level=level)
    except StatsRefusedError as error:
        return str(error)


def _machine(base: StudyData, new: StudyData, *, asked: bool) -> tuple[MachineDifference, ...] | None:
    """Differences of the machine; ``asked``: the settings are compared on purpose, so they are left out."""
    found = [machine_of(data) for data in (base, new)]
    if not all(one.known for one in found):
        return None
    left_out = {"summary", "settings"} if asked else {"summary"}
    facts = [{f"{one.group}.{one.key}": one.value for one in each.facts if one.group not in left_out} for each in found]
    keys = sorted(facts[0].keys() | facts[1].keys())
    values = [(key, *(each.get(key, "not known") for each in facts)) for key in keys]
    if not asked:
        values.append(("settings.host_backed", _backed(base), _backed(new)))
    return tuple(MachineDifference(*each) for each in values if each[1] != each[2])


def _backed(data: StudyData) -> str:
    """``yes`` where memory was touched before executions: that can change times as much as another machine can."""
    return "yes" if any(record.settings.host_backed_bytes for _, record in data.records) else "no"
