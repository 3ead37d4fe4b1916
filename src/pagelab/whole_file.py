"""Writes files whole or not at all.

The new file is written beside the target under a random name, and then renamed. With a predictable name, in a directory
that others may write to (``/tmp``), somebody could place a link there to one of the user's files, to be overwritten.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def put(path: Path, text: str, *, mode: int | None = None) -> None:
    """Writes ``text`` to ``path``; it is on the disk before it has that name. Raises :class:`OSError`.

    ``mode``: permissions of the file; None: as for any new file.
    """
    temporary = path.with_name(f".{path.name}-{os.urandom(8).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o666), "w", encoding="utf-8") as file:
        try:
            file.write(text)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
