"""pagelab under resource limits (``ulimit``): it works with less, or ends with a message that names the limit.

Native libraries that pagelab imports (numpy's OpenBLAS, polars, the renderer of charts) start a thread a processor.
Where memory, threads or descriptors run out while they load, some of them try again for ever, abort, or leave half a
module behind. So they get one thread each; a process of our own watches the one that does the work; and every error
that is not meant for users becomes a message with the limits in force.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ExtensionFileLoader
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from pagelab import environment

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS")
STARTS_NO_PROGRAM = {"simulate", "report", "import", "model", "predict"}
"""Commands in which these variables may stay set; elsewhere the measured program would inherit them."""
_STARTS_PROGRAMS = {"advise", "compare", "diagnose", "demo", "trace", "try"}
_MODELS_THAT_RUN = {"model check", "model kinds", "model range", "model run"}
WATCHED = STARTS_NO_PROGRAM | _STARTS_PROGRAMS | _MODELS_THAT_RUN
"""Commands whose libraries or threads may hang or crash."""
PATIENCE_S = 20.0
"""Processor time for loading one native module, and real time in which a process, with its own, does nothing."""
_M_ARENA_MAX = -8
_ALLOCATOR = "_RJEM_MALLOC_CONF"
_ENDED = mmap.PAGESIZE - 1
"""Byte of the page shared with the process that does the work: 1 once Python code of ours decides how it ends."""
_CRASHES = {signal.SIGABRT, signal.SIGTRAP, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGSYS, signal.SIGXFSZ}


class Limit(NamedTuple):
    """A resource, the shell's option for its limit, and the limit that is enough for pagelab in any case."""

    number: int
    what: str
    option: str
    enough: int
    unit: int = 1

    def told(self, limit: int) -> str:
        size = f"{limit >> 20} MiB" if self.unit > 1 else str(limit)
        return f"{self.what} {'is' if self.unit > 1 else 'are'} limited to {size} (ulimit -{self.option})"


_LIMITS = (
    Limit(resource.RLIMIT_AS, "address space", "v", 16 << 30, 1024),
    Limit(resource.RLIMIT_DATA, "data memory", "d", 16 << 30, 1024),
    Limit(resource.RLIMIT_NPROC, "processes and threads of this user", "u", 1000),
    Limit(resource.RLIMIT_NOFILE, "open files", "n", 64),
    Limit(resource.RLIMIT_FSIZE, "the size of a file", "f", 64 << 20, 1024),
)


def command_of(arguments: Sequence[str]) -> str:
    """The command's name in ``WATCHED`` and its parts: the first two words if ``WATCHED`` has them, else the first."""
    words = [word for word in arguments if not word.startswith("-")][:2]
    both = " ".join(words)
    return both if both in WATCHED else "".join(words[:1])


def tight() -> list[str]:
    """The limits in force that pagelab can notice, as phrases; empty on most machines."""
    found = []
    for limit in _LIMITS:
        soft, _ = resource.getrlimit(limit.number)
        if soft != resource.RLIM_INFINITY and soft < limit.enough:
            found.append(limit.told(soft))
    return found


def prepare(command: str) -> None:
    """Sets one thread per library and one arena for malloc: each thread takes 8 MiB of stack and 64 MiB of arena."""
    if command in STARTS_NO_PROGRAM:
        for name in ONE_THREAD:
            os.environ.setdefault(name, "1")
    if command in WATCHED:
        # polars' allocator tries to start a thread again and again where there can be none.
        given = os.environ.get(_ALLOCATOR)
        environment.set_for_own(_ALLOCATOR, ",".join(filter(None, [given, "background_thread:false"])))
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def guarded(work: Callable[[], None], command: str, limits: list[str]) -> NoReturn:
    """Does the work; if it fails, reports the limits. ``WATCHED`` commands work in a process of their own, whose crash
    or hang is reported as well.
    """
    loading = mmap.mmap(-1, mmap.PAGESIZE)
    parent = os.getpid()
    try:
        child = os.fork() if command in WATCHED else 0
    except OSError as error:
        _end(f"cannot start a process: {error.strerror}", limits)
    if child == 0:
        if os.getpid() != parent:
            _die_with(parent)
        _announce_loads(loading)
        _reporting(work, limits, loading)
    watched = _Watched(child, loading, limits, own_children=command in STARTS_NO_PROGRAM)
    _as_it_ended(watched.ended(), limits, is_ours=loading[_ENDED] != 0)


def _reporting(work: Callable[[], None], limits: list[str], place: mmap.mmap) -> NoReturn:
    try:
        work()
    except (SystemExit, KeyboardInterrupt):
        place[_ENDED] = 1
        raise
    except BaseException as error:  # pyo3's panics are no Exception
        first = error
        while first.__context__ is not None:
            first = first.__context__
        place[_ENDED] = 1
        _end(f"{type(first).__name__}: {(str(first).strip() or 'no details').splitlines()[0]}", limits)
    place[_ENDED] = 1
    sys.exit(0)


