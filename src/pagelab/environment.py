"""The environment that programs inherit: the caller's, without the additions of pagelab's own libraries.

polars sets a variable of its allocator when it is imported. A program measured before and one measured after would have
different environments, and so other addresses on their stacks; and one that has the same allocator would obey it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

OF_LIBRARIES = ("_RJEM_MALLOC_CONF",)
_AT_START = None if "polars" in sys.modules else {name: os.environ.get(name) for name in OF_LIBRARIES}


_OURS: set[str] = set()
"""Variables that pagelab has set for its own libraries."""


def set_for_own(name: str, value: str) -> None:
    """Sets a variable of ``OF_LIBRARIES`` for this process alone."""
    os.environ[name] = value
    _OURS.add(name)


def inherited() -> dict[str, str]:
    """A copy of this process's environment, in which those variables are as they were when pagelab was imported.

    Who imported polars before pagelab has chosen to have its variable.
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
    """This process's own environment is :func:`inherited`, for native code that starts programs."""
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
