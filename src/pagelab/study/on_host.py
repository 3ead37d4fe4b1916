"""The tasks of a cluster's worker for a study: report its host, prepare the host, make one run, tear down.

They are module functions and plain data, since Dask sends them by name and pickle.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from .. import launcher, machine, terminal
from ..errors import BadInputError, MachineError, system_reason
from ..foreign_files import read_end
from ..machine.provenance import pagelab_version
from ..record import RunWarning
from . import programs
from .feasible import cannot
from .job import Job, perform, run_steps
from .launching import LocalRunner, describe_machine, noise_now
from .plan import Plan, Step
from .store import RunResult, StepOutcome

HOST_VARIABLE = "PAGELAB_HOST"
"""Variable of a worker that names its host, where the machine's own name is not unique (cloned machines), or to treat
one machine as several hosts."""
_STDERR_KEPT_BYTES = 1 << 20


@dataclass(frozen=True)
class Platform:
    """The platform of a host, a factor of the analysis: a block is finished on the platform on which it began."""

    host: str
    processor: str
    kernel: str

    @property
    def name(self) -> str:
        return f"{self.host} ({self.processor}, {self.kernel})"


@dataclass(frozen=True)
class Here:
    """Where a worker is. ``alone`` is the same for all workers of one machine, of which only one runs at a time."""

    pid: int
    alone: str
    platform: Platform
    pagelab: str | None


@dataclass(frozen=True)
class OtherProcess:
    """The addressed worker has died and another has its address; nothing was done."""


class Task(Protocol):
    """Something to do on a host while nothing else is measured there."""

    @property
    def pid(self) -> int: ...
    @property
    def environment(self) -> dict[str, str]: ...
    def do(self) -> Any: ...


def work(task: Task) -> Any:
    """Does a task on a worker; returns the task's result, or :class:`OtherProcess`."""
    if os.getpid() != task.pid:
        return OtherProcess()
    with _alone(), _environment(task.environment):
        return task.do()


def here() -> Here:
    """Where this process is."""
    known = machine.provenance()
    name = os.environ.get(HOST_VARIABLE)
    try:
        identity = hashlib.sha256(Path("/etc/machine-id").read_bytes()).hexdigest()[:8]
    except OSError:
        identity = "unknown"
    platform = Platform(
        name or f"{known['host']}-{identity}",
        f"{known['cpu'].get('model_name')} with {known['cpu'].get('count')} CPUs",
        f"{known['kernel'].get('system')} {known['kernel'].get('release')}",
    )
    return Here(os.getpid(), name or str(known.get("boot_id")), platform, pagelab_version())


@dataclass(frozen=True)
class Preparation:
    """The task before a host's first run in a session."""

    pid: int
    environment: dict[str, str]
    plan: Plan
    owed: tuple[Step, ...] = ()
    """Tear-down steps left over from a session or worker that was killed here."""

    def do(self) -> Prepared:
        """Does the owed tear-down and the study's set-up, and checks whether every condition can run here."""
        outcomes: list[StepOutcome] = []
        plan = self.plan
        described = describe_machine()
        run_steps("teardown", list(self.owed), plan.step_timeout_s, outcomes, go_on=True)
        failed = run_steps("setup", plan.setup, plan.step_timeout_s, outcomes)
        if failed:
            refused: str | None = f"the study's set-up failed: {failed.command}: {failed.message}"
        else:
            refused = _refused(plan, described["machine"])
        if refused:
            return Prepared(described, refused, tuple(outcomes), {})
        return Prepared(described, None, tuple(outcomes), programs.fingerprints(plan), noise_now(plan))


@dataclass(frozen=True)
class Prepared:
    machine: dict[str, Any]
    refused: str | None
    steps: tuple[StepOutcome, ...]
    programs: dict[str, str]
    noise: RunWarning | None = None


def _refused(plan: Plan, described: dict[str, Any]) -> str | None:
    for path, digest in plan.inputs.items():
        try:
            found = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        except OSError as error:
            return f"cannot read {path}: {error.strerror}"
        if found != digest:
            return f"{path} is another file than where the study was started"
    for condition in plan.active():
        cwd = condition.request.cwd
        if cwd is not None and not Path(cwd).is_dir():
            return f"{condition.name}: there is no directory {cwd}"
        try:
            reason = cannot(condition, described)
        except (BadInputError, MachineError) as error:
            reason = str(error)
        if reason:
            return f"{condition.name}: {reason}"
    absent = programs.missing(plan)
    return absent[0][1] if absent else None