def _end(what: str, limits: list[str]) -> NoReturn:
    """Reports the error and exits, by os.write and without flushing or tidying up: these need the scarce resource."""
    said = f"pagelab: {what}; {', '.join(limits)}; run it where the limit is higher"
    os.write(2, "".join(c if c.isprintable() else "?" for c in said).encode(errors="replace") + b"\n")
    os._exit(3)


def _die_with(parent: int) -> None:
    """Makes this process end when the guarding process ``parent`` is killed."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(3)


def _announce_loads(place: mmap.mmap) -> None:
    """From now on, ``place`` begins with the name of the native module that is being loaded, or with a zero byte.

    OpenBLAS reads its variable when it is loaded.
    """
    load = ExtensionFileLoader.create_module

    def create_module(self: ExtensionFileLoader, spec: Any) -> Any:
        name = spec.name.encode()[:200] + b"\0"
        place[: len(name)] = name
        added = [variable for variable in ONE_THREAD if variable not in os.environ]
        os.environ.update(dict.fromkeys(added, "1"))
        try:
            return load(self, spec)
        finally:
            place[0] = 0
            for variable in added:
                del os.environ[variable]

    ExtensionFileLoader.create_module = create_module  # type: ignore[method-assign]


class _Watched:
    """The child that does the work. A timer checks it once a second; meanwhile waitpid notices its end at once."""

    def __init__(self, child: int, loading: mmap.mmap, limits: list[str], *, own_children: bool) -> None:
        """``own_children``: the child starts no program, so processor time of its own processes counts as its work."""
        self._child = child
        self._own_children = own_children
        self._loading = loading
        self._limits = limits
        self._module = b""
        self._since_s = 0.0
        self._moved_at = time.monotonic()
        self._used_s = 0.0

    def ended(self) -> int:
        """Waits for the child's end; returns the wait status."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._pass_on)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the child as well
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, 1, 1)
        _, status = os.waitpid(self._child, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return status

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        os.kill(self._child, number)

    def _look(self, _number: int, _frame: FrameType | None) -> None:
        children = _children(self._child)
        used_s = _processor_s([self._child, *(children or [])] if self._own_children else [self._child])
        waits = children is None or bool(children and not self._own_children)
        now = time.monotonic()
        if used_s is None or used_s > self._used_s or _is_stopped(self._child) or waits:
            self._moved_at, self._used_s = now, used_s or 0.0
        module = self._loading[:200].split(b"\0")[0]
        if module != self._module:
            self._module, self._since_s = module, self._used_s
        name = module.decode(errors="replace")
        if module and self._used_s - self._since_s > PATIENCE_S:
            self._give_up(f"loading {name} takes more than {PATIENCE_S:g} s of processor time")
        elif now - self._moved_at > PATIENCE_S and "--cluster" not in sys.argv:
            self._give_up(f"loading {name} hangs" if module else f"nothing has happened for {PATIENCE_S:g} s")

    def _give_up(self, what: str) -> NoReturn:
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        _end(what, self._limits)


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third; empty where it cannot be read."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return []
    try:
        return os.read(fd, 4096).decode(errors="replace").rpartition(")")[2].split()
    finally:
        os.close(fd)


def _processor_s(processes: list[int]) -> float | None:
    """Processor time of the processes and of their ended children; None if the first one's cannot be read."""
    all_fields = [_stat(pid) for pid in processes]
    if not all_fields[0]:
        return None
    return sum(sum(map(int, fields[11:15])) for fields in all_fields) / os.sysconf("SC_CLK_TCK")


def _is_stopped(pid: int) -> bool:
    """Whether the process is stopped, traced, or waits for a device: then it does not hang."""
    return _stat(pid)[:1] not in (["S"], ["R"])


def _children(pid: int) -> list[int] | None:
    """Children of all threads of the process; None if they cannot be read."""
    found = []
    try:
        with os.scandir(f"/proc/{pid}/task") as threads:
            lists = [f"{thread.path}/children" for thread in threads]
        for one in lists:
            fd = os.open(one, os.O_RDONLY)
            try:
                found += [int(word) for word in os.read(fd, 1 << 16).split()]
            finally:
                os.close(fd)
    except OSError:
        return None
    return found


def _as_it_ended(status: int, limits: list[str], *, is_ours: bool) -> NoReturn:
    if os.WIFEXITED(status):
        if not is_ours:  # OpenBLAS, say, calls exit(1) where it has no memory
            _end(f"a library that it needs ended it (exit code {os.WEXITSTATUS(status)})", limits)
        os._exit(os.WEXITSTATUS(status))
    number = signal.Signals(os.WTERMSIG(status))
    if number in _CRASHES:
        _end(f"a library that it needs ended it ({number.name})", limits)
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)
