"""A study that fits a time: a pilot, then whole blocks for the workloads whose intervals they narrow most.

The pilot has the fewest blocks with which every comparison can reach the level; its runs are part of the result. After
it, blocks are given one by one to the workload where one more block narrows the half-width of its widest interval most
per second (widths shrink as 1/sqrt(n); for their sum that is Neyman's allocation with unequal costs). The allocation
uses only the duration of blocks and the scatter of pairs about their median, and neither shows the sign of a
difference. Time is that of the runs, with their own set-up and tear-down; the study's set-up is not counted.
"""

from __future__ import annotations

import heapq
import shlex
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, expm1, log, log1p, sqrt
from pathlib import Path
from statistics import median, median_low

from ..errors import BadInputError, quoted
from .answering import contrasts, fewest_for_tests
from .errors import StudyError, TooLongError
from .extend import blocks_of, extend, refuse_other_rules, seen_before
from .interim_looks import executions
from .plan import Plan
from .progress import shown_duration
from .store import Store

MOST_BLOCKS = 1000
"""Most blocks of a workload. More are never needed, and the number of averages of two pairs grows as the square."""
LEAST_MINUTES = 0.05
MOST_MINUTES = 30 * 24 * 60
MOST_OF_A_COMMAND = 24 * 60
"""The most minutes of commands that take no study file, such as ``try`` and ``advise``."""
_TELLS = 0.01
"""The change (1%) for which :func:`outlook` names the time."""
_NORMAL_DEVIATION = 1.2533
"""Standard deviation divided by mean absolute deviation, for a normal distribution."""
_USED = "time_used"
"""Entry of ``meta``: the time was used up, and the study has ended."""
_COLD = 3
"""The first block reads from the disk: it may take this many times as long as the others."""


@dataclass(frozen=True)
class Pace:
    """How long a block of one workload takes, and how far its pairs scatter."""

    workload: str
    blocks: int
    """Blocks planned so far."""
    block_s: float
    """Sum of the conditions' median durations; the longest of them where the conditions run at once."""
    scatter: float
    """Standard deviation of the log ratios within pairs, about their median, in the comparison where it is widest."""


def fewest_blocks(plan: Plan) -> int:
    """Blocks of the pilot: with fewer, no comparison of the family could reach the level, however clear."""
    from ..stats.paired import FEWEST_PAIRS

    if plan.answer == "set":
        return FEWEST_PAIRS  # the set is compared over its programs, and each needs a spread
    return fewest_of(len(contrasts(plan)), plan.level, stratified=plan.test != "rank-sum")


def fewest_of(comparisons: int, level: float, *, stratified: bool = True) -> int:
    """Pairs, or executions of each condition, with which each of ``comparisons`` can reach the level after Holm."""
    from ..stats import reachable
    from ..stats.paired import FEWEST_PAIRS

    reach = reachable(1, 1, contrasts=max(1, comparisons), alpha=round(1 - level, 12), stratified=stratified)
    return max(FEWEST_PAIRS, reach.smallest_n)


def with_minutes(plan: Plan, minutes: float) -> Plan:
    """``plan`` with a time limit of ``minutes``, and with the executions of its pilot."""
    if plan.precision is not None:
        raise BadInputError(
            "--minutes and [precision] exclude each other: one ends a study by time, the other by what its looks find"
        )
    return plan.model_copy(update={"minutes": checked_minutes(minutes), "executions": fewest_blocks(plan)})


def checked_minutes(minutes: float) -> float:
    if not LEAST_MINUTES <= minutes <= MOST_MINUTES:
        raise BadInputError(f"--minutes {minutes:g}: not within {LEAST_MINUTES} ... {MOST_MINUTES:,}")
    return minutes


def longest_s(plan: Plan) -> float | None:
    """The longest time a run may take; a longer one ends the study. None: no limit."""
    return None if plan.minutes is None else max(1.0, _COLD * 60 * plan.minutes / plan.executions)


