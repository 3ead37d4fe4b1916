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


MEASURE_FD = 3
"""Descriptor on which a program reports measurements, unless told otherwise."""
_NO_VARIABLES: Mapping[str, str] = {}


class LauncherError(PagelabError):
    """``pagelab-launch`` failed in a way that is nobody's fault but pagelab's."""


class RunRequest(Request):
    """What to run and how: the fields of :class:`pagelab.contract.request.Request`, with shorter forms of nested ones.

    ``env`` (variables to set), ``unset`` and ``clear_env`` make its ``env``; ``measure_fd`` and ``measure_regex`` its
    ``measurements``; a word as ``flush``, with ``flush_files``, its ``flush``. Raises :class:`BadInputError` for an
    unknown field, and for a value of the wrong kind.
    """

    def __init__(
        self,
        *,
        argv: Sequence[str],
        env: Mapping[str, str] | EnvChanges = _NO_VARIABLES,
        unset: Sequence[str] = (),
        clear_env: bool = False,
        measure_fd: int | None = MEASURE_FD,
        measure_regex: str | None = None,
        flush: Literal["none", "files", "all"] | Flush = "none",
        flush_files: Sequence[str] = (),
        **fields: Any,
    ) -> None:
        from pydantic import ValidationError

        try:
            if not isinstance(env, EnvChanges):
                env = EnvChanges(clear=clear_env, set=dict(env), unset=list(unset))
            if not isinstance(flush, Flush):
                flush = Flush(mode=flush, files=list(flush_files))
            measured = {"measurements": Measurements(fd=measure_fd, regex=measure_regex)}
            super().__init__(argv=list(argv), env=env, flush=flush, **{**measured, **fields})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise BadInputError(f"RunRequest: {where} = {first['input']!r}: {first['msg']}") from None


def run(request: Request) -> Record:
    """Makes the run and returns its record, whatever became of the program.

    Where the library is, what the machine offers and where the record goes is filled in.

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
    all_warnings = [*record.warnings, *colour_warnings.warnings(record.policy.toml, described)]
    completed = {
        "id": uuid.uuid4().hex,
        "machine": described,
        "provenance": machine.provenance(),
        "warnings": all_warnings,
    }
    return record.model_copy(update=completed)


def scarce(request: Request) -> list[RunWarning]:
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


def _document(request: Request, described: dict[str, Any], record: Path) -> str:
    """The request as the launcher reads it."""
    found = {
        "argv": paths.bundled(request.argv),
        "machine": described,
        "library": _library(request),
        "record": str(record),
    }
    return request.model_copy(update=found).model_dump_json(by_alias=True)


def _library(request: Request) -> str | None:
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
    """The launcher's exit code and its own messages.

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
