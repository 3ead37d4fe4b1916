"""Changes settings so that they can always be restored, by the rules of ``docs/doctor.md`` (``crates/settings``)."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

from pagelab import _native, terminal
from pagelab.errors import MachineError, PagelabError

from .journal import Entry, Journal, JournalError, boot_id
from .probe import own_command
from .settings import Change
from .sysfs import Tree

Outcome = Literal[
    "restored",
    "already",
    "unrecorded",
    "handed-on",
    "superseded",
    "owned",
    "changed",
    "failed",
    "gone",
    "stale",
    "forbidden",
]


@dataclass(frozen=True)
class Undone:
    """The outcome of one journal entry in a restore.

    Done: ``restored``: put back; ``already``: it had its old value; ``unrecorded``: it has
    its old value, but the journal could not be written; ``handed-on``: a later owner of the setting will
    put it back; ``superseded``: a later owner will put back what another program set between the two; ``gone``: the
    setting went with its device; ``stale``: of an earlier boot. Left as it is: ``owned``: its owner still runs;
    ``changed``: somebody else changed it since; ``failed``: it could not be read or written; ``forbidden``: not a
    setting that pagelab changes.
    """

    entry: Entry
    outcome: Outcome
    message: str

    @property
    def left(self) -> bool:
        """Whether the setting still needs to be put back, and no live process will do so."""
        return self.outcome in ("changed", "failed", "forbidden")


_QUIET_S = 3.0
"""Seconds of waiting for the lock before a message."""


@contextmanager
def _held_off(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Ctrl-C calls ``handler`` instead of ending what is being done."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is interrupted
        return
    usual = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def _no_step(_name: str) -> None:
    return None


@dataclass
class Changer:
    """Applies and undoes changes. ``step`` is called between durable steps (tests kill the process there)."""

    tree: Tree
    journal: Journal
    boot: str = ""
    alive: Callable[[Entry], bool] = lambda entry: entry.owner_lives
    step: Callable[[str], None] = _no_step
    pid: int = 0
    _said: bool = False
    _pressed: bool = False

    def __post_init__(self) -> None:
        self.boot = self.boot or boot_id()
        self.pid = self.pid or os.getpid()

    def owner_lives(self, entry: str) -> bool:
        """Whether the owner of a journal entry (JSON) still runs."""
        return self.alive(Entry(**json.loads(entry)))

    def apply(self, changes: list[Change], by: str) -> list[Entry]:
        """Makes all changes or none: when one fails, those made before it are undone, and the error reports it.

        After Ctrl-C all are undone, the unfinished one too, and a message says so. Returns the journal entries (none
        for a setting that had its value already). Raises :class:`MachineError`.
        """
        try:
            before = self._own()
        except JournalError:
            before = {}  # the first change reports it
        try:
            return self._apply_all(changes, by)
        except KeyboardInterrupt:
            self._back_out(before)
            raise

    def _apply_all(self, changes: list[Change], by: str) -> list[Entry]:
        made: list[Entry] = []
        for change in changes:
            try:
                entry = self._apply(change, by)
            except PagelabError as error:
                undone = self._take_back(made)
                bad = [item.message for item in undone if item.left]
                note = f"; {len(undone)} earlier change(s) of this command undone" if undone and not bad else ""
                raise MachineError("; ".join([f"{error}{note}", *bad])) from error
            if entry:
                made.append(entry)
        return made

    def _own(self) -> dict[str, Entry]:
        """Active changes of this process, by id; the unfinished one too. Raises :class:`JournalError`."""
        active = self.journal.read().active(self.boot)
        return {entry.id: entry for entry in active if entry.pid == self.pid}

    def _back_out(self, before: Container[str]) -> None:
        """Undoes the changes of an interrupted command, which had not been made ``before``."""
        mine: list[Entry] = []
        try:
            with _held_off(self._press):
                mine = [entry for name, entry in self._own().items() if name not in before]
                undone = self._take_back(mine)
        except (PagelabError, KeyboardInterrupt) as error:
            left = ", ".join(entry.path for entry in mine) or "what this command changed"
            why = f" ({error})" if isinstance(error, PagelabError) else ""
            terminal.say(
                f"pagelab: left changed: {left}{why}; to put back, run: sudo {own_command()} doctor --restore\n"
            )
            return
        for item in undone:
            terminal.say(f"pagelab: {'' if item.left else 'undone: '}{item.message}\n")

    def _take_back(self, made: list[Entry]) -> list[Undone]:
        """Undoes changes of this process, the latest first. Ctrl-C can end only the wait for the journal's lock."""
        with _held_off(self._press):
            undone = [self.undo(entry.id) for entry in reversed(made)]
        return [item for item in undone if item]

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        self._pressed = True

    def _apply(self, change: Change, by: str) -> Entry | None:
        told = self._ask(_native.journal_change, change.path, change.value, by)
        refused = told.get("refused")
        if refused and "got" in refused:
            raise MachineError(_shortfall(change, refused["old"], refused["got"]))
        if refused:
            raise MachineError(_refused(change, refused["errno"] or 0))
        return Entry(**told["made"]) if told["made"] else None

    def undo(self, entry_id: str, *, force: bool = False) -> Undone | None:
        """Undoes one change of this process; None if it is not active."""
        undone = [_undone(**one) for one in self._ask(_native.journal_undo, entry_id, force)]
        return undone[0] if undone else None

    def restore(self, *, force: bool = False) -> list[Undone]:
        """Undoes every active change whose owner is dead, the latest first; with ``force`` also what others changed."""
        if not self.journal.read().entries:
            return []
        return [_undone(**one) for one in self._ask(_native.journal_restore, force)]

    def waits(self, seconds: float, holder: str) -> None:
        """Called while another process holds the journal's lock; says so once if it takes long."""
        if self._pressed:
            raise KeyboardInterrupt
        if seconds >= _QUIET_S and not self._said:
            self._said = True
            terminal.say(f"waits for the settings journal: {holder}\n")

    def _ask(self, native: Callable[..., str], *words: Any) -> Any:
        try:
            return json.loads(native(self, self.journal.path, *words))
        except _native.JournalRefused as error:
            raise JournalError(str(error)) from error


