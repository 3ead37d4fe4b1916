"""Programs whose limits, or whose run directory, leave no room for a guest file run as natively; the run says so."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.file_systems import small_file_system
from harness.launching import Run, Runner
from pagelab import paths
from pagelab.record import WarningKind

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs; run: sudo make test")
POLICIES = ["", 'pages = "2M"']


def lost(run: Run) -> dict[str, int]:
    """Images that could have no guest file, by the errno that the run names."""
    warnings = [w for w in run.the_record.warnings if w.kind == WarningKind.PLACEMENT_UNKNOWN and "images" in w.data]
    return {w.data["errno"].split("(")[-1].rstrip(")"): w.data["images"] for w in warnings if "errno" in w.data}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A run directory's place with 128 KiB."""
    with small_file_system(tmp_path / "small", "128k") as place:
        yield place


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("blocks", [0, 1, 8, 100, 400])
def test_a_limit_on_file_sizes_ends_no_program(run_under: Runner, blocks: int, policy: str) -> None:
    # A pipe, so that the limit does not concern the program's own output.
    script = f"(ulimit -f {blocks}; /bin/echo hello; /bin/true && /bin/true; /bin/echo $?) | cat"
    run = run_under(policy, ["bash", "-c", script]).succeeded()
    assert run.stdout == "hello\n0\n", run.story()
    assert run.stderr == "", run.story()
    assert sum(lost(run).values()) >= 3, run.story()
    assert WarningKind.CHILD_UNGOVERNED not in run.kinds(), run.story()


def test_the_program_itself_under_a_limit_on_file_sizes_is_not_said_to_be_without_library(run_under: Runner) -> None:
    run = run_under("", ["bash", "-c", "ulimit -f 100; exec /bin/true"]).succeeded()
    assert WarningKind.GUEST_NOT_LOADED not in run.kinds(), run.story()


@AS_ROOT
@pytest.mark.parametrize("policy", POLICIES)
def test_a_hundred_processes_live_in_a_run_directory_of_128_kib(run_under: Runner, small: Path, policy: str) -> None:
    script = "for i in $(seq 100); do /bin/true || exit 1; done"
    run = run_under(policy, ["bash", "-c", script], run_dir_root=str(small), stderr="inherit").succeeded()
    assert run.launcher_stderr == "", run.story()
    programs = [process for process in run.the_record.processes if process.executable.endswith("/true")]
    told = lost(run)
    assert len(programs) + sum(told.values()) >= 100, run.story()
    assert set(told) <= {"ENOSPC"}, run.story()
    assert not list(small.iterdir()), "removed afterwards"


@AS_ROOT
def test_a_full_run_directory_ends_nothing(run_under: Runner, small: Path) -> None:
    filler = small / "filler"
    script = f"head -c 1M /dev/zero > {filler} 2>/dev/null; /bin/echo one; /bin/echo two; rm {filler}"
    run = run_under("", ["bash", "-c", script], run_dir_root=str(small)).succeeded()
    assert run.stdout == "one\ntwo\n", run.story()
    assert run.stderr == "", run.story()
    assert lost(run).get("ENOSPC", 0) >= 2, run.story()


def test_finished_processes_leave_room_for_others_while_the_run_goes_on(run_under: Runner, tmp_path: Path) -> None:
    """A container's 64 MiB must last for a build of tens of thousands of processes."""
    roots = tmp_path / "roots"
    roots.mkdir()
    script = f"""
for i in $(seq 600); do /bin/true; done
for t in $(seq 100); do left=$(ls {roots}/pagelab-*/guests | wc -l); test $left -lt 60 && break; sleep 0.2; done
echo $left
"""
    run = run_under("", ["bash", "-c", script], run_dir_root=str(roots)).succeeded()
    assert int(run.stdout) < 60, run.story()
    programs = [process for process in run.the_record.processes if process.executable.endswith("/true")]
    assert len(programs) == 600, "what was taken in early is in the record all the same"


def test_a_guest_file_takes_two_pages(run_under: Runner) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        run = run_under("", ["sh", "-c", f"stat -c %b {root}/pagelab-*/guests/$$-0.guest"], run_dir_root=root)
    assert 0 < int(run.succeeded().stdout) * 512 <= 8192, run.story()


@pytest.mark.parametrize("descriptors", [3, 4, 5])
def test_a_program_started_without_a_free_descriptor_runs(run_under: Runner, descriptors: int) -> None:
    script = f"ulimit -n {descriptors}; exec /bin/echo hello"
    native = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    run = run_under("", ["bash", "-c", script], measurements={"fd": None, "regex": None})
    assert (run.the_record.outcome.exit_code, run.stdout) == (native.returncode, native.stdout), run.story()


def test_hundreds_of_processes_at_once(run_under: Runner) -> None:
    script = "for i in $(seq 400); do sleep 1 & done; wait"
    run = run_under("", ["bash", "-c", script]).succeeded()
    assert sum(process.executable.endswith("/sleep") for process in run.the_record.processes) == 400


def test_a_message_to_nobody_ends_no_program() -> None:
    """The library speaks to a standard error that a program's reader has closed: natively nothing happens."""
    reader, writer = os.pipe()
    os.close(reader)
    environment = os.environ | {"LD_PRELOAD": str(paths.library()), "PAGELAB_PLAN": "/no/such/plan"}
    try:
        done = subprocess.run(["/bin/true"], env=environment, stderr=writer, check=False)
    finally:
        os.close(writer)
    assert done.returncode == 0
