"""Analyses a study that is answered as a set: time and spread of each policy against the baseline, over programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import exp, log, log1p
from typing import Literal

from pagelab.analysis import wording
from pagelab.analysis.answer import rejects
from pagelab.analysis.data import StudyData
from pagelab.analysis.model import (
    Contrast,
    Design,
    Execution,
    Interval,
    Metric,
    SetContrast,
    SetPart,
    SetProgram,
    Verdict,
)
from pagelab.analysis.planned_test import paired
from pagelab.analysis.summaries import interval_of
from pagelab.stats import StatsRefusedError, holm, set_ratio, spread_ratio
from pagelab.study.answering import programs_by_policy, set_comparisons

Quantity = Literal["time", "spread"]
Logs = dict[str, float | str]
"""Program → the log of its ratio, or why it has none."""
SEED = 1
"""Seed of the drawn choices of signs, so that the same study gives the same digits."""


def over_set_of(
    data: StudyData,
    design: Design,
    primary: Iterable[Contrast],
    executions: tuple[Execution, ...],
    metrics: tuple[Metric, ...],
) -> SetPart:
    """The comparisons over the set, and each program's part in them.

    ``primary``: every contrast on the primary metric of its workload. A planned comparison without data of any program
    keeps its place in Holm's family.
    """
    names = {condition.workload: condition.workload_name for condition in data.plan.conditions}
    by_condition: dict[str, list[Execution]] = {}
    for execution in executions:
        if execution.analysed:
            by_condition.setdefault(execution.condition, []).append(execution)
    contrasts: list[SetContrast] = []
    programs: list[SetProgram] = []
    every, several = list(primary), programs_by_policy(data.plan)
    family = set_comparisons(several)
    for (policy, baseline), wanted in several.items():
        mine = [c for c in every if (c.policy, c.baseline) == (policy, baseline)]
        time = {name: [_time(c) for c in mine if names[c.workload] == name] for name in wanted}
        spread = {
            name: [_spread(c, by_condition, design) for c in mine if names[c.workload] == name] for name in wanted
        }
        logs: dict[Quantity, Logs] = {
            "time": {name: _one(time[name]) for name in wanted},
            "spread": {name: _one(spread[name]) for name in wanted},
        }
        late = sum(c.timed_out for c in mine), sum(c.timed_out_baseline for c in mine)
        contrasts += [
            _contrast(policy, baseline, quantity, found, design, late, family) for quantity, found in logs.items()
        ]
        programs += [
            SetProgram(
                name, policy, baseline, len(time[name]), _ratio(logs["time"][name]), _ratio(logs["spread"][name])
            )
            for name in wanted
        ]
    known = {metric.name: metric for metric in metrics}
    is_time = all(_is_time(known[name]) for name in set(design.primaries.values()))
    return SetPart(is_time, tuple(_judged(contrasts, design)), tuple(programs))


def _is_time(metric: Metric) -> bool:
    return metric.kind == "time" or metric.unit in wording.SECONDS


def _time(c: Contrast) -> float | str:
    """The log of a configuration's ratio of times, as in the program's own row; or why there is none."""
    if c.relative is not None and c.relative > -1:
        return log1p(c.relative)
    if c.n and c.n_baseline:
        return c.note or "no ratio to the baseline exists"
    absent = [name for name, n in ((c.policy, c.n), (c.baseline, c.n_baseline)) if not n]
    return f"no execution under {wording.listing(absent)} has a value"


def _spread(c: Contrast, by_condition: dict[str, list[Execution]], design: Design) -> float | str:
    ids = {one.policy: one.id for one in design.conditions if one.workload == c.workload}
    sides = [
        [e for e in by_condition.get(ids[policy], []) if c.metric in e.values] for policy in (c.policy, c.baseline)
    ]
    pairs = paired(sides[0], sides[1], c.metric)
    if pairs is None:
        return "no block has executions of both"
    try:
        return log(spread_ratio(pairs))
    except StatsRefusedError as error:
        return str(error)


def _one(configurations: list[float | str]) -> float | str:
    """The log ratio of one program, the mean over its configurations that have one; or why there is none."""
    found = [value for value in configurations if isinstance(value, float)]
    if found:
        return sum(found) / len(found)
    return next((value for value in configurations if isinstance(value, str)), "it was not run")


def _ratio(logarithm: float | str) -> float | None:
    return exp(logarithm) if isinstance(logarithm, float) else None


def _contrast(
    policy: str, baseline: str, quantity: Quantity, found: Logs, design: Design, late: tuple[int, int], comparisons: int
) -> SetContrast:
    empty = SetContrast(
        policy=policy,
        baseline=baseline,
        quantity=quantity,
        programs=0,
        left_out={name: value for name, value in found.items() if isinstance(value, str)},
        ratio=None,
        interval=None,
        p=None,
        p_holm=None,
        p_method=None,
        below=0,
        above=0,
        verdict="not-testable",
        timed_out=late[0],
        timed_out_baseline=late[1],
    )
    logs = [value for value in found.values() if isinstance(value, float)]
    if not logs:
        return empty
    result = set_ratio([exp(value) for value in logs], level=design.interval_level, seed=SEED, comparisons=comparisons)
    interval: Interval | None = interval_of(result.interval)[0]
    return replace(
        empty,
        programs=result.programs,
        ratio=result.ratio,
        interval=interval,
        p=result.p,
        p_method=str(result.method),
        below=result.below,
        above=result.above,
    )


def _judged(contrasts: list[SetContrast], design: Design) -> list[SetContrast]:
    if not design.tested:
        return [replace(c, p=None, p_method=None, verdict="descriptive") for c in contrasts]
    if not contrasts:
        return []
    alpha = round(1 - design.level, 12)
    looked = [None if c.p is None else min(1.0, c.p * design.p_factor) for c in contrasts]
    adjusted = holm(looked, alpha=alpha).adjusted
    return [replace(c, p_holm=p, verdict=_verdict(c, p, alpha)) for c, p in zip(contrasts, adjusted, strict=True)]


def _verdict(c: SetContrast, p_holm: float | None, alpha: float) -> Verdict:
    if p_holm is None or c.ratio is None:
        return "not-testable"
    if not rejects(p_holm, alpha) or c.ratio == 1:
        return "no-difference"
    # Executions that timed out are in no ratio: without them the side that has more of them looks better than it is.
    hidden = c.timed_out > c.timed_out_baseline if c.ratio < 1 else c.timed_out < c.timed_out_baseline
    return "no-difference" if hidden else "lower" if c.ratio < 1 else "higher"
