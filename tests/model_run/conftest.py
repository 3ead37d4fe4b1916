"""One trace of a small program for all campaigns of this folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playing import COMMAND

from pagelab.trace.capture import capture


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("qemu-x86_64") is None:
        pytest.skip("no emulator: install qemu-user (apt install qemu-user)")
    path = tmp_path_factory.mktemp("traces") / "gups.trace"
    capture(COMMAND, path, marker=True, pools=True)
    return path
