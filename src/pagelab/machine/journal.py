"""The settings journal: what pagelab changed on this machine, so that it can be undone after any crash.

**File.** ``/run/pagelab/journal.jsonl`` (or ``PAGELAB_JOURNAL``), directory 0755, file 0644, owned by root.
``/run`` is emptied by a restart, and so are the settings. Written by this module and by ``pagelab-launch``.

**Line.** One JSON object and a newline, written by one ``write(2)`` on an ``O_APPEND`` descriptor while
holding an exclusive ``flock(2)`` on the file, and followed by ``fsync(2)``:

``id``
    string, unique a change (16 hexadecimal digits, random); the lines of one change share it
``time``
    string, RFC 3339 in UTC; for people only
``pid``, ``pid_start``
    the process that owns the change, and field 22 of its ``/proc/PID/stat`` (so that a reused pid is not
    taken for it); ``pid_start`` may be null or missing
``boot_id``
    ``/proc/sys/kernel/random/boot_id``
``path``
    the setting's file, absolute, as the kernel names it. Readahead is always
    ``/sys/class/bdi/<device>/read_ahead_kb``, never the same setting's second name under ``/sys/block``
``old``, ``new``
    strings, normalised: stripped, and of ``always [madvise] never`` only ``madvise``
``state``
    ``intended`` | ``applied`` | ``restored`` | ``failed``
``by``
    string: what made the change, for people (``doctor --fix hugepages=512``, ``pagelab-launch readahead``)

Other keys are allowed and ignored.

**Meaning.** The *last* line of an id is its present state; ids are ordered by their *first* line. An id is
**active** while its state is ``intended`` or ``applied`` and its ``boot_id`` is the present one.

**Settle.** A change is made under one lock from its first line to its last, so an ``intended`` id that is
seen while holding the lock belongs to a writer that died in the middle. Before changing a path or undoing an
id of that path, settle such ids by a line: present value equal to ``old``: ``failed``; an ``nr_hugepages``
file with a value between ``old`` and ``new``: ``applied`` with ``new`` = the present value (the kernel stops
part-way when the writer is killed); anything else: ``applied``.

**Change** (under one lock): settle; read the present value as ``old``; append ``intended``; write ``new``;
read back; append ``applied``. When the value cannot be written or did not take: write ``old`` back and append
``failed``. When the value is already ``new``: append one ``applied`` line with ``old`` = ``new`` if the path
has an active id (it then keeps the value when the other owner leaves), else nothing.

**Undo** of an id (under the lock): settle, then

1. If a *later* active id has the same path: append that later id's line again with its ``old`` replaced by
   this id's ``old`` (state and the rest unchanged), then this id as ``restored``. Nothing is written to the
   setting: the later owner needs its value, and will put back the right one. Owners may so leave in any
   order.
2. Else read the present value. Equal to ``old``: append ``restored``. Equal to ``new``: write ``old``, read
   back, append ``restored``. Anything else: somebody else changed it; leave it, leave the id active, and warn
   (``--force`` writes ``old`` all the same). Exception: ``nr_hugepages`` with ``old`` > ``new`` is undone
   from any value between the two.

An owner undoes its own ids, the latest first. ``pagelab doctor --restore`` undoes all active ids whose owner
is dead, the latest first.

**Damage.** A last line without a newline was being written when its writer died: before appending, cut it
off. A writer whose write was short (a full file system) cuts it off itself, so that no two lines become one.
A whole line that cannot be parsed is skipped and reported; what begins like a line inside it is read all the same.
A file that is not empty and has no line of this format is somebody else's: it is refused and left as it is.
The file may be emptied (``ftruncate`` under the lock)
 when no id is active; a writer that has just undone its changes does so above 64 KiB, so that a study of
thousands of runs does not read an ever longer file.

**Cost.** A machine that crashes loses the settings with the journal, so ``fsync`` protects no setting; it is there for
people who read the journal afterwards. Several changes may be made under one lock, and then share it: all ``intended``
lines, one ``fsync``, all writes, all ``applied`` lines.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pagelab.errors import MachineError

PATH_VARIABLE = "PAGELAB_JOURNAL"
DEFAULT_PATH = Path("/run/pagelab/journal.jsonl")
EMPTY_ABOVE_BYTES = 1 << 16
"""A journal without active entries is emptied once larger than this; smaller ones are kept for people."""

State = Literal["intended", "applied", "restored", "failed"]
_STATES = ("intended", "applied", "restored", "failed")


class JournalError(MachineError):
    """The journal cannot be used; the message names the operation, the file and what to do."""


@dataclass(frozen=True)
class Entry:
    """One line of the journal; see the module's description for the meaning of each field."""

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

    @classmethod
    def parse(cls, line: str) -> Entry:
        """Raises ``ValueError`` for anything that is not a line of this format."""
        raw: Any = json.loads(line)
        if not isinstance(raw, dict):
            raise ValueError("not an object")
        for name in ("id", "time", "boot_id", "path", "old", "new", "state", "by"):
            if not isinstance(raw.get(name), str):
                raise ValueError(f"{name} is not a string")
        if type(raw.get("pid")) is not int or raw["state"] not in _STATES:
            raise ValueError("bad pid or state")
        start = raw.get("pid_start")
        if start is not None and type(start) is not int:
            raise ValueError("pid_start is not a number")
        return cls(**{name: raw[name] for name in cls.__dataclass_fields__ if name in raw})

    def line(self) -> str:
        """The line as written, with its newline."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


@dataclass
class Snapshot:
    """The journal as read: the present state of every id, in order of first appearance."""

    by_id: dict[str, Entry] = field(default_factory=dict)
    damaged_lines: int = 0

    @property
    def entries(self) -> list[Entry]:
        """In order of first appearance."""
        return list(self.by_id.values())

    def active(self, boot_id: str) -> list[Entry]:
        """Changes of this boot that have not been undone, oldest first."""
        return [e for e in self.entries if e.state in ("intended", "applied") and e.boot_id == boot_id]

    def stale(self, boot_id: str) -> list[Entry]:
        """Changes that were never undone, of an earlier boot: the restart undid them."""
        return [e for e in self.entries if e.state in ("intended", "applied") and e.boot_id != boot_id]


def now() -> str:
    """The present time, RFC 3339, UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def new_id() -> str:
    """A fresh id."""
    return secrets.token_hex(8)


