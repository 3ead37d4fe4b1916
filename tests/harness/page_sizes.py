"""Tests that switch page sizes of the machine, and those that need them as they are, one after the other.

Two sessions run at once in ``.ci/run``, and more where two people test on one machine.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SWITCH = frozenset({"thp_always", "folios_always"})
"""Fixtures that switch sizes."""
NEED = frozenset({"run_under", "policy"})
"""Fixtures of tests whose programs may ask for any size."""
SWITCHING_POLICY = "mthp-64K"


def hold_of(item: pytest.Item) -> int | None:
    """The kind of lock, as in ``fcntl.flock``; None if the test has nothing to do with page sizes."""
    fixtures: set[str] = set(getattr(item, "fixturenames", ()))
    parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
    if item.get_closest_marker("switches_page_sizes") or fixtures & SWITCH or SWITCHING_POLICY in map(str, parameters):
        return fcntl.LOCK_EX
    if item.get_closest_marker("needs_page_sizes") or fixtures & NEED:
        return fcntl.LOCK_SH
    return None


@contextmanager
def held(kind: int) -> Iterator[None]:
    """The lock of this user's sessions; waits for it."""
    path = Path(tempfile.gettempdir()) / f"pagelab-tests-{os.geteuid()}.page-sizes"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, kind)
        yield
    finally:
        os.close(file)
