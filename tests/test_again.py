"""What failed in a half of the continuous integration is run by itself, and fails if it does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tools import again
from tools.again import FEW, failed, main

ONE = "import os, pathlib\ndef test_one():\n    runs = pathlib.Path(__file__).with_name('runs')\n"
ONE += "    runs.write_text(runs.read_text() + 'x' if runs.exists() else 'x')\n    assert {}\n"

OPTIONS = "def pytest_addoption(parser):\n    parser.addoption('--by-turns', action='store_true')\n"


def half(place: Path, text: str) -> Path:
    """A half of one file, as the Makefile runs it."""
    (place / "test_it.py").write_text(text)
    (place / "conftest.py").write_text(OPTIONS)
    cache = place / "half"
    words = ["-q", "-o", f"cache_dir={cache}", "-c", "/dev/null", f"--rootdir={place}", str(place)]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=place, capture_output=True, check=False)
    cache.mkdir(exist_ok=True)
    (cache / "status").write_text(f"{done.returncode}\n")
    return cache


@pytest.mark.by_turns(4)
@pytest.mark.parametrize(
    ("condition", "status", "runs"),
    [
        ("True", 0, 1),
        ("False", 1, 2),  # it fails, and fails again
        ("len(runs.read_text()) != 1", 0, 5),  # disturbed once; the last run is the file's
        ("len(runs.read_text()) % 2 == 0", 1, 3),  # as often as not
    ],
)
def test_failures_pass_three_times_by_themselves_or_fail_it(
    condition: str, status: int, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = half(tmp_path, ONE.format(condition))
    monkeypatch.chdir(tmp_path)
    assert main([cache]) == status
    assert len((tmp_path / "runs").read_text()) == runs


def test_what_fails_because_of_an_earlier_test_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import os\ndef test_first():\n    os.environ['LEFT'] = '1'\n"
    cache = half(tmp_path, text + "def test_second():\n    assert 'LEFT' not in os.environ\n")
    monkeypatch.chdir(tmp_path)
    assert failed(cache) == ["test_it.py::test_second"]
    assert main([cache]) == 1


def test_what_is_unstable_in_two_runs_in_a_row_fails_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(again, "passes", lambda *_: True)
    fails, does_not = half(tmp_path, ONE.format("False")), tmp_path / "green"
    does_not.mkdir()
    (does_not / "status").write_text("0")
    cut_off = tmp_path / "cut off"
    assert [main([one]) for one in (fails, does_not, fails, cut_off, fails, fails, fails)] == [0, 0, 0, 1, 0, 1, 1]
    assert "UNSTABLE in two runs in a row, which is a failure: test_it.py::test_one" in capfd.readouterr().err


def test_files_that_take_too_long_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_it.py").write_text("import time\ndef test_it():\n    time.sleep(100)\n")
    assert again.passes(["test_it.py"], 0.1)


def test_a_half_that_did_not_end_and_many_failures_are_no_disturbance(tmp_path: Path) -> None:
    assert failed(tmp_path / "none") is None
    assert main([tmp_path / "none"]) == 1
    found = tmp_path / "v" / "cache" / "lastfailed"
    found.parent.mkdir(parents=True)
    found.write_text(json.dumps({f"tests/test_x.py::test_{n}": True for n in range(FEW + 1)}))
    (tmp_path / "status").write_text("2")
    assert failed(tmp_path) is None, "interrupted"
    (tmp_path / "status").write_text("1")
    assert main([tmp_path]) == 1
    found.write_text(json.dumps({"tests/test_x.py": True}))
    assert failed(tmp_path) is None, "a file that could not be collected"
