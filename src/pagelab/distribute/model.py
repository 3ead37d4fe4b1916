"""The interface of every executor."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Lost:
    """A job without a result: all its workers died, or the work raised an exception; ``message`` is the reason."""

    message: str


Outcomes = Generator[tuple[Job, Result | Lost], None, None]
"""Jobs with their results. Close it to give up the rest."""


class Executor(Protocol):
    """Does work on jobs, in any order, and returns each result as soon as it exists.

    Jobs are taken from ``jobs`` only as workers become free, so that it may be of any length. Jobs, results and work
    are pickled, so the work must be a module's function. The job of a worker that dies is done again. Closing the
    iterator (an exception in the loop, Ctrl-C) gives up the jobs in progress.
    """

    def execute(self, work: Callable[[Job], Result], jobs: Iterable[Job]) -> Outcomes[Job, Result]: ...


class ThisProcess:
    """Executes jobs in this process, one after the other, on request. A crash ends everything."""

    def execute(self, work: Callable[[Job], Result], jobs: Iterable[Job]) -> Outcomes[Job, Result]:
        """See :class:`Executor`."""
        for job in jobs:
            yield job, attempted(work, job)


def attempted(work: Callable[[Job], Result], job: Job) -> Result | Lost:
    """The work's result, or its exception."""
    try:
        return work(job)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the native part is not an Exception
        return raised(error)


def raised(error: BaseException) -> Lost:
    """The lost job of an exception that the work raised."""
    return Lost(f"{type(error).__name__}: {error}")


def ending(exit_code: int | None) -> str:
    """Words for a process's end, from multiprocessing's exit code (negative: a signal)."""
    if exit_code is None:
        return "its connection broke"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = "no name"
    return f"signal {-exit_code} ({name}{', as when memory runs out' if -exit_code == signal.SIGKILL else ''})"