def _undone(entry: dict[str, Any], outcome: dict[str, Any]) -> Undone:
    done = Entry(**entry)
    return Undone(done, outcome["name"], _message(done, outcome))


def _message(entry: Entry, outcome: dict[str, Any]) -> str:
    """The outcome of a journal entry in words."""
    surplus = outcome.get("surplus")
    note = f"; {surplus} pages are still in use, and go when they are freed" if surplus else ""
    errno_ = outcome.get("errno")
    got = f"asked for {entry.old}, got {outcome.get('present')}"
    why = os.strerror(errno_) if errno_ else outcome.get("text", got)
    if errno_ == errno.ENOENT:
        how = "sudo mount -t debugfs none /sys/kernel/debug" if "/debug/" in entry.path else "mount | grep /sys"
        why += f"; it may be hidden here, and stays in the journal; run: {how}; sudo {own_command()} doctor --restore"
    return {
        "restored": f"{entry.path}: {entry.new} → {entry.old}{note}",
        "already": f"{entry.path}: {entry.old}",
        "unrecorded": f"{entry.path}: {entry.old}; the journal could not be written ({outcome.get('text')})",
        "handed-on": f"{entry.path}: kept for {outcome.get('by')}, which will put {entry.old} back",
        "superseded": (
            f"{entry.path}: another program set it to {outcome.get('old')}, which {outcome.get('by')} will put back"
        ),
        "owned": f"{entry.path}: in use by process {entry.pid} ({entry.by}), which will put it back",
        "stale": f"{entry.path}: changed before the machine was restarted",
        "gone": f"{entry.path}: no longer exists",
        "forbidden": f"will not write {entry.path}: not a setting pagelab changes",
        "failed": f"cannot restore {entry.path} to {entry.old}: {why}",
        "changed": (
            f"{entry.path} is {outcome.get('present')}, not {entry.new} as pagelab left it: somebody else changed it; "
            f"left alone (old value: {entry.old}); to write that all the same, run: "
            f"sudo {own_command()} doctor --restore --force"
        ),
    }[outcome["name"]]


def _refused(change: Change, number: int) -> str:
    reason = errno.errorcode.get(number, "?")
    advice = "run: pagelab doctor"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = "change it on the host (a container or kernel lockdown forbids it here)"
    elif number == errno.EINVAL:
        advice = f"the kernel does not take this value; see: cat {change.path}"
    return f"cannot set {change.key}={change.value}: write {change.path}: {os.strerror(number)} ({reason}); {advice}"


def _shortfall(change: Change, old: str, got: str) -> str:
    if change.path.endswith("/nr_hugepages"):
        size = change.path.split("hugepages-")[-1].partition("kB")[0]
        more = "run: echo 1 | sudo tee /proc/sys/vm/compact_memory, and again"
        if size == "1048576":
            more += f"; or boot with: hugepagesz=1G hugepages={change.value}"
        if got not in (old, "0"):
            more += f"; or: --fix {change.key}={got}"
        return (
            f"cannot reserve {change.value} huge pages of {int(size) // 1024} MiB: memory for {got} only; "
            f"put back to {old}; {more}"
        )
    return f"cannot set {change.key}: wrote {change.value} to {change.path}, reads {got}; put back to {old}"
