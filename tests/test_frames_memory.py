"""Memory that runs short while frames are placed: swap, control groups with a limit, and the end of all memory; and the
kernel's switch for huge pages in each of its positions."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from harness.frames import BY_NAME, MAIN, FramesPolicy, possible
from harness.guests import Workshop
from harness.launching import Run, Runner
from harness.memory import MemoryGroup, swap_file
from harness.placing import TRIES, pages_migrated, run_placed
from harness.policies import THP
from harness.processes import processes_named
from pagelab.placement.regions import pool_of

SWAPPING = [*MAIN, BY_NAME["masks"], BY_NAME["window-16"]]
HUGE = 2 << 20
LARGER_MIB = 48
"""What lives in smaller groups with swap."""


@pytest.fixture(scope="module")
def swap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with swap_file(tmp_path_factory.mktemp("swap") / "file", 512):
        yield


def group(name: str, mebibytes: int, *, swap: bool = False) -> MemoryGroup:
    return MemoryGroup(f"pagelab-test-{name}", mebibytes, swap=swap)


def in_group(run_under: Runner, limited: MemoryGroup, policy: FramesPolicy, argv: list[str]) -> Run:
    """The launcher and the program in the group."""
    run_under.prefix = limited.prefix()
    return run_under(policy.toml, argv, env=policy.environment())


def accounted(run: Run) -> None:
    """Every page asked for is accounted for, and none was left to the kernel."""
    frames = run.the_record.frames
    assert frames is not None, run.story()
    for strategy in frames.strategies:
        assert strategy.requested_pages == strategy.placed_pages + strategy.fallback_pages, run.story()
        assert strategy.zero_pages == 0, run.story()


@pytest.mark.usefixtures("swap")
@pytest.mark.parametrize("guest", ["swap", "swapped_pool"])
@pytest.mark.parametrize("policy", SWAPPING, ids=str)
def test_pages_are_placed_where_memory_is_swapped(
    policy: FramesPolicy, guest: str, workshop: Workshop, run_under: Runner
) -> None:
    """The program's pages go out and come back; free pages of the pool go out before they are handed out.

    A broken promise is forgiven only where the kernel migrated pages of this machine meanwhile.
    """
    argv = [str(workshop.build(f"frames/{guest}"))]
    for _ in range(TRIES):
        before = pages_migrated()
        run = run_under(possible(policy).toml, argv, env=policy.environment())
        if "promised" not in run.stderr or pages_migrated() == before:
            break
    run.succeeded()
    assert (run.stdout, run.stderr) == ("ok\n", ""), run.story()
    accounted(run)
    assert run.the_record.frames is not None
    assert sum(strategy.fallback_pages for strategy in run.the_record.frames.strategies) == 0, run.story()


@pytest.mark.usefixtures("swap")
@pytest.mark.parametrize("mebibytes", [16, 24])
@pytest.mark.parametrize("policy", MAIN, ids=str)
def test_a_program_larger_than_its_memory_lives_on_swap(
    policy: FramesPolicy, mebibytes: int, workshop: Workshop, run_under: Runner
) -> None:
    """Two and three times the limit: pages of the program and of the pool come and go under four threads and a fork."""
    argv = [str(workshop.build("frames/squeezed")), str(LARGER_MIB), "1"]
    with group("swap", mebibytes, swap=True) as limited:
        run = in_group(run_under, limited, possible(policy), argv).succeeded()
        assert (run.stdout, run.stderr) == ("ok\n", ""), run.story()
        assert limited.killed() == 0, run.story()
    accounted(run)


TIGHT = [(24, 20), (64, 60)]
"""MiB of a group without swap, and of a program that lives in it."""


@pytest.mark.parametrize(("mebibytes", "hogged"), TIGHT)
@pytest.mark.parametrize("policy", [None, *MAIN], ids=lambda policy: policy or "natively")
def test_a_program_that_fills_its_group_gets_what_the_pool_holds(
    policy: FramesPolicy | None, mebibytes: int, hogged: int, workshop: Workshop, run_under: Runner
) -> None:
    """All but 4 MiB of the group, enough for the launcher and the engine too: the pool shrinks with what is left."""
    possible(MAIN[0])
    argv = [str(workshop.build("frames/hog")), str(hogged), "1"]
    with group("tight", mebibytes) as limited:
        if policy is None:
            assert subprocess.run([*limited.prefix(), *argv], capture_output=True, check=False).returncode == 0
            return
        run = in_group(run_under, limited, policy, argv).succeeded()
        assert limited.killed() == 0, run.story()
    accounted(run)
    assert run.root.frames is not None
    assert run.root.frames.engine is not None
    assert run.root.frames.engine.values["pool_bytes"] <= 2 << 20, run.story()


@pytest.mark.parametrize("policy", MAIN, ids=str)
def test_a_limit_that_is_lowered_while_the_run_goes_on_is_heeded(
    policy: FramesPolicy, workshop: Workshop, run_under: Runner
) -> None:
    """The launcher has seen 256 MiB, and allows pools that do not fit into what it is then."""
    with group("lowered", 256) as limited:
        command = ["sh", "-c", f"echo $((24 << 20)) >{limited.limit}; exec {workshop.build('frames/hog')} 20 1"]
        run = in_group(run_under, limited, possible(policy), command).succeeded()
        assert limited.killed() == 0, run.story()
    accounted(run)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("policy", [None, *MAIN, BY_NAME["pinned"]], ids=lambda policy: policy or "natively")
def test_out_of_memory_ends_the_program_as_it_would_without_us(
    policy: FramesPolicy | None, threads: int, workshop: Workshop, run_under: Runner
) -> None:
    possible(MAIN[0])
    hog = workshop.build("frames/hog")
    argv = [str(hog), "256", str(threads)]
    with group("oom", 64) as limited:
        if policy is None:
            done = subprocess.run([*limited.prefix(), *argv], capture_output=True, timeout=60, check=False)
            assert done.returncode == -signal.SIGKILL
        else:
            run = in_group(run_under, limited, policy, argv)
            outcome = run.the_record.outcome
            assert (outcome.status, outcome.signal) == ("signalled", signal.SIGKILL), run.story()
            assert run.stdout == "", run.story()
        # The memory of a program that was killed is not free at once, and the launcher is in the group too: now and
        # then the kernel also kills the process that would put settings back if the launcher died.
        assert 1 <= limited.killed() <= (1 if policy is None else 2)
    assert not processes_named(str(hog))


@pytest.mark.parametrize("policy", MAIN, ids=str)
def test_a_parent_survives_its_childs_end_for_lack_of_memory(
    policy: FramesPolicy, workshop: Workshop, run_under: Runner
) -> None:
    command = ["bash", "-c", f"{workshop.build('frames/hog')} 256 2; echo $?; exec {workshop.build('frames/demand')}"]
    with group("child", 64) as limited:
        run = in_group(run_under, limited, possible(policy), command).succeeded()
        assert limited.killed() == 1
    assert run.stdout == f"{128 + signal.SIGKILL}\nok\n", run.story()


@pytest.mark.parametrize("name", ["page-coloring", "modulo"])
def test_the_pool_alone_does_not_use_up_a_small_group(name: str, workshop: Workshop, run_under: Runner) -> None:
    """32 MiB of a group of 64, on one colour of sixteen too: what must be held for that heeds the group's limit."""
    one = 'frames = { kind = "modulo", colors = 16, pattern = [3] }\n'
    policy = possible(BY_NAME[name] if name != "modulo" else FramesPolicy("one-colour", one, root=True))
    argv = [str(workshop.build("frames/hog")), "32", "1"]
    with group("small", 64) as limited:
        run = in_group(run_under, limited, policy, argv).succeeded()
        assert limited.killed() == 0
    accounted(run)
    assert run.root.frames is not None
    assert run.root.frames.engine is not None
    held = run.root.frames.engine.values
    assert held["pool_peak_bytes"] <= held["budget_bytes"] + (2 << 20) < 32 << 20, run.story()


