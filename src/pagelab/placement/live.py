"""Live statistics of frame placement, from a running process's guest file (docs/stat.md).

The preload library keeps the file mapped and counts in place, so reading it costs the process nothing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..errors import BadInputError
from .errors import NoSuchProcessError, NotPermittedError, ProcessEndedError, explained, gone, is_alive
from .procfs import lines

SCHEMA = "pagelab.stat/1"
_GUEST = re.compile(r"/pagelab-[0-9a-f]{16}/guests/(\d+)-\d+\.guest$")
_HINT = re.compile(r"(?:default|file|[0-9a-f]+-[0-9a-f]+) (?!usual\b)")
_LARGEST = 16 << 20
"""Upper bound on a guest file's size, in bytes."""
_START = "start a program under a frame policy with: sudo pagelab run --frames page-coloring -- COMMAND"


class NotGovernedError(BadInputError):
    """The process does not run under pagelab, or its policy leaves frames to the kernel."""


class PlacedByKernelError(NotGovernedError):
    """The kernel places the frames of the process, by hints."""

    def __init__(self, pid: int) -> None:
        super().__init__(
            f"the kernel places the frames of process {pid}, and no library counts them; "
            f"run: cat /proc/{pid}/page_hints; pagelab stat --system"
        )


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class ByColour(_Model):
    """Index i is colour i; with more than 1024 colours, all that are i modulo 1024."""

    requests: list[int]
    placed: list[int]
    fallbacks: list[int]


class StrategyStat(_Model):
    """Requests and results of one strategy so far; pages are of 4096 bytes."""

    number: int
    kind: str
    colours: int
    values: dict[str, int]
    """``requests``, ``placed``, ``fallbacks``, ``zero_pages``, ``demand_pages``, ``faults``, ``runs`` …"""
    out_of_reach_bytes: dict[str, int]
    by_colour: ByColour


class EngineStat(_Model):
    """The engine of the process, which all its strategies share."""

    state: Literal["off", "running", "stopped", "failed"]
    failure: str
    errno: int | None
    values: dict[str, int]
    """``refills``, ``refill_pages``, ``refill_ns``, ``waits``, ``wait_ns``, ``pool_bytes``, ``budget_bytes`` …"""


class ProcessStat(_Model):
    """One process at one moment."""

    pid: int
    ppid: int
    executable: str
    state: str
    engine: EngineStat | None
    strategies: list[StrategyStat]


class Stat(_Model):
    """The JSON of ``pagelab stat --json`` (``pagelab.stat/1``)."""

    schema_: Literal["pagelab.stat/1"] = Field(default="pagelab.stat/1", alias="schema")
    pid: int
    taken_at: str
    processes: list[ProcessStat]


def collect(pid: int, *, tree: bool = False) -> Stat:
    """Statistics of a process; with ``tree`` also of its descendants that have any.

    Raises :class:`NoSuchProcessError`, :class:`NotPermittedError`, :class:`ProcessEndedError`, and
    :class:`NotGovernedError` if nothing places its frames, or (:class:`PlacedByKernelError`) the kernel does.
    """
    found: list[ProcessStat] = []
    refused: NotGovernedError | None = None
    for one in _family(pid) if tree else (pid,):
        try:
            found.append(read(one))
        except NotGovernedError as error:
            if refused is None or isinstance(error, PlacedByKernelError):
                refused = error
        except (NoSuchProcessError, ProcessEndedError):
            if one == pid:
                raise
    if not found:
        assert refused is not None
        if tree and not isinstance(refused, PlacedByKernelError):
            raise NotGovernedError(f"no process of the tree of {pid} places frames; {_START}")
        raise refused
    taken_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Stat(pid=pid, taken_at=taken_at, processes=found)


def read(pid: int) -> ProcessStat:
    """Statistics of one process; raises the errors of :func:`collect`."""
    if not Path(f"/proc/{pid}").exists():
        raise NoSuchProcessError(f"there is no process {pid}; processes are listed by: ps -e")
    if not is_alive(pid):
        raise NoSuchProcessError(f"process {pid} has ended and waits for its parent; its counters are in the record")
    found = decode(_guest_bytes(pid), pid)
    if found.engine is None and not found.strategies:
        raise _not_governed(pid, "runs under pagelab, but its policy leaves frames to the kernel")
    return found


def _not_governed(pid: int, why: str) -> NotGovernedError:
    """The error for a process without counters, unless hints of the process say that the kernel places its frames."""
    try:
        hints = lines(f"/proc/{pid}/page_hints")
    except OSError:
        # A kernel without page placement, or a process of another user.
        hints = []
    if any(map(_places, hints)):
        return PlacedByKernelError(pid)
    return NotGovernedError(f"process {pid} {why}; {_START}")


def _places(line: str) -> bool:
    """Whether a line of ``page_hints`` is a hint with a strategy that places pages, and not a count."""
    return _HINT.match(line) is not None


def decode(content: bytes, pid: int) -> ProcessStat:
    """Decodes a guest file's content. Raises :class:`BadInputError` if it is of another version."""
    from .. import _native

    try:
        document: dict[str, Any] = json.loads(_native.read_guest(content))
    except ValueError as error:
        raise BadInputError(
            f"cannot read the counters of process {pid}: {error}; it was started by another version of pagelab"
        ) from error
    return ProcessStat.model_validate(document)


def _guest_bytes(pid: int) -> bytes:
    """Content of the guest file of the present program image, found by its mapping; the newest if exec left several."""
    with explained(pid, "the mappings", "pagelab stat"):
        mappings = lines(f"/proc/{pid}/maps")
    mapped = [(path, span) for path, span in map(_guest_mapping, mappings) if _owner(path) == pid]
    if not mapped:
        raise _not_governed(pid, "does not run under pagelab")
    path, span = mapped[-1]
    # Opened through /proc, since the file may be in another mount namespace, or its directory may be removed.
    for name in (f"/proc/{pid}/root{path}", f"/proc/{pid}/map_files/{span}"):
        with contextlib.suppress(OSError):
            return _read_bounded(name)
    if not is_alive(pid):
        raise gone(pid, "its counters")
    raise NotPermittedError(
        f"cannot read {path} of process {pid}; run as the user of that process, or: sudo pagelab stat {pid}"
    )


def _read_bounded(name: str) -> bytes:
    """Reads a path that the process controls: follows no link and waits for no pipe."""
    follow = os.O_NOFOLLOW if "/map_files/" not in name else 0
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | follow)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read(_LARGEST)


def _guest_mapping(line: str) -> tuple[str, str]:
    """Path and address range of a line of ``maps``."""
    words = line.split(maxsplit=5)
    return (words[5] if len(words) > 5 else ""), words[0]


def _owner(path: str) -> int | None:
    """The pid that a guest file belongs to; a forked child has its parent's file mapped for a moment."""
    match = _GUEST.search(path.removesuffix(" (deleted)"))
    return None if match is None else int(match[1])


def _family(pid: int) -> Iterator[int]:
    """The process and all below it, parents first."""
    yield pid
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return
    for thread in threads:
        try:
            children = (thread / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _family(int(child))