def too_long(directory: Path, plan: Plan, name: str) -> TooLongError:
    """The error for a run of the condition ``name`` that reached :func:`longest_s`."""
    assert plan.minutes is not None
    limit = longest_s(plan) or 0.0
    reason = (
        f"one execution of {name} takes more than {shown_duration(limit)}: {_so_many(plan, 'tell')} do not fit into "
        f"{plan.minutes:g} min; it was stopped there, so the time needed is not known"
    )
    at_least = limit * plan.executions * (1 if plan.co_run else len(plan.active())) / 60
    more = f"{max(_much_more(plan.minutes), ceil(at_least)):g}"
    return TooLongError(reason, directory, more, more)


def _so_many(plan: Plan, what: str) -> str:
    """The planned executions of each condition, and why there are so many."""
    if plan.executions > fewest_blocks(plan):
        return f"the planned {plan.executions} of each"
    return f"{plan.executions} of each, the fewest that can {what},"


def add_minutes(store: Store, minutes: float) -> None:
    """Adds ``minutes`` to a study.

    Raises StudyError where planned looks decide the number of executions, and where the minutes do not hold what is
    planned already.
    """
    plan = store.plan()
    refuse_other_rules(plan, store)
    given = {"minutes": spent_s(store) / 60 + checked_minutes(minutes)}
    if outstanding(store):
        _refuse_less_than_planned(store, plan, minutes)
        store.extend(seen_before(store, plan).model_copy(update=given), [])
        return
    paces = paces_of(store, plan)
    seen = seen_before(store, plan)
    wanted = _wanted_for_tests(seen, paces, minutes)
    if wanted == blocks_of(plan):
        shortest = min(pace.block_s for pace in paces)
        raise StudyError(
            f"--minutes {minutes:g}: a block takes {shown_duration(max(1, shortest))}, so not one more fits; nothing "
            f"is changed; give it at least --minutes {rounded_up(1.1 * shortest / 60)}"
        )
    _size(store, seen.model_copy(update=given), paces, wanted, spent_s(store))
    store.put_meta(_USED, "no")


def _refuse_less_than_planned(store: Store, plan: Plan, minutes: float) -> None:
    """Raises StudyError if the executions that are planned and not made need more than ``minutes``."""
    needed_s = _outstanding_s(store, plan)
    if needed_s <= 60 * minutes * 1.1:
        return
    further = ""
    if plan.minutes is None or is_sized(store):
        further = f"continue them with: pagelab study resume {quoted(store.path.parent)}; or "
    raise StudyError(
        f"--minutes {minutes:g}: the executions that are planned already need about {shown_duration(needed_s)}; "
        f"nothing is changed; {further}give it at least --minutes {rounded_up(needed_s / 60)}"
    )


def _outstanding_s(store: Store, plan: Plan) -> float:
    """Seconds for the planned executions that have no run, at the pace of the others; 0 where there are none.

    Of few executions the first, which reads from the disk, does not decide.
    """
    taken: dict[int, list[float]] = {}
    for condition, seconds in store.rows("SELECT condition, duration_s FROM run WHERE duration_s IS NOT NULL"):
        taken.setdefault(condition, []).append(float(seconds))
    each = {condition: median_low(found) for condition, found in taken.items()}
    usual = sum(each.values()) / len(each) if each else 0.0
    finished, left = store.finished(), dict[int, list[float]]()
    for slot in store.slots():
        if slot.position not in finished:
            left.setdefault(slot.block, []).append(each.get(slot.condition, usual))
    return sum(lasts(plan, block) for block in left.values())


