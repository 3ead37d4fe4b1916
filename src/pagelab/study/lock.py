"""The lock of a study directory for one session: an flock that ends with its holder, and a note of the holder."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from ..errors import another_would_do, quoted, system_reason
from .connection import NAME as STORE
from .errors import StudyError

_NAME = ".lock"
_PATIENCE_S = 0.5
"""How long a new session waits, since `study status` holds a shared lock for a moment."""

_CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
"""The directory's owner may have put anything there: a link is not followed, a FIFO not waited for."""
_MOST_NOTE_BYTES = 4096


@dataclass(frozen=True)
class Holder:
    """The process that works in the directory, as it wrote in its note."""

    pid: int
    host: str
    since: str


class DirectoryLock:
    """Exclusive use of a study directory, as a context manager. Raises :class:`StudyError` naming the holder."""

    def __init__(self, directory: Path, refusal: Callable[[str], str] | None = None) -> None:
        """``refusal`` makes the error message from the holder's name, for a directory that is not a study's."""
        self._path = directory / _NAME
        self._descriptor: int | None = None
        self._refusal = refusal or self._refused_study

    def __enter__(self) -> DirectoryLock:
        descriptor = self._opened()
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                who = _told(_read(descriptor))
                os.close(descriptor)
                raise StudyError(self._refusal(who)) from None
        self._descriptor = descriptor
        holder = Holder(os.getpid(), socket.gethostname(), datetime.now(UTC).isoformat(timespec="seconds"))
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(asdict(holder)).encode(), 0)
        except OSError as error:
            raise another_would_do(
                StudyError(
                    f"cannot write {self._path}: {system_reason(error)}; make room; "
                    f"run: df -h {quoted(self._path.parent)}"
                )
            ) from None
        return self

    def _opened(self) -> int:
        """A descriptor of the lock file. Only its owner may open it: any descriptor is enough to hold the lock."""
        where = quoted(self._path.parent)
        # Not inheritable (PEP 446): a measured program that outlives a killed session must not keep the lock.
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | _CAREFUL, 0o600)
        except OSError as error:
            if self._path.is_symlink():
                raise self._not_a_lock() from None
            raise another_would_do(
                StudyError(f"cannot write {self._path}: {system_reason(error)}; run: ls -ld {where}; df -h {where}")
            ) from None
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            os.close(descriptor)
            raise self._not_a_lock()
        if found.st_uid not in self._owners():
            os.close(descriptor)
            raise another_would_do(
                StudyError(
                    f"cannot lock {self._path}: it belongs to user {found.st_uid}, to whom neither this directory nor "
                    f"its study belongs; continue as that user, or in a copy; run: ls -la {where}"
                )
            )
        if found.st_mode & 0o077:  # of an earlier version
            with suppress(PermissionError):
                os.fchmod(descriptor, 0o600)
        return descriptor

    def _owners(self) -> set[int]:
        """The users whose file a lock here can be."""
        found = {os.geteuid(), self._path.parent.stat().st_uid}
        with suppress(OSError):
            found.add((self._path.parent / STORE).lstat().st_uid)
        return found

    def _not_a_lock(self) -> StudyError:
        path = quoted(self._path)
        return another_would_do(
            StudyError(f"cannot lock {self._path}: it is not a file of pagelab's; run: ls -l {path}; rm {path}")
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def _refused_study(self, who: str) -> str:
        directory = self._path.parent
        return (
            f"cannot work in {directory}: {who} is running this study; "
            f"watch it with: pagelab study status {quoted(directory)}"
        )


def _told(holder: Holder | None) -> str:
    return f"process {holder.pid} on {holder.host} since {holder.since}" if holder else "another process"


def holder_of(directory: Path) -> Holder | None:
    """The process that works in ``directory`` now, or None (the lock of a dead session is free).

    Raises PermissionError where the lock is another user's, which does not show whether it is held.
    """
    path = directory / _NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | _CAREFUL)
    except PermissionError:
        raise
    except OSError:  # there is none, or a link or a socket, which no session has locked
        return None
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor) or Holder(0, "unknown", "unknown")
    finally:
        os.close(descriptor)
    return None


def _read(descriptor: int) -> Holder | None:
    try:
        return Holder(**json.loads(os.pread(descriptor, _MOST_NOTE_BYTES, 0)))
    except (OSError, ValueError, TypeError):
        return None
