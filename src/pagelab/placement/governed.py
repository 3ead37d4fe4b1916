"""Maps a program that ``pagelab-launch`` runs under a policy: found below the launcher, held, looked at, let go."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..errors import MachineError
from ..record import Record
from ..runner import RunRequest, run
from . import trace
from .errors import is_alive
from .trace import Moment, Traced

T = TypeVar("T")

_POLL_S = 0.0002
_GENERATIONS = 3
"""The launcher is its own guard's child, and the program is the launcher's."""


def run_and_look(
    request: RunRequest, look: Callable[[int, Moment], T], after_s: float | None = None
) -> tuple[Traced[T], Record]:
    """Makes the run and calls ``look(pid, moment)`` while its program is held, as :func:`trace.run` does.

    The program is found while it still waits for the launcher's go, some milliseconds before it executes.

    Raises what :func:`pagelab.runner.run` raises, and :class:`MachineError` where the program cannot be found or
    traced.
    """
    outcome: list[Record | BaseException] = []
    worker = threading.Thread(target=_run, args=(request, outcome), name="pagelab-run")
    with trace.interrupts_go_to_the_program():
        worker.start()
        try:
            pid = _find(worker)
            traced = None if pid is None else _hold(pid, look, after_s)
        finally:
            worker.join()
    result = outcome[0]
    if isinstance(result, BaseException):
        raise result
    if traced is None:
        raise MachineError(
            "the program ended before it could be mapped; its placement is in the record: pagelab run --json"
        )
    return traced, result


def _run(request: RunRequest, outcome: list[Record | BaseException]) -> None:
    try:
        outcome.append(run(request))
    except BaseException as error:
        outcome.append(error)


def _find(worker: threading.Thread) -> int | None:
    """The program's process, or ``None`` where the run is over without one that could be seen."""
    while worker.is_alive():
        # The launcher is a child of the thread that started it.
        generation = _children(os.getpid(), worker.native_id or 0)
        for _ in range(_GENERATIONS - 1):
            generation = [child for parent in generation for child in _children(parent, parent)]
        if generation:
            return generation[0]
        time.sleep(_POLL_S)
    return None


def _children(pid: int, thread: int) -> list[int]:
    """The children of one thread of a process, oldest first; none where it is gone.

    Raises :class:`MachineError` on kernels without CONFIG_PROC_CHILDREN.
    """
    try:
        with open(f"/proc/{pid}/task/{thread}/children", "rb") as listed:  # noqa: PTH123
            return [int(child) for child in listed.read().split()]
    except OSError:
        if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
            raise MachineError(
                "cannot find the program: this kernel does not list the children of a process (CONFIG_PROC_CHILDREN)"
            ) from None
        return []


def _hold(pid: int, look: Callable[[int, Moment], T], after_s: float | None) -> Traced[T] | None:
    try:
        trace.seize(pid)
    except ProcessLookupError:
        return None
    except OSError as error:
        if not is_alive(pid):  # a process that is ending cannot be traced: EPERM
            return None
        raise trace.refused(f"process {pid}", error) from error
    return trace.follow(pid, look, after_s, end=_end)


def _end(pid: int) -> int:
    """Ends a program whose parent is the launcher; that one tells how it ended."""
    import signal

    for number, patience_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return 0
        deadline = time.monotonic() + patience_s
        while is_alive(pid) and time.monotonic() < deadline:
            time.sleep(0.005)
        if not is_alive(pid):
            return 0
    return 0
