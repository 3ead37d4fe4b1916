"""The planned tests of a study (each program by itself, or all programs as a set), and whether a result can reach the
level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..record import RunWarning, WarningKind
from .plan import Condition, Plan

if TYPE_CHECKING:
    from ..stats import Reach

QUANTITIES = ("time", "spread")
"""The quantities in which each policy is compared with the baseline over a set of programs."""
_UNTESTED = "described without tests: "
"""Beginning of the messages of :func:`reachability`."""
FEWEST_EXECUTIONS = 2
"""A single execution has no spread."""


def contrasts(plan: Plan) -> list[tuple[Condition, Condition]]:
    """``(treatment, baseline)`` for every comparison of a policy with the baseline, within one workload."""
    baselines = {condition.workload: condition for condition in plan.active() if condition.baseline}
    return [
        (condition, baselines[condition.workload])
        for condition in plan.active()
        if not condition.baseline and condition.workload in baselines
    ]


def programs_by_policy(plan: Plan) -> dict[tuple[str, str], list[str]]:
    """``(policy, baseline)`` to the names of the workloads that run under both, whatever their parameters.

    A program counts once: its configurations are not independent programs.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for treatment, baseline in contrasts(plan):
        mine = found.setdefault((treatment.policy, baseline.policy), [])
        if treatment.workload_name not in mine:
            mine.append(treatment.workload_name)
    return found


def set_comparisons(several: dict[tuple[str, str], list[str]]) -> int:
    """The number of comparisons over the set for :func:`programs_by_policy`: each policy by time and by spread."""
    return len(QUANTITIES) * len(several)


def answered(plan: Plan, *, is_open: bool) -> tuple[Plan, str | None]:
    """``plan`` with its tests decided, and a message where the set is tested although the author did not ask for it.

    ``is_open``: the author left the choice open. Each program is then tested by itself. The set is tested instead where
    no comparison of one program could reach the level with these executions, and comparisons over the set can. Where
    neither can, nothing is tested and everything is described.
    """
    several = programs_by_policy(plan)
    if is_open and several and plan.precision is None and each_unreachable(plan) and not set_unreachable(plan):
        return plan.model_copy(update={"answer": "set", "tested": True}), (
            f"answered as a set: over {most_programs(plan)} programs {set_comparisons(several)} comparisons can "
            f"reach the level, which {plan.executions} executions cannot in {len(contrasts(plan))} comparisons of "
            'single programs (study.toml: answer = "set"; answer = "each" describes them without tests)'
        )
    return tested_or_described(plan), None


def tested_or_described(plan: Plan) -> Plan:
    """``plan`` with tests where a result can reach the level, and without where none can."""
    return plan.model_copy(update={"tested": not reachability(plan)})


def most_programs(plan: Plan) -> int:
    return max((len(programs) for programs in programs_by_policy(plan).values()), default=0)


def reachability(plan: Plan) -> list[RunWarning]:
    """Warnings where no result, however clear, could reach the level (Holm over all planned comparisons); else none."""
    return set_unreachable(plan) if plan.answer == "set" else each_unreachable(plan)


def fewest_for_tests(plan: Plan) -> int:
    """Executions of each condition that the comparisons of single programs need to reach the level at this look."""
    return _reach_of_each(plan).smallest_n


def looked_at(plan: Plan, made: int | None = None) -> Plan:
    """``plan`` after a look at its end, or at ``made`` executions of each; executions that are added later are judged
    at half of its error rate. To look twice at the same executions is one look.
    """
    made = plan.executions if made is None else made
    if plan.earlier_looks and plan.earlier_looks[-1] == made:
        return plan
    return plan.model_copy(update={"earlier_looks": [*plan.earlier_looks, made]})


def factor_of_looks(plan: Plan) -> int:
    """The number by which looks multiply every p and divide the error of every interval.

    A precision stop may end a study at any of its looks, so each has an equal share of the error. A study to which
    executions were added has, at each look, half of the error of the look before.
    """
    return len(plan.precision.looks) if plan.precision else 2 ** len(plan.earlier_looks)


