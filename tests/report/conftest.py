"""What the report's tests share: analysed studies and golden files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import factory
import pytest

from pagelab.analysis import Analysis, StudyData, analyse

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture(scope="session")
def typical(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a study as users run them."""
    return factory.typical(tmp_path_factory.mktemp("typical"))


@pytest.fixture(scope="session")
def typical_data(typical: Path) -> StudyData:
    return factory.data_of(typical)


@pytest.fixture(scope="session")
def typical_analysis(typical_data: StudyData) -> Analysis:
    return analyse(typical_data)


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compares text with tests/golden/NAME; a difference writes the new version beside the old (NAME.new)."""

    def check(name: str, found: str) -> None:
        path = GOLDEN / name
        old = path.read_text(encoding="utf-8") if path.exists() else None
        new = path.with_name(path.name + ".new")
        if old == found:
            new.unlink(missing_ok=True)
            return
        new.write_text(found, encoding="utf-8")
        verb = "is missing" if old is None else "differs"
        raise AssertionError(f"{path} {verb}; if {new} is right: mv {new} {path}{os.linesep}")

    return check
