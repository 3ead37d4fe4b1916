"""The planned tests of a study: each program, or all as a set; and the attainable level."""

from __future__ import annotations

from ..record import RunWarning, WarningKind
from .plan import Condition, Plan

QUANTITIES = ("time", "spread")
"""Each policy is compared with the baseline in both, over the programs of a set."""
FEWEST_EXECUTIONS = 2
"""One has no spread."""


def contrasts(plan: Plan) -> list[tuple[Condition, Condition]]:
    """``(treatment, baseline)`` for every comparison of a policy with the baseline, within one workload."""
    baselines = {condition.workload: condition for condition in plan.active() if condition.baseline}
    return [
        (condition, baselines[condition.workload])
        for condition in plan.active()
        if not condition.baseline and condition.workload in baselines
    ]


def programs_by_policy(plan: Plan) -> dict[tuple[str, str], list[str]]:
    """Policy and baseline to the programs that have both: names of workloads, with any parameters.

    Configurations of one program are no independent programs.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for treatment, baseline in contrasts(plan):
        mine = found.setdefault((treatment.policy, baseline.policy), [])
        if treatment.workload_name not in mine:
            mine.append(treatment.workload_name)
    return found


def answered(plan: Plan) -> tuple[Plan, str | None]:
    """``plan`` with its answer decided if its author left that open, and the messages about it.

    Each program by itself; as a set where no comparison of one program could reach the level with these executions,
    and comparisons over all of them can.
    """
    if plan.answer == "set" or plan.precision is not None or not each_unreachable(plan) or set_unreachable(plan):
        return plan, None
    several = programs_by_policy(plan)
    if not several:
        return plan, None
    return plan.model_copy(update={"answer": "set"}), (
        f"answered as a set: over {most_programs(plan)} programs {len(QUANTITIES) * len(several)} comparisons can "
        f"reach the level, which {plan.executions} executions cannot in {len(contrasts(plan))} comparisons of single "
        "programs "
        '(study.toml: answer = "set"; answer = "each" keeps them)'
    )


def most_programs(plan: Plan) -> int:
    return max((len(programs) for programs in programs_by_policy(plan).values()), default=0)


def reachability(plan: Plan) -> list[RunWarning]:
    """A warning when no result, however clear, could reach the level (Holm over all planned comparisons)."""
    return set_unreachable(plan) if plan.answer == "set" else each_unreachable(plan)


def each_unreachable(plan: Plan) -> list[RunWarning]:
    """The warning for programs one by one; empty where the level can be reached."""
    planned = len(contrasts(plan))
    if planned == 0:
        return []
    from ..stats import reachable

    looks = len(plan.precision.looks) if plan.precision else 2 ** len(plan.earlier_looks)
    executions = plan.precision.looks[0] if plan.precision else plan.executions
    # A study may report at any of its looks, so each is judged at its share of the error rate.
    alpha, stratified = (1 - plan.level) / looks, plan.test != "rank-sum"
    reach = reachable(executions, executions, contrasts=planned, alpha=alpha, stratified=stratified)
    if reach.reachable:
        return []
    return [_warning(str(reach), executions=executions, contrasts=planned, smallest_n=reach.smallest_n)]


def set_unreachable(plan: Plan) -> list[RunWarning]:
    """The warning for the set; empty where every policy has programs enough, and these a spread."""
    several = programs_by_policy(plan)
    if not several:
        return []
    from ..stats import reachable

    if plan.executions < FEWEST_EXECUTIONS:
        message = (
            f"a set of programs with {plan.executions} execution of each has no spread; "
            f"use at least {FEWEST_EXECUTIONS} executions"
        )
        return [_warning(message, executions=plan.executions, smallest_n=FEWEST_EXECUTIONS)]
    (policy, _), programs = min(several.items(), key=lambda one: len(one[1]))
    family, alpha = len(QUANTITIES) * len(several), round((1 - plan.level) / 2 ** len(plan.earlier_looks), 12)
    reach = reachable(len(programs), len(programs), contrasts=family, alpha=alpha, stratified=True)
    if reach.reachable:
        return []
    message = (
        f"a set of {len(programs)} program{'' if len(programs) == 1 else 's'} under {policy} cannot reach the level "
        f"{alpha:g}: the smallest possible p is {reach.smallest_p:.3g}, {reach.smallest_adjusted_p:.3g} after Holm "
        f'over {family} comparisons; use at least {reach.smallest_n} programs, or answer = "each"'
    )
    return [_warning(message, programs=len(programs), contrasts=family, smallest_n=reach.smallest_n)]


def _warning(message: str, **data: int) -> RunWarning:
    return RunWarning(kind=WarningKind.LEVEL_NOT_REACHABLE, severity="serious", message=message, data=dict(data))
