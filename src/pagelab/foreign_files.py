"""Reads and opens what another user may have put, or may exchange meanwhile.

Root works in the directories of users: studies, homes, places that the caller named. There any name may be a link to a
file of root's, a FIFO that waits for ever, or a device without an end, and may mean something else the next moment.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WAY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
"""For what is only passed through: it need not be readable."""
_MOST_LINKS = 40


def open_file(path: str | Path, directory: int | None = None) -> BinaryIO:
    """Opens a regular file to read it; anything else is refused, links too. Raises :class:`OSError`.

    ``directory``: a descriptor of the directory that ``path`` is relative to.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | _CAREFUL, dir_fd=directory), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def read(path: str | Path, most_bytes: int = 1 << 20) -> bytes:
    """The beginning of a regular file. Raises :class:`OSError`."""
    with open_file(path) as file:
        return file.read(most_bytes)


def read_end(path: str | Path, most_bytes: int) -> bytes:
    """The end of a regular file. Raises :class:`OSError`."""
    with open_file(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
        return file.read(most_bytes)


def open_directory(path: Path) -> int:
    """A descriptor of a directory, for names in it (O_PATH). Raises :class:`OSError`.

    Root follows links that are root's, or lie where only root may write, and no others.
    """
    if os.geteuid() != 0:
        return os.open(path, _WAY)
    names, links = list(path.absolute().parts[1:]), 0
    here = os.open("/", _WAY)
    try:
        while names:
            name = names.pop(0)
            try:
                there = os.open(name, _WAY | os.O_NOFOLLOW, dir_fd=here)
            except NotADirectoryError:
                target = Path(_followed(here, name, path))
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
                names = [*(target.parts[1:] if target.is_absolute() else target.parts), *names]
                there = os.open("/" if target.is_absolute() else ".", _WAY, dir_fd=here)
            os.close(here)
            here = there
    except BaseException:
        os.close(here)
        raise
    return here


def _followed(directory: int, name: str, path: Path) -> str:
    """Where a link leads that root may follow."""
    link = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        state, around = os.fstat(link), os.fstat(directory)
        if not stat.S_ISLNK(state.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        if state.st_uid != 0 and (around.st_uid != 0 or around.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
            raise PermissionError(errno.EPERM, f"{name} is another user's link, which root does not follow", str(path))
        return os.readlink("", dir_fd=link)
    finally:
        os.close(link)


def _may_be_exchanged(directory: int) -> bool:
    """Whether another user can give the names in a directory of the caller's to something else."""
    state = os.fstat(directory)
    is_shared = state.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not state.st_mode & stat.S_ISVTX
    return bool(state.st_uid not in (0, os.geteuid()) or is_shared)


class PrivateDirectory:
    """A new directory that nobody else can reach, known by its descriptor whatever its name comes to mean."""

    def __init__(self, parent: int, prefix: str) -> None:
        """``parent``: a descriptor of the directory in which it is made. Raises :class:`OSError`."""
        self._parent = parent
        self.name = f"{prefix}{secrets.token_hex(8)}"
        os.mkdir(self.name, 0o700, dir_fd=parent)
        self.descriptor = os.open(self.name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        state = os.fstat(self.descriptor)
        there = os.listdir(self.descriptor)  # noqa: PTH208 - of a descriptor
        # File systems without owners (FAT, some network ones) show what they were mounted with.
        if there or (_may_be_exchanged(parent) and (state.st_uid != os.geteuid() or state.st_mode & 0o077)):
            os.close(self.descriptor)
            raise OSError(errno.ESTALE, "somebody put another directory in its place", self.name)

    @property
    def path(self) -> Path:
        """A path that leads there through the descriptor."""
        return Path(f"/proc/self/fd/{self.descriptor}")

    def remove(self) -> None:
        """Removes it with all that is in it, as far as that is possible."""
        with suppress(OSError):
            for entry in os.scandir(self.descriptor):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.name, ignore_errors=True, dir_fd=self.descriptor)
                else:
                    os.unlink(entry.name, dir_fd=self.descriptor)
        with suppress(OSError):
            os.rmdir(self.name, dir_fd=self._parent)

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self.descriptor)
