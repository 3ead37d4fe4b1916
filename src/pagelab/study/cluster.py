"""A session on a cluster: hosts share the blocks. A block runs on one platform, and a host makes one run at a time.

Pairs are compared within their block, so the host is a factor of blocks and cancels in every pair. If a host dies
within a block, the rest of that block waits for a worker on the same platform.
"""

from __future__ import annotations

import json
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import environment, whole_file
from ..distribute.hosts import RESOURCE, Connection, HostCluster
from ..distribute.model import Lost
from ..errors import MachineError, quoted
from ..machine.provenance import pagelab_version
from . import on_host
from .errors import NothingStartsError, StudyError
from .interrupts import Interrupts
from .job import Job, Runner, whole
from .plan import Plan, Step
from .prepare import OUTPUT
from .progress import Progress, TimeLeft
from .resuming import ADDRESS, MARK, resume_command
from .schedule import Slot
from .session import Session
from .store import RunResult, StepOutcome, Store

_OWED = "cluster_owed_steps"
"""Entry of ``meta``: platform → tear-down steps that are left to be done there."""
_OWED_BEFORE = "cluster_owed"
"""As earlier versions left it: platform → conditions whose tear-down is left to be done there, with the study's."""
_LOOK_S = 0.25
_PATIENCE_S = 120.0
"""How long a study waits for a worker when nothing runs."""
_FAREWELL_S = 15.0
_DEATHS = 3
"""Workers that may die during the same run before the session gives that run up."""


@dataclass
class _Host:
    """One machine with one platform; it may have several workers."""

    here: on_host.Here
    workers: dict[str, on_host.Here] = field(default_factory=dict)
    state: str = "new"
    """new, preparing, ready, refused"""
    block: int | None = None

    @property
    def platform(self) -> str:
        return self.here.platform.name


@dataclass(frozen=True)
class _Task:
    """What runs on a worker: a job, or its host's preparation."""

    host: _Host
    worker: str
    job: Job | None
    owed: tuple[Step, ...]


class Blocks:
    """Places that wait for a host, by block."""

    def __init__(self, slots: list[Slot], bound: dict[int, str]) -> None:
        self._slots: dict[int, deque[Slot]] = {}
        for slot in slots:
            self._slots.setdefault(slot.block, deque()).append(slot)
        self._bound = bound

    def take(self, host: _Host, others: set[int], share: int) -> tuple[Slot, bool] | None:
        """The next place for the host, and whether that place begins a new block. None: there is none.

        The place is of the block that the host is in, else of a block that its platform began and no other host is in
        (``others``), else of a new block. A host that has had its ``share`` of warm-up blocks leaves further ones to
        other hosts.
        """
        mine = [block for block, slots in self._slots.items() if slots and self._bound.get(block) == host.platform]
        if host.block in mine:
            return self._slots[host.block].popleft(), False
        begun = sorted(block for block in mine if block not in others)
        if begun:
            return self._slots[begun[0]].popleft(), False
        new = sorted(block for block, slots in self._slots.items() if slots and block not in self._bound)
        if not new:
            return None
        warm = sum(block < 0 and platform == host.platform for block, platform in self._bound.items())
        analysed = [block for block in new if block >= 0]
        block = analysed[0] if warm >= share and analysed else new[0]
        self._bound[block] = host.platform
        return self._slots[block].popleft(), True

    def give_back(self, slot: Slot) -> None:
        self._slots[slot.block].appendleft(slot)

    def left(self) -> bool:
        return any(self._slots.values())

    def platforms(self) -> list[str]:
        """The platforms that have begun blocks with places left."""
        return sorted({self._bound[block] for block, slots in self._slots.items() if slots and block in self._bound})


