"""Programs inherit the environment of whoever called pagelab, whatever its libraries set for themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOW = (sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))")
NAME = "_RJEM_MALLOC_CONF"


def seen(directory: Path, given: str | None, first: str = "") -> str | None:
    """What a program that pagelab runs, after polars was imported, has in that variable."""
    script = (
        f"{first}\nimport pagelab\nimport polars\nfrom pagelab.runner import RunRequest, run\n"
        f"record = run(RunRequest(argv={list(SHOW)!r}, policy_toml='', stdout='inherit'))\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != NAME} | ({NAME: given} if given else {})
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=directory, capture_output=True, text=True, check=True
    )
    found: str | None = json.loads(done.stdout).get(NAME)
    return found


@pytest.mark.parametrize("given", [None, "narenas:1"])
def test_what_a_library_sets_is_not_passed_on(tmp_path: Path, given: str | None) -> None:
    assert seen(tmp_path, given) == given


def test_what_was_set_before_pagelab_was_imported_is(tmp_path: Path) -> None:
    assert "dirty_decay_ms" in (seen(tmp_path, None, "import polars") or "")


def test_a_traced_program_has_the_callers_environment(tmp_path: Path) -> None:
    script = (
        "import pagelab\nimport os\nimport polars\nfrom pagelab.trace import capture\nbefore = dict(os.environ)\n"
        "capture(['sh', '-c', 'env > seen'], 'p.trace')\nassert dict(os.environ) == before"
    )
    environment = {key: value for key, value in os.environ.items() if key != NAME}
    subprocess.run([sys.executable, "-c", script], env=environment, cwd=tmp_path, check=True)
    assert NAME not in (tmp_path / "seen").read_text()


@pytest.mark.by_turns(4)
def test_the_environment_is_the_same_in_every_execution_of_a_study(tmp_path: Path) -> None:
    """A study that is given a time looks at its pilot with polars, and goes on."""
    (tmp_path / "s.toml").write_text(
        f"""
name = "s"
minutes = 0.1
warmups = 0
[[workload]]
name = "w"
command = {json.dumps(["sh", "-c", "env | wc -c >> sizes"])}
setup = ["env | wc -c >> steps"]
[[policy]]
name = "a"
[[policy]]
name = "b"
"""
    )
    environment = {key: value for key, value in os.environ.items() if key != NAME}
    subprocess.run(
        [sys.executable, "-m", "pagelab", "study", "run", "s.toml"],
        env=environment, cwd=tmp_path, capture_output=True, check=True,
    )  # fmt: skip
    for name in ("sizes", "steps"):
        sizes = (tmp_path / name).read_text().split()
        assert len(sizes) > 12
        assert len(set(sizes)) == 1


@pytest.mark.by_turns(4)
def test_a_program_tried_under_a_limit_has_the_callers_environment(tmp_path: Path) -> None:
    """There the allocator is told to start no thread."""
    environment = {key: value for key, value in os.environ.items() if key != NAME}
    trying = ["try", "--env", "A=1", "--env", "A=2", "--minutes", "0.05", "--", "sh", "-c", "env > seen"]
    limited = ["prlimit", f"--data={8 << 30}", sys.executable, "-m", "pagelab"]
    subprocess.run([*limited, *trying], env=environment, cwd=tmp_path, check=True, capture_output=True)
    assert NAME not in (tmp_path / "seen").read_text()
