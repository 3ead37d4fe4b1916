"""Runs a command and holds it to be mapped: just before its end, whenever its memory has grown much, or after a time.

The command is traced (``PTRACE_SEIZE``) for exec and exit events and signals only, so it runs at full speed. Its
children are not traced. Only its main thread is held: a thread that outlives it runs on while the map is taken.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from ..errors import BadInputError, MachineError
from . import procfs

_SEIZE, _INTERRUPT, _LISTEN, _CONT, _DETACH = 0x4206, 0x4207, 0x4208, 7, 17
_OPTION_EXEC, _OPTION_EXIT, _OPTION_EXITKILL = 1 << 4, 1 << 6, 1 << 20
_EVENT_EXEC, _EVENT_EXIT, _EVENT_STOP = 4, 6, 128
_ALL_CHILDREN = 0x40000000  # __WALL: also threads and clones
_POLL_S = 0.005
_LONGEST_FAILURE = 4096
"""Longest failure message, in bytes: a pipe takes this much in one piece."""
_PATIENCE_S = 5.0
_STOPPING = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

Moment = Literal["now", "peak", "exit"]
T = TypeVar("T")


@dataclass(frozen=True)
class Traced(Generic[T]):
    """The result of looking at the held process, when that was, and how the process ended."""

    value: T
    moment: Moment
    exit_code: int
    """Exit code of the process; negative: the number of the signal that ended it."""
    fullest: T | None = None
    """The result for its last program image when that had most memory; ``None`` if its end had as much."""


def run(
    argv: Sequence[str],
    look: Callable[[int, Moment], T],
    after_s: float | None = None,
    stdout: str = "inherit",
    *,
    peaks: bool = False,
) -> Traced[T]:
    """Starts ``argv`` and calls ``look(pid, moment)`` while the process is held.

    Without ``after_s`` that is just before its end; with it, after ``after_s`` seconds, or at its end if that comes
    first. A process that was looked at before its end is ended afterwards (TERM, then KILL). With ``peaks`` the process
    is also held and looked at whenever it has much more memory than before, and then runs on. ``stdout`` is
    ``inherit``, ``null`` or a path.

    Raises :class:`BadInputError` if the program cannot be started, :class:`MachineError` if tracing is refused.
    """
    pid, permission, failure = _start(argv, stdout)
    try:
        seize(pid)
    except OSError as error:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(permission)
        os.close(failure)
        raise refused(argv[0], error) from error
    os.close(permission)
    with interrupts_go_to_the_program():
        why = os.read(failure, _LONGEST_FAILURE)
        os.close(failure)
        if why:
            _wait_for_end(pid)
            number, _, what = why.decode(errors="replace").partition(" ")
            raise BadInputError(f"cannot {what}: {os.strerror(int(number))} (errno {number})")
        return follow(pid, look, after_s, peaks=peaks)


def refused(what: str, error: OSError) -> MachineError:
    """The error for a process that may not be traced."""
    return MachineError(
        f"cannot trace {what}: {error.strerror} (errno {error.errno}); "
        "see /proc/sys/kernel/yama/ptrace_scope, or in a container allow SYS_PTRACE"
    )


def _start(argv: Sequence[str], stdout: str) -> tuple[int, int, int]:
    """Forks a child that executes the program once the first pipe is closed; the second pipe reports a failure."""
    permission_read, permission = os.pipe()
    failure, failure_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        what = "wait"
        try:
            os.close(permission)
            os.read(permission_read, 1)
            what = "become the user who called sudo"
            _become_the_calling_user()
            if stdout != "inherit":
                what = f"open {stdout}"
                path = os.devnull if stdout == "null" else stdout
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), 1)
            what = f"start {argv[0]}"
            for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, as long as it runs
                signal.signal(ignored, signal.SIG_DFL)
            os.execvp(argv[0], list(argv))
        except OSError as error:
            os.write(failure_write, f"{error.errno} {what}".encode()[:_LONGEST_FAILURE])
        finally:
            os._exit(127)
    os.close(permission_read)
    os.close(failure_write)
    return pid, permission, failure


def _become_the_calling_user() -> None:
    """Drops root's rights under sudo before the command starts; only the map needs them."""
    uid, gid = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if os.geteuid() != 0 or uid is None or gid is None or uid == "0":
        return
    import pwd

    os.initgroups(pwd.getpwuid(int(uid)).pw_name, int(gid))
    os.setgid(int(gid))
    os.setuid(int(uid))