class ClusterSession(Session):
    """A session whose blocks run on many hosts. ``where``: as in :class:`~pagelab.distribute.hosts.HostCluster`."""

    def __init__(
        self,
        store: Store,
        directory: Path,
        runner: Runner,
        machine: dict[str, Any],
        progress: Progress | None,
        where: str,
    ) -> None:
        super().__init__(store, directory, runner, machine, progress)
        self._cluster = HostCluster(where, self._progress.note)
        self._connection: Connection
        self._resume = resume_command(quoted(directory), {MARK: "1", ADDRESS: where}, self._plan)
        self._environment = environment.inherited()
        self._hosts: dict[tuple[str, str], _Host] = {}
        self._tasks: dict[str, _Task] = {}
        self._owed: dict[str, list[Step]] = {}
        self._deaths: dict[int, int] = {}
        self._programs: dict[str, str] | None = None
        self._idle_since: float | None = None
        self._told: set[str] = set()

    def _warn_of_other_machine(self) -> None:
        """Does nothing: the machine that starts the session measures nothing."""

    def _clean_up_after(self, running: list[int]) -> tuple[StepOutcome, ...]:
        """Leaves the tear-down to the hosts, which do it before their next set-up."""
        self._take_over_owed()
        bound = self._store.block_platforms()
        query = (
            "SELECT DISTINCT block, condition FROM attempt JOIN schedule USING (position)"
            " WHERE coalesce(outcome, 'interrupted') = 'interrupted' AND position NOT IN (SELECT position FROM run)"
        )
        for block, condition in self._store.rows(query):
            if condition in running and block in bound:
                self._owe(bound[block], self._conditions[condition].teardown)
        for platform in set(bound.values()):
            self._owe(platform, self._plan.teardown)
        # Where this session is killed before its end, the next one has it from there.
        self._store_owed()
        return ()

    def _owe(self, platform: str, steps: list[Step]) -> None:
        """Adds steps that have to be done there before the next set-up; each once, at its last place."""
        before = [step for step in self._owed.get(platform, []) if step not in steps]
        self._owed[platform] = before + [step for at, step in enumerate(steps) if step not in steps[at + 1 :]]

    def _store_owed(self) -> None:
        """Leaves what is owed to the next session, whatever ends this one."""
        # Tasks have taken over steps, which they may not come to.
        taken = ((task.host.platform, list(task.owed)) for task in self._tasks.values())
        owed: dict[str, list[Step]] = {}
        for platform, steps in (*taken, *self._owed.items()):
            known = owed.setdefault(platform, [])
            known += [step for step in steps if step not in known]
        left = {platform: [step.model_dump() for step in steps] for platform, steps in owed.items() if steps}
        self._store.put_meta(_OWED, json.dumps(left))

    def _take_over_owed(self) -> None:
        """Takes over what earlier sessions left."""
        meta = self._store.meta()
        for platform, steps in json.loads(meta.get(_OWED, "{}")).items():
            self._owe(platform, [Step.model_validate(step) for step in steps])
        before = json.loads(meta.get(_OWED_BEFORE, "{}"))
        for platform, conditions in before.items():
            running = [step for index in conditions for step in self._conditions[index].teardown]
            self._owe(platform, [*running, *self._plan.teardown])
        if before:
            self._store_owed()
            self._store.put_meta(_OWED_BEFORE, "{}")

    def _run_all(self, interrupts: Interrupts) -> None:
        self._take_over_owed()
        self._mark_outstanding()
        try:
            with self._cluster.connected() as self._connection:
                try:
                    self._run_planned(interrupts)
                except BaseException:
                    with whole():
                        self._give_up()
                    raise
                finally:
                    with whole():
                        self._leave()
        except MachineError as error:
            raise MachineError(f"{error}; {self._kept()}; continue with: {self._resume}") from error

    def _run_segment(self, slots: list[Slot], interrupts: Interrupts, time_left: TimeLeft) -> None:
        blocks = Blocks(slots, self._store.block_platforms())
        self._idle_since = None
        while blocks.left() or self._tasks:
            self._meet(blocks)
            self._hand_out(blocks)
            self._wait_no_longer(blocks)
            with interrupts.abandonable():
                ended = self._connection.next(_LOOK_S)
            if ended is not None:
                task = self._tasks.pop(ended.name)
                self._take(task, ended.outcome, blocks, time_left)
            if interrupts.seen:
                raise KeyboardInterrupt

    # -- hosts ----------------------------------------------------------------------------------------------------

    def _meet(self, blocks: Blocks) -> None:
        """Takes in new workers, and gives up the tasks of dead ones."""
        present = self._connection.workers()
        for name, task in list(self._tasks.items()):
            if task.worker not in present:
                del self._tasks[name]
                self._connection.forget(name)
                self._lost(task, blocks)
        known = {address for host in self._hosts.values() for address in host.workers}
        for host in self._hosts.values():
            for address in set(host.workers) - present:
                del host.workers[address]
        for address, here in self._connection.ask(on_host.here, present - known).items():
            mine = pagelab_version()
            if here.pagelab != mine:
                raise MachineError(
                    f"worker {address} has pagelab {here.pagelab}, and this is pagelab {mine}; on its host run: "
                    f"pip install 'pagelab[cluster]=={mine}'"
                )
            host = self._hosts.setdefault((here.alone, here.platform.name), _Host(here))
            host.workers[address] = here

    def _lost(self, task: _Task, blocks: Blocks) -> None:
        """Handles the death of a worker: its task is repeated on its platform, after a tear-down of what it set up."""
        host = task.host
        host.workers.pop(task.worker, None)
        self._owe(host.platform, self._owed_by(task))
        self._store_owed()
        if task.job is None:
            host.state = "new"
            return
        slot, condition = task.job.slot, task.job.condition
        attempt = self._attempts.pop(slot.position)
        deaths = self._deaths[slot.position] = self._deaths.get(slot.position, 0) + 1
        if deaths < _DEATHS:
            self._store.interrupt_attempts(f"worker {task.worker} on {host.here.platform.host} died", attempt)
            self._progress.note(
                f"worker {task.worker} died during {condition.name}; the run is repeated on {host.platform}"
            )
            blocks.give_back(slot)
            return
        why = f"each of {deaths} workers that had it died, the last: {task.worker} on {host.here.platform.host}"
        self._store.commit_run(slot, RunResult("not-started", None, None, None, why, ()), self._id, attempt)
        self._progress.finished(condition.name, "not-started", why, None)

    def _owed_by(self, task: _Task) -> list[Step]:
        """The tear-down that a task leaves undone if it does not come to its end."""
        return [*task.owed, *(self._plan.teardown if task.job is None else task.job.condition.teardown)]

    def _hand_out(self, blocks: Blocks) -> None:
        """Gives a task to every machine on which nothing runs."""
        busy = {task.host.here.alone for task in self._tasks.values()}
        share = -(-self._plan.warmups // max(1, len(self._hosts)))
        for host in self._hosts.values():
            if host.here.alone in busy or not host.workers or host.state == "refused":
                continue
            worker = min(host.workers)
            pid = host.workers[worker].pid
            owed = tuple(self._owed.pop(host.platform, ()))
            if host.state == "new":
                host.state = "preparing"
                self._start(
                    on_host.Preparation(pid, self._environment, self._plan, owed), _Task(host, worker, None, owed)
                )
                busy.add(host.here.alone)
                continue
            others = {other.block for other in self._hosts.values() if other is not host and other.workers}
            found = blocks.take(host, {block for block in others if block is not None}, share)
            if found is None:
                self._owe(host.platform, list(owed))
                continue
            slot, begins = found
            if begins:
                self._store.bind_block(slot.block, host.platform)
            host.block = slot.block
            job = next(self._jobs([slot]))
            self._start(on_host.Assignment(pid, self._environment, job, owed), _Task(host, worker, job, owed))
            busy.add(host.here.alone)

    def _start(self, work: on_host.Task, task: _Task) -> None:
        self._tasks[self._connection.submit(on_host.work, work, task.worker)] = task

    def _wait_no_longer(self, blocks: Blocks) -> None:
        """Reports what the session waits for while nothing runs, and ends the session when it does not come."""
        if self._tasks or not blocks.left():
            self._idle_since = None
            return
        now = time.monotonic()
        self._idle_since = now if self._idle_since is None else self._idle_since
        waiting = self._waits_for(blocks)
        if waiting not in self._told:
            self._told.add(waiting)
            self._progress.note(waiting)
        if now - self._idle_since > _PATIENCE_S:
            raise MachineError(f"{waiting}; none came within {_PATIENCE_S:g} s")

    def _waits_for(self, blocks: Blocks) -> str:
        start = f"start one there with: dask worker {self._connection.address} --nthreads 1 --resources {RESOURCE}=1"
        waiting = [name for name in blocks.platforms() if name not in self._ready()]
        if waiting:
            return f"blocks that {', '.join(waiting)} began wait for a worker on the same platform; {start}"
        return f"no worker to measure on; {start.replace(' there', '')}"

    def _ready(self) -> set[str]:
        return {host.platform for host in self._hosts.values() if host.workers and host.state != "refused"}

    # -- results --------------------------------------------------------------------------------------------------

    def _take(self, task: _Task, outcome: Any, blocks: Blocks, time_left: TimeLeft) -> None:
        if isinstance(outcome, on_host.OtherProcess):
            self._lost(task, blocks)
        elif isinstance(outcome, Lost):
            self._owe(task.host.platform, self._owed_by(task))
            raise MachineError(f"{task.host.platform}: {outcome.message}")
        elif isinstance(outcome, on_host.Prepared):
            self._admit(task.host, outcome)
        else:
            assert isinstance(outcome, on_host.Measured)
            assert task.job is not None
            self._commit(task.host, task.job, outcome, time_left)

    def _admit(self, host: _Host, found: on_host.Prepared) -> None:
        """Marks a prepared host as ready, or refuses it."""
        self._store.commit_steps(found.steps, self._id)
        refused = found.refused or self._other_programs(found.programs)
        if refused:
            host.state = "refused"
            self._progress.note(f"{host.platform} is left alone: {refused}")
            if self._hosts and all(one.state == "refused" for one in self._hosts.values()):
                raise StudyError(f"no host can run the study; {host.platform}: {refused}; see: pagelab doctor")
            return
        host.state = "ready"
        platform = host.here.platform
        self._store.put_platform(platform.name, platform.host, platform.processor, platform.kernel, found.machine)
        if found.noise is not None:
            self._warn(found.noise.model_copy(update={"message": f"{platform.host}: {found.noise.message}"}))

    def _other_programs(self, found: dict[str, str]) -> str | None:
        """The refusal of a host where a program has the same path but other contents than on the other hosts."""
        self._programs = found if self._programs is None else self._programs
        for path, digest in sorted(found.items()):
            if self._programs.get(path, digest) != digest:
                return f"{path} is another program than on the other hosts"
        return None

    def _commit(self, host: _Host, job: Job, found: on_host.Measured, time_left: TimeLeft) -> None:
        if found.stderr is not None:
            whole_file.put(self._directory / OUTPUT / job.stderr.name, found.stderr)
        result = found.result
        self._store.commit_steps(found.owed, self._id)
        self._store.commit_run(job.slot, result, self._id, self._attempts.pop(job.slot.position))
        self._made.append((job.slot.position, job.slot.condition, result.status))
        time_left.finished(job.slot.condition, result.duration_s or 0.0)
        left = time_left.seconds()
        hosts = max(1, len({one.here.alone for one in self._hosts.values() if one.state == "ready" and one.workers}))
        self._progress.finished(
            job.condition.name, result.status, result.message, None if left is None else left / hosts
        )
        self._stop_if_a_block_cannot_start(job, host, result.message)

    def _stop_if_a_block_cannot_start(self, last: Job, host: _Host, message: str | None) -> None:
        if self._starts_nothing():
            raise NothingStartsError(
                f"not one of {len(self._made)} runs could be started; the last, {last.condition.name} on "
                f"{host.platform}: {message}",
                self._resume,
            )

    # -- the end --------------------------------------------------------------------------------------------------

    def _give_up(self) -> None:
        """Ends what runs, and waits until it has been torn down."""
        with suppress(MachineError):
            self._connection.ask(on_host.give_up, {task.worker for task in self._tasks.values()})
            self._drain()

    def _drain(self) -> None:
        deadline = time.monotonic() + _FAREWELL_S
        while self._tasks and time.monotonic() < deadline:
            ended = self._connection.next(_LOOK_S)
            if ended is not None:
                task = self._tasks.pop(ended.name)
                if isinstance(ended.outcome, on_host.OtherProcess | Lost):
                    self._owe(task.host.platform, self._owed_by(task))
            if not self._connection.workers().issuperset(task.worker for task in self._tasks.values()):
                return

    def _leave(self) -> None:
        """Does the study's tear-down on every host that was set up; an unreachable host owes it to the next session."""
        for host in self._hosts.values():
            if host.state == "new":
                continue
            try:
                done = self._torn_down(host)
            except MachineError:
                done = False
            if not done:
                running = [step for task in self._on(host) for step in self._owed_by(task)]
                self._owe(host.platform, [*running, *self._plan.teardown])
        for name in self._tasks:
            self._connection.forget(name)
        self._tasks.clear()
        self._store_owed()

    def _on(self, host: _Host) -> list[_Task]:
        return [task for task in self._tasks.values() if task.host is host]

    def _torn_down(self, host: _Host) -> bool:
        steps = (*self._owed.get(host.platform, ()), *self._plan.teardown)
        if not steps and not self._on(host):
            return True
        if not host.workers or self._on(host):
            return False
        worker, limit = min(host.workers), self._plan.step_timeout_s
        asked = on_host.TearDown(host.workers[worker].pid, self._environment, steps, limit)
        name = self._connection.submit(on_host.work, asked, worker)
        deadline = time.monotonic() + limit * len(steps) + _FAREWELL_S
        while time.monotonic() < deadline and worker in self._connection.workers():
            ended = self._connection.next(_LOOK_S)
            if ended is not None and ended.name == name:
                if not isinstance(ended.outcome, tuple):
                    return False
                self._owed.pop(host.platform, None)
                self._store.commit_steps(ended.outcome, self._id)
                return True
        return False


def refuse_unfit(plan: Plan) -> None:
    """Raises StudyError for a study whose blocks hosts cannot share."""
    if plan.minutes is not None:
        raise StudyError("--cluster and minutes exclude each other: hosts differ in pace; write executions = N")
    if plan.reboots is not None:
        raise StudyError('--cluster and between = "reboot" exclude each other; leave one of them out')
    if plan.co_run:
        raise StudyError("--cluster and co_run exclude each other; leave co_run out of the study, or --cluster")
    if plan.test != "pairs":
        raise StudyError(f'test = "{plan.test}" compares runs of different hosts; with --cluster write test = "pairs"')
