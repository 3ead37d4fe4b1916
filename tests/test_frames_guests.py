"""Guest programs look up their own frames: placed as the policy promises, and every promise of the kernel is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.frames import BY_NAME, MAIN, VARIANTS, FramesPolicy, frames_guests, possible, with_small_pool
from harness.guests import Guest, Workshop, every_guest
from harness.launching import Run, Runner
from harness.placing import run_placed
from pagelab.record import Frames

GUESTS = frames_guests()
ORDINARY = every_guest()
OFTEN = [BY_NAME[name] for name in ("page-coloring", "bin-hopping", "with-tiles")]
"""Under these every ordinary guest runs in every test."""
CLOSED = {f"frames/{name}" for name in ("limits", "lock_pages", "never_executable", "protect", "race")}
"""Guests whose pages are locked or read-only while they are missing: the kernel takes no page from us there."""


def run_guest(policy: FramesPolicy, guest: Guest, workshop: Workshop, run_under: Runner, tmp_path: Path) -> Run:
    scratch = tmp_path / "scratch"
    scratch.mkdir(mode=0o755)
    return run_placed(policy, workshop.argv(guest, scratch), run_under)


def placed_all(run: Run, guest: Guest) -> None:
    """The record agrees: every page asked for is accounted for, and placed where that is possible."""
    frames = run.the_record.frames
    assert frames is not None, run.story()
    assert frames.engines_failed == 0, run.story()
    assert sum(strategy.placed_pages for strategy in frames.strategies) > 0, run.story()
    for strategy in frames.strategies:
        done = strategy.placed_pages + strategy.fallback_pages + strategy.zero_pages
        assert done == strategy.requested_pages, run.story()
        # What a limit leaves no room for, and what is locked or read-only, is all that may be another colour's.
        assert strategy.fallback_pages == 0 or guest.program == "frames/limits", run.story()
        assert strategy.zero_pages == 0 or guest.program in CLOSED, run.story()


@pytest.mark.parametrize("guest", GUESTS, ids=str)
def test_guest_is_right_natively(guest: Guest, workshop: Workshop, tmp_path: Path) -> None:
    argv = workshop.argv(guest, tmp_path)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", ""), f"{argv}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("guest", ["demand", "threads", "fork_child", "existing", "discard"])
def test_guest_would_notice_frames_that_are_not_placed(guest: str, workshop: Workshop, tmp_path: Path) -> None:
    """Natively, told that it is coloured: the kernel does not colour, and the guest says so."""
    policy = possible(BY_NAME["page-coloring"])
    argv = workshop.argv(next(known for known in GUESTS if known.program == f"frames/{guest}"), tmp_path)
    done = subprocess.run(argv, env=os.environ | policy.told, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "promised" in done.stderr


@pytest.mark.parametrize("guest", GUESTS, ids=str)
@pytest.mark.parametrize("policy", MAIN, ids=str)
def test_guest_is_placed_under(
    policy: FramesPolicy, guest: Guest, workshop: Workshop, run_under: Runner, tmp_path: Path
) -> None:
    placed_all(run_guest(policy, guest, workshop, run_under, tmp_path), guest)


def test_a_program_that_gives_up_root_keeps_none_of_it_where_pages_are_pinned(
    workshop: Workshop, run_under: Runner, tmp_path: Path
) -> None:
    guest = next(known for known in GUESTS if known.program == "frames/gives_up_root")
    run_guest(BY_NAME["pinned"], guest, workshop, run_under, tmp_path)


def record_of(program: str, policy: FramesPolicy, workshop: Workshop, run_under: Runner, scratch: Path) -> Frames:
    """What the record says of frames after a run of the guest `program`."""
    guest = next(known for known in GUESTS if known.program == program)
    run = run_guest(policy, guest, workshop, run_under, scratch)
    assert run.the_record.frames is not None, run.story()
    return run.the_record.frames


@pytest.mark.parametrize("policy", MAIN, ids=str)
def test_pages_in_memory_are_not_tried_when_they_are_locked_or_populated(
    policy: FramesPolicy, workshop: Workshop, run_under: Runner, tmp_path: Path
) -> None:
    """The guest's 8,192 pages are locked and populated when they are in memory. Each of them cost two calls."""
    frames = record_of("frames/in_memory", policy, workshop, run_under, tmp_path)
    assert frames.engine is not None
    assert frames.engine.values["moves"] < 8_192 * 3 // 2, frames.engine


