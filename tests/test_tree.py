"""Every process of a run is known, counters or not: what the library never saw is told by name."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from harness.guests import Workshop
from harness.launching import Run, Runner
from pagelab import machine, paths
from pagelab.record import Record, RunWarning, WarningKind

PYTHON = os.path.realpath(sys.executable)
GOVERNED = 'pages = "4K"'


def ungoverned(run: Run) -> list[str]:
    """Names of the programs that ran without the library."""
    found = [w for w in run.the_record.warnings if w.kind == WarningKind.CHILD_UNGOVERNED]
    assert len(found) <= 1, run.story()
    return [] if not found else list(found[0].data["executables"])


@pytest.mark.parametrize("policy", ["", GOVERNED], ids=["kernel", "governed"])
@pytest.mark.parametrize("events", [[], ["faults"]], ids=["no-counters", "counters"])
def test_a_program_started_with_an_empty_environment_is_noticed(
    run_under: Runner, policy: str, events: list[str]
) -> None:
    run = run_under(policy, ["bash", "-c", "env -i /usr/bin/sort /dev/null; exit 0"], events=events).succeeded()
    assert ungoverned(run) == ["sort"], run.story()


def test_the_program_itself_may_become_one_that_is_not_governed(run_under: Runner) -> None:
    """One process, two programs: the report of the first does not cover the second."""
    run = run_under(GOVERNED, ["env", "-i", "/bin/true"]).succeeded()
    assert ungoverned(run) == ["true"], run.story()
    assert len(run.the_record.processes) == 1


def test_each_of_several_programs_in_one_process_is_judged_by_itself(run_under: Runner) -> None:
    """Governed, not governed, governed again, and a fork in between."""
    library = str(run_under.library)
    again = f'LD_PRELOAD={library} PAGELAB_PLAN="$1" exec /usr/bin/sort /dev/null'
    line = f"exec env -i /bin/sh -c '{again}' sh \"$PAGELAB_PLAN\""
    run = run_under(GOVERNED, ["bash", "-c", f"({line}); true"]).succeeded()
    assert ungoverned(run) == ["sh"], run.story()
    names = [Path(process.executable).name for process in run.the_record.processes]
    assert sorted(names) == ["bash", "sort"], run.story()


def test_a_static_child_is_noticed_without_counters(workshop: Workshop, run_under: Runner) -> None:
    static = workshop.build("static_program", flags=("-static",))
    run = run_under(GOVERNED, ["bash", "-c", f"{static}; exit 0"]).succeeded()
    assert ungoverned(run) == ["static_program"[:15]], run.story()


def test_a_tree_that_is_governed_throughout_says_nothing(run_under: Runner) -> None:
    script = "import os, subprocess\nos.fork() or os._exit(0)\nsubprocess.run(['sort', '/dev/null'])\nos.wait()"
    run = run_under(GOVERNED, ["bash", "-c", 'for i in 1 2 3; do "$@"; (exit 0); done', "-", PYTHON, "-c", script])
    run.succeeded()
    assert run.kinds() & {WarningKind.CHILD_UNGOVERNED, WarningKind.PROCESS_TREE_UNKNOWN} == set(), run.story()
    assert len(run.the_record.processes) == 1 + 3 * (3 + 1)


def test_children_that_shall_not_inherit_are_no_surprise(run_under: Runner) -> None:
    run = run_under(f"{GOVERNED}\ninherit = {{ exec = false }}", ["bash", "-c", "/bin/true; exit 0"]).succeeded()
    assert WarningKind.CHILD_UNGOVERNED not in run.kinds(), run.story()
    assert "true" in {process.executable for process in run.the_record.processes}, run.story()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make PID namespaces; run: sudo make test")
def test_processes_of_other_pid_namespaces_are_listed_once_each(run_under: Runner) -> None:
    """Regression: each was listed twice, once as ungoverned, and those with the same number there as one process."""
    line = "unshare -pf bash -c '/usr/bin/sort /dev/null; exit 0'; unshare -pf /usr/bin/env true; exit 0"
    run = run_under(GOVERNED, ["bash", "-c", line]).succeeded()
    processes = run.the_record.processes
    names = sorted(Path(process.executable).name for process in processes)
    assert names == ["bash", "bash", "sort", "true", "unshare", "unshare"], run.story()
    assert all(process.governed and process.pid > 10 for process in processes), run.story()
    assert {process.ppid for process in processes[1:]} <= {process.pid for process in processes}, run.story()
    assert WarningKind.CHILD_UNGOVERNED not in run.kinds(), run.story()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make PID namespaces; run: sudo make test")
def test_the_first_process_of_a_pid_namespace_is_not_its_child_in_the_next_one(
    workshop: Workshop, run_under: Runner
) -> None:
    """Regression: the child of posix_spawn, which is process 1 as well, took the record of its parent."""
    program = workshop.build("pid_namespaces")
    run = run_under(GOVERNED, [str(program)]).succeeded()
    assert (run.stdout, run.stderr) == ("ok\n", ""), run.story()
    first, forked, spawned = run.the_record.processes
    assert (forked.executable, Path(spawned.executable).name) == (str(program), "true"), run.story()
    assert (forked.ppid, spawned.ppid) == (first.pid, forked.pid), run.story()
    assert "anon" in {region.region for region in forked.placement}, run.story()


def test_without_the_library_nothing_is_said_of_governing(run_under: Runner) -> None:
    run = run_under("", ["bash", "-c", "/bin/true; exit 0"], preload="never").succeeded()
    assert run.kinds() & {WarningKind.CHILD_UNGOVERNED, WarningKind.PROCESS_TREE_UNKNOWN} == set(), run.story()
    assert len(run.the_record.processes) == 2


def test_a_lone_program_has_its_own_times_without_counters(run_under: Runner) -> None:
    run = run_under("", [PYTHON, "-S", "-c", "sum(range(300_000))"], preload="never").succeeded()
    (process,) = run.the_record.processes
    assert process.user_ns is not None
    assert process.user_ns + (process.system_ns or 0) == run.the_record.time.user_ns + run.the_record.time.system_ns


PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}


def refuse_perf(errno: int) -> None:
    """For a child: a seccomp filter under which perf_event_open fails with ``errno``."""
    load, if_equal, give_back = 0x20, 0x15, 0x06
    steps = [
        (load, 0, 0, 0),
        (if_equal, 0, 1, PERF_EVENT_OPEN[platform.machine()]),
        (give_back, 0, 0, 0x00050000 | errno),
        (give_back, 0, 0, 0x7FFF0000),
    ]
    program = b"".join(struct.pack("HBBI", *step) for step in steps)
    libc = ctypes.CDLL(None, use_errno=True)
    kept = ctypes.create_string_buffer(program)
    filter_ = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(kept))
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, filter_, 0, 0) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def run_refused(tmp_path: Path, errno: int, events: list[str]) -> list[RunWarning]:
    request = {
        "schema": "pagelab.request/1",
        "argv": ["bash", "-c", "env -i /bin/true; exit 0"],
        "policy_toml": GOVERNED,
        "machine": machine.describe(),
        "library": str(paths.library()),
        "events": events,
        "record": str(tmp_path / "record.json"),
    }
    done = subprocess.run(
        [str(paths.launcher())],
        input=json.dumps(request),
        text=True,
        capture_output=True,
        check=False,
        preexec_fn=lambda: refuse_perf(errno),
    )
    assert done.returncode == 0, done.stderr
    return Record.model_validate_json((tmp_path / "record.json").read_text()).warnings


@pytest.mark.parametrize("errno", [1, 13, 38], ids=["EPERM", "EACCES", "ENOSYS"])
def test_where_the_kernel_tells_nothing_the_tree_is_said_to_be_unknown(tmp_path: Path, errno: int) -> None:
    (warning,) = [w for w in run_refused(tmp_path, errno, []) if w.kind == WarningKind.PROCESS_TREE_UNKNOWN]
    assert (warning.severity, warning.data["scope"]) == ("info", "machine")
    assert "seccomp" in warning.message


def test_counters_asked_for_and_refused_stay_a_warning(tmp_path: Path) -> None:
    warnings = run_refused(tmp_path, 13, ["faults", "cycles"])
    (warning,) = [w for w in warnings if w.kind == WarningKind.COUNTER_UNAVAILABLE]
    assert warning.severity == "warning"
    assert set(warning.data["counters"]) == {"faults.minor", "faults.major", "cycles"}
    assert "scope" not in warning.data
