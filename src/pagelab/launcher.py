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
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from . import environment, machine, paths, terminal
from .errors import BadInputError, MachineError, PagelabError

MEASURE_FD = 3
"""Descriptor on which a program reports measurements, unless its caller gave it one of that number."""
_LAST_MEASURE_FD = 239
"""The launcher and the library use higher ones."""
_RECORDED = (0, 1, 130)
"""Exit codes of the launcher with a record: done, the program failed, interrupted."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_END_PATIENCE_S = 10.0
"""Seconds for an interrupted launcher to end the tree (TERM, 2 s, KILL), restore settings and write the record."""


class LauncherError(PagelabError):
    """``pagelab-launch`` failed by a fault of pagelab's own."""


def launch(
    request: Mapping[str, Any],
    described: Mapping[str, Any],
    keep: Collection[int] = (),
    *,
    ends_with_signals: bool = False,
    stderr: int | None = None,
) -> bytes:
    """Runs a request (``pagelab.request/1``; missing fields have their defaults) on the machine that ``described``
    describes; returns the record as the launcher wrote it, in JSON.

    The path of the library is filled in. The program inherits the descriptors ``keep`` (unless it runs as another
    user). A program that inherits standard error gets ``stderr``, if that descriptor is given: a file of pagelab's own,
    which the program's user need not be able to open. With ``ends_with_signals`` a signal that would end this process
    ends the run instead, whose record says so. Raises what :func:`pagelab.runner.run` raises.
    """
    announce = request.get("announce_fd")
    pass_on = (*keep, *(() if announce is None else (announce,)))
    text = document(request, described, None)
    with _signals_end_the_run() if ends_with_signals else nullcontext():
        returned, record, complaint = _ask(text, pass_on, stderr)
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


def measure_fd(kept: Collection[int]) -> int | None:
    """The descriptor on which a program that has these descriptors reports measurements; None: it has too many."""
    free = (number for number in range(MEASURE_FD, _LAST_MEASURE_FD + 1) if number not in kept)
    return next(free, None)


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


@contextmanager
def _signals_end_the_run() -> Iterator[None]:
    """While the launcher works, the signals of :data:`_ENDING` that are not ignored go to it, and it is waited for."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if not _RUNNING:
            raise KeyboardInterrupt
        for process in list(_RUNNING):
            with suppress(ProcessLookupError):
                process.send_signal(number)

    before = {number: signal.getsignal(number) for number in _ENDING}
    passed = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    for number in passed:
        signal.signal(number, pass_on)
    try:
        yield
    finally:
        for number in passed:
            signal.signal(number, before[number])


def _pipe() -> tuple[int, int]:
    """A pipe whose numbers are no standard stream's, also if those are closed."""
    ends = []
    for low in os.pipe():
        ends.append(fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3))
        os.close(low)
    return ends[0], ends[1]


def _ask(text: str, pass_on: tuple[int, ...], stderr: int | None) -> tuple[int, bytes, str]:
    """Hands a request to a launcher and waits for it; returns its exit code, the record and its own messages.

    All of it goes through pipes: whatever a program does to the file systems, its record arrives. (A program that
    inherits standard error shares it with the launcher, so the launcher's messages come separately.) The exit code
    comes behind the record: while SIGCHLD is ignored, nobody can wait for it.
    """
    asked = text.encode()
    (their_request, our_request), (our_record, their_record), (ours, theirs) = _pipe(), _pipe(), _pipe()
    passed = [f"request={their_request}:{len(asked)}", f"record={their_record}", f"messages={theirs}"]
    held = [f"held={number}" for number in sorted(HELD)]
    command = [str(paths.launcher()), "--caller", *passed, *held]
    fds = (their_request, their_record, theirs, *HELD, *pass_on)
    try:
        process = subprocess.Popen(command, pass_fds=fds, stderr=stderr, env=environment.inherited())
    except BaseException:
        for number in (our_request, our_record, ours):
            os.close(number)
        raise
    finally:
        for number in (their_request, their_record, theirs):
            os.close(number)
    _RUNNING.append(process)
    try:
        answer, messages = _Talk(process, asked, our_request, our_record, ours).hold()
        returned = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        _RUNNING.remove(process)
    record, code = _parted(answer)
    return returned if code is None else code, record, messages.decode(errors="replace").strip()


def _parted(answer: bytes) -> tuple[bytes, int | None]:
    """The record, and the exit code in the line behind it; None: the launcher was killed before it wrote that."""
    record, _, code = answer.removesuffix(b"\n").rpartition(b"\n")
    return (record, int(code)) if answer.endswith(b"\n") and code.isdigit() else (answer, None)


_POLL_MS = 50
"""Milliseconds between looks at a launcher that has no descriptor of its own (in a sandbox without pidfd_open)."""


class _Talk:
    """Writes the request, and reads record and messages until the launcher has ended.

    The ends of the pipes do not tell that: a process that another thread forked meanwhile has copies of them.
    """

    def __init__(self, process: subprocess.Popen[bytes], text: bytes, request: int, record: int, messages: int) -> None:
        self.process, self.rest = process, memoryview(text)
        self.request, self.record, self.messages = request, record, messages
        self.read = {record: bytearray(), messages: bytearray()}
        self.open = {request, record, messages}
        self.life: int | None = None
        self.polled = select.poll()

    def hold(self) -> tuple[bytes, bytes]:
        """Record with exit code, and messages. Closes the descriptors."""
        try:
            with suppress(OSError):
                self.life = os.pidfd_open(self.process.pid)
                self.open.add(self.life)
                self.polled.register(self.life, select.POLLIN)
            for number, events in ((self.request, select.POLLOUT), *((one, select.POLLIN) for one in self.read)):
                os.set_blocking(number, False)
                self.polled.register(number, events)
            self._until_the_end()
        finally:
            for number in self.open:
                os.close(number)
        return bytes(self.read[self.record]), bytes(self.read[self.messages])

    def _until_the_end(self) -> None:
        while self.open & self.read.keys() and not self._visit(None if self.life is not None else _POLL_MS):
            pass
        # All that it wrote is there to be read now. Where the guard was killed, its child still ends the run.
        until = time.monotonic() + _END_PATIENCE_S
        self._visit(0)
        while self.open & self.read.keys() and not self._is_whole() and time.monotonic() < until:
            self._visit(_POLL_MS)

    def _is_whole(self) -> bool:
        return _parted(bytes(self.read[self.record]))[1] is not None

    def _visit(self, wait_ms: int | None) -> bool:
        """Writes and reads what can be; returns whether the launcher had ended before."""
        has_ended = self.life is None and self.process.poll() is not None
        for number, event in self.polled.poll(wait_ms):
            if number == self.request:
                self._write(bool(event & select.POLLERR))
            elif number in self.read:
                self._read(number)
            else:
                has_ended = True
                self._close(number)
        return has_ended

    def _write(self, is_unread: bool) -> None:
        # A launcher that has ended says why.
        with suppress(BlockingIOError, BrokenPipeError):
            self.rest = self.rest[os.write(self.request, self.rest) :]
        if is_unread or not self.rest:
            self._close(self.request)

    def _read(self, number: int) -> None:
        with suppress(BlockingIOError):
            while part := os.read(number, 1 << 16):
                self.read[number] += part
            self._close(number)

    def _close(self, number: int) -> None:
        self.polled.unregister(number)
        self.open.remove(number)
        os.close(number)


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
