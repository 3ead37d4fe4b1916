"""Errors of reading a live process; their messages name the next command."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BadInputError, MachineError


class NoSuchProcessError(BadInputError):
    """No process has that pid, or it has no user memory (a kernel thread)."""


class NotPermittedError(MachineError):
    """The process belongs to somebody else, or a security module hides it."""


class ProcessEndedError(MachineError):
    """The process ended while it was being read."""


@contextmanager
def explained(pid: int, what: str, reader: str = "pagelab map") -> Iterator[None]:
    """Turns ``OSError`` of reading a process into an error with the next command: ``reader`` and the process."""
    try:
        yield
    except PermissionError as error:
        raise not_permitted(f"cannot read {what} of process {pid}", pid, error, reader) from error
    except FileNotFoundError as error:
        raise (_absent(pid, what) if is_alive(pid) else gone(pid, what, reader)) from error
    except ProcessLookupError as error:
        raise gone(pid, what, reader) from error
    except OSError as error:
        if error.errno == errno.ESRCH:
            raise gone(pid, what, reader) from error
        raise


def not_permitted(failed: str, pid: int, error: OSError, reader: str) -> NotPermittedError:
    """The error for a process that this user may not look at; root is refused by what stands above root."""
    if is_root():
        following = (
            "a container, a security module or capabilities that this process lacks forbid it to root; as root of the "
            f"host, with the process's number there: {reader} PID"
        )
    else:
        following = f"run as the user of that process, or: sudo {reader} {pid}"
    return NotPermittedError(f"{failed}: {error.strerror} (errno {error.errno}); {following}")


def _absent(pid: int, what: str) -> NotPermittedError:
    return NotPermittedError(
        f"cannot read {what} of process {pid}: this kernel, or the sandbox around this process, has no such file; "
        "what there is: pagelab doctor"
    )


def gone(pid: int, what: str, reader: str = "pagelab map") -> ProcessEndedError:
    """The error for a process that has just ended."""
    purpose = "advise on" if reader.startswith("pagelab advise") else "map"
    return ProcessEndedError(
        f"process {pid} ended while {what} was read; to {purpose} a program before it ends: "
        f"{reader.removesuffix(' --pid')} -- COMMAND"
    )


def is_alive(pid: int) -> bool:
    """Whether process ``pid`` exists and has not ended; a zombie has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def is_root() -> bool:
    """Whether this process is root, to which the kernel shows frame numbers."""
    return os.geteuid() == 0
