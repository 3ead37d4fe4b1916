"""Guests under a library that checks every invariant of its pool after every step: the stock's lists, counts and goals,
that free pages are there and zero, that empty slots are empty, and that the budget is kept."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.frames import MAIN, FramesPolicy, frames_guests
from harness.guests import Guest, Workshop
from harness.launching import Runner

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
CHOSEN = {"demand", "discard", "fork_child", "neighbours", "other_threads", "race", "remap", "threads"}
GUESTS = [guest for guest in frames_guests() if guest.program.removeprefix("frames/") in CHOSEN]


@pytest.fixture(scope="session")
def checked_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("expensive")
    command = ["cargo", "build", "--release", "--locked", "-p", "pagelab-preload", "--features", "expensive"]
    subprocess.run([*command, "--target-dir", str(target)], cwd=ROOT, check=True, capture_output=True)
    # Where guests that changed their user can read it.
    library = tmp_path_factory.mktemp("library", numbered=True) / "libpagelab.so"
    shutil.copy(target / "release" / "libpagelab.so", library)
    return library


@pytest.mark.parametrize("guest", GUESTS, ids=str)
@pytest.mark.parametrize("policy", MAIN, ids=str)
def test_invariants_hold_after_every_step(
    policy: FramesPolicy, guest: Guest, workshop: Workshop, run_under: Runner, checked_library: Path, tmp_path: Path
) -> None:
    missing = policy.missing()
    if missing:
        pytest.skip(missing)
    scratch = tmp_path / "scratch"
    scratch.mkdir(mode=0o755)
    argv = workshop.argv(guest, scratch)
    run_under.library = checked_library
    run = run_under(policy.toml, argv, env=policy.environment(), timeout_s=300.0)
    assert "broken invariant" not in run.stderr + run.launcher_stderr, run.story()
    run.succeeded()
