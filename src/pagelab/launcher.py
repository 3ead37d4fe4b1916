"""The native launcher: a request goes in as a plain document, the record that it wrote comes out.

Plain data and the standard library only, so that a run from the command line starts without the libraries that validate
and draw; :mod:`pagelab.runner` has the same with types.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from . import environment, machine, paths, terminal
from .errors import BadInputError, MachineError, PagelabError

MEASURE_FD = 3
"""Default descriptor on which a program reports measurements."""
_RECORDED = (0, 1, 130)
"""Exit codes of the launcher after which there is a record: done, the program failed, interrupted."""
_END_PATIENCE_S = 10.0
"""Time for an interrupted launcher to end the tree (TERM, 2 s, KILL), restore settings and write the record."""


class LauncherError(PagelabError):
    """``pagelab-launch`` failed, and the fault is pagelab's own."""


def launch(request: Mapping[str, Any], described: Mapping[str, Any]) -> bytes:
    """Makes the run of a request (``pagelab.request/1``; fields that are left out have their defaults) on the machine
    that ``described`` describes, and returns the record as the launcher wrote it, in JSON.

    Where the library is and where the record goes is filled in. Raises what :func:`pagelab.runner.run` raises.
    """
    with _private_directory() as directory:
        record_path, request_path = directory / "record.json", directory / "request.json"
        request_path.write_text(document(request, described, record_path), encoding="utf-8")
        announce = request.get("announce_fd")
        returned, complaint = _wait_for(request_path, () if announce is None else (announce,))
        if returned not in _RECORDED or not record_path.exists():
            raise error(returned, complaint)
        record = record_path.read_bytes()
    if complaint:
        terminal.say(complaint + "\n")
    return record


def document(request: Mapping[str, Any], described: Mapping[str, Any], record: Path) -> str:
    """The request as the launcher reads it."""
    found = {
        "argv": paths.bundled(request["argv"]),
        "machine": described,
        "library": _library(request.get("preload", "auto")),
        "record": str(record),
    }
    text = json.dumps({"schema": "pagelab.request/1", **request, **found}, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as bad:
        near = text[max(0, bad.start - 20) : bad.end + 20]
        raise BadInputError(
            f"cannot hand over the command or its settings: {near!r} is not UTF-8; rename the file, or name it in a "
            "script, and run that: pagelab run sh SCRIPT"
        ) from None
    return text


def _library(preload: str) -> str | None:
    """Without preloading the path only counts for the size of the environment, and may be missing."""
    try:
        return str(paths.library())
    except paths.MissingPartError:
        if preload == "never":
            return None
        raise


@contextmanager
def _private_directory() -> Iterator[Path]:
    """A directory of this process's own, which is gone with its files afterwards."""
    # As tempfile makes it, which takes long to import; wherever this is no plain case, tempfile does it.
    path = Path(os.environ.get("TMPDIR") or "/tmp", f"pagelab-request-{os.urandom(8).hex()}")
    try:
        path.mkdir(mode=0o700)
    except OSError:
        import tempfile

        path = Path(tempfile.mkdtemp(prefix="pagelab-request-"))
    try:
        yield path
    finally:
        with suppress(OSError):
            for file in path.iterdir():
                file.unlink()
            path.rmdir()


_RUNNING: list[subprocess.Popen[bytes]] = []
"""Launchers that some thread waits for."""


HELD: set[int] = set()
"""Descriptors that each launcher inherits: a lock that its run holds also when this process is killed before it."""


def end_running() -> None:
    """Ends the runs of all threads, which get their records as those of programs that were ended."""
    for process in list(_RUNNING):
        # Its own thread reaps it: nothing but the signal is sent here.
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)


def _wait_for(request_path: Path, pass_on: tuple[int, ...]) -> tuple[int, str]:
    """The launcher's exit code and its own messages.

    The program shares the terminal's standard error with the launcher when asked to inherit it, so the launcher
    writes its own messages to a file of their own.
    """
    complaint_path = request_path.with_name("complaint")
    complaint_path.touch()
    command = [str(paths.launcher()), "--complaint", str(complaint_path), str(request_path)]
    process = subprocess.Popen(command, pass_fds=(*pass_on, *HELD), env=environment.inherited())
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
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        process.send_signal(signal.SIGTERM)
        process.wait(_END_PATIENCE_S)
        return
    process.kill()
    process.wait()


def scarce(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The warnings, as the record would have them, of limits that leave a run of this request too little room."""
    asked = [str(paths.launcher()), "--limits", "-"]
    text = document(request, machine.describe(), Path("/dev/null"))
    done = subprocess.run(asked, input=text.encode(), capture_output=True, check=False)
    if done.returncode != 0:
        raise error(done.returncode, done.stderr.decode(errors="replace").strip())
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def error(returned: int, complaint: str) -> PagelabError:
    """The error for the launcher's exit code and message."""
    message = complaint.removeprefix("pagelab-launch: ") or f"pagelab-launch ended with exit code {returned}"
    kinds: dict[int, type[PagelabError]] = {2: BadInputError, 3: MachineError}
    return kinds.get(returned, LauncherError)(message)
