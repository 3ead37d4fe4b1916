"""Every guest program keeps its promises natively and under every policy."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.guests import Guest, Workshop, every_guest
from harness.launching import Runner
from harness.policies import Policy

GUESTS = every_guest()


@pytest.mark.parametrize("guest", GUESTS, ids=str)
def test_guest_is_right_natively(guest: Guest, workshop: Workshop, tmp_path: Path) -> None:
    argv = workshop.argv(guest, tmp_path)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", ""), f"{argv}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("guest", GUESTS, ids=str)
def test_guest_keeps_its_promises_under(
    policy: Policy, guest: Guest, workshop: Workshop, run_under: Runner, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir(mode=0o755)
    run = run_under(policy.toml, workshop.argv(guest, scratch), env=policy.environment()).succeeded()
    assert (run.stdout, run.stderr) == ("ok\n", ""), run.story()
    if not policy.is_kernel:
        assert run.root.governed, run.story()
        assert run.root.guest is not None, run.story()
