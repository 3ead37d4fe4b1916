"""Programs nobody here wrote pass unharmed while their frames are chosen: the tests of ``test_real_programs`` again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import test_real_programs as real
from harness.frames import BY_NAME, MAIN, VARIANTS, FramesPolicy, possible
from harness.guests import Workshop
from harness.launching import Runner
from harness.packages import need
from test_stress import torture

OFTEN = ["page-coloring", "bin-hopping"]
THREADS = sorted({1, os.cpu_count() or 1})


@pytest.fixture(
    params=[
        pytest.param(policy, marks=() if policy.name in OFTEN else pytest.mark.slow, id=policy.name)
        for policy in [*MAIN, *VARIANTS]
    ]
)
def policy(request: pytest.FixtureRequest) -> FramesPolicy:
    """Instead of the policies that the other module has: the frame policies, most of them in the long campaign only."""
    return possible(request.param)


# Collected here, they run with this module's policies.
test_bash = real.test_bash
test_git = real.test_git
test_gcc_builds_a_project = real.test_gcc_builds_a_project
test_sqlite = real.test_sqlite
test_redis = real.test_redis
test_python_test_mmap = real.test_python_test_mmap

test_stress_ng_long = real.test_stress_ng_long


COUNT_DESCRIPTORS = ("test_close_fds_when_max_fd_is_lowered", "test_pass_fds_redirected")
"""Tests of Python's that look at every descriptor there may be: they find the engine's (docs/frames.md, limits)."""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["test_threading", "test_subprocess"])
def test_python_long(policy: FramesPolicy, module: str, place: Path, run_under: Runner) -> None:
    ignored = [word for name in COUNT_DESCRIPTORS for word in ("-i", name)]
    real.python_tests(policy, module, place, run_under, *ignored)


@pytest.mark.parametrize("stressor", real.STRESSORS)
@pytest.mark.parametrize("name", OFTEN)
def test_stress_ng(name: str, stressor: str, everyones: Path, run_under: Runner) -> None:
    real.stress(possible(BY_NAME[name]), stressor, 1, everyones, run_under)


def test_system_calls_of_untouched_buffers_are_traced(
    policy: FramesPolicy, place: Path, workshop: Workshop, run_under: Runner
) -> None:
    """strace reads the buffers while it holds the thread; the engine, which brings the pages, must not be held."""
    guest = workshop.build("untouched_buffers")
    command = [need("strace"), "-f", "-o", "calls", "-s", "8", str(guest)]
    run = real.governed(run_under(policy.toml, command, cwd=str(place), timeout_s=60), policy)
    assert run.stdout == "ok\n", run.story()
    written = [line for line in (place / "calls").read_text().splitlines() if "write(" in line and ", 100)" in line]
    assert len(written) == 21, run.story()
    assert all('"\\0\\0\\0\\0' in line for line in written), written


@pytest.mark.parametrize("threads", THREADS)
def test_sort_of_a_large_file(policy: FramesPolicy, threads: int, place: Path, run_under: Runner) -> None:
    lines = sorted(f"{i * 2654435761 % 2**32:08x} {i}" for i in range(120_000))
    (place / "input").write_text("\n".join(sorted(lines, key=lambda line: line[::-1])) + "\n")
    env = {"clear": False, "set": {"LC_ALL": "C"}, "unset": []}
    command = ["sort", f"--parallel={threads}", "--buffer-size=8M", "-o", "output", "input"]
    real.governed(run_under(policy.toml, command, cwd=str(place), env=env), policy)
    assert (place / "output").read_text().splitlines() == lines


@pytest.mark.parametrize("threads", THREADS)
def test_compression_and_back(policy: FramesPolicy, threads: int, place: Path, run_under: Runner) -> None:
    content = b"".join(i.to_bytes(4, "little") * 3 for i in range(400_000))
    (place / "data").write_bytes(content)
    script = f"{need('xz')} -2 -k -T{threads} --block-size=1MiB data && xz -dc -T{threads} data.xz | cmp - data"
    real.governed(run_under(policy.toml, ["bash", "-c", script], cwd=str(place)), policy)
    done = subprocess.run(["xz", "-dc", str(place / "data.xz")], capture_output=True, check=True)
    assert done.stdout == content


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", [policy.name for policy in MAIN])
def test_torture(name: str, threads: int, workshop: Workshop, run_under: Runner) -> None:
    torture(possible(BY_NAME[name]), 20, 900 // threads, threads, workshop, run_under)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 210))
def test_torture_long(policy: FramesPolicy, seed: int, workshop: Workshop, run_under: Runner) -> None:
    torture(policy, seed, 6000, 1, workshop, run_under)
    torture(policy, seed, 3000, 4, workshop, run_under)
    run = run_under(policy.toml, [str(workshop.build("heap_torture")), str(seed), "1500"]).succeeded()
    assert run.stdout == "ok\n", run.story()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_race_long(policy: FramesPolicy, seed: int, workshop: Workshop, run_under: Runner) -> None:
    argv = [str(workshop.build("frames/race")), str(2 + seed), "3000", str(seed + 1)]
    run = run_under(policy.toml, argv, env=policy.environment()).succeeded()
    assert (run.stdout, run.stderr) == ("ok\n", ""), run.story()
