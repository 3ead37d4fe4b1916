"""The environment that programs inherit: the caller's, without the variables that pagelab's own libraries set.

polars sets a variable for its allocator when it is imported. Programs measured before and after that import would have
different environments, and so different stack addresses. A program with the same allocator would even obey it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

OF_LIBRARIES = ("_RJEM_MALLOC_CONF",)
_AT_START = None if "polars" in sys.modules else {name: os.environ.get(name) for name in OF_LIBRARIES}


_OURS: set[str] = set()
"""Names of the variables that pagelab has set for its own libraries."""


def set_for_own(name: str, value: str) -> None:
    """Sets a variable of ``OF_LIBRARIES`` for this process, not for the programs it starts."""
    os.environ[name] = value
    _OURS.add(name)


def inherited() -> dict[str, str]:
    """A copy of this process's environment, with ``OF_LIBRARIES`` as they were when pagelab was imported.

    If polars was imported before pagelab, its variable stays.
    """
    found = dict(os.environ)
    if _AT_START is None or not (_OURS or "polars" in sys.modules):
        return found
    for name, value in _AT_START.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = value
    return found


@contextmanager
def restored() -> Iterator[None]:
    """A context with the environment of :func:`inherited` in this process, for native code that starts programs."""
    now, before = dict(os.environ), inherited()
    try:
        _put(before)
        yield
    finally:
        _put(now)


def _put(wanted: dict[str, str]) -> None:
    for name in OF_LIBRARIES:
        if name in wanted:
            os.environ[name] = wanted[name]
        else:
            os.environ.pop(name, None)
