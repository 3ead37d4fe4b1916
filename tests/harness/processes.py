"""Looks for processes by their arguments."""

from __future__ import annotations

import os
from pathlib import Path


def processes_named(argument: str) -> list[int]:
    """Living processes, but for this one, that have ``argument`` as one of their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
            state = (path.parent / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if argument.encode() in words and state != "Z" and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found
