"""A session makes the missing runs of a schedule, from the first to the end, and commits each run when it ends.

Whatever ends a session (Ctrl-C, ``kill -9``, a power cut), the store holds every run that finished, and the next
session continues the same order at the run that was in progress.
"""

from __future__ import annotations

import errno
import json
import math
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadInputError, MachineError, quoted
from ..record import RunWarning, WarningKind
from . import budget
from .co_run import CoRunExecutor
from .errors import FullDiskError, NothingStartsError, StudyError, StudyInterruptedError
from .host_backing import HostBacking, needed_in
from .interim_looks import Look, looks_of
from .interrupts import Interrupts
from .job import Executor, Job, LocalExecutor, Runner, Stoppable, TearDownCutShortError, run_steps
from .plan import Condition, Plan
from .prepare import OUTPUT, TRIAL
from .progress import Progress, Silent, TimeLeft
from .resuming import UNSTARTED, resume_command
from .schedule import Slot
from .store import FAILED, RunResult, StepOutcome, Store
from .this_boot import this_boot


@dataclass(frozen=True)
class Finished:
    """The study's state at the end of a session."""

    runs: int
    failed: int
    stopped_at: int | None
    """Number of blocks after which a precision stop ended the study; None where none did."""
    target_missed: bool = False
    """Whether the study ended at its maximum, with intervals wider than the target."""