@pytest.mark.parametrize("policy", MAIN, ids=str)
def test_a_move_that_shrinks_a_block_leaves_the_counts_of_the_next_one(
    policy: FramesPolicy, workshop: Workshop, run_under: Runner, tmp_path: Path
) -> None:
    """Pages behind the new place counted as moved: all that the move cut off (1,008)."""
    frames = record_of("frames/shrinking_move", policy, workshop, run_under, tmp_path)
    assert sum(strategy.moved_pages for strategy in frames.strategies) < 500, frames.strategies


def may_raise_the_limit_on_priorities() -> bool:
    code = "import resource; resource.setrlimit(resource.RLIMIT_RTPRIO, (99, 99))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("user", [None, "nobody"])
@pytest.mark.parametrize("policy", MAIN, ids=str)
def test_a_program_that_starts_as_a_real_time_program_does_not_wait_for_ever(
    policy: FramesPolicy, user: str | None, workshop: Workshop, run_under: Runner
) -> None:
    guest = next(known for known in GUESTS if known.program == "frames/real_time")
    argv = [workshop.argv(guest, Path())[0], "started"]
    cpu = max(os.sched_getaffinity(0))
    if user and not may_raise_the_limit_on_priorities():
        pytest.skip("needs CAP_SYS_RESOURCE, to let another user's program be real-time; run as root with it")
    env = possible(policy).environment()
    run = run_under(policy.toml, argv, env=env, scheduler="fifo", cpus=[cpu], user=user, timeout_s=20.0)
    run.succeeded()
    assert run.stdout == "ok\n", run.story()


def test_a_process_with_capabilities_that_cannot_take_other_ids_has_no_engine(
    workshop: Workshop, run_under: Runner, tmp_path: Path
) -> None:
    """Its threads without capabilities would be open to every process of its user. The record says so."""
    guest = Guest("frames/own_ids", ("capabilities",), "own_ids-capabilities")
    run = run_guest(BY_NAME["page-coloring"], guest, workshop, run_under, tmp_path)
    frames = run.the_record.frames
    assert frames is not None, run.story()
    assert frames.engines_failed > 0, run.story()
    missing = [warning for warning in run.the_record.warnings if warning.kind == "frames-not-placed"]
    assert {warning.data["reason"] for warning in missing} == {"rights"}, run.story()


@pytest.mark.slow
@pytest.mark.parametrize("guest", GUESTS, ids=str)
@pytest.mark.parametrize("policy", VARIANTS, ids=str)
def test_guest_is_placed_under_variant(
    policy: FramesPolicy, guest: Guest, workshop: Workshop, run_under: Runner, tmp_path: Path
) -> None:
    run_guest(policy, guest, workshop, run_under, tmp_path)


@pytest.mark.parametrize("guest", ORDINARY, ids=str)
@pytest.mark.parametrize("policy", OFTEN, ids=str)
def test_ordinary_guest_keeps_its_promises_under(
    policy: FramesPolicy, guest: Guest, workshop: Workshop, run_under: Runner, tmp_path: Path
) -> None:
    run_guest(policy, guest, workshop, run_under, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("guest", ORDINARY, ids=str)
@pytest.mark.parametrize("policy", [policy for policy in [*MAIN, *VARIANTS] if policy not in OFTEN], ids=str)
def test_ordinary_guest_keeps_its_promises_under_variant(
    policy: FramesPolicy, guest: Guest, workshop: Workshop, run_under: Runner, tmp_path: Path
) -> None:
    run_guest(with_small_pool(policy), guest, workshop, run_under, tmp_path)
