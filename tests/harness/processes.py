"""Finds processes, and waits for their end. A process may end between two reads: that is no error."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def processes_named(argument: str) -> list[int]:
    """Living processes, but for this one, that have ``argument`` as one of their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
            state = (path.parent / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if argument.encode() in words and state != "Z" and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found


def is_gone(pid: int) -> bool:
    """The process has ended; whoever has to collect it may take its time.

    Its directory in /proc may be gone (ENOENT), or go while it is open (ESRCH).
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in ("Z", "X")


def parent_of(pid: int) -> int | None:
    """None if the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def children_of(pid: int) -> list[int]:
    """Children of the process's first thread; none of an ended process."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def arguments_of(pid: int) -> list[bytes]:
    """None of a process that has ended, also if it is still a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []


def wait_until(condition: Callable[[], bool], patience_s: float = 20.0) -> bool:
    """Polls; True as soon as the condition holds. (No test depends on how fast.)"""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False
