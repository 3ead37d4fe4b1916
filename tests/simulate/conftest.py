"""What tests of simulations share."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.sweeping import lay_out


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with two traces and a description of hardware."""
    lay_out(tmp_path)
    return tmp_path
