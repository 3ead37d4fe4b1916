"""The managed programs: right results in every runtime that is here, and as many measurements as asked for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.packages import need
from pagelab.benchmarks.catalogue import managed
from pagelab.benchmarks.inputs.make import make

RUNTIMES = {
    "python": [sys.executable, "-E", "-S"],
    "pypy3": ["pypy3"],
    "node": ["node"],
    "node --no-opt": ["node", "--no-opt"],
    "java": ["java", "-XX:TieredStopAtLevel=1"],
}
PROGRAMS = [
    ("fft", ["--bytes", "4096", "--memory", "once"], "fft"),
    ("fft", ["--bytes", "4096", "--memory", "each"], "fft"),
    ("aes", ["--operations", "1"], "aes"),
    ("ping", ["--protocol", "tcp", "--calls", "5"], "ping"),
    ("ping", ["--protocol", "http", "--calls", "5"], "ping"),
]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("java", tmp_path_factory.mktemp("inputs"))


def command(runtime: str, stem: str, request: pytest.FixtureRequest) -> list[str]:
    start = RUNTIMES[runtime]
    if start[0] != sys.executable:
        need(start[0])
    if start[0] == "java":
        return [*start, "-cp", str(request.getfixturevalue("classes")), stem.capitalize()]
    return [*start, str(managed(f"{stem}{'.js' if start[0] == 'node' else '.py'}"))]


def measured(argv: list[str], path: Path) -> tuple[subprocess.CompletedProcess[str], list[dict[str, object]]]:
    """Runs ``argv`` with a descriptor for measurements, as the launcher does."""
    with path.open("wb") as sink:
        fd = sink.fileno()
        done = subprocess.run(
            argv,
            env={**os.environ, "PAGELAB_MEASURE_FD": str(fd)},
            pass_fds=[fd],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    return done, [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("stem", "words", "name"), PROGRAMS, ids=lambda value: str(value))
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_results_are_proved_and_each_repetition_is_measured(
    runtime: str, stem: str, words: list[str], name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    argv = [*command(runtime, stem, request), *words, "--repetitions", "3"]
    done, found = measured(argv, tmp_path / "measurements")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("results verified\n")
    assert [(one["name"], one["unit"]) for one in found] == [(name, "ns")] * 3
    assert all(float(str(one["value"])) > 0 for one in found)


def test_aes_fails_on_a_wrong_table(tmp_path: Path) -> None:
    """The standard's examples are really computed: a spoilt S-box is noticed."""
    for name in ("aes.py", "measure.py"):
        shutil.copy(managed(name), tmp_path)
    text = (tmp_path / "aes.py").read_text()
    assert "value = 0x63" in text
    (tmp_path / "aes.py").write_text(text.replace("value = 0x63", "value = 0x64"))
    done = subprocess.run([sys.executable, tmp_path / "aes.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "are right: memory or code is broken" in done.stderr


def test_fft_fails_on_a_wrong_twiddle(tmp_path: Path) -> None:
    """A transform that is its own inverse but not Fourier's is noticed."""
    for name in ("fft.py", "measure.py"):
        shutil.copy(managed(name), tmp_path)
    text = (tmp_path / "fft.py").read_text()
    wrong = text.replace("angle = sign * math.pi * offset / half", "angle = sign * math.pi * offset / half / 2")
    assert wrong != text
    (tmp_path / "fft.py").write_text(wrong)
    done = subprocess.run([sys.executable, tmp_path / "fft.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
