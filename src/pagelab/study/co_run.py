"""Runs both conditions of a pair at once on one processor (an option); the result is not how they differ alone.

What slows a shared machine down then slows both at the same time, as in duet benchmarking (Bulej et al., ICPE 2020),
where each has its own processor. On one processor the two take turns within milliseconds, so processor time is
compared. Each finds the caches as the other left them, which changes the effect as well as its noise.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext

from .job import Interruptible, Job, Runner, perform
from .plan import Condition
from .primary import is_processor_time
from .store import RunResult, now


def arranged(conditions: list[Condition], wrong: Callable[[str], None]) -> list[Condition]:
    """The two conditions, bound to one processor; ``wrong`` is called with the reason why they cannot run at once."""
    if len([one for one in conditions if one.left_out is None]) != 2:
        wrong(f"runs two conditions at once, and this study has {len(conditions)}; write one workload and two policies")
        return conditions
    for one in conditions:
        if not is_processor_time(one.metric):
            wrong(f'needs processor time, and {one.name} has metric = "{one.metric}"; write metric = "cpu_s"')
        if one.request.scheduler == "fifo":
            wrong('and scheduler = "fifo" exclude each other: one of the two would wait until the other has ended')
        if one.setup or one.teardown or one.request.flush.mode != "none":
            wrong(f"leaves no moment for set-up, tear-down and flushing, which {one.name} has")
    cpus = {tuple(one.request.cpus) for one in conditions if one.request.cpus}
    if len(cpus) > 1 or any(len(each) != 1 for each in cpus):
        wrong('needs the same one processor for both; write cpus = "one", or leave it out')
    cpu = list(cpus.pop()) if cpus else [max(os.sched_getaffinity(0))]
    return [one.asking(cpus=cpu) for one in conditions]


class CoRunExecutor:
    """Runs the jobs of a block at once, and returns their results when all of them have ended.

    ``give_up`` ends the running jobs when the session is asked to stop, or when pagelab itself failed in one of them.
    """

    def __init__(self, runner: Runner, interruptible: Interruptible, give_up: Callable[[], None]) -> None:
        self._runner = runner
        self._interruptible = interruptible
        self._give_up = give_up

    def execute(self, jobs: Iterable[Job]) -> Iterator[list[tuple[Job, RunResult]]]:
        coming = iter(jobs)
        first = next(coming, None)
        while first is not None:
            second = next(coming, None)
            if second is not None and second.slot.block == first.slot.block:
                pair = [first, second]
                yield list(zip(pair, self._at_once(pair), strict=True))
                first = next(coming, None)
            else:
                # In studies of before, a session could be killed between the two results of a pair.
                why = "the other of the pair had run when the session was killed: they run at once or not at all"
                yield [(first, RunResult("not-started", now(), 0.0, None, why, ()))]
                first = second

    def _at_once(self, jobs: list[Job]) -> list[RunResult]:
        results: dict[int, RunResult] = {}
        failures: list[BaseException] = []

        def work(number: int, job: Job) -> None:
            try:
                results[number] = perform(job, self._runner, nullcontext)
            except BaseException as error:
                failures.append(error)
                self._give_up()

        threads = [threading.Thread(target=work, args=each, daemon=True) for each in enumerate(jobs)]
        try:
            with self._interruptible():
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        except BaseException:
            self._give_up()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            raise
        if failures:
            raise failures[0]
        return [results[number] for number in range(len(jobs))]
