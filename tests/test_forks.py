"""What is special about a fork: the program's own handlers, hints beside it, children made past libc's fork, what libc
repairs in the child, and the stack to which it returns.

Children that do ordinary work are tested with the other guests, and those that outlive a parent without hints in
``test_frames_guests``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.frames import BY_NAME as FRAMES
from harness.frames import FramesPolicy, possible
from harness.guests import Guest, Workshop
from harness.huge_pages import HugePages
from harness.launching import Run, Runner
from harness.policies import BY_NAME as SIZES
from harness.policies import Policy
from pagelab import paths

HINTING = [
    Guest("forks/handlers"),
    Guest("forks/order"),
    Guest("forks/late_move"),
    Guest("forks/left"),
    Guest("forks/clone_child", ("first",), "forks/clone_child-first"),
    Guest("forks/clone_child", ("grandchild",), "forks/clone_child-grandchild"),
    Guest("forks/outlived"),
]
"""They give hints, the first one late: after the program's handlers, beside a fork, or in a child."""

POLICIES: list[Policy] = [FramesPolicy("kernel", 'frames = "kernel"\n', root=True), SIZES["all-4K"]]
"""They place no frames, so that the engine starts with the first hint. (Tiles of 2 MiB would stay where they are.)"""

RESERVED = Policy("all-reserved", 'pages = "2M"\nvia = "hugetlb"\n', huge_pages=24)
ON_RESERVED_PAGES = [
    Guest("fork_frees_locks", ("stream",), "fork_frees_locks-stream"),
    Guest("fork_frees_locks", ("arena",), "fork_frees_locks-arena"),
    Guest("fork_on_coroutine"),
    Guest("fork_on_coroutine", ("threads",), "fork_on_coroutine-threads"),
]
"""``test_guests`` has them under every policy; here reserved pages back their heap, arenas and mappings throughout."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library under the name that programs are linked with."""
    link = tmp_path_factory.mktemp("library") / "libpagelab.so"
    link.symlink_to(paths.library())
    return link


def argv(guest: Guest, workshop: Workshop, *flags: str, suffix: str = "") -> list[str]:
    program = workshop.build(guest.program, flags=(f"-I{paths.include()}", *flags), suffix=suffix)
    return [str(program), *guest.arguments]


def said_ok(run: Run) -> Run:
    run.succeeded()
    assert (run.stdout, run.stderr) == ("ok\n", ""), run.story()
    return run


@pytest.mark.parametrize("guest", HINTING, ids=str)
def test_guest_is_right_natively(guest: Guest, workshop: Workshop) -> None:
    command = [*argv(guest, workshop), "natively"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("guest", HINTING, ids=str)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_forks_and_the_first_hint_do_not_harm_each_other(
    policy: Policy, guest: Guest, workshop: Workshop, run_under: Runner
) -> None:
    possible(FRAMES["page-coloring"])
    said_ok(run_under(policy.toml, argv(guest, workshop)))


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("guest", HINTING, ids=str)
def test_forks_and_the_first_hint_do_not_harm_each_other_without_a_plan(
    guest: Guest, workshop: Workshop, library: Path
) -> None:
    """In a program that is linked with the library."""
    possible(FRAMES["page-coloring"])
    command = argv(guest, workshop, "-Wl,--no-as-needed", str(library), suffix="-linked")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("guest", ON_RESERVED_PAGES, ids=str)
def test_a_child_on_reserved_pages_has_the_memory_that_libc_left_it(
    guest: Guest, workshop: Workshop, run_under: Runner, huge_pages: HugePages
) -> None:
    huge_pages.need(RESERVED.huge_pages)
    run = said_ok(run_under(RESERVED.toml, argv(guest, workshop), env=RESERVED.environment()))
    assert run.root.guest is not None, run.story()
    assert run.root.guest.values.get("hugetlb.tiles", 0) > 0, run.story()
    children = [process.guest for process in run.the_record.processes if process.pid != run.root.pid]
    assert len(children) == 1, run.story()
    assert children[0] is not None, run.story()
    assert children[0].values.get("hugetlb.demoted", 0) > 0, run.story()


@pytest.mark.parametrize("inherits", ["true", "false"])
def test_a_child_past_libc_changes_parts_of_reserved_pages_whether_it_inherits_or_not(
    inherits: str, workshop: Workshop, run_under: Runner, huge_pages: HugePages
) -> None:
    """Regression: without the policy, the child took them for base pages: unmapping a part failed (EINVAL)."""
    huge_pages.need(RESERVED.huge_pages)
    toml = RESERVED.toml + f"inherit = {{ fork = {inherits}, exec = true }}\n"
    command = [str(workshop.build("forks/uninherited"))]
    run = said_ok(run_under(toml, command, env=RESERVED.environment()))
    assert run.root.guest is not None, run.story()
    assert run.root.guest.values.get("hugetlb.tiles", 0) > 0, run.story()


@pytest.mark.parametrize("name", ["all-2M", "all-4K"])
def test_a_break_that_another_thread_moves_during_the_fork_can_be_moved_in_the_child(
    name: str, workshop: Workshop, run_under: Runner
) -> None:
    """Regression: it could not in most children. (Natively it cannot in one of ten: Linux copies the break before it
    locks the mappings.)"""
    policy = SIZES[name]
    if missing := policy.missing():
        pytest.skip(missing)
    said_ok(run_under(policy.toml, [str(workshop.build("forks/moving_break"))]))


def test_a_filter_of_a_child_of_vfork_does_not_end_the_parents_measurement(
    workshop: Workshop, run_under: Runner
) -> None:
    """Regression: the parent was taken for the process with the filter, where nothing is measured at the end."""
    policy = SIZES["all-2M"]
    missing = policy.missing()
    if missing:
        pytest.skip(missing)
    run = said_ok(run_under(policy.toml, [str(workshop.build("vfork_filter"))]))
    assert "heap" in {region.region for region in run.root.placement}, run.story()


@pytest.mark.parametrize("name", ["all-2M", "all-4K"])
def test_the_first_process_of_a_namespace_is_itself_though_it_was_made_past_libc(
    name: str, workshop: Workshop, run_under: Runner
) -> None:
    policy = SIZES[name]
    if missing := policy.missing():
        pytest.skip(missing)
    said_ok(run_under(policy.toml, [str(workshop.build("forks/first_of_namespace"))]))


@pytest.mark.parametrize("name", ["all-2M", "all-4K"])
def test_a_forked_child_is_itself_though_its_own_child_of_vfork_maps_first(
    name: str, workshop: Workshop, run_under: Runner
) -> None:
    policy = SIZES[name]
    if missing := policy.missing():
        pytest.skip(missing)
    program = workshop.build("forks/vfork_first")
    run = said_ok(run_under(policy.toml, [str(program)]))
    forked = [one for one in run.the_record.processes if one.executable == str(program) and one.pid != run.root.pid]
    assert len(forked) == 1, run.story()
    assert "anon" in {region.region for region in forked[0].placement}, run.story()
