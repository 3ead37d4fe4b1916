"""Reads the settings journal: pagelab's changes to this machine, so that they can be undone after any crash.

``docs/doctor.md`` has its format and rules; ``crates/settings`` implements them, for Python and ``pagelab-launch``.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pagelab import _native
from pagelab.errors import MachineError

PATH_VARIABLE = "PAGELAB_JOURNAL"
DEFAULT_PATH = Path("/run/pagelab/journal.jsonl")

State = Literal["intended", "applied", "restored", "failed"]


class JournalError(MachineError):
    """The journal cannot be used; the message names the operation, the file and the next step."""


@dataclass(frozen=True)
class Entry:
    """One line of the journal; ``docs/doctor.md`` explains each field."""

    id: str
    time: str
    pid: int
    boot_id: str
    path: str
    old: str
    new: str
    state: State
    by: str
    pid_start: int | None = None

    @property
    def owner_lives(self) -> bool:
        """Whether the process that owns the entry still runs (a reused pid does not count)."""
        return _native.journal_owner_lives(json.dumps(asdict(self)))


@dataclass(frozen=True)
class Snapshot:
    """The journal as read: the present state of every id, in the order of first lines."""

    entries: tuple[Entry, ...] = ()
    damaged_lines: int = 0

    def active(self, boot_id: str) -> list[Entry]:
        """Changes of this boot that have not been undone, oldest first; where a boot is not known, of any."""
        here = (boot_id, "") if boot_id else {e.boot_id for e in self.entries}
        return [e for e in self.entries if e.state in ("intended", "applied") and e.boot_id in here]


def boot_id() -> str:
    """This boot's identity; empty if the kernel does not report it."""
    return _native.boot_id()


class Journal:
    """The journal's file; by default the one ``PAGELAB_JOURNAL`` names, or ``/run/pagelab/journal.jsonl``."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or Path(os.environ.get(PATH_VARIABLE) or DEFAULT_PATH)

    def check_writable(self) -> None:
        """Raises :class:`JournalError` if the journal or its lock could not be written; nothing is made for that."""
        lock = self.path.with_name(f"{self.path.name}.lock")
        for path in (self.path.absolute(), lock.absolute()):
            place = next(one for one in (path, *path.parents) if one.exists())
            if not os.access(place, os.W_OK, effective_ids=True):
                raise JournalError(
                    f"cannot write {path}: no right to write {place} (EACCES); run as root, or set {PATH_VARIABLE} to "
                    "a file in a directory that you may write"
                )

    def read(self) -> Snapshot:
        """The present state; empty if there is no journal. Raises :class:`JournalError` if it is unreadable."""
        try:
            told: dict[str, Any] = json.loads(_native.journal_read(self.path))
        except _native.JournalRefused as error:
            raise JournalError(str(error)) from error
        return Snapshot(tuple(Entry(**one) for one in told["entries"]), told["damaged_lines"])


_OF_2M = ("/transparent_hugepage/enabled", "/hugepages-2048kB/enabled")
"""Ends of the paths of the settings that can switch 2M pages off."""


def no_2m_by_others() -> str:
    """The running processes that switched 2M pages off, as ``process 4711 (pagelab-launch) has set /sys/… to never``;
    empty if there is none, or the journal cannot be read."""
    try:
        entries = Journal().read().active(boot_id())
    except JournalError:
        return ""
    others = [one for one in entries if one.path.endswith(_OF_2M) and one.new == "never" and one.owner_lives]
    return ", ".join(f"process {one.pid} ({one.by}) has set {one.path} to {one.new}" for one in others)