@contextmanager
def interrupts_go_to_the_program() -> Iterator[None]:
    """Makes Ctrl-C end the program, which shares our terminal, but not this process, which then maps it.

    A handler, because what is ignored stays ignored in programs that are started meanwhile.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def follow(
    pid: int,
    look: Callable[[int, Moment], T],
    after_s: float | None,
    end: Callable[[int], int] | None = None,
    *,
    peaks: bool = False,
) -> Traced[T]:
    """Lets a seized process run until it is to be mapped; see :func:`run`.

    ``end`` ends a process that was examined before its end and returns its status; without it, the process is our
    child.
    """
    deadline = None if after_s is None else time.monotonic() + after_s
    growth, fullest = (_Growth(pid) if peaks else None), None
    # What the process was interrupted for. It stops in the same way whenever somebody continues it (SIGCONT).
    wanted: Moment | None = None
    while True:
        status = _wait(pid, deadline, growth)
        if status is None:
            wanted = "peak"
            if deadline is not None and time.monotonic() >= deadline:
                wanted, deadline = "now", None
            _ptrace(_INTERRUPT, pid, 0)
            continue
        if not os.WIFSTOPPED(status):
            raise MachineError(f"process {pid} was killed before it could be mapped; a killed process cannot be held")
        event, number = status >> 16, os.WSTOPSIG(status)
        if event == _EVENT_EXIT:
            value = look(pid, "exit")
            _ptrace(_CONT, pid, 0)
            return Traced(value, "exit", _wait_for_end(pid), fullest)
        if event == _EVENT_EXEC:
            growth, fullest = (_Growth(pid) if peaks else None), None
        if event == _EVENT_STOP and number == signal.SIGTRAP and wanted == "peak" and growth is not None:
            wanted = None
            if growth.is_due:
                with growth.looking():
                    fullest = look(pid, "peak")
            _ptrace(_CONT, pid, 0)
            continue
        if event == _EVENT_STOP and number == signal.SIGTRAP and wanted == "now":
            value = look(pid, "now")
            _ptrace(_DETACH, pid, 0)
            return Traced(value, "now", (end or _end)(pid))
        if event == _EVENT_STOP:
            # A process stopped by job control stays stopped until somebody continues it.
            _ptrace(_LISTEN if number in _STOPPING else _CONT, pid, 0)
            continue
        _ptrace(_CONT, pid, number if event == 0 else 0)


class _Growth:
    """Decides when a process has grown so much since the last look that it is looked at again.

    Once looks have taken two seconds of processor time, they take at most half of the time that the process ran unheld.
    """

    _MORE, _MUCH_MORE = 1.1, 2.0
    _SMALLEST = 4 << 20
    """A smaller process is looked at only at its end."""
    _STILL_S = 0.01
    """Seconds without growth after which a process counts as no longer growing."""
    _SHORTEST_S, _LONGEST_S = 0.001, 0.01
    _FREE_S, _SHARE = 2.0, 0.5

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._since = self._grew = time.monotonic()
        self._seen = self._before = 0
        self._looking_s = self._held_s = 0.0
        self.is_due = False

    def check(self) -> bool:
        """Whether to look now: it has much more memory, or somewhat more and has stopped growing."""
        now, at = procfs.resident_bytes(self._pid) or 0, time.monotonic()
        if now > self._before:
            self._grew = at
        self._before = now
        more = now > max(self._MORE * self._seen, self._SMALLEST)
        timely = now > self._MUCH_MORE * self._seen or at - self._grew >= self._STILL_S
        allowed_s = max(self._FREE_S, self._SHARE * (at - self._since - self._held_s))
        self.is_due = more and timely and self._looking_s <= allowed_s
        return self.is_due

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Accounts the time while the process is held and looked at."""
        began, cpu_began, self.is_due = time.monotonic(), time.process_time(), False
        self._seen = max(self._before, procfs.resident_bytes(self._pid) or 0)
        yield
        self._looking_s += time.process_time() - cpu_began
        self._held_s += time.monotonic() - began

    @property
    def pause_s(self) -> float:
        """Seconds until the next check: short at first, to catch the peaks of short programs."""
        return min(self._LONGEST_S, self._SHORTEST_S + (time.monotonic() - self._since) / 100)


def _wait(pid: int, deadline: float | None, growth: _Growth | None = None) -> int | None:
    """The next status of the process; ``None`` when the deadline has passed or it is time to look."""
    if deadline is None and (growth is None or growth.is_due):
        return os.waitpid(pid, _ALL_CHILDREN)[1]
    while True:
        found, status = os.waitpid(pid, _ALL_CHILDREN | os.WNOHANG)
        if found:
            return status
        if deadline is not None and time.monotonic() >= deadline:
            return None
        if growth is not None and growth.check():
            return None
        time.sleep(_POLL_S if growth is None else growth.pause_s)


def _wait_for_end(pid: int) -> int:
    while True:
        status = os.waitpid(pid, _ALL_CHILDREN)[1]
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        event = status >> 16
        _ptrace(_CONT, pid, os.WSTOPSIG(status) if event == 0 else 0)


def _end(pid: int) -> int:
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_POLL_S)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def seize(pid: int) -> None:
    """Traces a process without stopping it, for exec and exit events only; it dies with us. Raises ``OSError``."""
    _ptrace(_SEIZE, pid, _OPTION_EXEC | _OPTION_EXIT | _OPTION_EXITKILL)


def _ptrace(request: int, pid: int, data: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, pid, None, data) == -1:
        number = ctypes.get_errno()
        if number == errno.ESRCH and request != _SEIZE:
            return  # killed meanwhile; the next wait returns the status
        raise OSError(number, os.strerror(number))
