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