def boot_id() -> str:
    """This boot's identity; empty when the kernel does not tell (then entries never look stale)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_start(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None for a zombie or no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def is_alive(entry: Entry) -> bool:
    """Whether the process that owns the entry still runs (a reused pid does not count)."""
    start = pid_start(entry.pid)
    return start is not None and (entry.pid_start is None or entry.pid_start == start)


def journal_path() -> Path:
    """Where the journal is: ``PAGELAB_JOURNAL``, or ``/run/pagelab/journal.jsonl``."""
    return Path(os.environ.get(PATH_VARIABLE) or DEFAULT_PATH)


class Journal:
    """The journal file. Reading needs no lock; writing goes through :meth:`locked`."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or journal_path()

    def read(self) -> Snapshot:
        """The present state; empty when there is no journal. Raises :class:`JournalError` when unreadable."""
        try:
            return _parse(self.path.read_bytes())
        except FileNotFoundError:
            return Snapshot()
        except OSError as error:
            raise JournalError(f"cannot read the settings journal {self.path}: {error.strerror}") from error

    @contextmanager
    def locked(self) -> Iterator[LockedJournal]:
        """The journal, open for writing and exclusively locked while the context lasts; waits for others."""
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield LockedJournal(descriptor)
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            descriptor = os.open(self.path, flags, 0o644)
            _sync_directory(self.path.parent)
        except OSError as error:
            raise JournalError(
                f"cannot open the settings journal {self.path} for writing: {error.strerror}; "
                f"run as root, or set {PATH_VARIABLE} to a file you may write"
            ) from error
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise JournalError(f"will not use the settings journal {self.path}: it is not a regular file")
        # Restoring writes what the journal says, with root's rights: nobody else may be able to say it.
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            os.close(descriptor)
            raise JournalError(
                f"will not use the settings journal {self.path}: it belongs to uid {status.st_uid} with mode "
                f"{status.st_mode & 0o777:o}; look at it, then run: sudo rm {self.path}"
            )
        return descriptor


class LockedJournal:
    """An open, exclusively locked journal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        content = self._content()
        self.snapshot = _parse(content)
        if not _is_journal(content, self.snapshot):
            raise JournalError(
                "will not use the settings journal: the file is not one, and is left as it is; "
                f"set {PATH_VARIABLE} to another file, or to one that does not exist yet"
            )
        self._length = content.rfind(b"\n") + 1
        if self._length != len(content):
            os.ftruncate(descriptor, self._length)

    def _content(self) -> bytes:
        size = os.fstat(self._descriptor).st_size
        return os.pread(self._descriptor, size, 0)

    def append(self, entry: Entry) -> Entry:
        """Write one line and make it durable; returns the entry. Raises ``OSError``."""
        data = entry.line().encode()
        # What an earlier write left half done would swallow this line.
        if os.fstat(self._descriptor).st_size != self._length:
            os.ftruncate(self._descriptor, self._length)
        if os.write(self._descriptor, data) != len(data):
            os.ftruncate(self._descriptor, self._length)
            raise JournalError("cannot write to the settings journal: no space left on its file system")
        self._length += len(data)
        os.fsync(self._descriptor)
        self.snapshot.by_id[entry.id] = entry
        return entry

    def advance(self, entry: Entry, state: State, **changes: Any) -> Entry:
        """Append the entry again in another state (and with other changed fields)."""
        return self.append(replace(entry, state=state, time=now(), **changes))

    def empty_if_done(self, boot: str) -> None:
        """Empty a large journal that has nothing left to undo."""
        large = os.fstat(self._descriptor).st_size > EMPTY_ABOVE_BYTES
        if large and not self.snapshot.active(boot):
            os.ftruncate(self._descriptor, 0)
            self._length = 0
            os.fsync(self._descriptor)
            self.snapshot = Snapshot()


_BEGINNINGS = (b'{"id"', b'{"boot_id"')
"""How this module's lines begin, and the launcher's."""


def _parse(content: bytes) -> Snapshot:
    snapshot = Snapshot()
    for line in content[: content.rfind(b"\n") + 1].splitlines():
        entry = _entry(line)
        if entry is None:
            snapshot.damaged_lines += 1
            # A line that was cut short swallows the one behind it: that one is whole.
            entry = _entry(line[max(line.rfind(beginning) for beginning in _BEGINNINGS) :])
        if entry is not None:
            # A known id keeps its place: order is that of the first lines.
            snapshot.by_id[entry.id] = entry
    return snapshot


def _entry(line: bytes) -> Entry | None:
    try:
        return Entry.parse(line.decode())
    except (ValueError, RecursionError):
        return None


def _is_journal(content: bytes, snapshot: Snapshot) -> bool:
    """Whether it may be written to and cut: somebody else's file must not be, whatever named it."""
    if snapshot.by_id or not content:
        return True
    torn = content[:16]
    return b"\n" not in content and any(
        beginning.startswith(torn) or torn.startswith(beginning) for beginning in _BEGINNINGS
    )


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
