"""Tests that take turns in `.ci/run`, where all of them together take too long: `make test` runs them all."""

from __future__ import annotations

import zlib

import pytest


def is_today(item: pytest.Item, day: int) -> bool:
    """Whether a test runs on this day (an ordinal). One that is marked ``by_turns(n)`` runs on every nth."""
    mark = item.get_closest_marker("by_turns")
    return mark is None or zlib.crc32(item.nodeid.encode()) % mark.args[0] == day % mark.args[0]
