"""Carries out one place of the schedule, from set-up to tear-down; and the interfaces for runners and executors."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from .. import environment
from ..record import Record
from .plan import Condition, Step
from .programs import path_with_bundled
from .schedule import Slot
from .store import RunResult, StepOutcome, now
from .this_boot import this_boot

_OUTPUT_KEPT_BYTES = 4096
_KILL_PATIENCE_S = 2.0


class Runner(Protocol):
    """Starts one program under one policy and returns the result. Raises :class:`RunNotStarted`.

    Any other exception is a failure of pagelab itself and ends the session.
    """

    def run(self, condition: Condition, stderr: Path) -> Record: ...


@runtime_checkable
class Stoppable(Protocol):
    """A runner whose runs can be ended from another thread."""

    def give_up(self) -> None: ...


class RunNotStarted(Exception):  # noqa: N818 - an outcome that is recorded, not an error of the study
    """This run could not be started; the reason is stored, and the study continues."""


class TearDownCutShortError(KeyboardInterrupt):
    """A second signal came during a tear-down: the next session does it again, as after a killed one."""


@contextmanager
def whole() -> Iterator[None]:
    """A tear-down: what a second signal cuts short is owed to the next session (:class:`TearDownCutShortError`)."""
    try:
        yield
    except KeyboardInterrupt:
        raise TearDownCutShortError from None


Interruptible = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Job:
    """The input of an executor: plain data, so that it can be sent to another host."""

    slot: Slot
    condition: Condition
    output_directory: Path
    step_timeout_s: float

    @property
    def stderr(self) -> Path:
        """File of the program's error output, kept only if the run fails; all paths of a study have the same length."""
        return stderr_of(self.output_directory, self.slot.position)


def stderr_of(output_directory: Path, position: int) -> Path:
    """File of the error output of the run at ``position`` of the schedule."""
    return output_directory / f"run-{position:06d}.stderr"


class Executor(Protocol):
    """Carries out jobs, each alone on its host, and returns each result as soon as there is one; those of jobs that run
    at once, together.

    The next job is taken from ``jobs`` only when it can start. A cluster's executor takes one for each idle host.
    """

    def execute(self, jobs: Iterable[Job]) -> Iterator[list[tuple[Job, RunResult]]]: ...


class LocalExecutor:
    """Carries out one job after the other on this host: it returns a result before it takes the next job."""

    def __init__(self, runner: Runner, interruptible: Interruptible = nullcontext) -> None:
        self._runner = runner
        self._interruptible = interruptible

    def execute(self, jobs: Iterable[Job]) -> Iterator[list[tuple[Job, RunResult]]]:
        for job in jobs:
            yield [(job, perform(job, self._runner, self._interruptible))]


def perform(job: Job, runner: Runner, interruptible: Interruptible = nullcontext) -> RunResult:
    """Does set-up, run and tear-down. If the set-up fails, the run is not started; the tear-down is always done.

    Set-up and run can be interrupted (they run inside the context ``interruptible``); the tear-down cannot, except by a
    second signal, which raises :class:`TearDownCutShortError`.
    """
    started_at, start, boot = now(), time.monotonic(), this_boot()
    outcomes: list[StepOutcome] = []
    record: Record | None = None
    message: str | None = None
    try:
        with interruptible():
            failed = run_steps("setup", job.condition.setup, job.step_timeout_s, outcomes)
            if failed is None:
                record = runner.run(job.condition, job.stderr)
            else:
                message = f"set-up failed: {failed.command}: {failed.message}"
    except RunNotStarted as error:
        message = str(error)
    finally:
        run_steps("teardown", job.condition.teardown, job.step_timeout_s, outcomes, go_on=True)
    status = record.outcome.status if record else "not-started"
    if record and status != "ok":
        message = record.outcome.message or describe(record)
    if status == "ok" and job.condition.keeps_stderr:
        job.stderr.unlink(missing_ok=True)
    return RunResult(status, started_at, time.monotonic() - start, record, message, tuple(outcomes), boot)


def describe(record: Record) -> str:
    """How the program ended, in words."""
    outcome = record.outcome
    if outcome.status == "timed-out":
        return f"did not end within {record.settings.timeout_s} s"
    if outcome.signal is not None:
        return f"ended by signal {outcome.signal} ({_signal_name(outcome.signal)})"
    return f"ended with exit code {outcome.exit_code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def run_steps(
    phase: Literal["setup", "teardown"],
    steps: list[Step],
    timeout_s: float,
    outcomes: list[StepOutcome],
    *,
    go_on: bool = False,
) -> StepOutcome | None:
    """Runs ``steps`` in order and appends their ``outcomes``; stops at the first failure unless ``go_on``.

    Returns the first step that failed, or None. Raises :class:`TearDownCutShortError` for KeyboardInterrupt in a
    tear-down.
    """
    first: StepOutcome | None = None
    with whole() if phase == "teardown" else nullcontext():
        for step in steps:
            outcome = _run_step(phase, step, timeout_s)
            outcomes.append(outcome)
            if outcome.message:
                first = first or outcome
                if not go_on:
                    break
    return first


def _run_step(phase: Literal["setup", "teardown"], step: Step, timeout_s: float) -> StepOutcome:
    """Runs one command in a process group of its own, so that a time limit or Ctrl-C ends all its processes."""
    start = time.monotonic()
    exit_code: int | None = None
    # A file, not a pipe: a daemon that the set-up leaves running would keep a pipe open forever.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                step.argv,
                cwd=step.cwd,
                env={**environment.inherited(), "PATH": path_with_bundled()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            message: str | None = f"cannot start {step.argv[0]}: {error.strerror}"
        else:
            try:
                exit_code = process.wait(timeout_s)
                message = _verdict(exit_code)
            except subprocess.TimeoutExpired:
                message = f"did not end within {timeout_s:g} s"
            finally:
                if process.returncode is None:
                    _end_group(process)
        output.seek(max(0, output.seek(0, os.SEEK_END) - _OUTPUT_KEPT_BYTES))
        tail = output.read().decode(errors="replace")
    kept = exit_code if exit_code is not None and exit_code >= 0 else None
    return StepOutcome(phase, step.shown, kept, time.monotonic() - start, tail, message)


def _verdict(exit_code: int) -> str | None:
    if exit_code == 0:
        return None
    return f"exit code {exit_code}" if exit_code > 0 else f"signal {-exit_code}"


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(_KILL_PATIENCE_S)
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()
