"""Adds executions to a study that has begun: whole blocks, of all workloads or of some, in the schedule's order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from .answering import fewest_for_tests, looked_at, most_programs, reachability, tested_or_described
from .errors import StudyError
from .plan import Plan
from .schedule import Slot, schedule
from .store import Store

MOST_BLOCKS = 100_000


def extended(plan: Plan, slots: list[Slot], blocks: Mapping[str, int]) -> tuple[Plan, list[Slot]]:
    """The plan with these ``blocks`` of each workload (label -> blocks), and the places that come after ``slots``.

    The seed gives the order of all conditions in a block; conditions that have enough blocks are then left out. So the
    runs of a study do not depend on how often it was extended.
    """
    active = plan.active()
    most = max(blocks.values())
    there = {(slot.block, slot.condition) for slot in slots}
    added: list[Slot] = []
    for slot in schedule(len(active), most, plan.warmups, plan.seed, plan.together, plan.each_boot):
        condition = active[slot.condition]
        if slot.block < blocks[condition.workload] and (slot.block, condition.index) not in there:
            added.append(Slot(len(slots) + len(added), slot.block, condition.index, slot.execution))
    same = len(set(blocks.values())) == 1
    return plan.model_copy(update={"executions": most, "blocks": {} if same else dict(blocks)}), added


def blocks_of(plan: Plan) -> dict[str, int]:
    """Workload -> number of its blocks, in the order of the plan."""
    return {condition.workload: plan.executions_of(condition) for condition in plan.active()}


def add_executions(store: Store, executions: int) -> None:
    """Extends the study to ``executions`` of each condition, in all: a further look, where a report may have been read.

    Raises StudyError where the study has more already, or where planned looks decide the number.
    """
    plan = store.plan()
    planned = blocks_of(plan)
    refuse_other_rules(plan, store)
    if not max(planned.values()) < executions <= MOST_BLOCKS:
        raise StudyError(
            f"--executions {executions}: the study has {max(planned.values())} of each condition; name the number in "
            f"all, up to {MOST_BLOCKS:,}"
        )
    seen = seen_before(store, plan).model_copy(update={"minutes": None})
    extend(store, seen, dict.fromkeys(planned, executions))


def seen_before(store: Store, plan: Plan) -> Plan:
    """The plan, with the look that was taken before executions are added: at the study's end, or where it has so many
    executions that its report may have shown a difference.
    """
    slots, made = store.slots(), store.finished()
    if not made:
        return plan
    of_each = Counter(slot.condition for slot in slots if slot.position in made and slot.block >= 0)
    if len(made) == len(slots):
        return looked_at(plan)
    most = max(of_each.values(), default=0)
    return looked_at(plan, most) if plan.tested and most >= fewest_for_tests(plan) else plan


def extend(store: Store, plan: Plan, blocks: Mapping[str, int]) -> None:
    """Writes the extended plan and its places; turns tests on where the executions were too few and are enough now.

    Raises StudyError where planned tests could no longer succeed.
    """
    longer, added = extended(plan, store.slots(), blocks)
    before = store.plan()
    if not before.tested or reachability(before):
        longer = tested_or_described(longer)
    elif reachability(longer):
        raise StudyError(
            f"{store.path.parent}: a further look is judged at half of the level, which {most_programs(longer)} "
            "programs cannot reach whatever the data; nothing is changed; begin a study of its own: pagelab study run "
            "SPEC --into DIR"
        )
    store.extend(longer, added)
    for warning in reachability(longer):
        store.put_event("warning", warning.model_dump(mode="json"))


def refuse_other_rules(plan: Plan, store: Store) -> None:
    """Raises StudyError where the plan's own rules decide the number of executions."""
    if plan.precision is not None:
        raise StudyError(
            f"{store.path.parent} decides its executions by its planned looks ([precision]), to which nothing can be "
            "added; for more, start a new study with other looks: pagelab study run SPEC --into DIR"
        )
