"""``pagelab demo`` called again in the directory of one that was interrupted."""

from __future__ import annotations

from pathlib import Path

import factory
from factory import Run

from pagelab.cli.demo import _added


def store(directory: Path, *, finished: bool, minutes: float | None = None) -> Path:
    planned = factory.plan(["w"], ["a", "b"], 6).model_copy(update={"minutes": minutes})
    return factory.store(directory, planned, lambda _, slot: Run() if finished or slot.position < 5 else None)


def test_the_same_command_again_finishes_what_was_planned(tmp_path: Path) -> None:
    begun = store(tmp_path / "minutes", finished=False, minutes=20)
    assert _added(begun, 20, None) == (None, None)
    assert _added(store(tmp_path / "executions", finished=False), None, 6) == (None, None)


def test_more_is_added(tmp_path: Path) -> None:
    begun = store(tmp_path / "a", finished=False, minutes=20)
    assert _added(begun, 30, None) == (30, None)
    assert _added(begun, None, 8) == (None, 8)
    assert _added(store(tmp_path / "b", finished=True, minutes=20), 20, None) == (20, None)