class Session:
    """Makes the missing runs of one open store; the caller holds the directory's lock."""

    def __init__(
        self,
        store: Store,
        directory: Path,
        runner: Runner,
        machine: dict[str, Any],
        progress: Progress | None = None,
        check: Callable[[Condition], str | None] | None = None,
    ) -> None:
        """``check``: the reason why this machine cannot do a condition now; without it, nothing is asked."""
        self._store = store
        self._directory = directory
        self._runner = runner
        self._machine = machine
        self._progress = progress or Silent()
        self._plan: Plan = store.plan()
        self._conditions = {condition.index: condition for condition in self._plan.conditions}
        self._backing = HostBacking(self._plan, store, machine.get("machine", {}), needed_in(directory / TRIAL))
        self._id = 0
        self._attempts: dict[int, int] = {}
        self._check = check
        self._made: list[tuple[int, int, str]] = []
        """Position, condition and status of this session's runs."""
        self._outstanding: set[int] = set()
        """Conditions with runs to be made when the session began."""
        self._resume = resume_command(quoted(directory), {}, self._plan)

    def work(self, noise: RunWarning | None = None) -> Finished:
        """Makes all missing runs; finished ones are kept.

        Raises :class:`StudyInterruptedError` when asked to stop, :class:`FullDiskError` where the disk is full.
        """
        with self._told_of_a_full_disk():
            return self._work(noise)

    @contextmanager
    def _told_of_a_full_disk(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.OperationalError) as error:
            if not _is_full(error):
                raise
            raise FullDiskError(
                f"cannot store a run in {self._directory}: {os.strerror(errno.ENOSPC)} (errno {errno.ENOSPC})",
                self._kept(),
                self._directory,
                self._resume,
            ) from error

    def _kept(self) -> str:
        runs = len(self._store.finished())
        return "1 run is kept" if runs == 1 else f"{runs} runs are kept"

    def _work(self, noise: RunWarning | None) -> Finished:
        self._warn_of_other_machine()
        if noise is not None:
            self._warn(noise)
        killed, running = self._store.killed_in()
        reason: str | None = "error"
        try:
            with Interrupts() as interrupts:
                try:
                    # Before the new session begins: where this is cut short, the next one does it again.
                    cleaned = self._clean_up_after(running) if killed else ()
                    self._id = self._store.begin_session(
                        os.getpid(), socket.gethostname(), this_boot().id, self._machine
                    )
                    self._store.commit_steps(cleaned, self._id)
                    self._run_all(interrupts)
                    reason = "done"
                except TearDownCutShortError:
                    # Like a killed one.
                    reason = None
                except KeyboardInterrupt:
                    reason = "interrupted"
                finally:
                    self._progress.stop()
                    if reason is not None and self._id:
                        self._store.interrupt_attempts(f"by {interrupts.seen}" if interrupts.seen else "by an error")
            if reason in ("interrupted", None):
                stopped = f"stopped by {interrupts.seen}"
                cut = "" if reason else " in the middle of a tear-down, which the next session does first"
                raise StudyInterruptedError(f"{stopped}{cut}; {self._kept()}; continue with: {self._resume}", stopped)
        finally:
            if reason is not None and self._id:
                self._store.end_session(self._id, reason)
        return self._summary()

    def _clean_up_after(self, running: list[int]) -> tuple[StepOutcome, ...]:
        """Does the tear-down that a killed session left undone: first of its run in progress, then its own. Returns the
        outcomes."""
        outcomes: list[StepOutcome] = []
        steps = [step for index in running for step in self._conditions[index].teardown]
        run_steps("teardown", steps + self._plan.teardown, self._plan.step_timeout_s, outcomes, go_on=True)
        return tuple(outcomes)

    def _run_all(self, interrupts: Interrupts) -> None:
        outcomes: list[StepOutcome] = []
        try:
            with interrupts.abandonable():
                failed = run_steps("setup", self._plan.setup, self._plan.step_timeout_s, outcomes)
            if failed:
                raise StudyError(
                    f"the study's set-up failed: {failed.command}: {failed.message}\n{failed.output}".rstrip()
                    + f"\nmend it, then continue with: {self._resume}"
                )
            self._mark_outstanding()
            self._refuse_impossible()
            self._run_planned(interrupts)
        except TearDownCutShortError:
            # What is cut short comes before the study's own, which the next session does with it.
            raise
        except BaseException:
            self._tear_down(outcomes)
            raise
        else:
            self._tear_down(outcomes)

    def _tear_down(self, outcomes: list[StepOutcome]) -> None:
        run_steps("teardown", self._plan.teardown, self._plan.step_timeout_s, outcomes, go_on=True)
        self._store.commit_steps(tuple(outcomes), self._id)

    def _mark_outstanding(self) -> None:
        finished = self._store.finished()
        self._outstanding = {slot.condition for slot in self._store.slots() if slot.position not in finished}

    def _refuse_impossible(self) -> None:
        """Refuses to go on where this machine cannot do what is left of the study: each of these runs would be lost.

        The set-up of the study has been done, and what a killed session left has been torn down.
        """
        if self._check is None or looks_of(self._store).stopped is not None:
            return
        for condition in self._plan.active():
            # With a time limit there may be more runs than are planned by now.
            if condition.index in self._outstanding or self._plan.minutes is not None:
                reason = self._obstacle(condition)
                if reason:
                    raise StudyError(
                        f"{condition.name} cannot run now: {reason}; mend it, then continue with: {self._resume}"
                    )

    def _obstacle(self, condition: Condition) -> str | None:
        """Why the condition cannot be run now; None: nothing is known that is in the way."""
        assert self._check is not None
        try:
            (self._directory / OUTPUT).mkdir(exist_ok=True)
            cwd = condition.request.cwd
            # A set-up of its own may make it.
            if cwd and not condition.setup and not Path(cwd).is_dir():
                return f"there is no directory {cwd}"
            return self._check(condition)
        except (BadInputError, MachineError, OSError) as error:
            return str(error)

    def _run_planned(self, interrupts: Interrupts) -> None:
        """Makes all planned runs; in a study with a time limit, then further runs that fit."""
        began = time.monotonic()
        self._run_segments(interrupts)
        while self._plan.minutes is not None:
            message = budget.go_on(self._store, self._plan, time.monotonic() - began)
            if message is None:
                return
            if message:
                self._progress.note(message)
            self._plan = self._store.plan()
            self._run_segments(interrupts)

    def _run_segments(self, interrupts: Interrupts) -> None:
        """Makes the runs between two planned looks one by one, so that all have finished at the look."""
        slots, finished = self._store.slots(), self._store.finished()
        remaining = [slot for slot in slots if slot.position not in finished]
        looks = looks_of(self._store)
        if looks.stopped is not None:
            return
        time_left = self._begin_progress(len(slots), len(finished), remaining)
        for look in looks.planned:
            segment = [slot for slot in remaining if look.first_block <= slot.block < look.blocks]
            self._run_segment(segment, interrupts, time_left)
            if self._decide(look):
                return

    def _begin_progress(self, total: int, finished: int, remaining: list[Slot]) -> TimeLeft:
        time_left = TimeLeft(
            self._store.rows("SELECT condition, duration_s FROM run WHERE duration_s IS NOT NULL"),
            (slot.condition for slot in remaining),
        )
        self._progress.start(self._plan.name, total, finished, time_left.seconds())
        return time_left

    def _run_segment(self, slots: list[Slot], interrupts: Interrupts, time_left: TimeLeft) -> None:
        executor = self._executor(interrupts)
        for together in executor.execute(self._jobs(slots)):
            for job, result in together:
                self._stop_if_cut(job, result)
            attempts = [self._attempts.pop(job.slot.position) for job, _ in together]
            runs = [(job.slot, result, attempt) for (job, result), attempt in zip(together, attempts, strict=True)]
            self._store.commit_runs(runs, self._id)
            self._made += [(job.slot.position, job.slot.condition, result.status) for job, result in together]
            for job, result in together:
                self._backing.after(job.condition, result)
                time_left.finished(job.slot.condition, result.duration_s or 0.0)
                self._progress.finished(job.condition.name, result.status, result.message, time_left.seconds())
            if interrupts.seen:
                raise KeyboardInterrupt
            last, result = together[-1]
            self._stop_if_nothing_starts(last, result.message)
            if self._in_pilot:
                budget.refuse_too_long(self._store, self._plan, last.slot.block)

    def _executor(self, interrupts: Interrupts) -> Executor:
        if not self._plan.co_run:
            return LocalExecutor(self._runner, interrupts.abandonable)
        give_up = self._runner.give_up if isinstance(self._runner, Stoppable) else lambda: None
        return CoRunExecutor(self._runner, interrupts.abandonable, give_up)

    def _stop_if_nothing_starts(self, last: Job, message: str | None) -> None:
        """Ends the session, with the reason, if no run of its first block could be started; the next session repeats
        these runs."""
        if not self._starts_nothing():
            return
        is_first = len(self._made) == len(self._store.finished()) or self._plan.reboots
        which = "run of the first block" if is_first else f"of the first {len(self._made)} runs of this session"
        raise NothingStartsError(
            f"not one {which} could be started; the last, {last.condition.name}: {message}", self._resume
        )

    def _starts_nothing(self) -> bool:
        """Whether a block of runs was made, with every condition that is left, and none could be started. They are then
        marked to be repeated."""
        made, wanted = self._made, self._outstanding
        a_block = len(self._plan.active())
        if self._plan.reboots:
            # A boot may have one run: all boots so far count as one session.
            made = self._store.rows("SELECT position, condition, status FROM run")
            wanted = {condition.index for condition in self._plan.active()}
            a_block *= 1 + self._plan.warmups
        if len(made) < a_block or any(status != "not-started" for _, _, status in made):
            return False
        if not {condition for _, condition, _ in made} >= wanted:
            return False
        self._store.put_meta(UNSTARTED, json.dumps([position for position, _, _ in made]))
        return True

    @property
    def _in_pilot(self) -> bool:
        return self._plan.minutes is not None and not budget.is_sized(self._store)

    def _stop_if_cut(self, job: Job, result: RunResult) -> None:
        """Ends the session after a run that the pilot's time limit ended; with more time, that run is repeated."""
        own = self._conditions[job.slot.condition].request.timeout_s
        if result.status == "timed-out" and job.condition.request.timeout_s != own:
            raise budget.too_long(self._directory, self._plan, job.condition.name)

    def _jobs(self, slots: list[Slot]) -> Iterator[Job]:
        limit = budget.longest_s(self._plan) if self._in_pilot else None
        for slot in slots:
            condition = self._conditions[slot.condition]
            if limit is not None and limit < (condition.request.timeout_s or math.inf):
                condition = condition.asking(timeout_s=limit)
            condition = self._backing.before(condition)
            self._attempts[slot.position] = self._store.begin_attempt(slot.position, self._id)
            self._progress.running(condition.name)
            yield Job(slot, condition, self._directory.resolve() / OUTPUT, self._plan.step_timeout_s)

    def _decide(self, look: Look) -> bool:
        """Takes a planned look of a precision stop; returns whether the study ends here."""
        if self._plan.precision is None:
            return False
        decision = look.decide(self._store)
        self._store.put_event("look", decision)
        self._progress.note(f"look after {look.blocks} blocks: {decision['reason']}")
        return bool(decision["stop"])

    def _warn_of_other_machine(self) -> None:
        before = self._store.rows("SELECT machine FROM session ORDER BY id LIMIT 1")
        if not before:
            return
        changes = machine_changes(json.loads(before[0][0]), self._machine)
        if changes:
            warning = RunWarning(
                kind=WarningKind.MACHINE_CHANGED,
                severity="serious",
                message="the study was continued on a machine that differs from where it began: " + "; ".join(changes),
                data={"changes": changes},
            )
            self._warn(warning)

    def _warn(self, warning: RunWarning) -> None:
        self._store.put_event("warning", warning.model_dump(mode="json"))
        self._progress.note(warning.message)

    def _summary(self) -> Finished:
        statuses = [row[0] for row in self._store.rows("SELECT status FROM run")]
        failed = sum(status in FAILED for status in statuses)
        looks = looks_of(self._store)
        return Finished(len(statuses), failed, looks.stopped, looks.missed)


