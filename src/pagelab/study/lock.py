"""The lock of a study directory for one session: an flock that ends with its holder, and a note of the holder."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from ..errors import another_would_do, system_reason
from .errors import StudyError

_NAME = ".lock"
_PATIENCE_S = 0.5
"""How long a new session waits, since `study status` holds a shared lock for a moment."""


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
        # Not inheritable (PEP 446): a measured program that outlives a killed session must not keep the lock.
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            where = self._path.parent
            raise another_would_do(
                StudyError(f"cannot write {self._path}: {system_reason(error)}; run: ls -ld {where}; df -h {where}")
            ) from None
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                os.close(descriptor)
                raise StudyError(self._refusal(self._who())) from None
        self._descriptor = descriptor
        holder = Holder(os.getpid(), socket.gethostname(), datetime.now(UTC).isoformat(timespec="seconds"))
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(asdict(holder)).encode(), 0)
        except OSError as error:
            raise another_would_do(
                StudyError(
                    f"cannot write {self._path}: {system_reason(error)}; make room; run: df -h {self._path.parent}"
                )
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def _who(self) -> str:
        holder = _read(self._path)
        return f"process {holder.pid} on {holder.host} since {holder.since}" if holder else "another process"

    def _refused_study(self, who: str) -> str:
        directory = self._path.parent
        return (
            f"cannot work in {directory}: {who} is running this study; watch it with: pagelab study status {directory}"
        )


def holder_of(directory: Path) -> Holder | None:
    """The process that works in ``directory`` now, or None (the lock of a dead session is free)."""
    path = directory / _NAME
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(path) or Holder(0, "unknown", "unknown")
    finally:
        os.close(descriptor)
    return None


def _read(path: Path) -> Holder | None:
    try:
        return Holder(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