@dataclass(frozen=True)
class Assignment:
    """The task of one run on one host."""

    pid: int
    environment: dict[str, str]
    job: Job
    owed: tuple[Step, ...] = ()

    def do(self) -> Measured:
        """Does set-up, run and tear-down."""
        outcomes: list[StepOutcome] = []
        run_steps("teardown", list(self.owed), self.job.step_timeout_s, outcomes, go_on=True)
        with tempfile.TemporaryDirectory(prefix="pagelab-run-") as directory:
            job = replace(self.job, output_directory=Path(directory))
            result = perform(job, LocalRunner())
            return Measured(result, _end_of(job.stderr), tuple(outcomes))


@dataclass(frozen=True)
class Measured:
    result: RunResult
    stderr: bytes | None
    """The end of the error output of a failed run."""
    owed: tuple[StepOutcome, ...] = ()


def _end_of(path: Path) -> bytes | None:
    """The end of a file; None if there is none, or the program put something else in its place."""
    try:
        return read_end(path, _STDERR_KEPT_BYTES)
    except OSError:
        return None


@dataclass(frozen=True)
class TearDown:
    """The task after a host's last run in a session."""

    pid: int
    environment: dict[str, str]
    steps: tuple[Step, ...]
    timeout_s: float

    def do(self) -> tuple[StepOutcome, ...]:
        outcomes: list[StepOutcome] = []
        run_steps("teardown", list(self.steps), self.timeout_s, outcomes, go_on=True)
        return tuple(outcomes)


def give_up() -> None:
    """Ends the run in progress in this process."""
    launcher.end_running()


@contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    """Sets the environment of the process that started the session, the same on all hosts. Dask's own environment sets
    options of malloc and of thread pools, which measured programs would obey."""
    before = dict(os.environ)
    own = {HOST_VARIABLE: before[HOST_VARIABLE]} if HOST_VARIABLE in before else {}
    try:
        os.environ.clear()
        os.environ.update({**wanted, **own})
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


_ONE_THREAD = threading.Lock()


@contextmanager
def _alone() -> Iterator[None]:
    """Holds the host's lock, so that no other worker of any cluster measures on this host meanwhile.

    The launcher inherits the lock: if a worker is killed, the next run waits until the launcher has ended the program.
    """
    with _ONE_THREAD:
        descriptor = _lock()
        _wait_for(descriptor)
        launcher.HELD.add(descriptor)
        try:
            yield
        finally:
            launcher.HELD.discard(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_UN)


@cache
def _lock() -> int:
    """The descriptor of the lock file, opened once per process and never closed. Its number is higher than those that
    programs and their callers agree on."""
    alone = hashlib.sha256(here().alone.encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"pagelab-measuring-{alone}.lock")
    # Any user may have put anything there: do not follow a link, and do not wait for a pipe.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        try:
            # Another user's file can be read, which is enough to lock it; O_CREAT on it is refused in /tmp.
            low = os.open(path, flags)
        except FileNotFoundError:
            low = os.open(path, flags | os.O_CREAT, 0o644)
    except OSError as error:
        raise MachineError(f"cannot open {path}: {system_reason(error)}; run: ls -l {path}") from error
    try:
        if not stat.S_ISREG(os.fstat(low).st_mode):
            raise MachineError(f"cannot lock {path}: it is no regular file; run: ls -l {path}; rm {path}")
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 100)
    finally:
        os.close(low)


_QUIET_S = 30.0
"""Seconds of waiting before a message."""


def _wait_for(descriptor: int) -> None:
    """Waits for the lock, with a message if it takes long, since any user can hold it."""
    path = Path(f"/proc/self/fd/{descriptor}").readlink()
    words = f"waits for another measurement on this machine, which holds {path}; whose: run: lslocks"
    saying = threading.Timer(_QUIET_S, terminal.echo, [words], {"err": True})
    saying.daemon = True
    saying.start()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    finally:
        saying.cancel()