def each_unreachable(plan: Plan) -> list[RunWarning]:
    """Warnings for tests of single programs; empty where the level can be reached."""
    planned = len(contrasts(plan))
    if planned == 0:
        return []
    reach = _reach_of_each(plan)
    if reach.reachable or (plan.blocks and _holm_reaches(plan)):
        return []
    later = "" if plan.precision else f"; tests need {reach.smallest_n} executions of each before the first look"
    message = (
        f"{_UNTESTED}with {_counted(reach.n_treatment, 'execution')} of each condition no difference in "
        f"{_counted(planned, 'comparison')} could be found, however clear (the smallest possible p is "
        f"{reach.smallest_p:.3g}, {reach.smallest_adjusted_p:.3g} after Holm, the level {reach.alpha:g}){later}"
    )
    return [_described(message, executions=reach.n_treatment, contrasts=planned, smallest_n=reach.smallest_n)]


def _reach_of_each(plan: Plan) -> Reach:
    """The smallest p that comparisons of single programs can have, corrected by Holm over all of them."""
    from ..stats import reachable

    found = contrasts(plan)
    fewest = min((plan.executions_of(treatment) for treatment, _ in found), default=plan.executions)
    executions = plan.precision.looks[0] if plan.precision else fewest
    stratified = plan.test != "rank-sum"
    return reachable(executions, executions, contrasts=max(1, len(found)), alpha=_alpha(plan), stratified=stratified)


def _alpha(plan: Plan) -> float:
    """The error rate of one look."""
    return round((1 - plan.level) / factor_of_looks(plan), 12)


def _holm_reaches(plan: Plan) -> bool:
    """Whether every comparison could reach the level where programs have different numbers of executions.

    Holm rejects those with more executions first, and corrects the others by less then.
    """
    from ..stats import holm, smallest_p

    numbers = [plan.executions_of(treatment) for treatment, _ in contrasts(plan)]
    least = [float(smallest_p(n, n, stratified=plan.test != "rank-sum")) for n in numbers]
    return all(holm(least, alpha=_alpha(plan)).rejected)


def set_unreachable(plan: Plan) -> list[RunWarning]:
    """Warnings for tests of the set; empty where every policy has enough programs, and the programs have a spread."""
    several = programs_by_policy(plan)
    if not several:
        return []
    from ..stats import reachable
    from ..stats.set_mean import smallest_set_p

    if plan.executions < FEWEST_EXECUTIONS:
        message = (
            f"{_UNTESTED}a set of programs with {plan.executions} execution of each has no spread; "
            f"tests need {FEWEST_EXECUTIONS} executions of each at least"
        )
        return [_described(message, executions=plan.executions, smallest_n=FEWEST_EXECUTIONS)]
    (policy, _), programs = min(several.items(), key=lambda one: len(one[1]))
    family, alpha = set_comparisons(several), _alpha(plan)
    reach = reachable(len(programs), len(programs), contrasts=family, alpha=alpha, stratified=True)
    least = float(smallest_set_p(len(programs), 1 - alpha, family))
    if reach.reachable and least * family <= alpha:
        return []
    needed = "a lower level" if reach.reachable else f"{reach.smallest_n} programs"
    message = (
        f"{_UNTESTED}over {_counted(len(programs), 'program')} under {policy} no difference could be "
        f"found, however clear (the smallest possible p is {least:.3g}, {min(1.0, least * family):.3g} after Holm over "
        f'{_counted(family, "comparison")}, the level {alpha:g}); tests need {needed}, or answer = "each"'
    )
    return [_described(message, programs=len(programs), contrasts=family, smallest_n=reach.smallest_n)]


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def is_untested(text: str) -> bool:
    """Whether ``text`` is the message of a warning of :func:`reachability`."""
    return text.startswith(_UNTESTED)


def _described(message: str, **data: int) -> RunWarning:
    return RunWarning(kind=WarningKind.LEVEL_NOT_REACHABLE, severity="info", message=message, data=dict(data))
