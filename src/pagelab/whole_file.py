"""Files written whole or not at all.

A new file is made beside the place under a random name and renamed. In a directory that others may write to (``/tmp``),
a name that can be guessed could be a link of theirs to a file of the user's own, which would be overwritten.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def put(path: Path, text: str, *, mode: int | None = None) -> None:
    """Puts a file of this text in the place of ``path``, on the disk before it is there. Raises :class:`OSError`.

    ``mode``: its permissions; without it as for any new file.
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
