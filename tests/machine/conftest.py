from __future__ import annotations

from pathlib import Path

import pytest
from fake_machine import FakeTree, build

from pagelab.machine.change import Changer
from pagelab.machine.journal import Journal


@pytest.fixture
def tree(tmp_path: Path) -> FakeTree:
    return build(tmp_path / "root")


@pytest.fixture
def book(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


@pytest.fixture
def changer(tree: FakeTree, book: Journal) -> Changer:
    """Its owner counts as dead, as that of a finished ``doctor --fix``."""
    return Changer(tree, book, alive=lambda _entry: False)
