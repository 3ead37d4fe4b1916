"""Calls the native launcher with a request as a plain document, and returns the record that it wrote.

It uses plain data and the standard library only, so that a run from the command line does not import the libraries that
validate and draw. :mod:`pagelab.runner` is the same with types.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from . import environment, machine, paths, terminal
from .errors import BadInputError, MachineError, PagelabError

MEASURE_FD = 3
"""Descriptor on which a program reports measurements, unless its caller gave it one of that number."""
_RECORDED = (0, 1, 130)
"""Exit codes of the launcher with a record: done, the program failed, interrupted."""
_END_PATIENCE_S = 10.0
"""Seconds for an interrupted launcher to end the tree (TERM, 2 s, KILL), restore settings and write the record."""


class LauncherError(PagelabError):
    """``pagelab-launch`` failed by a fault of pagelab's own."""


def launch(request: Mapping[str, Any], described: Mapping[str, Any], keep: Collection[int] = ()) -> bytes:
    """Runs a request (``pagelab.request/1``; missing fields have their defaults) on the machine that ``described``
    describes; returns the record as the launcher wrote it, in JSON.

    The path of the library is filled in. The program inherits the descriptors ``keep`` (unless it runs as another
    user). Raises what :func:`pagelab.runner.run` raises.
    """
    announce = request.get("announce_fd")
    pass_on = (*keep, *(() if announce is None else (announce,)))
    returned, record, complaint = _ask(document(request, described, None), pass_on)
    if returned not in _RECORDED or not record:
        raise error(returned, complaint)
    if complaint:
        terminal.say(complaint + "\n")
    return record


def of_caller() -> list[int]:
    """Descriptors that this process inherited for its programs, beside the standard streams. (Python's own are closed
    when a program is executed.)"""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        number = int(entry.name)
        with suppress(OSError):
            if number > 2 and os.get_inheritable(number):
                found.append(number)
    return sorted(found)


def measure_fd(kept: Collection[int]) -> int:
    """The descriptor on which a program that has these descriptors reports measurements."""
    return next(number for number in range(MEASURE_FD, MEASURE_FD + len(kept) + 1) if number not in kept)


def document(request: Mapping[str, Any], described: Mapping[str, Any], record: Path | None) -> str:
    """The request as the launcher reads it."""
    found = {
        "argv": paths.bundled(request["argv"]),
        "machine": described,
        "library": _library(request.get("preload", "auto")),
        "record": None if record is None else str(record),
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


_RUNNING: list[subprocess.Popen[bytes]] = []
"""Launchers that a thread waits for."""


HELD: set[int] = set()
"""Descriptors that each launcher inherits, and no program: locks that its run still holds if this process is killed
first."""


def end_running() -> None:
    """Ends the runs of all threads; each thread gets a record that says so."""
    for process in list(_RUNNING):
        # Only the signal is sent here; the launcher's own thread reaps it.
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)


def _pipe() -> tuple[int, int]:
    """A pipe whose numbers are no standard stream's, also if those are closed."""
    ends = []
    for low in os.pipe():
        ends.append(fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3))
        os.close(low)
    return ends[0], ends[1]


def _ask(text: str, pass_on: tuple[int, ...]) -> tuple[int, bytes, str]:
    """Hands a request to a launcher and waits for it; returns its exit code, the record and its own messages.

    All of it goes through pipes: whatever a program does to the file systems, its record arrives. (A program that
    inherits standard error shares it with the launcher, so the launcher's messages come separately.)
    """
    (their_request, our_request), (our_record, their_record), (ours, theirs) = _pipe(), _pipe(), _pipe()
    passed = [f"request={their_request}", f"record={their_record}", f"messages={theirs}"]
    held = [f"held={number}" for number in sorted(HELD)]
    with _children_are_waited_for() as ignored:
        command = [str(paths.launcher()), "--caller", *passed, *held, *ignored]
        fds = (their_request, their_record, theirs, *HELD, *pass_on)
        try:
            process = subprocess.Popen(command, pass_fds=fds, env=environment.inherited())
        except BaseException:
            for number in (our_request, our_record, ours):
                os.close(number)
            raise
        finally:
            for number in (their_request, their_record, theirs):
                os.close(number)
        _RUNNING.append(process)
        try:
            record, messages = _talk(text.encode(), our_request, our_record, ours)
            returned = process.wait()
        except BaseException:
            _end(process)
            raise
        finally:
            _RUNNING.remove(process)
    return returned, record, messages.decode(errors="replace").strip()


def _talk(text: bytes, request: int, record: int, messages: int) -> tuple[bytes, bytes]:
    """Writes the request, and reads record and messages until the launcher has ended. Closes the descriptors."""
    rest, read = memoryview(text), {record: bytearray(), messages: bytearray()}
    os.set_blocking(request, False)
    polled = select.poll()
    polled.register(request, select.POLLOUT)
    for number in read:
        polled.register(number, select.POLLIN)
    open_ones = {request, record, messages}
    try:
        while open_ones:
            for number, event in polled.poll():
                if number == request:
                    # A launcher that has ended says why.
                    with suppress(BlockingIOError, BrokenPipeError):
                        rest = rest[os.write(request, rest) :]
                        if rest:
                            continue
                    done = not rest or bool(event & select.POLLERR)
                else:
                    part = os.read(number, 1 << 16)
                    read[number] += part
                    done = not part
                if done:
                    polled.unregister(number)
                    open_ones.remove(number)
                    os.close(number)
    finally:
        for number in open_ones:
            os.close(number)
    return bytes(read[record]), bytes(read[messages])


@contextmanager
def _children_are_waited_for() -> Iterator[list[str]]:
    """While a caller's SIGCHLD is ignored, no exit code can be had; gives the launcher's word for it."""
    ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    if not ignored or threading.current_thread() is not threading.main_thread():
        yield []
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield ["ignored=CHLD"]
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)


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
