"""What the record says about placement is what the kernel says, and it is what the policy asked for."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from harness import smaps
from harness.guests import Workshop
from harness.huge_pages import HugePages
from harness.launching import Run, Runner
from harness.policies import BY_NAME, MOSAIC_TOML, THP, Policy
from pagelab.record import WarningKind

MIB = 1 << 20
TILE = 2 * MIB
HEAP, POOL, POOLS_END = 0x6600_0000_0000, 0x6700_0000_0000, 0x6800_0000_0000
NEEDS_THP = pytest.mark.skipif(not (THP / "enabled").exists(), reason="this kernel has no THP; boot one built with it")


@pytest.fixture
def thp_always() -> Iterator[None]:
    """THP "always" for one test: where 4K pages must be defended."""
    if os.geteuid() != 0:
        pytest.skip("switches THP system-wide; run: sudo make test")
    switch = THP / "enabled"
    before = switch.read_text().split("[")[1].split("]")[0]
    switch.write_text("always")
    yield
    switch.write_text(before)


def huge_bytes(run: Run) -> int:
    sizes = [size for region in run.regions() for size in region.by_size]
    return sum(size.bytes for size in sizes if size.page_bytes == TILE)


def addresses(run: Run) -> dict[str, int]:
    pairs = (line.split() for line in run.stdout.splitlines()[:3])
    return {name: int(address, 16) for name, address in pairs}


@NEEDS_THP
def test_threads_malloc_gets_two_mebibyte_pages(workshop: Workshop, run_under: Runner) -> None:
    guest = str(workshop.build("threads_malloc"))
    run = run_under(BY_NAME["all-2M"].toml, [guest, "4", "3000", "128", "stay"]).succeeded()
    placement = run.the_record.placement
    assert placement.whole_touched_tiles >= 60, run.story()
    assert placement.placed_fraction is not None, run.story()
    assert placement.placed_fraction >= 0.99, run.story()
    assert huge_bytes(run) >= 128 * MIB * 0.95, run.story()
    assert WarningKind.PLACEMENT_SHORTFALL not in run.kinds(), run.story()


@NEEDS_THP
def test_only_what_the_program_split_is_missing_when_threads_end(workshop: Workshop, run_under: Runner) -> None:
    """glibc discards most of an ended thread's stack, in the middle of a tile: the program's doing, no shortfall."""
    run = run_under(BY_NAME["all-2M"].toml, [str(workshop.build("threads_malloc")), "4", "3000", "128"]).succeeded()
    placement = run.the_record.placement
    assert run.root.guest is not None, run.story()
    split = run.root.guest.values.get("tiles.split", 0)
    assert 0 < split <= 8, run.story()
    assert placement.placed_fraction is not None, run.story()
    assert placement.placed_fraction >= 0.99, run.story()
    assert WarningKind.TILE_SPLIT in run.kinds(), run.story()
    assert WarningKind.PLACEMENT_SHORTFALL not in run.kinds(), run.story()


@NEEDS_THP
def test_lists_that_grow_past_each_other_keep_two_mebibyte_pages(workshop: Workshop, run_under: Runner) -> None:
    """Tiles stay whole when blocks move, over the whole run: 48% before they did."""
    run = run_under(BY_NAME["all-2M"].toml, [str(workshop.build("growing_lists")), "32"]).succeeded()
    placement = run.the_record.placement
    assert placement.whole_touched_tiles >= 150, run.story()
    assert placement.placed_fraction is not None, run.story()
    assert placement.placed_fraction >= 0.99, run.story()
    assert WarningKind.PLACEMENT_SHORTFALL not in run.kinds(), run.story()


@NEEDS_THP
def test_pages_that_a_fork_splits_are_told_as_such(run_under: Runner) -> None:
    """What is shared with a child the kernel splits when it is written. (Shells fork all the time.)"""
    script = (
        "import os, time\nb = bytearray(b'x') * 10_000_000\nif os.fork() == 0:\n    time.sleep(0.5)\n    os._exit(0)\n"
    )
    script += "b[::4096] = b[::4096]\nos.wait()"
    run = run_under(BY_NAME["all-2M"].toml, [sys.executable, "-c", script]).succeeded()
    (warning,) = [w for w in run.the_record.warnings if w.kind == WarningKind.PLACEMENT_SHORTFALL]
    placement = run.the_record.placement
    assert warning.data["short_by_fork"] == placement.whole_touched_tiles - placement.tiles_as_asked, run.story()
    assert "the others are in processes that were forked or started others" in warning.message, run.story()
    assert warning.severity == "warning", run.story()


@NEEDS_THP
def test_single_thread_gets_two_mebibyte_pages_in_heap_and_mappings(workshop: Workshop, run_under: Runner) -> None:
    run = run_under(BY_NAME["all-2M"].toml, [str(workshop.build("known_shape")), "40", "40"]).succeeded()
    placement = run.the_record.placement
    assert placement.placed_fraction is not None, run.story()
    assert placement.placed_fraction >= 0.99, run.story()
    kernel = smaps.parse(run.stdout)
    assert smaps.total(smaps.inside(kernel, HEAP, POOL), "AnonHugePages") >= 38 * MIB, run.story()
    assert smaps.total(smaps.inside(kernel, POOL, POOLS_END), "AnonHugePages") >= 38 * MIB, run.story()


@pytest.mark.usefixtures("thp_always")
def test_all_4k_has_no_huge_page_even_when_the_kernel_wants_them(workshop: Workshop, run_under: Runner) -> None:
    shape = [str(workshop.build("known_shape")), "24", "24"]
    control = run_under(BY_NAME["kernel"].toml, shape).succeeded()
    assert smaps.total(smaps.parse(control.stdout), "AnonHugePages") >= 16 * MIB, control.story()
    run = run_under(BY_NAME["all-4K"].toml, shape).succeeded()
    assert smaps.total(smaps.parse(run.stdout), "AnonHugePages") == 0, run.story()
    assert huge_bytes(run) == 0, run.story()
    threads = run_under(BY_NAME["all-4K"].toml, [str(workshop.build("threads_malloc")), "4", "3000", "64"]).succeeded()
    assert huge_bytes(threads) == 0, threads.story()


@NEEDS_THP
def test_mosaic_puts_each_size_where_it_was_asked_and_nowhere_else(workshop: Workshop, run_under: Runner) -> None:
    run = run_under(MOSAIC_TOML, [str(workshop.build("known_shape")), "30", "40"]).succeeded()
    kernel = smaps.parse(run.stdout)
    heap = [(0, 2, True), (2, 4, False), (4, 10, True), (10, 16, False)]
    anon = [(0, 2, False), (2, 4, True), (4, 6, False), (6, 32, True), (32, 64, False)]
    for base, intervals in ((HEAP, heap), (POOL, anon)):
        for low, high, huge in intervals:
            part = smaps.inside(kernel, base + low * MIB, base + high * MIB)
            got = smaps.total(part, "AnonHugePages")
            assert got == (high - low) * MIB * huge, f"{base:#x}+{low}M..{high}M: {got >> 20} MiB\n{run.story()}"
    above = smaps.total(smaps.inside(kernel, HEAP + 16 * MIB, HEAP + 64 * MIB), "AnonHugePages")
    assert above in (14 * MIB, 16 * MIB), f"the heap's last interval: {above >> 20} MiB\n{run.story()}"
    for region in run.regions():
        if region.asked == "2M":
            assert region.tiles_as_asked == region.whole_touched_tiles, f"{region}\n{run.story()}"
        if region.asked == "4K":
            assert all(size.page_bytes == 4096 for size in region.by_size), f"{region}\n{run.story()}"


@NEEDS_THP
def test_record_agrees_with_the_kernel(workshop: Workshop, run_under: Runner) -> None:
    run = run_under(MOSAIC_TOML, [str(workshop.build("known_shape")), "30", "40"]).succeeded()
    kernel = smaps.inside(smaps.parse(run.stdout), HEAP, POOLS_END)
    assert huge_bytes(run) == smaps.total(kernel, "AnonHugePages"), run.story()
    governed = [region for region in run.regions() if region.region in ("heap", "anon", "arenas")]
    resident = sum(region.resident_bytes for region in governed)
    assert abs(resident - smaps.total(kernel, "Rss")) <= 64 * 4096, run.story()


@pytest.mark.parametrize("name", ["all-4K", "all-2M", "mosaic"])
def test_offsets_are_the_same_in_every_run(name: str, workshop: Workshop, run_under: Runner) -> None:
    shape = [str(workshop.build("known_shape")), "8", "24"]
    runs = [run_under(BY_NAME[name].toml, shape, aslr=aslr).succeeded() for aslr in (True, True, False, False)]
    seen = [addresses(run) for run in runs]
    assert all(each == seen[0] for each in seen), f"{seen}\n{runs[0].story()}"
    assert HEAP <= seen[0]["heap"] < HEAP + (1 << 30), runs[0].story()
    assert POOL <= seen[0]["first"] < POOL + (1 << 30), runs[0].story()


@pytest.mark.parametrize("name", ["kernel", "all-4K", "all-2M", "mosaic", "willneed"])
def test_nothing_is_open_that_was_not_asked_for(name: str, workshop: Workshop, run_under: Runner) -> None:
    policy: Policy = BY_NAME[name]
    slack = TILE if policy.thp else 0  # a heap grown by whole tiles is open to the end of its last tile
    run = run_under(policy.toml, [str(workshop.build("beyond_mappings")), str(slack)]).succeeded()
    assert run.stdout == "ok\n", run.story()


def test_a_heap_that_must_lie_low_can_be_left_to_the_kernel(workshop: Workshop, run_under: Runner) -> None:
    """The governed heap lies above 4 GiB. A program that is killed there is told the way out, any other is not."""
    guest = str(workshop.build("short_pointers", flags=("-no-pie",)))
    policy = BY_NAME["all-4K"].toml
    killed = run_under(policy, [guest])
    assert killed.the_record.outcome.signal == signal.SIGSEGV, killed.story()
    assert WarningKind.HEAP_MOVED in killed.kinds(), killed.story()
    run = run_under(f'{policy}[[rule]]\nmemory = "heap"\npages = "kernel"\n', [guest]).succeeded()
    assert (run.stdout, WarningKind.HEAP_MOVED in run.kinds()) == ("ok\n", False), run.story()
    other = str(workshop.build("heap_torture", flags=("-no-pie",), suffix="-fixed"))
    run = run_under(policy, [other]).succeeded()
    assert WarningKind.HEAP_MOVED not in run.kinds(), run.story()


def test_guest_counts_what_it_did(workshop: Workshop, run_under: Runner) -> None:
    guest = str(workshop.build("threads_malloc"))
    run = run_under(BY_NAME["all-2M"].toml, [guest, "4", "3000", "64", "stay"]).succeeded()
    assert run.root.guest is not None, run.story()
    values = run.root.guest.values
    assert values.get("mmap.governed", 0) >= 4, run.story()
    assert values.get("brk.governed", 0) >= 1, run.story()
    assert values.get("arenas.recognised", 0) == 4, run.story()
    made = values.get("tiles.collapsed", 0) + values.get("tiles.materialised", 0)
    assert made >= 30, run.story()
    forks = run_under(BY_NAME["all-2M"].toml, [str(workshop.build("fork_many"))]).succeeded()
    guests = [process.guest.values for process in forks.the_record.processes if process.guest]
    assert sum(values.get("images.forked", 0) for values in guests) == 20, forks.story()


def test_kernel_policy_governs_nothing(workshop: Workshop, run_under: Runner) -> None:
    run = run_under(BY_NAME["kernel"].toml, [str(workshop.build("known_shape"))]).succeeded()
    values = run.root.guest.values if run.root.guest else {}
    assert not any(name.endswith(".governed") and count for name, count in values.items()), run.story()
    assert not (HEAP <= addresses(run)["first"] < POOLS_END), run.story()


def test_processes_are_told_apart_and_add_up(workshop: Workshop, run_under: Runner) -> None:
    guest = workshop.build("threads_malloc")
    script = f"{guest} 2 3000 & {guest} 2 3000; wait; true"
    run = run_under(BY_NAME["all-2M"].toml, ["bash", "-c", script]).succeeded()
    record = run.the_record
    children = [process for process in record.processes if process.executable == str(guest)]
    assert len(children) == 2, run.story()
    assert {process.ppid for process in children} == {run.root.pid}, run.story()
    assert run.root.executable.endswith("bash"), run.story()
    assert all(process.governed and process.placement for process in children), run.story()
    used = [(process.user_ns or 0) + (process.system_ns or 0) for process in record.processes]
    assert all(each > 0 for each in used), run.story()
    whole = record.time.user_ns + record.time.system_ns
    assert whole * 0.8 <= sum(used) <= whole * 1.05, f"{used} {whole}\n{run.story()}"


@NEEDS_THP
def test_shortfall_is_a_typed_warning_and_harms_nothing(workshop: Workshop, run_under: Runner) -> None:
    run = run_under(BY_NAME["all-2M"].toml, [str(workshop.build("thp_disabled"))]).succeeded()
    assert run.stdout == "ok\n", run.story()
    assert run.the_record.placement.placed_fraction is not None, run.story()
    assert run.the_record.placement.placed_fraction < 0.5, run.story()
    assert WarningKind.PLACEMENT_SHORTFALL in run.kinds(), run.story()


def test_hugetlb_tiles_are_backed_by_the_pool(huge_pages: HugePages, workshop: Workshop, run_under: Runner) -> None:
    huge_pages.need(24)
    run = run_under(BY_NAME["hugetlb"].toml, [str(workshop.build("known_shape")), "12", "12"]).succeeded()
    kernel = smaps.parse(run.stdout)
    assert smaps.total(smaps.inside(kernel, HEAP, POOL), "Private_Hugetlb") >= 10 * MIB, run.story()
    assert smaps.total(smaps.inside(kernel, POOL, POOLS_END), "Private_Hugetlb") >= 10 * MIB, run.story()


def test_exhausted_huge_page_pool_falls_back(huge_pages: HugePages, workshop: Workshop, run_under: Runner) -> None:
    huge_pages.need(24)
    mapped_mib = huge_pages.available() * 2 + 100
    shape = [str(workshop.build("known_shape")), "8", str(mapped_mib)]
    run = run_under('pages = "2M"\nvia = "hugetlb"\n', shape).succeeded()
    assert WarningKind.FALLBACK_TO_KERNEL in run.kinds(), run.story()
    assert "first" in run.stdout, run.story()
    kernel = smaps.parse(run.stdout)
    held = smaps.total(kernel, "Rss") + smaps.total(kernel, "Private_Hugetlb")
    assert held >= mapped_mib * MIB, run.story()


@NEEDS_THP
def test_asking_what_seccomp_can_do_stops_nothing(workshop: Workshop, run_under: Runner) -> None:
    """Regression: 339 of 18,000 pages were accounted for after libseccomp's questions at start."""
    run = run_under(BY_NAME["all-2M"].toml, [str(workshop.build("sandbox_calls")), "probe"]).succeeded()
    assert huge_bytes(run) >= 64 * MIB, run.story()
    assert run.the_record.placement.whole_touched_tiles >= 32, run.story()