_MATTERS = (
    ("provenance", "host"),
    ("provenance", "cpu", "model_name"),
    # In virtual machines, processors of several generations have the same name.
    ("provenance", "cpu", "family"),
    ("provenance", "cpu", "model"),
    ("provenance", "cpu", "stepping"),
    ("provenance", "cpu", "microcode"),
    ("provenance", "kernel", "release"),
    ("provenance", "kernel", "cmdline"),
    ("provenance", "memory_bytes"),
    ("provenance", "governor"),
    ("provenance", "pagelab", "version"),
    ("machine", "thp", "enabled"),
    ("machine", "thp", "defrag"),
)


_MEMORY_DIFFERS = 0.005
"""A change of the memory by at least this share means that memory was added or removed."""


def machine_changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Differences between two states of a machine that can change a result: ``"kernel.release: 6.1 → 6.12"``."""
    changes = []
    for path in _MATTERS:
        old, new = _at(before, path), _at(now, path)
        if old != new and not (path[-1] == "memory_bytes" and _same_size(old, new)):
            changes.append(f"{'.'.join(path[1:])}: {old} → {new}")
    return changes


def _same_size(old: Any, new: Any) -> bool:
    """Whether two memory sizes mean the same memory: the kernel's own part differs by some pages between boots."""
    return isinstance(old, int) and isinstance(new, int) and abs(old - new) < _MEMORY_DIFFERS * max(old, new)


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _is_full(error: OSError | sqlite3.OperationalError) -> bool:
    """Whether a file, or the database, has no room to grow."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return error.sqlite_errorcode == sqlite3.SQLITE_FULL
