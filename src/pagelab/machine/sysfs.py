"""Reads and writes the kernel's setting files (``/proc`` and ``/sys``); all access to them is in this module.

Paths are always given as the kernel names them (``/sys/kernel/mm/…``); :class:`Tree` puts a root before them,
so that the same code reads a recorded or an invented machine.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT_VARIABLE = "PAGELAB_SYSROOT"
"""Environment variable: read and write ``/proc`` and ``/sys`` below this directory (for tests)."""

_BRACKETED = re.compile(r"(?:^|\s)\[(\S+)\](?:\s|$)")


def normalise(text: str) -> str:
    """The value in a setting file's text, stripped; of ``always [madvise] never`` only ``madvise``."""
    bracketed = _BRACKETED.search(text)
    return bracketed.group(1) if bracketed else " ".join(text.split())


class Tree:
    """``/proc`` and ``/sys`` below ``root`` (``/`` on a real machine)."""

    def __init__(self, root: str | Path = "/") -> None:
        self.root = Path(root)

    @classmethod
    def from_environment(cls) -> Tree:
        """The real machine, or the directory named by ``PAGELAB_SYSROOT``."""
        return cls(os.environ.get(ROOT_VARIABLE, "/"))

    def path(self, name: str) -> Path:
        """The path in this tree of the kernel's path ``name``."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str:
        """The whole file's text; undecodable bytes are replaced. Raises the kernel's ``OSError``."""
        return self.path(name).read_bytes().decode("utf-8", "replace")

    def get(self, name: str) -> str | None:
        """The normalised value, or None if it cannot be read for any reason."""
        try:
            return normalise(self.text(name))
        except OSError:
            return None

    def number(self, name: str) -> int | None:
        """The value as a whole number, or None if unreadable or not a number."""
        value = self.get(name)
        try:
            return None if value is None else int(value)
        except ValueError:
            return None

    def names(self, directory: str) -> list[str]:
        """Sorted names in a directory; empty if it cannot be listed."""
        try:
            return sorted(entry.name for entry in self.path(directory).iterdir())
        except OSError:
            return []

    def exists(self, name: str) -> bool:
        """Whether the file exists, readable or not."""
        return os.path.lexists(self.path(name))

    def write(self, name: str, value: str) -> None:
        """Writes the value and a newline in one ``write(2)``, as the kernel's setting files need; raises ``OSError``.

        Never creates a file: a missing setting is an error.
        """
        descriptor = os.open(self.path(name), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, f"{value}\n".encode())
        finally:
            os.close(descriptor)
