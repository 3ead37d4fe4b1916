"""Changing settings so that they can always be put back: the rules of :mod:`pagelab.machine.journal`, carried out."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pagelab.errors import MachineError, PagelabError

from .journal import Entry, Journal, LockedJournal, State, boot_id, is_alive, new_id, now, pid_start
from .settings import WRITABLE_BELOW, Change
from .sysfs import Tree, normalise

Outcome = Literal["restored", "already", "handed-on", "owned", "changed", "failed", "gone", "stale"]


@dataclass(frozen=True)
class Undone:
    """What became of one journal entry in a restore.

    ``restored``: put back; ``already``: it had its old value; ``handed-on``: a later owner of the setting will put it
    back; ``gone``: the setting no longer exists; ``stale``: an earlier boot's; ``owned``: its owner still runs, left;
    ``changed``: somebody else changed it since, left; ``failed``: could not be written, left.
    """

    entry: Entry
    outcome: Outcome
    message: str

    @property
    def left(self) -> bool:
        """Whether the setting still needs to be put back, and nobody will."""
        return self.outcome in ("changed", "failed")


def _no_step(_name: str) -> None:
    return None


@dataclass
class Changer:
    """Applies and undoes changes. ``step`` is called between any two durable steps (tests kill the process there)."""

    tree: Tree
    journal: Journal
    boot: str = ""
    alive: Callable[[Entry], bool] = is_alive
    step: Callable[[str], None] = _no_step
    pid: int = 0

    def __post_init__(self) -> None:
        self.boot = self.boot or boot_id()
        self.pid = self.pid or os.getpid()

    def apply(self, changes: list[Change], by: str) -> list[Entry]:
        """Make all changes or none: when one fails, those made before it are undone, and the error says so.

        Returns the entries made (none for a setting that had its value already). Raises :class:`MachineError`.
        """
        made: list[Entry] = []
        for change in changes:
            try:
                entry = self._apply(change, by)
            except PagelabError as error:
                undone = [self.undo(entry.id) for entry in reversed(made)]
                bad = [item.message for item in undone if item and item.left]
                note = f"; {len(undone)} earlier change(s) of this command undone" if undone and not bad else ""
                raise MachineError("; ".join([f"{error}{note}", *bad])) from error
            if entry:
                made.append(entry)
        return made

    def _apply(self, change: Change, by: str) -> Entry | None:
        with self.journal.locked() as book:
            self._settle(book, change.path)
            old = self._read(change.path)
            if old == change.value:
                held = any(e.path == change.path for e in book.snapshot.active(self.boot))
                return book.append(self._entry(change, old, by, "applied")) if held else None
            entry = book.append(self._entry(change, old, by, "intended"))
            self.step("intended")
            self._write_checked(book, entry, change)
            self.step("checked")
            entry = book.advance(entry, "applied")
            self.step("applied")
            return entry

    def _entry(self, change: Change, old: str, by: str, state: State) -> Entry:
        return Entry(
            id=new_id(),
            time=now(),
            pid=self.pid,
            boot_id=self.boot,
            path=change.path,
            old=old,
            new=change.value,
            state=state,
            by=by,
            pid_start=pid_start(self.pid),
        )

    def _write_checked(self, book: LockedJournal, entry: Entry, change: Change) -> None:
        try:
            self.tree.write(change.path, change.value)
        except OSError as error:
            self._back_out(book, entry)
            raise MachineError(_refused(change, error)) from error
        self.step("written")
        got = self._read(change.path)
        if got != change.value:
            self._back_out(book, entry)
            raise MachineError(_shortfall(change, entry.old, got))

    def _back_out(self, book: LockedJournal, entry: Entry) -> None:
        """After a failed change: the old value again. If even that fails, the entry stays active for --restore."""
        try:
            if self._read(entry.path) != entry.old:
                self.tree.write(entry.path, entry.old)
            self.step("backed-out")
            present = self._read(entry.path)
        except OSError:
            return
        if present == entry.old:
            book.advance(entry, "failed")
        else:
            book.advance(entry, "applied", new=present)

    def undo(self, entry_id: str, *, force: bool = False) -> Undone | None:
        """Undo one change (of one's own); None when it is not active."""
        with self.journal.locked() as book:
            return self._undo_id(book, entry_id, force)

    def restore(self, *, force: bool = False) -> list[Undone]:
        """Undo every active change whose owner is dead (``force``: of living owners too), the latest first."""
        if not self.journal.read().entries:
            return []
        report: list[Undone] = []
        with self.journal.locked() as book:
            for entry in book.snapshot.stale(self.boot):
                book.advance(entry, "restored")
                report.append(Undone(entry, "stale", f"{entry.path}: changed before the machine was restarted"))
            for entry in reversed(book.snapshot.active(self.boot)):
                if not force and self.alive(entry):
                    message = f"{entry.path}: in use by process {entry.pid} ({entry.by}), which will put it back"
                    report.append(Undone(entry, "owned", message))
                elif undone := self._undo_id(book, entry.id, force):
                    report.append(undone)
            book.empty_if_done(self.boot)
        return report

    def _undo_id(self, book: LockedJournal, entry_id: str, force: bool) -> Undone | None:
        entry = _active(book, entry_id, self.boot)
        if entry is None:
            return None
        if not _may_write(entry.path):
            return Undone(entry, "failed", f"will not write {entry.path}: not a setting pagelab changes")
        try:
            self._settle(book, entry.path)
            settled = _active(book, entry_id, self.boot)
            if settled is None:
                return Undone(entry, "already", f"{entry.path}: {entry.old}")
            return self._undo(book, settled, force)
        except FileNotFoundError:
            book.advance(entry, "restored")
            return Undone(entry, "gone", f"{entry.path}: no longer exists")
        except OSError as error:
            return Undone(entry, "failed", f"cannot restore {entry.path} to {entry.old}: {error.strerror}")

    def _undo(self, book: LockedJournal, entry: Entry, force: bool) -> Undone:
        later = _later(book, entry, self.boot)
        if later is not None:
            book.advance(later, later.state, old=entry.old)
            self.step("handed-on")
            book.advance(entry, "restored")
            self.step("restored")
            return Undone(entry, "handed-on", f"{entry.path}: kept for {later.by}, which will put {entry.old} back")
        present = self._read(entry.path)
        if present == entry.old:
            book.advance(entry, "restored")
            self.step("restored")
            return Undone(entry, "already", f"{entry.path}: {entry.old}")
        if present != entry.new and not _part_way_back(entry, present) and not force:
            message = (
                f"{entry.path} is {present}, not {entry.new} as pagelab left it: somebody else changed it; "
                f"left alone (old value: {entry.old}); to write that all the same: doctor --restore --force"
            )
            return Undone(entry, "changed", message)
        return self._put_back(book, entry)

    def _put_back(self, book: LockedJournal, entry: Entry) -> Undone:
        self.tree.write(entry.path, entry.old)
        self.step("put-back")
        present = self._read(entry.path)
        if present != entry.old:
            message = f"cannot restore {entry.path}: asked for {entry.old}, got {present}"
            return Undone(entry, "failed", message)
        book.advance(entry, "restored")
        self.step("restored")
        surplus = self._surplus(entry.path)
        note = f"; {surplus} pages are still in use, and go when they are freed" if surplus else ""
        return Undone(entry, "restored", f"{entry.path}: {entry.new} → {entry.old}{note}")

    def _settle(self, book: LockedJournal, path: str) -> None:
        for entry in book.snapshot.active(self.boot):
            if entry.path == path and entry.state == "intended":
                present = self._read(path)
                if present == entry.old:
                    book.advance(entry, "failed")
                elif _between(path, entry.old, entry.new, present):
                    book.advance(entry, "applied", new=present)
                else:
                    book.advance(entry, "applied")
                self.step("settled")

    def _read(self, path: str) -> str:
        """The present value; of a pool, the number the kernel keeps, without surplus pages."""
        value = normalise(self.tree.text(path))
        surplus = self._surplus(path)
        return str(int(value) - surplus) if surplus else value

    def _surplus(self, path: str) -> int:
        """Pool pages beyond the wanted number, in use: the kernel gives them back when their users do."""
        directory, _, name = path.rpartition("/")
        return (self.tree.number(f"{directory}/surplus_hugepages") or 0) if name == "nr_hugepages" else 0


def _active(book: LockedJournal, entry_id: str, boot: str) -> Entry | None:
    return next((entry for entry in book.snapshot.active(boot) if entry.id == entry_id), None)


def _later(book: LockedJournal, entry: Entry, boot: str) -> Entry | None:
    active = book.snapshot.active(boot)
    after = active[[other.id for other in active].index(entry.id) + 1 :]
    return next((other for other in after if other.path == entry.path), None)


def _part_way_back(entry: Entry, present: str) -> bool:
    """An undo that raises a pool can be killed part-way, too."""
    return _between(entry.path, entry.new, entry.old, present) and int(entry.old) > int(entry.new)


def _between(path: str, one: str, other: str, value: str) -> bool:
    if not path.endswith("/nr_hugepages") or not all(text.isdigit() for text in (one, other, value)):
        return False
    low, high = sorted((int(one), int(other)))
    return low <= int(value) <= high


def _may_write(path: str) -> bool:
    return path.startswith(WRITABLE_BELOW) and ".." not in path.split("/")


def _refused(change: Change, error: OSError) -> str:
    reason = errno.errorcode.get(error.errno or 0, "?")
    advice = "run: pagelab doctor"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = "change it on the host (a container or kernel lockdown forbids it here)"
    elif error.errno == errno.EINVAL:
        advice = f"the kernel does not take this value; see: cat {change.path}"
    return f"cannot set {change.key}={change.value}: write {change.path}: {error.strerror} ({reason}); {advice}"


def _shortfall(change: Change, old: str, got: str) -> str:
    if change.path.endswith("/nr_hugepages"):
        size = change.path.split("hugepages-")[-1].partition("kB")[0]
        more = f"run: echo 1 | sudo tee /proc/sys/vm/compact_memory, and again; or: --fix {change.key}={got}"
        if size == "1048576":
            more = f"boot with: hugepagesz=1G hugepages={change.value}; or: --fix {change.key}={got}"
        return (
            f"cannot reserve {change.value} huge pages of {int(size) // 1024} MiB: memory for {got} only; "
            f"put back to {old}; {more}"
        )
    return f"cannot set {change.key}: wrote {change.value} to {change.path}, reads {got}; put back to {old}"
