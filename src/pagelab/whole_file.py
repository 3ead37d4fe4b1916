"""Writes files whole or not at all (into one on which a file is mounted: as far as there is room).

The new file is written beside the target under a random name, and then renamed. With a predictable name, in a directory
that others may write to (``/tmp``), somebody could place a link there to one of the user's files, to be overwritten.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

_OPEN_FILE = re.compile(r"/proc/(self|thread-self|\d+)/fd/\d+|/dev/(fd/\d+|stdin|stdout|stderr)")


def put(path: Path, content: str | bytes, *, mode: int | None = None) -> None:
    """Writes ``content`` to ``path``; it is on the disk before it has that name. Raises :class:`OSError`.

    ``mode``: permissions of the file; None: those of the caller's own file that it replaces, or as for any new file.
    What is no file (a pipe of the caller's, a device) is written to.
    """
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if is_stream(path):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return
    if mode is None:
        mode = _own_mode(path)
    temporary = path.with_name(f".pagelab-{os.urandom(8).hex()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
        try:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
            _named(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def _named(temporary: Path, path: Path) -> None:
    """Gives a finished file its name; where that name is a mount's (a container's ``-v FILE:FILE``), which no other
    file can take, its content."""
    try:
        temporary.replace(path)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "wb") as mounted:
            if not stat.S_ISREG(os.fstat(mounted.fileno()).st_mode):
                raise
            mounted.write(temporary.read_bytes())
            mounted.truncate()
            mounted.flush()
            os.fsync(mounted.fileno())
        temporary.unlink()


def _own_mode(path: Path) -> int | None:
    """Permissions of a file that is there, if it is the caller's own."""
    try:
        state = path.lstat()
    except OSError:
        return None
    is_own = stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid()
    return stat.S_IMODE(state.st_mode) & 0o777 if is_own else None


def is_stream(path: Path) -> bool:
    """Whether a name means a pipe, a terminal or a device, which are written to and not replaced.

    ``/dev/stdout`` is a link to an open file of the process, as are other links to those. What another user put there
    is none: it is replaced.
    """
    try:
        state = path.lstat()
        if state.st_uid not in (0, os.geteuid()):
            return False
        if stat.S_ISLNK(state.st_mode):
            return any(_OPEN_FILE.fullmatch(str(name)) for name in (path.absolute(), path.readlink()))
    except OSError:
        return False
    return stat.S_ISFIFO(state.st_mode) or stat.S_ISCHR(state.st_mode) or stat.S_ISSOCK(state.st_mode)


def put_table(path: Path, frame: pl.DataFrame) -> None:
    """Writes the frame as Parquet or CSV, by the name's suffix. Raises :class:`OSError`: polars, writing to a file by
    itself, has other errors for a full disk.
    """
    content = io.BytesIO()
    if path.suffix == ".parquet":
        frame.write_parquet(content)
    else:
        frame.write_csv(content)
    put(path, content.getvalue())
