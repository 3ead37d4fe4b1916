"""A test session that is told to end gives back what it took of the machine."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.huge_pages import HugePages

TESTS = Path(__file__).parent
TAKES_AND_WAITS = """
import time

def test_takes_huge_pages(huge_pages):
    huge_pages.need(huge_pages.available() + 1)
    print("taken", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_reserved_pages_are_given_back(sent: signal.Signals, tmp_path: Path, huge_pages: HugePages) -> None:
    huge_pages.need(1)
    before = huge_pages.size.read_text()
    (tmp_path / "test_that_waits.py").write_text(TAKES_AND_WAITS)
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-c", "/dev/null", "."]
    with subprocess.Popen(
        command, cwd=tmp_path, env={"PYTHONPATH": str(TESTS)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as session:
        assert session.stdout is not None
        said = []
        while not said or said[-1] not in (b"taken\n", b""):
            said.append(session.stdout.readline())
        during = huge_pages.size.read_text()
        session.send_signal(sent)
        said.append(session.stdout.read())
    assert (session.returncode, int(during)) == (128 + sent if sent is signal.SIGTERM else 2, int(before) + 1), said
    assert huge_pages.size.read_text() == before
