"""Counts the boots of a study, and those in a row that finished nothing; the count is on the disk before each boot.

It is compared with the store, which alone knows what has finished, so a crash between the two writes cannot miscount.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ... import whole_file
from ...disk import sync_directory
from ..connection import NAME, connect
from ..errors import StudyError

FILE = "boots.json"
LIMIT = 3
"""This many boots in a row without a finished analysed execution end a study's boots."""


@dataclass(frozen=True)
class Count:
    """The count as it was when the latest boot began."""

    boots: int = 0
    """All boots of the study."""
    failed: int = 0
    """Latest boots in a row without a finished analysed execution; the present boot counts until it finishes one."""
    analysed: int = 0
    """Analysed executions that had finished when the latest boot began."""
    error: str | None = None
    """The error of the latest boot that ended by an error."""

    def after(self, analysed: int) -> Count:
        """The count after its boot: ``analysed`` executions have finished by now."""
        return replace(self, failed=0, analysed=analysed, error=None) if analysed > self.analysed else self

    def next(self) -> Count:
        """The count with one more boot, which counts as failed until it finishes an execution."""
        return replace(self, boots=self.boots + 1, failed=self.failed + 1)


def read(directory: Path) -> Count:
    """The count in a study's directory. Raises StudyError where it cannot be read."""
    path = directory / FILE
    try:
        return Count(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Count()
    except (OSError, ValueError, TypeError) as error:
        raise StudyError(f"cannot read {path}: {error}; remove it: the count then begins at 0") from None


def write(directory: Path, count: Count) -> None:
    """Writes the count to the disk. Raises OSError."""
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