THP_GUESTS = ["arenas", "demand", "discard", "existing", "fork_child", "remap", "threads"]


@pytest.fixture
def thp_always() -> Iterator[None]:
    """THP "always" for one test: where 4K pages must be defended against the page fault and khugepaged."""
    switch = THP / "enabled"
    if not switch.exists():
        pytest.skip("this kernel has no transparent huge pages; boot one built with THP")
    before = switch.read_text().split("[")[1].split("]")[0]
    switch.write_text("always")
    yield
    switch.write_text(before)


@pytest.fixture
def folios_always() -> Iterator[None]:
    """Folios of 64K instead of huge pages, given whether a program asks or not."""
    switches = {THP / "hugepages-64kB/enabled": "always", THP / "hugepages-2048kB/enabled": "never"}
    if not all(switch.exists() for switch in switches):
        pytest.skip("this kernel has no folios between the sizes (mTHP); boot Linux 6.8 or newer")
    before = {switch: switch.read_text().split("[")[1].split("]")[0] for switch in switches}
    try:
        for switch, value in switches.items():
            switch.write_text(value)
        yield
    finally:
        for switch, value in before.items():
            switch.write_text(value)


def guest_argv(name: str, workshop: Workshop) -> list[str]:
    more = {"existing": ["placed"], "threads": ["4", "1500"]}
    return [str(workshop.build(f"frames/{name}")), *more.get(name, [])]


