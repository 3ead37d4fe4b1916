"""Executes jobs in local processes. Each has a pipe of its own, so that the job of a dead process is known.

concurrent.futures' pool is not used: when one of its processes dies, all jobs fail and the guilty one is not known.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from typing import Any, Generic

from ..errors import MachineError
from .model import Job, Lost, Outcomes, Result, attempted, ending

_PATIENCE_S = 5.0
"""Seconds that an idle process may take to end."""
_READY = "ready"


@dataclass
class _Attempt(Generic[Job]):
    job: Job
    deaths: int = 0


class LocalProcesses:
    """The requested number of processes, started when there is work for them. They are spawned: they import what they
    need and share nothing."""

    def __init__(self, processes: int | None = None, *, attempts: int = 3) -> None:
        """``processes``: None for one per available processor. ``attempts``: deaths after which a job is lost."""
        self.processes = processes if processes is not None else len(os.sched_getaffinity(0))
        self.attempts = attempts
        if self.processes < 1 or attempts < 1:
            raise ValueError(f"{self.processes} processes, {attempts} attempts: at least one of each")

    def execute(self, work: Callable[[Job], Result], jobs: Iterable[Job]) -> Outcomes[Job, Result]:
        """See :class:`~pagelab.distribute.model.Executor`. Raises :class:`MachineError` if no process can start."""
        source = (_Attempt(job) for job in jobs)
        again: deque[_Attempt[Job]] = deque()
        idle: list[_Worker[Job, Result]] = []
        busy: list[_Worker[Job, Result]] = []
        try:
            while True:
                while len(busy) < self.processes:
                    # A job that killed a process is repeated last, when more memory may be free.
                    attempt = next(source, None) or (again.popleft() if again else None)
                    if attempt is None:
                        break
                    worker = idle.pop() if idle else _Worker(work)
                    busy.append(worker)
                    worker.give(attempt)
                if not busy:
                    return
                for worker in _pending(busy):
                    busy.remove(worker)
                    attempt = worker.attempt
                    try:
                        outcome = worker.take()
                    except _Died as death:
                        attempt.deaths += 1
                        if attempt.deaths < self.attempts:
                            again.append(attempt)
                            continue
                        outcome = Lost(_lost(attempt.deaths, death))
                    else:
                        idle.append(worker)
                    yield attempt.job, outcome
        except BaseException:
            for worker in (*busy, *idle):
                worker.kill()
            raise
        finally:
            for worker in (*busy, *idle):
                worker.end()


def _lost(deaths: int, death: _Died) -> str:
    if deaths == 1:
        return f"the process that had it ended: {death}"
    return f"each of {deaths} processes that had it ended, the last: {death}"


class _Died(Exception):  # noqa: N818 (an event, dealt with here)
    """A process died while it had a job."""


class _Worker(Generic[Job, Result]):
    """One process and its pipe."""

    attempt: _Attempt[Job]

    def __init__(self, work: Callable[[Job], Result]) -> None:
        context: SpawnContext = multiprocessing.get_context("spawn")
        self._ready = False
        self.connection, theirs = context.Pipe()
        try:
            self._process = context.Process(target=_serve, args=(theirs, work), daemon=True)
            self._process.start()
        except OSError as error:
            raise MachineError(
                f"cannot start a process: {error.strerror} (errno {error.errno}); try --processes 1"
            ) from error
        finally:
            theirs.close()

    def give(self, attempt: _Attempt[Job]) -> None:
        self.attempt = attempt
        with suppress(BrokenPipeError, ConnectionResetError):  # it has died; take() raises _Died
            self.connection.send(attempt.job)

    def heard(self) -> bool:
        """Whether an outcome (or a death) can be taken now; the first message only says that the process is ready."""
        if self._ready:
            return True
        with suppress(EOFError, ConnectionResetError):
            self.connection.recv()
            self._ready = True
            return self.connection.poll()
        return True

    def take(self) -> Result | Lost:
        """The job's outcome. Raises :class:`_Died`, or :class:`MachineError` if the process never started."""
        try:
            if not self._ready:
                raise EOFError
            outcome: Result | Lost = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(_PATIENCE_S)
            code = self._process.exitcode
            self.kill()
            if not self._ready and code is not None and code >= 0:
                raise MachineError(
                    f"a worker process ended as it started (exit code {code}); a script that starts workers "
                    'does so under: if __name__ == "__main__":'
                ) from None
            raise _Died(ending(code)) from None
        return outcome

    def kill(self) -> None:
        self._process.kill()
        self.end()

    def end(self) -> None:
        """Closes the pipe, which ends an idle process."""
        self.connection.close()
        self._process.join(_PATIENCE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _pending(busy: list[_Worker[Job, Result]]) -> list[_Worker[Job, Result]]:
    """Workers with pending messages; waits until there is one. A closed connection means a death."""
    while True:
        speaking = set(wait([worker.connection for worker in busy]))
        found = [worker for worker in busy if worker.connection in speaking and worker.heard()]
        if found:
            return found


def _serve(connection: Connection[Any, Any], work: Callable[[Any], Any]) -> None:
    """Main loop of the process: one job after the other, until the pipe is closed."""
    # Ctrl-C goes to the whole group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        connection.send(_READY)
        while True:
            connection.send(attempted(work, connection.recv()))


def _end_with_parent() -> None:
    """Makes this process end with its parent, since nobody would take the result."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
