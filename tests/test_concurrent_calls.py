"""Memory calls at bad moments: a new child, a common end, forks that nobody announces, descriptors closed by number."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.frames import BY_NAME as FRAMES
from harness.frames import FramesPolicy
from harness.guests import Guest, Workshop
from harness.launching import Run, Runner
from harness.policies import BY_NAME as SIZES
from harness.policies import Policy

POLICIES: list[Policy] = [SIZES["kernel"], SIZES["all-2M"], FRAMES["page-coloring"], FRAMES["bin-hopping"]]
FEW = [
    Guest("concurrent/adopt", ("60",), "adopt"),
    Guest("concurrent/bare_fork", ("300",), "bare_fork"),
    Guest("concurrent/close_range", ("20000",), "close_range"),
    Guest("concurrent/lock_limit", ("3000",), "lock_limit"),
]
MANY = [
    Guest("concurrent/adopt", ("1500",), "adopt"),
    Guest("concurrent/bare_fork", ("5000",), "bare_fork"),
    Guest("concurrent/close_range", ("300000",), "close_range"),
    Guest("concurrent/lock_limit", ("100000",), "lock_limit"),
]


def is_unharmed(policy: Policy, guest: Guest, workshop: Workshop, run_under: Runner, tmp_path: Path) -> Run:
    missing = policy.missing()
    if missing:
        pytest.skip(missing)
    run = run_under(policy.toml, workshop.argv(guest, tmp_path), env=policy.environment()).succeeded()
    assert (run.stdout, run.stderr) == ("ok\n", ""), run.story()
    return run


@pytest.mark.parametrize("guest", [*FEW, Guest("concurrent/leave", ("20",))], ids=str)
def test_guest_is_right_natively(guest: Guest, workshop: Workshop, tmp_path: Path) -> None:
    argv = workshop.argv(guest, tmp_path)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", ""), f"{argv}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("guest", FEW, ids=str)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_guest_is_unharmed(policy: Policy, guest: Guest, workshop: Workshop, run_under: Runner, tmp_path: Path) -> None:
    is_unharmed(policy, guest, workshop, run_under, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("guest", MANY, ids=str)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_guest_is_unharmed_for_long(
    policy: Policy, guest: Guest, workshop: Workshop, run_under: Runner, tmp_path: Path
) -> None:
    is_unharmed(policy, guest, workshop, run_under, tmp_path)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_threads_that_end_the_process_together_measure_it_once(
    policy: Policy, workshop: Workshop, run_under: Runner, tmp_path: Path
) -> None:
    """Every child has touched the same memory, whichever of its threads was the last."""
    run = is_unharmed(policy, Guest("concurrent/leave", ("30",)), workshop, run_under, tmp_path)
    children = [process for process in run.the_record.processes if process.pid != run.root.pid]
    touched = [sum(part.resident_bytes for part in child.placement if part.region == "anon") for child in children]
    if policy.is_kernel or isinstance(policy, FramesPolicy):
        return  # nothing is measured, or what is placed is another engine's from child to child
    assert len(touched) == 30, run.story()
    # Counted twice, 12 MiB would be 24; beside them are the threads' stacks.
    assert all(12 << 20 <= each <= 20 << 20 for each in touched), f"{touched}\n{run.story()}"