@pytest.mark.usefixtures("thp_always")
@pytest.mark.parametrize("guest", THP_GUESTS)
@pytest.mark.parametrize("policy", MAIN, ids=str)
def test_guest_is_placed_where_huge_pages_are_always_given(
    policy: FramesPolicy, guest: str, workshop: Workshop, run_under: Runner
) -> None:
    run = run_placed(policy, guest_argv(guest, workshop), run_under)
    sizes = {size.page_bytes for region in run.regions() if region.region == "anon" for size in region.by_size}
    assert sizes == {4096}, run.story()


@pytest.mark.parametrize("policy", MAIN, ids=str)
def test_no_huge_page_has_room_among_the_tables_of_the_library(policy: FramesPolicy, run_under: Runner) -> None:
    """Where huge pages are always given, khugepaged would fill what lies between small tables."""
    run = run_under(possible(policy).toml, ["cat", "/proc/self/smaps"], env=policy.environment()).succeeded()
    roomy = []
    for mapping in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", run.stdout, flags=re.MULTILINE)[1:]:
        head, *_, flags = mapping.splitlines()
        start, end = (int(address, 16) for address in head.split()[0].split("-"))
        of_ours = len(head.split()) == 5 and pool_of(start) is None
        if of_ours and -(-start // HUGE) < end // HUGE and "nh" not in flags.split():
            roomy.append(head)
    assert roomy == [], run.story()


@pytest.mark.usefixtures("folios_always")
@pytest.mark.parametrize("guest", THP_GUESTS)
@pytest.mark.parametrize("policy", MAIN, ids=str)
def test_guest_is_placed_where_folios_between_the_sizes_are_given(
    policy: FramesPolicy, guest: str, workshop: Workshop, run_under: Runner
) -> None:
    run = run_placed(policy, guest_argv(guest, workshop), run_under, may_lack_colours=True)
    assert run.root.frames is not None
    assert run.root.frames.engine is not None
    counts = run.root.frames.engine.values
    assert counts["chunks"] == counts["small_chunks"] > 0, run.story()


@pytest.mark.parametrize("guest", THP_GUESTS)
@pytest.mark.parametrize("policy", MAIN, ids=str)
def test_guest_is_placed_where_huge_pages_are_never_given(
    policy: FramesPolicy, guest: str, workshop: Workshop, run_under: Runner
) -> None:
    """PR_SET_THP_DISABLE is "never" for one process and those it starts: pools are cut from 4K pages."""
    run_under.prefix = (str(workshop.build("frames/without_thp")),)
    run = run_placed(policy, guest_argv(guest, workshop), run_under, may_lack_colours=True)
    assert run.root.frames is not None
    assert run.root.frames.engine is not None
    chunks = run.root.frames.engine.values
    assert chunks["chunks"] == chunks["small_chunks"] > 0, run.story()