def _wanted_for_tests(plan: Plan, paces: Sequence[Pace], minutes: float) -> dict[str, int]:
    """Workload -> blocks in all; the blocks that the tests of this look need come first.

    Where these do not fit: raises StudyError if tests were planned; otherwise the study stays described without tests.
    """
    if plan.answer == "set" or not contrasts(plan):
        return _wanted(plan, paces, 60 * minutes)
    fewest = fewest_for_tests(plan)
    needed_s = sum(max(0, fewest - pace.blocks) * pace.block_s for pace in paces)
    if needed_s <= 60 * minutes:
        enough = [replace(pace, blocks=max(fewest, pace.blocks)) for pace in paces]
        return _wanted(plan, enough, 60 * minutes - needed_s)
    if not plan.tested:
        return _wanted(plan, paces, 60 * minutes)
    raise StudyError(
        f"--minutes {minutes:g}: a further look is judged more strictly, and needs {fewest} executions of each "
        f"condition to find anything; nothing is changed; give it at least --minutes {rounded_up(1.1 * needed_s / 60)}"
    )


def spent_s(store: Store) -> float:
    """Seconds that all blocks have taken so far."""
    of_block = "max" if store.plan().co_run else "sum"
    blocks = f"SELECT {of_block}(duration_s) AS seconds FROM run JOIN schedule USING (position) GROUP BY block"
    return float(store.rows(f"SELECT coalesce(sum(seconds), 0) FROM ({blocks})")[0][0])


def lasts(plan: Plan, durations: Iterable[float]) -> float:
    """Duration of a block of executions with these ``durations``."""
    return max(durations, default=0.0) if plan.co_run else sum(durations)


def minutes_for(blocks: int, block_s: float, *, spent_s: float) -> float:
    """Minutes of ``pagelab try`` for this many blocks after a pilot that takes ``spent_s``."""
    return float(rounded_up((spent_s + blocks * block_s) / 60 * 1.05))


def outstanding(store: Store) -> bool:
    """Whether places of the schedule have no run yet."""
    return len(store.finished()) < len(store.slots())


def is_sized(store: Store) -> bool:
    """Whether the pilot is over."""
    return any(event["kind"] == "sized" for event in store.events())


def refuse_too_long(store: Store, plan: Plan, block: int) -> None:
    """Raises TooLongError where a run ends a block of the pilot, and the pilot does not fit its time.

    Called when a run of ``block`` is over.
    """
    assert plan.minutes is not None
    if plan.executions > fewest_blocks(plan):  # no pilot: its author's number, which add_minutes has judged
        return
    taken: dict[int, list[float]] = {}
    for of, seconds in store.rows("SELECT block, coalesce(duration_s, 0) FROM run JOIN schedule USING (position)"):
        taken.setdefault(of, []).append(float(seconds))
    whole = sorted((of, lasts(plan, each)) for of, each in taken.items() if len(each) == len(plan.active()))
    if block not in dict(whole):
        return
    block_s = min(seconds for _, seconds in whole) / (_COLD if len(whole) == 1 else 1)
    spent, left = spent_s(store), plan.warmups + plan.executions - len(whole)
    if spent + left * block_s <= 60 * plan.minutes * 1.1 or left * block_s <= 60 * plan.minutes * 0.1:
        return
    last_s = whole[-1][1]
    reason = (
        f"one execution of each of {len(plan.active())} conditions takes {shown_duration(max(1, last_s))}, and "
        f"{_so_many(plan, 'show a difference')} do not fit into the time"
    )
    # A cold block may be no slower than the others: the named minutes must be enough in that case, too.
    more, in_all = (rounded_up(1.1 * seconds / 60) for seconds in (left * last_s, spent + left * last_s))
    raise TooLongError(reason, store.path.parent, more, in_all)


def unknown_time(minutes: float, argv: Sequence[str]) -> str:
    """Advice where the first execution was stopped by its share of ``minutes``: any computed time would be a guess."""
    return (
        f"it was stopped there, so the time needed is not known; try --minutes {_much_more(minutes):g}, "
        f"or time it: pagelab run -- {shlex.join(argv)}"
    )


def _much_more(minutes: float) -> int:
    """Minutes to try next where nothing is known but that these are too few."""
    return min(MOST_OF_A_COMMAND, max(10, ceil(5 * minutes)))


