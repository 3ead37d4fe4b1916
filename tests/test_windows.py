"""Windows (``pagelab_begin``, ``pagelab_end``): what is measured in them, what is told when they are misused, and that
nothing of them is lost or believed that should not be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.guests import Workshop
from harness.launching import Run, Runner
from harness.packages import need
from pagelab import paths
from pagelab.record import WarningKind

SUFFIXES = ["", ".cpu", ".user", ".system", ".thread", ".faults", ".major_faults"]


@pytest.fixture
def program(workshop: Workshop) -> Path:
    return workshop.build("api/windows", flags=(f"-I{paths.include()}",))


def values(run: Run, name: str) -> list[float]:
    return [m.value for m in run.the_record.measurements if m.name == name]


def value(run: Run, name: str) -> float:
    (found,) = values(run, name)
    return found


def misused(run: Run) -> dict[str, int]:
    found = [warning for warning in run.the_record.warnings if warning.kind == WarningKind.WINDOW_MISUSED]
    assert len(found) <= 1, run.story()
    return {key: int(count) for warning in found for key, count in warning.data.items()}


@pytest.mark.parametrize("policy", ["", 'pages = "2M"\n', 'fetch = "prefault"\n'])
def test_what_passes_in_a_window_is_measured_and_nothing_else(run_under: Runner, program: Path, policy: str) -> None:
    run = run_under(policy, [str(program), "plain"]).succeeded()
    names = [m.name for m in run.the_record.measurements]
    assert names == [f"{name}{suffix}" for name in ("busy", "idle", "touching") for suffix in SUFFIXES]
    # Two processors shared with others: only what must hold on the busiest machine.
    assert value(run, "busy") >= 0.04 <= value(run, "busy.cpu") + 1e-4
    assert value(run, "busy.thread") >= 0.04
    assert value(run, "idle") >= 0.04 > value(run, "idle.thread")
    assert value(run, "busy.faults") < 100
    if policy == "":
        assert 2048 <= value(run, "touching.faults") < 2048 + 100
    assert misused(run) == {}


def test_repeated_windows_are_kept_in_order_each(run_under: Runner, program: Path) -> None:
    run = run_under("", [str(program), "repeated"]).succeeded()
    assert len(values(run, "again")) == 5000
    assert len(run.the_record.measurements) == 5000 * len(SUFFIXES)
    assert all(wall > 0 for wall in values(run, "again"))


def test_outer_windows_contain_inner_ones(run_under: Runner, program: Path) -> None:
    run = run_under("", [str(program), "nested"]).succeeded()
    inner = values(run, "inner.thread")
    assert len(inner) == 2
    assert min(inner) >= 0.02
    assert value(run, "outer") >= sum(values(run, "inner"))
    assert value(run, "outer.thread") >= sum(inner) + 0.02
    assert misused(run) == {}


def test_threads_have_windows_of_their_own_and_the_process_is_in_each(run_under: Runner, program: Path) -> None:
    run = run_under("", [str(program), "threads"]).succeeded()
    assert Counter(m.name for m in run.the_record.measurements if "." not in m.name) == {
        "turn": 1600,
        "work": 8,
        "all": 1,
    }
    assert all(0.02 <= own < 0.1 for own in values(run, "work.thread"))
    assert value(run, "all.cpu") >= 8 * 0.02 > value(run, "all.thread")
    assert misused(run) == {}


@pytest.mark.parametrize("policy", ["", 'pages = "4K"\n', 'pages = "2M"\n'])
def test_a_look_says_what_memory_there_is_and_takes_no_time_of_its_window(
    run_under: Runner, program: Path, policy: str
) -> None:
    run = run_under(policy, [str(program), "placed"]).succeeded()
    looked = [m.name for m in run.the_record.measurements if m.name.endswith((".resident", ".huge"))]
    assert looked == [
        f"{name}{part}" for name in ("before", "after", "often", "outer") for part in (".resident", ".huge")
    ]
    more = value(run, "after.resident") - value(run, "before.resident")
    assert 64 << 20 <= more < 66 << 20
    huge = value(run, "after.huge") - value(run, "before.huge")
    assert huge >= (60 << 20 if "2M" in policy else 0)
    if "4K" in policy:
        assert huge == 0
    assert value(run, "outer.resident") < value(run, "after.resident") - (60 << 20)
    # Walking 64 MiB of small pages a hundred times takes milliseconds; two clocks a look are what remains.
    assert value(run, "often.cpu") < 0.3 * value(run, "outer.cpu") or value(run, "outer.cpu") < 0.001
    assert misused(run) == {}


EVENTS = ["page-faults", "task-clock", "context-switches"]
"""Software events, which every kernel counts."""
APART_NS = 1e6
"""Of the two clocks of what a thread has run, counter and processor time: a virtual machine's processors differ, and a
thread that moves from one to another has the difference in one of them."""


def run_total(run: Run, name: str) -> int:
    (count,) = [counter.count for counter in run.the_record.counters if counter.name == name]
    assert count is not None, run.story()
    return count


def test_counters_count_in_a_window_and_not_outside(run_under: Runner, program: Path) -> None:
    run = run_under("", [str(program), "plain"], events=EVENTS).succeeded()
    names = [m.name for m in run.the_record.measurements]
    counted = [*SUFFIXES, *(f".{event}" for event in EVENTS)]
    assert names == [f"{name}{suffix}" for name in ("busy", "idle", "touching") for suffix in counted]
    # The program touches 32 MiB before the first window, and 8 in the third.
    assert run_total(run, "page-faults") >= 8192 + 2048
    assert 2048 <= value(run, "touching.page-faults") < 2048 + 100
    assert value(run, "busy.page-faults") < 100
    assert value(run, "busy.task-clock") <= run_total(run, "task-clock")
    # Another clock of the same thing, with the time in which the host ran something else; processor time is without.
    assert (
        value(run, "busy.cpu") - APART_NS / 1e9
        <= value(run, "busy.task-clock") / 1e9
        <= value(run, "busy") + APART_NS / 1e9
    )
    assert value(run, "idle.task-clock") < 0.04e9
    assert value(run, "idle.context-switches") >= 1
    assert misused(run) == {}


def test_counters_of_an_outer_window_contain_the_inner_ones(run_under: Runner, program: Path) -> None:
    run = run_under("", [str(program), "nested"], events=EVENTS).succeeded()
    for event in EVENTS:
        assert value(run, f"outer.{event}") >= sum(values(run, f"inner.{event}"))
    assert value(run, "outer.task-clock") >= 0.06e9 - APART_NS
    assert all(inner >= 0.02e9 - APART_NS for inner in values(run, "inner.task-clock"))


def test_counters_of_windows_in_threads_are_those_of_the_whole_run(run_under: Runner, program: Path) -> None:
    run = run_under("", [str(program), "threads"], events=EVENTS).succeeded()
    assert len(values(run, "turn.task-clock")) == 1600
    assert len(values(run, "work.task-clock")) == 8
    assert value(run, "all.task-clock") >= 8 * (0.02e9 - APART_NS)
    # What other threads did meanwhile is in each of them: none has less than its own.
    assert all(
        whole >= 0.99e9 * own
        for whole, own in zip(values(run, "work.task-clock"), values(run, "work.thread"), strict=True)
    )


def test_a_look_at_memory_is_in_no_count(run_under: Runner, program: Path) -> None:
    run = run_under("", [str(program), "placed"], events=["task-clock"]).succeeded()
    # A hundred walks over 64 MiB of small pages, and as many readings.
    assert value(run, "often.task-clock") < 0.3 * value(run, "outer.task-clock") or value(run, "often.cpu") < 0.001


def test_a_childs_windows_are_counted(run_under: Runner, program: Path) -> None:
    run = run_under("", [str(program), "forks"], events=EVENTS).succeeded()
    assert value(run, "child.task-clock") >= 0.005e9
    # The run's counters count the tree: the parent's window has what its child did.
    assert value(run, "parent.task-clock") >= value(run, "child.task-clock")
    shell = run_under("", ["sh", "-c", f"{program} plain; exit 0"], events=EVENTS).succeeded()
    assert 2048 <= value(shell, "touching.page-faults") < 2048 + 100


def test_what_has_the_number_of_a_counter_is_not_read(run_under: Runner) -> None:
    code = (
        "import ctypes, os\n"
        "pagelab = ctypes.CDLL(None)\n"
        "print(pagelab.pagelab_begin(b'counted'), pagelab.pagelab_end())\n"
        "given = [number for number in range(64, 1100) if 'perf_event' in link(number)]\n"
        "print(len(given))\n"
        "read, write = os.pipe()\n"
        "os.write(write, b'whole')\n"
        "print(pagelab.pagelab_begin(b'half'))\n"
        "for number in given:\n"
        "    os.dup2(read, number)\n"
        "print(pagelab.pagelab_end())\n"
        "print(pagelab.pagelab_begin(b'without'), pagelab.pagelab_end())\n"
        "print(os.read(read, 100))\n"
    )
    link = (
        "import os\n"
        "def link(number):\n"
        "    try:\n"
        "        return os.readlink(f'/proc/self/fd/{number}')\n"
        "    except OSError:\n"
        "        return ''\n"
    )
    run = run_under("", [sys.executable, "-c", link + code], events=EVENTS).succeeded()
    assert run.stdout.split("\n")[:6] == ["0 0", str(len(EVENTS)), "0", "0", "0 0", "b'whole'"], run.story()
    assert len(values(run, "counted.task-clock")) == 1
    assert values(run, "half.task-clock") == values(run, "without.task-clock") == []
    assert misused(run) == {"not_counted": 2}


def test_without_windows_descriptors_do_no_harm(run_under: Runner) -> None:
    """A program that uses many descriptors, and one whose limit leaves none for counters."""
    code = "import os, resource\nfiles = [os.dup(0) for _ in range(900)]\nprint(len(files))\n"
    run = run_under("", [sys.executable, "-c", code], events=EVENTS).succeeded()
    assert run.stdout == "900\n"
    few = run_under("", ["sh", "-c", "ulimit -n 20; exec ls /proc/self/fd"], events=EVENTS).succeeded()
    assert misused(few) == {}


def test_a_child_does_not_end_its_parents_window(run_under: Runner, program: Path) -> None:
    run = run_under("", [str(program), "forks"]).succeeded()
    assert len(values(run, "parent")) == len(values(run, "child")) == 1
    assert misused(run) == {"not_begun": 1}


def test_misuse_is_answered_and_told(run_under: Runner, program: Path) -> None:
    run = run_under("", [str(program), "misused"]).succeeded()
    # left open, twice, a to g, too deep is refused a name no slot: 128 names are all there are.
    assert run.stdout == f"{128 - 11} names\n", run.story()
    assert len(values(run, "twice")) == 2
    assert values(run, "left open") == []
    assert misused(run) == {
        "never_ended": 1,
        "not_begun": 2,
        "begun_twice": 1,
        "too_deep": 1,
        "names_left_out": 200 - (128 - 11),
    }
    (message,) = [w.message for w in run.the_record.warnings if w.kind == WarningKind.WINDOW_MISUSED]
    assert '"left open"' in message


def test_a_killed_program_keeps_its_whole_windows(run_under: Runner, program: Path) -> None:
    run = run_under("", [str(program), "killed"])
    assert run.the_record.outcome.status == "signalled"
    assert len(values(run, "whole")) == 1
    assert values(run, "half") == []
    assert misused(run) == {"never_ended": 1}


def test_more_windows_than_are_kept_are_refused_and_counted(run_under: Runner, program: Path) -> None:
    run = run_under("", [str(program), "many"]).succeeded()
    assert run.stdout == "100 refused\n", run.story()
    assert len(values(run, "many")) == 200_000
    assert misused(run) == {"windows_left_out": 100}


def test_without_the_library_nothing_happens(program: Path) -> None:
    run = subprocess.run([program, "nobody"], capture_output=True, text=True, check=True)
    assert run.stdout == "-38\n"


@contextmanager
def small_file_system(place: Path, kib: int) -> Iterator[Path]:
    place.mkdir()
    subprocess.run([need("mount"), "-t", "tmpfs", "-o", f"size={kib}k", "none", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root; run: sudo make test")
@pytest.mark.parametrize("kib", [64, 256, 512])
def test_a_full_run_directory_costs_windows_and_not_the_program(
    run_under: Runner, program: Path, tmp_path: Path, kib: int
) -> None:
    with small_file_system(tmp_path / "small", kib) as place:
        run = run_under("", [str(program), "nobody" if kib < 256 else "many"], run_dir_root=str(place))
    assert run.the_record.outcome.status == "ok", run.story()
    if kib < 256:
        assert run.stdout == "-28\n", run.story()
    else:
        kept = len(values(run, "many"))
        assert 0 < kept < 200_000, run.story()
        assert misused(run) == {"windows_left_out": 200_100 - kept}


def test_a_limit_on_file_sizes_costs_windows_and_not_the_program(run_under: Runner, program: Path) -> None:
    run = run_under("", ["bash", "-c", f"ulimit -f 1000; exec {program} nobody"]).succeeded()
    assert run.stdout == "-27\n", run.story()


def test_other_languages_call_by_name(run_under: Runner) -> None:
    code = (
        "import ctypes\n"
        "pagelab = ctypes.CDLL(None)\n"
        "print(pagelab.pagelab_begin(b'sum'))\n"
        "total = sum(range(100_000))\n"
        "print(pagelab.pagelab_end())\n"
    )
    run = run_under("", [sys.executable, "-c", code]).succeeded()
    assert run.stdout == "0\n0\n"
    assert value(run, "sum") > 0


def test_what_a_program_puts_in_a_windows_file_is_bounded(run_under: Runner, program: Path) -> None:
    """The file belongs to the program's user: it may be cut short, filled with anything, or be a FIFO."""
    script = f"""
        {program} killed
        for file in $(dirname $PAGELAB_PLAN)/guests/*.windows; do
            head -c 4096 $file | tr '\\0' '\\377' | dd of=$file bs=4096 seek=1 conv=notrunc status=none
        done
        mkfifo $(dirname $PAGELAB_PLAN)/guests/{{77,78}}-0.windows
        : > $(dirname $PAGELAB_PLAN)/guests/79-0.windows
    """
    run = run_under("", ["bash", "-c", script])
    assert run.the_record.outcome.status == "ok", run.story()
    assert len(run.the_record.measurements) <= 250_000 * len(SUFFIXES)
