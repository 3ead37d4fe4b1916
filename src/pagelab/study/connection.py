"""Connections to a store: for a writer whose commits survive a power cut, and for readers that change nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import quoted, system_reason
from ..foreign_files import open_file
from . import migrations
from .errors import StudyError

NAME = "study.db"
"""File of the store in a study's directory."""
_LOOKS = 5
"""How often a reader tries to see a state that does not change meanwhile."""


def connect(path: Path) -> sqlite3.Connection:
    """A connection for queries and changes. Raises :class:`StudyError` if something else lies beside the file."""
    _refuse_others_files(path.resolve())
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        connection.close()
        raise StudyError(
            f"cannot keep a study in {path.parent}: SQLite has no write-ahead log on this file system; choose a "
            "directory on a local disk with --into"
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection for queries only.

    The caller's own file is opened for writing: only then can the last reader merge the log into the file and remove
    it. A file that others may write, or beside which they may make files, is opened in a way in which SQLite writes and
    removes nothing: else it would roll back a journal that they made, and remove the file that this journal names.

    Where SQLite would have to make files to see a consistent state (between sessions, on a read-only medium), it reads
    a copy.
    """
    path = path.resolve()
    _refuse_others_files(path)
    for _ in range(_LOOKS):
        in_place = _in_place(path)
        connection = in_place or _copied(path)
        if connection is not None:
            break
    else:
        raise StudyError("sessions change it while it is read; try again when none begins or ends")
    migrations.refuse_empty(connection)
    found = migrations.version_of(connection)
    migrations.refuse_newer(found)
    if found < migrations.VERSION:
        if in_place is not None:
            with closing(in_place):
                connection = _in_memory(in_place)
        migrations.migrate(connection)
    return connection


def _in_place(path: Path) -> sqlite3.Connection | None:
    """A connection that sees what sessions commit meanwhile, each query one state; None where there can be none."""
    is_own = is_private(path)
    # Without log and index SQLite would make them, for the owner to stumble over.
    if not is_own and not (beside(path, "-wal").exists() and beside(path, "-shm").exists()):
        return None
    mode = "rw" if is_own and os.access(path, os.W_OK) else "ro"
    connection = _query_only(path, f"mode={mode}" if is_own else "mode=ro&readonly_shm=1")
    try:
        migrations.version_of(connection)
    except sqlite3.OperationalError as error:
        connection.close()
        if is_busy(error):
            raise
        return None
    return connection


def _copied(path: Path) -> sqlite3.Connection | None:
    """A copy in memory, of one state; None where a session, which no lock held off, began to write meanwhile."""
    before = _contents(path)
    try:
        copy = _copy(path)
    except (sqlite3.DatabaseError, OSError) as error:
        if _contents(path) != before:
            return None
        if not isinstance(error, OSError):
            raise
        # Without the log, the runs in it would be missing without a word.
        raise StudyError(
            f"{path.name}-wal holds runs that cannot be read here ({system_reason(error)}); "
            "copy both to a directory that only you can write"
        ) from None
    if _contents(path) != before:
        copy.close()
        return None
    return copy


def _copy(path: Path) -> sqlite3.Connection:
    log = beside(path, "-wal")
    if not log.exists() or not log.stat().st_size:
        with closing(_query_only(path, "immutable=1")) as connection:
            return _in_memory(connection)
    # SQLite reads a log only where it may write its index.
    with TemporaryDirectory(prefix="pagelab-study-") as private:
        for one in (path, log):
            with open_file(one) as source, Path(private, one.name).open("wb") as target:
                shutil.copyfileobj(source, target)
        with closing(sqlite3.connect(Path(private, path.name))) as connection:
            return _in_memory(connection)


def _in_memory(connection: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None)
    connection.backup(copy)
    return copy


def _contents(path: Path) -> list[tuple[int, int, int] | None]:
    """What a session changes as soon as it writes: file, size and time of the database and of its log."""
    states = (_state(path), _state(beside(path, "-wal")))
    return [state and (state.st_ino, state.st_size, state.st_mtime_ns) for state in states]


def is_busy(error: sqlite3.DatabaseError) -> bool:
    """Whether it says that another process holds a lock."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _query_only(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.as_uri()}?{how}", uri=True, isolation_level=None, timeout=10)
    connection.execute("PRAGMA query_only = ON")
    return connection


def beside(path: Path, suffix: str) -> Path:
    """The file that SQLite keeps beside a database: its log (``-wal``), the log's index (``-shm``), a journal."""
    return path.with_name(path.name + suffix)


def _refuse_others_files(path: Path) -> None:
    """Refuses what pagelab never leaves beside a store: a journal (it keeps a log), or anything but a regular file.

    SQLite removes the file that a journal names, which may be any file of the reader's; at a FIFO it waits for ever.
    """
    for suffix, is_kept in (("", True), ("-wal", True), ("-shm", True), ("-journal", False)):
        one = beside(path, suffix)
        state = _state(one)
        if state is not None and not (is_kept and stat.S_ISREG(state.st_mode)):
            raise StudyError(f"{one} is not pagelab's; see whose it is with: ls -l {quoted(one)}; then remove it")


def is_private(path: Path) -> bool:
    """Whether a database, its log and its directory are the caller's, and nobody else but root can change the file, put
    files beside it, or put others in their place."""
    user = os.geteuid()
    own = [path.stat(), path.parent.stat(), *filter(None, map(_state, (beside(path, "-wal"), beside(path, "-shm"))))]
    above = [one.stat() for one in path.parent.parents]
    return all(one.st_uid == user and not _is_shared(one) for one in own) and all(
        one.st_uid in (0, user) and (one.st_mode & stat.S_ISVTX or not _is_shared(one)) for one in above
    )


def _state(path: Path) -> os.stat_result | None:
    """The state of what has this name, links not followed; None if there is nothing (any more)."""
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _is_shared(entry: os.stat_result) -> bool:
    """Whether somebody else may write to it; a user's private group has the user's number."""
    others = stat.S_IWOTH if entry.st_gid == os.geteuid() else stat.S_IWOTH | stat.S_IWGRP
    return bool(entry.st_mode & others)