def rounded_up(minutes: float) -> str:
    """``minutes`` rounded up for ``--minutes``: to a tenth, and to whole minutes above ten."""
    return f"{ceil(minutes)}" if minutes > 10 else f"{max(0.1, ceil(10 * minutes) / 10):g}"


def go_on(store: Store, plan: Plan, elapsed_s: float) -> str | None:
    """Plans further blocks while there is time, after all planned ones are done; returns a message, which may be empty.

    None: nothing more fits. ``elapsed_s`` is the time that this session took for its runs; it exceeds the sum of their
    durations by the session's own overhead.
    """
    assert plan.minutes is not None
    if store.meta().get(_USED) == "yes":
        return None
    own = max(1.0, elapsed_s / max(spent_s(store), 1e-3))
    spent = spent_s(store) * own
    found = [replace(pace, block_s=pace.block_s * own) for pace in paces_of(store, plan)]
    sized = [event["data"] for event in store.events() if event["kind"] == "sized"]
    if sized:
        # The pilot's scatter is kept: estimating it again after each block would let the results choose the blocks.
        before = {one["workload"]: one["scatter"] for one in sized[-1]["paces"]}
        found = [replace(pace, scatter=before.get(pace.workload, pace.scatter)) for pace in found]
        wanted = _wanted(plan, found, 60 * plan.minutes - spent)
        if wanted == blocks_of(plan):
            # Otherwise the time of the session's own overhead would seem left, and another session would fill it.
            store.put_meta(_USED, "yes")
            return None
        extend(store, plan, wanted)
        return ""
    return _size(store, plan, found, _wanted(plan, found, 60 * plan.minutes - spent), spent)


def _size(store: Store, plan: Plan, found: Sequence[Pace], wanted: dict[str, int], spent: float) -> str:
    store.put_event("sized", {"paces": [asdict(one) for one in found], "blocks": wanted, "spent_s": spent})
    if wanted != blocks_of(plan):
        extend(store, plan, wanted)
    return outlook(found, wanted, plan)


def paces_of(store: Store, plan: Plan) -> list[Pace]:
    """The pace of each workload, from its finished runs."""
    rows = store.rows("SELECT condition, duration_s FROM run WHERE duration_s IS NOT NULL AND status != 'not-started'")
    durations: dict[int, list[float]] = {}
    for condition, seconds in rows:
        durations.setdefault(condition, []).append(float(seconds))
    values, labels = executions(store, plan, plan.executions)
    scatters: dict[str, float] = {}
    for treatment, baseline in contrasts(plan):
        found = _scatter(
            dict(zip(labels[treatment.name], values[treatment.name], strict=True)),
            dict(zip(labels[baseline.name], values[baseline.name], strict=True)),
        )
        if found is not None:
            scatters[treatment.workload] = max(found, scatters.get(treatment.workload, 0.0))
    usual = median(scatters.values()) if scatters else 0.0
    paces = []
    for workload, blocks in blocks_of(plan).items():
        own = [condition for condition in plan.active() if condition.workload == workload]
        seconds = lasts(plan, (median(durations.get(condition.index, [0.0])) for condition in own))
        paces.append(Pace(workload, blocks, max(seconds, 1e-3), scatters.get(workload, usual)))
    return paces


def _scatter(treatment: Mapping[int, float], baseline: Mapping[int, float]) -> float | None:
    """Standard deviation of log ratios within pairs, from their mean deviation about the median; None of < 2 pairs."""
    both = [(treatment[block], baseline[block]) for block in treatment.keys() & baseline.keys()]
    if len(both) < 2:
        return None
    if min(min(pair) for pair in both) > 0:
        apart = [log(x / y) for x, y in both]
    else:
        middle = median(abs(y) for _, y in both)
        if middle == 0:
            return None
        apart = [(x - y) / middle for x, y in both]
    centre = median(apart)
    # Deviations about the median of n values are too small; the factor with n - 1 corrects for that.
    return _NORMAL_DEVIATION * sum(abs(d - centre) for d in apart) / (len(apart) - 1)


