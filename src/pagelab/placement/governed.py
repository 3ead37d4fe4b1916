"""Maps a program that ``pagelab-launch`` runs under a policy: announced, held, mapped, released."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ..errors import BadInputError, MachineError, system_reason
from ..record import Record
from ..runner import RunRequest, run
from . import ptrace_hold
from .errors import is_alive
from .ptrace_hold import Moment, Traced

T = TypeVar("T")

_PATIENCE_MS = 5000


def run_and_map(
    request: RunRequest, look: Callable[[int, Moment], T], after_s: float | None = None, *, peaks: bool = False
) -> tuple[Traced[T], Record]:
    """Makes the run and calls ``look(pid, moment)`` while its program is held, as :func:`ptrace_hold.run` does.

    The launcher announces the process before it executes the program, and waits until the process is held.

    Raises what :func:`pagelab.runner.run` raises, :class:`BadInputError` if the program cannot be executed, and
    :class:`MachineError` if it cannot be traced.
    """
    outcome: list[Record | BaseException] = []
    ours, theirs = socket.socketpair()
    asked = request.model_copy(update={"announce_fd": theirs.fileno()})
    worker = threading.Thread(target=_run, args=(asked, outcome, theirs), name="pagelab-run")
    with ptrace_hold.interrupts_go_to_the_program(), ours:
        worker.start()
        try:
            pid = _announced(ours)
            traced = None if pid is None else _hold(pid, ours, look, after_s, peaks)
        finally:
            ours.close()
            worker.join()
    result = outcome[0]
    if isinstance(result, BaseException):
        raise result
    if result.outcome.status == "not-started":
        raise BadInputError(result.outcome.message or "the program could not be executed")
    if traced is None:
        raise MachineError(
            "the program ended before it could be mapped; its placement is in the record: pagelab run --json"
        )
    return traced, result


def _run(request: RunRequest, outcome: list[Record | BaseException], theirs: socket.socket) -> None:
    try:
        outcome.append(run(request))
    except BaseException as error:
        outcome.append(error)
    finally:
        # The launcher had a copy. With both closed, nobody waits for an announcement that never comes.
        theirs.close()


def _announced(ours: socket.socket) -> int | None:
    """The pid of the program's process; ``None`` if the run ended without one."""
    said = b""
    while not said.endswith(b"\n"):
        part = ours.recv(64)
        if not part:
            return None
        said += part
    return int(said)


def _hold(
    pid: int, ours: socket.socket, look: Callable[[int, Moment], T], after_s: float | None, peaks: bool
) -> Traced[T] | None:
    try:
        ptrace_hold.seize(pid)
    except ProcessLookupError:
        return None
    except OSError as error:
        if not is_alive(pid):  # a process that is ending cannot be traced: EPERM
            return None
        raise ptrace_hold.refused(f"process {pid}", error) from error
    # The launcher has been waiting until now, so the number means its program; later it may mean another process.
    try:
        process = os.pidfd_open(pid)
    except OSError as error:
        raise MachineError(f"cannot hold process {pid}: {system_reason(error)}; run: pagelab doctor") from error
    try:
        ours.close()
        return ptrace_hold.follow(pid, look, after_s, end=lambda _: _end(process), peaks=peaks)
    finally:
        os.close(process)


def _end(process: int) -> int:
    """Ends a program, by its pidfd, whose parent is the launcher; the launcher reports its end."""
    ended = select.poll()
    ended.register(process, select.POLLIN)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, number)
        if ended.poll(_PATIENCE_MS):
            break
    return 0
