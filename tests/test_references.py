"""A page that the kernel may still use is never the program's again, however it was given back.

The kernel holds pages in pipes, sockets and rings and for direct input and output without a sign in any file that a
program can read: so the only proof is what arrives at the other end.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.frames import FramesPolicy, possible
from harness.guests import Guest, Workshop
from harness.huge_pages import HugePages
from harness.launching import Runner
from harness.policies import Policy
from harness.references import FIRST, FURTHER, OFTEN, SELDOM

RARE = [(policy, guest) for policy in SELDOM for guest in FURTHER]
COMMON = [
    *((policy, guest) for policy in OFTEN for guest in FURTHER),
    *((p, g) for p in [*OFTEN, *SELDOM] for g in FIRST),
]


def argv_of(guest: Guest, workshop: Workshop, tmp_path: Path) -> list[str]:
    if guest.program == "references/direct" and os.geteuid() != 0:
        pytest.skip("mounts a file system of its own; run: sudo make test")
    scratch = tmp_path / "scratch"
    scratch.mkdir(mode=0o755)
    return workshop.argv(guest, scratch)


def leaves_pages_alone(
    policy: Policy, guest: Guest, workshop: Workshop, run_under: Runner, tmp_path: Path, huge_pages: HugePages
) -> None:
    if isinstance(policy, FramesPolicy):
        possible(policy)
    elif missing := policy.missing():
        pytest.skip(missing)
    if policy.huge_pages:
        huge_pages.need(policy.huge_pages)
    run = run_under(policy.toml, argv_of(guest, workshop, tmp_path), env=policy.environment()).succeeded()
    assert (run.stdout, run.stderr) == ("ok\n", ""), run.story()
    assert run.root.governed, run.story()


@pytest.mark.parametrize("guest", [*FIRST, *FURTHER], ids=str)
def test_guest_is_right_natively(guest: Guest, workshop: Workshop, tmp_path: Path) -> None:
    argv = argv_of(guest, workshop, tmp_path)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", ""), f"{argv}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize(("policy", "guest"), COMMON, ids=str)
def test_pages_in_use_by_the_kernel_are_left_alone(
    policy: Policy, guest: Guest, workshop: Workshop, run_under: Runner, tmp_path: Path, huge_pages: HugePages
) -> None:
    leaves_pages_alone(policy, guest, workshop, run_under, tmp_path, huge_pages)


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "guest"), RARE, ids=str)
def test_pages_in_use_by_the_kernel_are_left_alone_under_variant(
    policy: Policy, guest: Guest, workshop: Workshop, run_under: Runner, tmp_path: Path, huge_pages: HugePages
) -> None:
    leaves_pages_alone(policy, guest, workshop, run_under, tmp_path, huge_pages)
