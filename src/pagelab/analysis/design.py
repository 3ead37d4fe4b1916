"""Describes the design of a study: conditions and their counts, baseline, schedule, stopping rule."""

from __future__ import annotations

import shlex
from collections import Counter

import polars as pl

from pagelab.analysis import wording
from pagelab.analysis.commands import are_two_commands
from pagelab.analysis.data import StudyData
from pagelab.analysis.model import Condition, Design, Execution, Metric
from pagelab.stats.precision import looked_level
from pagelab.study import plan as plan_module
from pagelab.study.answering import factor_of_looks
from pagelab.study.sides import SIDES, kept


def design_of(data: StudyData, executions: tuple[Execution, ...], metrics: tuple[Metric, ...]) -> Design:
    """The design of the study *data*, with planned and actual counts."""
    plan = data.plan
    conditions = tuple(_condition(c, data, executions) for c in plan.conditions)
    workloads = tuple(dict.fromkeys(c.workload for c in conditions))
    baselines = {c.workload: c.policy for c in conditions if c.is_baseline}
    names = [c.policy for c in conditions if c.is_baseline] + [c.policy for c in conditions]
    policies = tuple(dict.fromkeys(names))  # baselines first: the first policy is grey
    primaries = {c.workload: c.metric for c in plan.conditions}
    absent = sorted(set(primaries.values()) - {m.name for m in metrics})
    warm_up = _all_warm_up(data, executions, set(primaries.values()))
    blocks = len({e.block for e in executions if not e.warmup and e.block is not None})
    return Design(
        name=plan.name,
        question=plan.question or _question(workloads, policies, baselines),
        question_given=bool(plan.question),
        workloads=workloads,
        policies=policies,
        conditions=conditions,
        baselines=baselines,
        executions=None if data.origin else plan.executions,
        blocks=blocks or None,
        seed=None if data.origin else plan.seed,
        schedule=_schedule(data),
        level=plan.level,
        test=plan.test,
        answer=plan.answer,
        tested=plan.tested,
        drop_first={c.workload: c.drop_first for c in plan.conditions if c.drop_first},
        interval_level=_interval_level(plan),
        p_factor=factor_of_looks(plan),
        earlier_looks=tuple(plan.earlier_looks),
        primary=plan.metric,
        primaries=primaries,
        stop=_stop(data, blocks),
        precision_stop=plan.precision is not None,
        precision_missed=any(look["reason"] == "maximum-reached" for look in data.looks),
        looks=tuple(
            f"after {wording.count(look['look'], 'block')}: {look['reason'].replace('-', ' ')}" for look in data.looks
        ),
        imported_from=data.origin,
        complete=data.complete,
        commands={} if data.origin else _commands(plan),
        policy_texts={} if data.origin else {c.policy: c.request.policy_toml.strip() for c in plan.conditions},
        notes=((f"{plan_module.CO_RUN[:1].upper()}{plan_module.CO_RUN[1:]}.",) if plan.co_run else ())
        + tuple(f"no execution has a value of the primary metric {name}" for name in absent)
        + tuple(text for is_primary, text in warm_up if is_primary)
        + _without_value(data, executions, metrics, absent)
        + _in_turn(data, executions, conditions)
        + _platforms(data)
        + _split_blocks(data),
        remarks=tuple(text for is_primary, text in warm_up if not is_primary),
    )


def _platforms(data: StudyData) -> tuple[str, ...]:
    """A note where several platforms of a cluster shared the blocks: a result over all may not hold on one of them."""
    if "platform" not in data.runs.columns:
        return ()
    rows = data.runs.filter(~pl.col("warmup")).select("platform", "block").drop_nulls().unique()
    blocks = Counter(rows["platform"].to_list())
    if len(blocks) < 2:
        return ()
    shares = wording.listing([f"{name}: {wording.count(blocks[name], 'block')}" for name in sorted(blocks)])
    return (f"{len(blocks)} platforms shared the blocks ({shares}); each pair is of one of them.",)


def _commands(plan: plan_module.Plan) -> dict[str, str]:
    if are_two_commands(plan):
        return {side: told.told() for side, told in zip(SIDES, kept(plan), strict=True)}
    return {c.workload: shlex.join(c.request.argv) for c in plan.conditions}


