"""Tests by turns: each runs on one of so many days, and the others every day."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from harness.turns import is_today


def item(name: str, *shares: int) -> pytest.Item:
    mark = SimpleNamespace(args=shares) if shares else None
    return cast(pytest.Item, SimpleNamespace(nodeid=name, get_closest_marker=lambda _: mark))


@pytest.mark.parametrize("share", [2, 3])
def test_each_has_its_turn(share: int) -> None:
    names = [f"tests/test_many.py::test_one[{number}]" for number in range(300)]
    for start in (739000, 739001):
        turns = [[is_today(item(name, share), day) for day in range(start, start + share)] for name in names]
        assert all(days.count(True) == 1 for days in turns)
        shares = [sum(days[at] for days in turns) for at in range(share)]
        assert min(shares) > 300 / share * 0.7


def test_the_others_run_every_day() -> None:
    assert all(is_today(item("tests/test_few.py::test_one"), day) for day in range(10))
