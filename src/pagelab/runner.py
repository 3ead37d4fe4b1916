"""Runs one program under one policy: builds the request, calls ``pagelab-launch``, completes its record.

>>> from pagelab.runner import RunRequest, run
>>> record = run(RunRequest(argv=["sort", "words.txt"], policy_toml='pages = "2M"', cpus=[1]))  # doctest: +SKIP
>>> record.time.wall_ns  # doctest: +SKIP
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pagelab import terminal

from . import environment, machine, paths
from .contract.request import EnvChanges, Flush, Measurements, Request
from .errors import BadInputError, MachineError, PagelabError
from .machine.colours import colour_warnings
from .record import Record, RunWarning

_RECORDED = (0, 1, 130)
"""Exit codes of the launcher after which there is a record: done, the program failed, interrupted."""
_END_PATIENCE_S = 10.0
"""What an interrupted launcher is given to end the tree (TERM, 2 s, KILL), restore settings and write the record."""


class LauncherError(PagelabError):
    """``pagelab-launch`` failed in a way that is nobody's fault but pagelab's."""


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What to run and how; the fields are those of ``pagelab.request/1`` (docs/architecture/contracts.md)."""

    argv: Sequence[str]
    policy_toml: str = ""
    policy_path: str | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    unset: Sequence[str] = ()
    clear_env: bool = False
    preload: Literal["auto", "always", "never"] = "auto"
    cpus: Sequence[int] = ()
    aslr: bool | None = None
    scheduler: Literal["fifo"] | None = None
    node: int | None = None
    user: str | None = None
    timeout_s: float | None = None
    stdin: str = "null"
    stdout: str = "inherit"
    stderr: str = "inherit"
    events: Sequence[str] = ()
    per_process_counters: bool = True
    measure_fd: int | None = 3
    measure_regex: str | None = None
    control_readahead: bool = True
    flush: Literal["none", "files", "all"] = "none"
    flush_files: Sequence[str] = ()
    run_dir_root: str | None = None
    tell_limits: bool = False
    """Limits that leave the program too little room are told on standard error before it starts; the record's warnings
    have them in any case."""
    announce_fd: int | None = None
    """One end of a stream socket: the launcher writes the program's process id there before the program executes, and
    waits for a byte, or for the other end to be closed."""


def run(request: RunRequest) -> Record:
    """Makes the run and returns its record, whatever became of the program.

    Raises :class:`BadInputError` or :class:`MachineError` when the run was refused before the program started,
    and :class:`LauncherError` when pagelab itself failed. ``KeyboardInterrupt`` (or whatever else a signal
    handler raises) passes through after the launcher has ended the program and restored every setting.
    """
    described = machine.describe()
    with tempfile.TemporaryDirectory(prefix="pagelab-request-") as directory:
        record_path = Path(directory) / "record.json"
        request_path = Path(directory) / "request.json"
        request_path.write_text(_document(request, described, record_path))
        returned, complaint = _launch(request_path, () if request.announce_fd is None else (request.announce_fd,))
        if returned not in _RECORDED or not record_path.exists():
            raise _error(returned, complaint)
        record = _read(record_path)
    if complaint:
        _pass_on(complaint)
    told = [*record.warnings, *colour_warnings.warnings(record.policy.toml, described)]
    completed = {"id": uuid.uuid4().hex, "machine": described, "provenance": machine.provenance(), "warnings": told}
    return record.model_copy(update=completed)


def scarce(request: RunRequest) -> list[RunWarning]:
    """The limits that would leave a run of this request too little room, without making it."""
    document = _document(request, machine.describe(), Path("/dev/null"))
    asked = [str(paths.launcher()), "--limits", "-"]
    done = subprocess.run(asked, input=document, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise _error(done.returncode, done.stderr.strip())
    return [RunWarning.model_validate(warning) for warning in json.loads(done.stdout)]


def _read(path: Path) -> Record:
    from pydantic import ValidationError

    try:
        return Record.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise LauncherError(
            f"cannot read the record of {paths.launcher()} ({where}: {first['msg']}): it is of another version than"
            " this package; install both together: pip install . (from a checkout: make setup)"
        ) from None


def _document(request: RunRequest, described: dict[str, Any], record: Path) -> str:
    """The request as the launcher reads it."""
    return Request(
        argv=paths.bundled(request.argv),
        cwd=request.cwd,
        env=EnvChanges(clear=request.clear_env, set=dict(request.env), unset=list(request.unset)),
        policy_toml=request.policy_toml,
        policy_path=request.policy_path,
        machine=described,
        preload=request.preload,
        library=_library(request),
        cpus=list(request.cpus),
        aslr=request.aslr,
        scheduler=request.scheduler,
        node=request.node,
        user=request.user,
        timeout_s=request.timeout_s,
        stdin=request.stdin,
        stdout=request.stdout,
        stderr=request.stderr,
        events=list(request.events),
        per_process_counters=request.per_process_counters,
        measurements=Measurements(fd=request.measure_fd, regex=request.measure_regex),
        control_readahead=request.control_readahead,
        flush=Flush(mode=request.flush, files=list(request.flush_files)),
        run_dir_root=request.run_dir_root,
        tell_limits=request.tell_limits,
        record=str(record),
        announce_fd=request.announce_fd,
    ).model_dump_json(by_alias=True)


def _library(request: RunRequest) -> str | None:
    """Without preloading the path only counts for the size of the environment, and may be missing."""
    try:
        return str(paths.library())
    except paths.MissingPartError:
        if request.preload == "never":
            return None
        raise


_RUNNING: list[subprocess.Popen[bytes]] = []
"""Launchers that some thread waits for."""


def end_running() -> None:
    """Ends the runs of all threads, which get their records as those of programs that were ended."""
    for process in list(_RUNNING):
        # Its own thread reaps it: nothing but the signal is sent here.
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)


def _launch(request_path: Path, pass_on: tuple[int, ...] = ()) -> tuple[int, str]:
    """The launcher's exit code and what it said on its own account.

    The program shares the terminal's standard error with the launcher when asked to inherit it, so the launcher
    writes its own messages to a file of their own.
    """
    complaint_path = request_path.with_name("complaint")
    complaint_path.touch()
    command = [str(paths.launcher()), "--complaint", str(complaint_path), str(request_path)]
    process = subprocess.Popen(command, pass_fds=pass_on, env=environment.inherited())
    _RUNNING.append(process)
    try:
        returned = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        _RUNNING.remove(process)
    return returned, complaint_path.read_text(errors="replace").strip()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C reaches the launcher too, as it shares our process group; another signal may have reached only us."""
    # A second signal would make the launcher skip the program's grace; KILL leaves the clean-up to its guard.
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        process.send_signal(signal.SIGTERM)
        process.wait(_END_PATIENCE_S)
        return
    process.kill()
    process.wait()


def _pass_on(complaint: str) -> None:

    terminal.say(complaint + "\n")


def _error(returned: int, complaint: str) -> PagelabError:
    message = complaint.removeprefix("pagelab-launch: ") or f"pagelab-launch ended with exit code {returned}"
    kinds: dict[int, type[PagelabError]] = {2: BadInputError, 3: MachineError}
    return kinds.get(returned, LauncherError)(message)