def _all_warm_up(data: StudyData, executions: tuple[Execution, ...], primaries: set[str]) -> list[tuple[bool, str]]:
    """Sentences on executions whose measurements of a metric are all warm-up, so that they have no value of it.

    Each has a flag: whether the metric is a primary one. Metrics that the same number of executions lack share one.
    """
    analysed = [e.run_id for e in executions if e.analysed]
    reported = data.measurements.filter(pl.col("run_id").is_in(analysed))
    counts = reported.group_by("name", "run_id").agg(pl.col("dropped").all()).filter(pl.col("dropped"))
    several: dict[tuple[bool, int], list[str]] = {}
    for name, n in counts.group_by("name").len().sort("name").iter_rows():
        several.setdefault((f"measure.{name}" in primaries, n), []).append(name)
    return [
        (
            is_primary,
            f"{wording.count(n, 'execution')} reported only warm-up measurements of {wording.listing(names)} "
            f"(drop_first), and so {'has' if n == 1 else 'have'} no value of {'it' if len(names) == 1 else 'them'}",
        )
        for (is_primary, n), names in several.items()
    ]


def _without_value(
    data: StudyData, executions: tuple[Execution, ...], metrics: tuple[Metric, ...], absent: list[str]
) -> tuple[str, ...]:
    """A sentence for each primary metric of which some executions that ended well have no value: they are in no pair.

    Metrics without any value, and executions whose measurements are all warm-up, have sentences of their own.
    """
    dropped = data.measurements.group_by("name", "run_id").agg(pl.col("dropped").all()).filter(pl.col("dropped"))
    warm_up = {(f"measure.{name}", run) for name, run in dropped.select("name", "run_id").iter_rows()}
    labels = {m.name: m.label for m in metrics}
    missing: dict[str, list[str]] = {}
    for condition in data.plan.conditions:
        mine = [e for e in executions if e.condition == condition.name and e.analysed]
        without = [e for e in mine if condition.metric not in e.values and (condition.metric, e.run_id) not in warm_up]
        if without and condition.metric not in absent:
            told = f"{len(without):,} of {wording.count(len(mine), 'execution')} in {condition.name}"
            missing.setdefault(condition.metric, []).append(told)
    return tuple(
        f"{wording.listing([*told[:4], f'others in {len(told) - 4} more conditions'] if len(told) > 4 else told)} "
        f"have no value of {labels[metric]} (none, or not a finite number): the conclusions are about the others."
        for metric, told in missing.items()
    )


def _in_turn(data: StudyData, executions: tuple[Execution, ...], conditions: tuple[Condition, ...]) -> tuple[str, ...]:
    """A sentence where imported executions of compared conditions stand one condition after the other in their file."""
    if data.origin is None:
        return ()
    places: dict[str, list[int]] = {}
    for e in executions:
        places.setdefault(e.condition, []).append(e.position)
    apart = {name for name, at in places.items() if stand_alone(at)}
    several = Counter(c.workload for c in conditions if c.id in apart)
    found = [c for c in conditions if c.id in apart and several[c.workload] > 1]
    if not found:
        return ()
    first = sorted((c for c in found if c.workload == found[0].workload), key=lambda c: min(places[c.id]))[:2]
    return (not_in_turn(data.origin, first[0].policy, first[1].policy),)


def stand_alone(positions: list[int]) -> bool:
    """Whether no execution of another condition is between those at ``positions``."""
    return len(positions) > 1 and max(positions) - min(positions) == len(positions) - 1


def not_in_turn(origin: str, first: str, second: str) -> str:
    """The sentence on two conditions of the imported file ``origin`` of which one comes after the other."""
    return (
        f"The executions were not in turns: in {origin} all of {first} come before those of {second}. A machine that "
        "drifts from the one to the other looks like a difference between them; to have them in turns: pagelab compare "
        "'COMMAND A' 'COMMAND B'."
    )


def _condition(plan: plan_module.Condition, data: StudyData, executions: tuple[Execution, ...]) -> Condition:
    mine = [e for e in executions if e.condition == plan.name]
    real = [e for e in mine if not e.warmup]
    failures = Counter(e.status for e in real if not e.analysed)
    return Condition(
        id=plan.name,
        workload=plan.workload,
        policy=plan.policy,
        is_baseline=plan.baseline,
        planned=None if plan.left_out or data.origin else data.plan.executions_of(plan),
        finished=len(real),
        analysed=sum(e.analysed for e in real),
        short_placed=sum(e.analysed and e.short_placed for e in real),
        failures=dict(sorted(failures.items())),
        warmups=len(mine) - len(real),
        left_out=plan.left_out,
    )


def _interval_level(plan: plan_module.Plan) -> float:
    """The level of the intervals, after the looks."""
    return looked_level(plan.level, factor_of_looks(plan))


