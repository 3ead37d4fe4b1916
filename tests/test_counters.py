"""Counters, against programs with known answers and against the kernel's other books (docs/counters.md).

Hardware counters are tested where the machine has them; where it has none, that they are reported as missing.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.launching import Run, Runner
from pagelab import paths
from pagelab.record import Counter, WarningKind

PYTHON = os.path.realpath(sys.executable)
PAGES = 4000
TOUCH = (
    "import mmap\n"
    "m = mmap.mmap(-1, {pages} * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
    "m.madvise(mmap.MADV_NOHUGEPAGE)\n"
    "for at in range(0, len(m), mmap.PAGESIZE): m[at] = 1\n"
)


def counters(run: Run) -> dict[str, Counter]:
    return {counter.name: counter for counter in run.the_record.counters}


def count(run: Run, name: str) -> int:
    counter = counters(run)[name]
    assert counter.status == "ok", run.story()
    assert counter.count is not None
    return counter.count


def report() -> dict[str, object]:
    done = subprocess.run([str(paths.launcher()), "--counters"], capture_output=True, text=True, check=True)
    document: dict[str, object] = json.loads(done.stdout)
    return document


def has_hardware() -> bool:
    hardware = report()["hardware"]
    assert isinstance(hardware, dict)
    return bool(hardware["usable"])


def test_a_known_number_of_page_faults_is_counted(run_under: Runner) -> None:
    """The same program with and without 4,000 more pages, so that what surrounds the loop cancels."""
    few = run_under("", [PYTHON, "-S", "-c", TOUCH.format(pages=1)], events=["faults"], preload="never").succeeded()
    many = run_under(
        "", [PYTHON, "-S", "-c", TOUCH.format(pages=PAGES)], events=["faults"], preload="never"
    ).succeeded()
    more = count(many, "faults.minor") - count(few, "faults.minor")
    assert PAGES - 50 <= more <= PAGES + 50
    assert counters(many)["faults.minor"].enabled_ns == counters(many)["faults.minor"].running_ns


def test_counting_starts_at_exec_and_agrees_with_wait4(run_under: Runner) -> None:
    run = run_under("", [PYTHON, "-c", TOUCH.format(pages=PAGES)], events=["faults"]).succeeded()
    counted, waited = count(run, "faults.minor"), run.the_record.faults.minor
    # wait4 also knows the child's faults between fork and exec, and pages the kernel populates itself.
    assert waited * 0.8 <= counted <= waited


TREE = f"""
import os, subprocess, sys, threading
child = {TOUCH.format(pages=500)!r}
running = [subprocess.Popen([sys.executable, "-S", "-c", child]) for _ in range(4)]
exec(child)
threads = [threading.Thread(target=exec, args=(child, {{}})) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not any(process.wait() for process in running)
"""


@pytest.mark.parametrize("pinned", [True, False], ids=["one-cpu", "all-cpus"])
def test_processes_add_up_to_the_total_and_each_has_its_own(run_under: Runner, pinned: bool) -> None:
    cpus = [max(os.sched_getaffinity(0))] if pinned else []
    run = run_under("", [PYTHON, "-S", "-c", TREE], events=["faults", "context-switches"], cpus=cpus).succeeded()
    partial = [w for w in run.the_record.warnings if w.kind == WarningKind.PROCESS_BREAKDOWN_PARTIAL]
    processes = run.the_record.processes
    if partial and not pinned:
        # Two tasks ended at once and one report overwrote the other: then nothing is claimed about processes.
        assert all(not process.counters for process in processes)
        return
    assert partial == []
    for name in ("faults.minor", "context-switches"):
        assert sum(process.counters.get(name, 0) for process in processes) == count(run, name)
    workers = [process for process in processes if process.ppid == run.root.pid]
    assert len(workers) == 4
    for process in [run.root, *workers]:
        assert process.counters["faults.minor"] >= 500
        # The library's own book of the process, closed when it began to measure placement.
        assert process.minor_faults is not None
        assert abs(process.counters["faults.minor"] - process.minor_faults) <= max(120, process.minor_faults // 5)


def test_totals_do_not_depend_on_telling_processes_apart(run_under: Runner) -> None:
    argv = [PYTHON, "-S", "-c", TREE]
    both = [
        count(run_under("", argv, events=["faults"], per_process_counters=wanted).succeeded(), "faults.minor")
        for wanted in (True, False)
    ]
    assert abs(both[0] - both[1]) <= both[1] // 50
    plain = run_under("", argv, events=["faults"], per_process_counters=False).succeeded()
    assert all(not process.counters for process in plain.the_record.processes)


def test_a_program_that_never_runs_is_not_counted(run_under: Runner, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(Path("/usr/bin/true").read_bytes()[:200])
    broken.chmod(0o755)
    run = run_under("", [str(broken)], events=["faults"], preload="never")
    assert run.launcher_exit in (1, 2)
    if run.record is not None:
        assert run.record.outcome.status == "not-started"
        assert all(counter.count is None for counter in run.record.counters)


def test_hardware_counters_are_plausible_or_reported_as_missing(run_under: Runner) -> None:
    loop = [PYTHON, "-S", "-c", "for _ in range(3_000_000): pass"]
    run = run_under("", loop, events=["cycles", "instructions", "branches"]).succeeded()
    if has_hardware():
        assert count(run, "instructions") > 10_000_000
        assert count(run, "branches") < count(run, "instructions")
    else:
        assert {counter.status for counter in counters(run).values()} <= {"unsupported", "denied"}
        assert all(counter.count is None for counter in counters(run).values())
        (warning,) = [w for w in run.the_record.warnings if w.kind == WarningKind.COUNTER_UNAVAILABLE]
        assert set(warning.data["counters"]) == {"cycles", "instructions", "branches"}


@pytest.mark.skipif(
    not has_hardware(), reason="this machine shows no hardware counters; run on bare metal, or with a virtual PMU"
)
def test_walks_fall_when_pages_grow(run_under: Runner) -> None:
    chase = [str(paths.workload()), "pointer-chase", "--bytes", str(1 << 29)]
    small = run_under('pages = "4K"', chase, events=["tlb.walks"]).succeeded()
    large = run_under('pages = "2M"', chase, events=["tlb.walks"]).succeeded()
    assert count(large, "tlb.walks") * 5 < count(small, "tlb.walks")


def test_software_and_missing_hardware_events_may_be_mixed(run_under: Runner) -> None:
    run = run_under("", ["true"], events=["faults,tlb", "r0F45", "cpu/event=0x45,umask=0xf0/"]).succeeded()
    names = ["faults.minor", "faults.major", "tlb.hits", "tlb.walks", "tlb.walk_cycles", "r0F45"]
    assert [counter.name for counter in run.the_record.counters] == [*names, "cpu/event=0x45,umask=0xf0/"]
    assert count(run, "faults.minor") > 0


@pytest.mark.parametrize("event", ["no-such-event", "rxyz", "cpu/nonsense=1/", "nopmu/event=1/", "cpu/umask=0x1ff/"])
def test_an_event_that_cannot_be_is_refused_before_anything_runs(run_under: Runner, event: str) -> None:
    run = run_under("", ["true"], events=[event])
    assert (run.launcher_exit, run.record) == (2, None), run.story()
    assert event in run.launcher_stderr


@pytest.mark.skipif(
    subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout.find("libpfm.so.4") < 0,
    reason="libpfm4 is not installed; run: sudo apt install libpfm4",
)
def test_names_of_libpfm4_are_understood(run_under: Runner) -> None:
    run = run_under("", ["true"], events=["perf::PERF_COUNT_SW_PAGE_FAULTS"]).succeeded()
    (counter,) = run.the_record.counters
    assert (counter.name, counter.source, counter.status) == ("perf::PERF_COUNT_SW_PAGE_FAULTS", "libpfm4", "ok")
    assert (counter.count or 0) > 0


def test_every_event_of_the_table_cites_its_source(run_under: Runner) -> None:
    document = report()
    known = document["known"]
    assert isinstance(known, list)
    for generation in ("Sandy Bridge", "Sapphire", "Zen 2", "Zen 5", "Neoverse N1", "Neoverse V2"):
        assert any(generation in name for name in known)
    events = document["events"]
    assert isinstance(events, list)
    assert all(row["source"] and row["events"] for row in events)
    run = run_under("", ["true"], events=["tlb", "cache"]).succeeded()
    assert all(counter.source for counter in run.the_record.counters)


def test_many_short_processes_do_not_overflow_the_buffers(run_under: Runner) -> None:
    cpu = [max(os.sched_getaffinity(0))]
    run = run_under(
        "", ["bash", "-c", "for i in {1..400}; do /bin/true; done"], events=["faults"], cpus=cpu
    ).succeeded()
    assert WarningKind.PROCESS_BREAKDOWN_PARTIAL not in run.kinds(), run.story()
    assert len(run.the_record.processes) == 401
    assert sum(p.counters["faults.minor"] for p in run.the_record.processes) == count(run, "faults.minor")


def test_base_pages_are_what_the_tests_assume() -> None:
    assert mmap.PAGESIZE == 4096