def _wanted(plan: Plan, paces: Sequence[Pace], seconds: float) -> dict[str, int]:
    """Workload -> blocks in all; the same for all workloads where no policies are compared within one, since the
    workloads may then be compared with each other.
    """
    if contrasts(plan):
        return allocated(paces, seconds)
    more = max(0, int(seconds / sum(pace.block_s for pace in paces)))
    return {pace.workload: max(pace.blocks, min(MOST_BLOCKS, pace.blocks + more)) for pace in paces}


def allocated(paces: Sequence[Pace], seconds: float) -> dict[str, int]:
    """Workload -> blocks in all, where ``seconds`` more may be spent."""
    blocks = {pace.workload: pace.blocks for pace in paces}
    left = seconds
    # Where nothing scatters or nothing is compared, all workloads get the same number of blocks.
    least = 1e-6 * max((pace.scatter for pace in paces), default=0.0) or 1.0

    def gain(pace: Pace) -> float:
        n = blocks[pace.workload]
        return max(pace.scatter, least) * (1 / sqrt(n) - 1 / sqrt(n + 1)) / pace.block_s

    heap = [(-gain(pace), index) for index, pace in enumerate(paces)]
    heapq.heapify(heap)
    while heap:
        _, index = heapq.heappop(heap)
        pace = paces[index]
        if pace.block_s > left or blocks[pace.workload] >= MOST_BLOCKS:
            continue
        blocks[pace.workload] += 1
        left -= pace.block_s
        heapq.heappush(heap, (-gain(pace), index))
    return blocks


def outlook(paces: Sequence[Pace], blocks: Mapping[str, int], plan: Plan) -> str:
    """The message about the changes that ``blocks`` are likely to show, and the time that a change of 1% needs."""
    if plan.answer == "set" or not contrasts(plan) or not any(pace.scatter for pace in paces):
        return ""
    if min(blocks[pace.workload] for pace in paces) < fewest_for_tests(plan):
        return ""
    seen = {pace.workload: expm1(pace.scatter * _reach(plan, blocks[pace.workload])) for pace in paces}
    first = sorted(paces, key=lambda pace: seen[pace.workload])
    shown = ", ".join(f"{_percent(seen[pace.workload])} in {pace.workload}" for pace in first[:4])
    more = f", up to {_percent(seen[first[-1].workload])} in {first[-1].workload}" if len(first) > 4 else ""
    minutes = plan.minutes or 0.0
    time = f"{minutes:.3g} min" if minutes >= 1 else shown_duration(60 * minutes)
    text = f"with {time} changes of {shown}{more} are likely to be seen (80%)"
    best = first[0]
    needed = _blocks_for(plan, log1p(_TELLS) / best.scatter) if best.scatter else 0
    if needed > blocks[best.workload]:
        text += f"; {_TELLS:.0%} in {best.workload} alone needs {shown_duration(needed * best.block_s)}"
    return text


def _reach(plan: Plan, blocks: int) -> float:
    """The size of a change, in standard deviations of pairs, that is found with power 0.8 in Holm's strictest step."""
    from ..stats.power import shift_seen

    alpha = (1 - plan.level) / 2 ** len(plan.earlier_looks) / max(1, len(contrasts(plan)))
    # Of two independent executions the difference has the root of 2 times the deviation of one.
    return shift_seen(blocks, alpha * (1 + 1e-9), plan.test) / (1 if plan.test == "pairs" else sqrt(2))


def _blocks_for(plan: Plan, change: float) -> int:
    """The fewest blocks with which a change of so many standard deviations of pairs is found with power 0.8."""
    low = fewest_for_tests(plan)
    while _reach(plan, 2 * low) > change:
        low *= 2
    return low + bisect_left(range(low, 2 * low), -change, key=lambda blocks: -_reach(plan, blocks))


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2g}%" if fraction < 1 else f"{1 + fraction:.2g} times"
