"""Connections to a store: for a writer whose commits survive a power cut, and for readers that change nothing."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from . import migrations
from .errors import StudyError

NAME = "study.db"
"""File of the store in a study's directory."""


def sync_directory(directory: Path) -> None:
    """Writes a directory to the disk, so that a rename in it survives a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection for queries only.

    The file is opened for writing where that is allowed: only then can the last reader merge the log into the file and
    remove it. On a read-only medium a store can only be opened as immutable, and its log is not read then.
    """
    mode = "rw" if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK) else "ro"
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=10)
    connection.execute("PRAGMA query_only = ON")
    try:
        found = migrations.version_of(connection)
    except sqlite3.OperationalError:
        connection.close()
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size > 0:
            # Opened as immutable, the runs in the log would be missing without a word.
            raise StudyError(
                f"{log.name} holds runs that cannot be read here; copy both to a directory you can write"
            ) from None
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True, isolation_level=None)
        found = migrations.version_of(connection)
    migrations.refuse_empty(connection)
    migrations.refuse_newer(found)
    if found < migrations.VERSION:
        copy = sqlite3.connect(":memory:", isolation_level=None)
        connection.backup(copy)
        connection.close()
        migrations.migrate(copy)
        return copy
    return connection