def _question(workloads: tuple[str, ...], policies: tuple[str, ...], baselines: dict[str, str]) -> str:
    others = [p for p in policies if p not in baselines.values()]
    base = sorted(set(baselines.values()))
    if not others or len(base) != 1:
        return f"How fast are {wording.listing(workloads)} under {wording.listing(policies)}?"
    do = "do" if len(others) > 1 else "does"
    policies_ = wording.listing(others) if len(others) <= 4 else f"{len(others)} policies"
    workloads_ = wording.listing(workloads) if len(workloads) <= 4 else f"{len(workloads)} programs"
    return f"What {do} {policies_} change for {workloads_}, compared with {base[0]}?"


def _schedule(data: StudyData) -> str:
    if data.origin:
        return f"not known: the data were imported from {data.origin}"
    if data.plan.reboots is not None:
        return _schedule_of_boots(data)
    warm = data.plan.warmups
    lead = (
        f"; {wording.count(warm, 'warm-up block')} before the first {'is' if warm == 1 else 'are'} not analysed"
        if warm
        else ""
    )
    return (
        f"randomised complete blocks, seed {data.plan.seed}: every block runs each condition once, in random order, "
        f"so that drift of the machine meets all conditions alike{lead}{_backed(data)}"
    )


def _schedule_of_boots(data: StudyData) -> str:
    """The schedule in words, for a study that restarts the machine: which executions share a boot."""
    plan = data.plan
    of_all = " of all conditions" if plan.each_boot == "block" else ""
    number = wording.count(plan.warmups, "warm-up")
    are = "is" if plan.warmups == 1 else "are"
    warm = f", with {number}{of_all} before it in the same boot, which {are} not analysed" if plan.warmups else ""
    return (
        f"randomised complete blocks, seed {plan.seed}: every block runs each condition once, in random order; "
        f"each {plan.each_boot} after a fresh boot{warm}{_backed(data)}"
    )


def _split_blocks(data: StudyData) -> tuple[str, ...]:
    """A note on blocks that took several boots instead of one: their pairs are not of one boot."""
    if data.plan.each_boot != "block" or "boot_id" not in data.runs.columns:
        return ()
    analysed = data.runs.filter(~pl.col("warmup")).group_by("block").agg(pl.col("boot_id").n_unique())
    split = analysed.filter(pl.col("boot_id") > 1).height
    if not split:
        return ()
    return (
        f"{wording.count(split, 'block')} of {analysed.height} had more than one boot, since the first was cut short.",
    )


def _backed(data: StudyData) -> str:
    touched = [record.settings.host_backed_bytes or 0 for _, record in data.records]
    if not any(touched):
        return ""
    before = f"before {sum(map(bool, touched))} of {wording.count(len(touched), 'execution')}"
    return f"; {before} up to {wording.size(max(touched))} of free memory was touched, so that the host backs it"


def _stop(data: StudyData, blocks: int) -> str:
    plan = data.plan
    if data.origin:
        return "not known: the data were imported"
    if plan.precision is None:
        return _fixed(plan) + _added(plan)
    looks = wording.listing([str(look) for look in plan.precision.looks])
    return (
        f"by precision: after {looks} blocks the study looked whether the half-width of every interval was within "
        f"{wording.percent(plan.precision.target, signed=False)} of the baseline, and was to stop at the first look "
        f"where it was; {wording.count(blocks, 'block')} were run. No look was taken at a p-value or an effect"
    )


def _fixed(plan: plan_module.Plan) -> str:
    each = f"{wording.count(plan.executions, 'execution')} of each condition"
    if plan.minutes is None:
        return f"fixed in advance: {each}" if not plan.earlier_looks else each
    if plan.blocks:
        each = f"{min(plan.blocks.values())} to {wording.count(plan.executions, 'execution')} of a condition"
    return (
        f"by time, {plan.minutes:.3g} minutes of runs: {each}. After a pilot, whose blocks count, whole blocks went to "
        "the workloads whose intervals they narrow most; looked at were durations and how far pairs scatter, not which "
        "side they lie on"
    )


def _added(plan: plan_module.Plan) -> str:
    if not plan.earlier_looks:
        return ""
    looks = wording.listing([str(look) for look in plan.earlier_looks])
    return (
        f". Executions were added after the study had ended, or could be read, with {looks}: each look has half of "
        f"the error of the one before, so this one is judged at {wording.level(_interval_level(plan))}"
    )
