"""Calls the native launcher with a request as a plain document, and returns the record that it wrote.

It uses plain data and the standard library only, so that a run from the command line does not import the libraries that
validate and draw. :mod:`pagelab.runner` is the same with types.
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
"""Exit codes of the launcher with a record: done, the program failed, interrupted."""
_END_PATIENCE_S = 10.0
"""Seconds for an interrupted launcher to end the tree (TERM, 2 s, KILL), restore settings and write the record."""


class LauncherError(PagelabError):
    """``pagelab-launch`` failed by a fault of pagelab's own."""


def launch(request: Mapping[str, Any], described: Mapping[str, Any]) -> bytes:
    """Runs a request (``pagelab.request/1``; missing fields have their defaults) on the machine that ``described``
    describes; returns the record as the launcher wrote it, in JSON.

    The paths of the library and the record are filled in. Raises what :func:`pagelab.runner.run` raises.
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
    """The library's path. Without preloading it only affects the environment's size, so it may be missing (None)."""
    try:
        return str(paths.library())
    except paths.MissingPartError:
        if preload == "never":
            return None
        raise


@contextmanager
def _private_directory() -> Iterator[Path]:
    """A temporary directory of this process's own, which is removed with its files afterwards."""
    # tempfile takes long to import, so the plain case is done here; tempfile handles the others.
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
"""Launchers that a thread waits for."""


HELD: set[int] = set()
"""Descriptors that each launcher inherits: locks that its run still holds if this process is killed first."""


def end_running() -> None:
    """Ends the runs of all threads; each thread gets a record that says so."""
    for process in list(_RUNNING):
        # Only the signal is sent here; the launcher's own thread reaps it.
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)


def _wait_for(request_path: Path, pass_on: tuple[int, ...]) -> tuple[int, str]:
    """Waits for the launcher; returns its exit code and its own messages.

    A program that inherits standard error shares it with the launcher, so the launcher writes its messages to a
    separate file.
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
    """Ends the launcher. Ctrl-C has reached it too, as it is in our process group; another signal may not have."""
    # A second signal would make the launcher skip the program's grace period; KILL leaves the clean-up to its guard.
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        process.send_signal(signal.SIGTERM)
        process.wait(_END_PATIENCE_S)
        return
    process.kill()
    process.wait()


def scarce(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Warnings about limits that leave a run of this request too little room, in the form of the record."""
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
