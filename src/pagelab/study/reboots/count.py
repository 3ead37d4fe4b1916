"""The number of boots that a study has had, and of those in a row that finished nothing: on the disk before each.

It is compared with the store, which alone knows what is finished, so that no crash between the two can miscount.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ... import whole_file
from ..connection import NAME, connect, sync_directory
from ..errors import StudyError

FILE = "boots.json"
LIMIT = 3
"""So many boots in a row without a finished analysed execution end a study."""


@dataclass(frozen=True)
class Count:
    """As of the latest boot's begin."""

    boots: int = 0
    """All of them."""
    failed: int = 0
    """Those in a row, until now, that finished no analysed execution; the latest counts as one until it has."""
    analysed: int = 0
    """Analysed executions that were finished when it began."""
    error: str | None = None
    """The error that ended the latest one that ended by one."""

    def after(self, analysed: int) -> Count:
        """With what its boot has brought: ``analysed`` executions are finished by now."""
        return replace(self, failed=0, analysed=analysed, error=None) if analysed > self.analysed else self

    def next(self) -> Count:
        """One more boot, which has failed unless it is known better."""
        return replace(self, boots=self.boots + 1, failed=self.failed + 1)


def read(directory: Path) -> Count:
    """The count in a study's directory. Raises StudyError where it cannot be read."""
    path = directory / FILE
    try:
        return Count(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Count()
    except (OSError, ValueError, TypeError) as error:
        raise StudyError(f"cannot read {path}: {error}; remove it, and no boot has been counted") from None


def write(directory: Path, count: Count) -> None:
    """Puts it on the disk. Raises OSError."""
    whole_file.put(directory / FILE, json.dumps(asdict(count)) + "\n")
    sync_directory(directory)


def analysed(directory: Path) -> int:
    """Analysed executions that the store holds, failed ones included. Raises StudyError."""
    path = directory / NAME
    query = "SELECT count(*) FROM run JOIN schedule USING (position) WHERE block >= 0"
    try:
        with closing(connect(path)) as database:
            return int(database.execute(query).fetchone()[0])
    except sqlite3.DatabaseError as error:
        raise StudyError(f"cannot read {path}: {error}") from None
