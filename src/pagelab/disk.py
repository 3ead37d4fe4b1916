"""Writes files and directories to the disk, so that what follows survives a power cut only together with them."""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Writes a directory to the disk, so that a rename in it survives a power cut. Raises :class:`OSError`."""
    _sync(directory, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Writes a file to the disk. Raises :class:`OSError`."""
    _sync(path, os.O_RDONLY)


def sync_tree(directory: Path) -> None:
    """Writes a directory to the disk, with all that is below it. Raises :class:`OSError`."""
    for where, _, names in os.walk(directory):
        for name in names:
            sync_file(Path(where) / name)
        sync_directory(Path(where))


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
