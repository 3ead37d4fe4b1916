"""The launcher, black box: what it starts, how it ends it, and what it writes down (docs/run.md)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from harness.launching import Runner, start_launcher
from harness.processes import children_of, is_gone, wait_until
from pagelab import paths
from pagelab.record import Record, WarningKind

PYTHON = os.path.realpath(sys.executable)
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root; run: sudo make test")


def pids_in(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()] if path.exists() else []


# --- how a program ends ---------------------------------------------------------------------------------------


def test_a_program_that_succeeds(run_under: Runner) -> None:
    run = run_under("", ["true"]).succeeded()
    assert run.the_record.outcome.exit_code == 0
    assert run.the_record.warnings == []


def test_an_exit_code_and_a_signal_are_told_apart(run_under: Runner) -> None:
    failed = run_under("", ["sh", "-c", "exit 3"])
    assert (failed.launcher_exit, failed.the_record.outcome.status) == (1, "failed"), failed.story()
    assert failed.the_record.outcome.exit_code == 3
    killed = run_under("", ["sh", "-c", "kill -SEGV $$"])
    assert (killed.the_record.outcome.status, killed.the_record.outcome.signal) == ("signalled", signal.SIGSEGV)
    assert WarningKind.PROGRAM_FAILED in killed.kinds()


def test_what_cannot_run_is_refused_before_anything_starts(run_under: Runner, tmp_path: Path) -> None:
    script = tmp_path / "no-shebang"
    script.write_text("echo hi\n")
    script.chmod(0o755)
    for argv, words in [
        (["no-such-program-anywhere"], "command -v no-such-program-anywhere"),
        (["/etc/passwd"], "chmod +x"),
        ([str(tmp_path)], "directory"),
        ([str(script)], "pagelab run -- sh"),
    ]:
        run = run_under("", argv)
        assert (run.launcher_exit, run.record) == (2, None), run.story()
        assert words in run.launcher_stderr, run.story()


def test_a_program_that_ended_in_time_did_not_run_into_its_timeout(run_under: Runner) -> None:
    """Regression: a time-out that came while a left-over process had its grace was told of the program."""
    for _ in range(5):
        run = run_under("", ["sh", "-c", "sleep 50 & sleep 0.85; exit 0"], timeout_s=1.0)
        if run.the_record.time.wall_ns < 1_000_000_000:  # a busy machine may take longer
            break
    assert (run.the_record.outcome.status, run.the_record.outcome.exit_code) == ("ok", 0), run.story()
    assert WarningKind.TIMED_OUT not in run.kinds()
    assert WarningKind.PROCESSES_LEFT in run.kinds()


def test_a_timeout_ends_the_whole_tree_even_what_ignores_sigterm(run_under: Runner, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"trap '' TERM; echo $$ > {pids}; setsid sh -c 'echo $$ >> {pids}; exec sleep 600' & sleep 600"
    run = run_under("", ["bash", "-c", script], timeout_s=1.0)
    assert run.the_record.outcome.status == "timed-out", run.story()
    assert WarningKind.TIMED_OUT in run.kinds()
    assert len(pids_in(pids)) == 2
    assert all(is_gone(pid) for pid in pids_in(pids)), run.story()


def test_a_timeout_lets_a_program_clean_up(run_under: Runner, tmp_path: Path) -> None:
    said = tmp_path / "said"
    script = f"trap 'echo bye > {said}; exit 7' TERM; while :; do sleep 0.05; done"
    run = run_under("", ["bash", "-c", script], timeout_s=0.5)
    assert run.the_record.outcome.status == "timed-out"
    assert run.the_record.outcome.exit_code == 7, run.story()
    assert said.read_text() == "bye\n"


def test_a_daemon_that_forks_twice_is_found_ended_and_reported(run_under: Runner, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = (
        "import os, sys, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    run = run_under("", [PYTHON, "-c", code])
    assert run.the_record.outcome.status == "ok", run.story()
    assert WarningKind.PROCESSES_LEFT in run.kinds(), run.story()
    (pid,) = pids_in(pid_file)
    assert is_gone(pid)
    left = next(w for w in run.the_record.warnings if w.kind == WarningKind.PROCESSES_LEFT)
    assert left.data["pids"] == [pid]


def test_orphans_that_end_by_themselves_are_counted_and_not_complained_about(run_under: Runner) -> None:
    burn = "sum(i*i for i in range(600000))"
    alone = run_under("", [PYTHON, "-c", burn]).succeeded().the_record
    orphan = f"import os\nif os.fork(): os._exit(0)\n{burn}"
    run = run_under("", [PYTHON, "-c", orphan]).succeeded()
    assert WarningKind.PROCESSES_LEFT not in run.kinds() or run.the_record.time.user_ns > 0
    # The orphan's work is in the sum although nobody but the launcher waited for it.
    assert run.the_record.time.user_ns + run.the_record.time.system_ns > alone.time.user_ns // 4, run.story()


# --- killing the launcher -------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ["guard", "launcher"])
def test_sigkill_of_either_process_leaves_nothing_behind(tmp_path: Path, victim: str) -> None:
    pids, root = tmp_path / "pids", tmp_path / "runs"
    root.mkdir()
    script = f"echo $$ > {pids}; setsid sh -c 'echo $$ >> {pids}; exec sleep 600' & sleep 600"
    guard = start_launcher(tmp_path, ["bash", "-c", script], run_dir_root=str(root))
    assert wait_until(lambda: len(pids_in(pids)) == 2)
    (launcher,) = children_of(guard.pid)
    os.kill(guard.pid if victim == "guard" else launcher, signal.SIGKILL)
    guard.wait()
    assert wait_until(lambda: all(is_gone(pid) for pid in [*pids_in(pids), launcher]))
    assert wait_until(lambda: list(root.iterdir()) == []), "the run directory stayed"
    if victim == "launcher":
        assert guard.returncode == 4
        assert "SIGKILL" in (tmp_path / "err").read_text()


def test_a_signal_to_the_launcher_reaches_the_program_and_a_record_is_written(tmp_path: Path) -> None:
    ready, said = tmp_path / "ready", tmp_path / "said"
    script = f"trap 'echo int > {said}; exit 5' INT; echo > {ready}; while :; do sleep 0.05; done"
    process = start_launcher(tmp_path, ["bash", "-c", script])
    assert wait_until(ready.exists)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert said.read_text() == "int\n"
    record = Record.model_validate_json((tmp_path / "r.json").read_text())
    assert record.outcome.message is not None
    assert record.outcome.message.startswith("interrupted by SIGINT")


# --- what the program finds -----------------------------------------------------------------------------------


def test_environment_is_cleared_unset_and_set_in_that_order(run_under: Runner) -> None:
    environment = {"clear": True, "set": {"A": "1", "B": "two words"}, "unset": ["A"]}
    run = run_under("", ["/usr/bin/env"], env=environment, preload="never").succeeded()
    seen = dict(line.split("=", 1) for line in run.stdout.splitlines())
    assert seen.pop("PAGELAB_PAD", None) is not None
    assert seen == {"A": "1", "B": "two words"}
    assert run.the_record.command.env["B"] == "two words"


def test_environments_with_and_without_the_library_are_of_one_size(run_under: Runner) -> None:
    sizes = {run_under("", ["true"], preload=preload).the_record.command.env_bytes for preload in ("auto", "never")}
    sizes.add(run_under('pages = "4K"', ["true"]).the_record.command.env_bytes)
    assert len(sizes) == 1


def test_streams_and_working_directory(run_under: Runner, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_text("from a file\n")
    run = run_under("", ["sh", "-c", "cat; pwd; echo complaint >&2"], stdin=str(given), cwd=str(tmp_path)).succeeded()
    assert run.stdout == f"from a file\n{tmp_path}\n"
    assert run.stderr == "complaint\n"
    assert run_under("", ["cat"]).succeeded().stdout == ""
    for field, words in [("cwd", "enter the working directory"), ("stdin", "open the file for standard input")]:
        refused = run_under("", ["true"], **{field: "/no/such/place"})
        assert (refused.launcher_exit, refused.record) == (2, None)
        why = "/no/such/place: No such file or directory (ENOENT); run: ls -ld /no/such/place"
        assert f"cannot {words} {why}" in refused.launcher_stderr


def test_cpus_are_pinned_or_refused_with_the_allowed_ones(run_under: Runner) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    show = [PYTHON, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]
    run = run_under("", show, cpus=[allowed[-1]]).succeeded()
    assert json.loads(run.stdout) == [allowed[-1]] == run.the_record.settings.cpus
    assert run_under("", show).the_record.settings.cpus == allowed
    refused = run_under("", show, cpus=[8000])
    assert (refused.launcher_exit, refused.record) == (3, None)
    assert "8000" in refused.launcher_stderr


def test_aslr_off_gives_the_same_addresses_and_on_gives_others(run_under: Runner) -> None:
    show = ["sh", "-c", "grep -e stack /proc/self/maps"]
    off = {run_under("", show, aslr=False).succeeded().stdout for _ in range(3)}
    assert len(off) == 1
    on = [run_under("", show, aslr=True) for _ in range(3)]
    assert len({run.succeeded().stdout for run in on}) > 1
    assert on[0].the_record.settings.aslr is True


def test_free_memory_is_touched_before_the_program_and_not_in_its_account(run_under: Runner) -> None:
    with_it = run_under("", ["true"], host_backed_bytes=96 << 20).succeeded()
    without = run_under("", ["true"]).succeeded()
    assert with_it.the_record.settings.host_backed_bytes == 96 << 20
    assert without.the_record.settings.host_backed_bytes is None
    assert with_it.the_record.peak_rss_bytes < 32 << 20
    assert with_it.the_record.faults.minor < without.the_record.faults.minor + 500
    assert len(with_it.the_record.processes) == 1


def test_memory_that_cannot_be_touched_is_told_and_the_program_runs(run_under: Runner) -> None:
    run_under.prefix = ("prlimit", f"--as={192 << 20}")
    run = run_under("", ["true"], host_backed_bytes=256 << 20)
    (warning,) = [w for w in run.succeeded().the_record.warnings if w.kind == WarningKind.HOST_NOT_BACKED]
    assert "256M of free memory could not be touched" in warning.message, run.story()
    assert run.the_record.settings.host_backed_bytes is None


def test_node_zero_is_accepted_and_a_missing_one_refused(run_under: Runner) -> None:
    run = run_under("", ["grep", "-i", "heap", "/proc/self/numa_maps"], node=0)
    if Path("/proc/self/numa_maps").exists():
        assert "bind:0" in run.succeeded().stdout
    refused = run_under("", ["true"], node=900)
    assert refused.launcher_exit == 3
    assert "nodes with memory here: 0" in refused.launcher_stderr


def test_nothing_of_the_launcher_leaks_into_the_program(run_under: Runner) -> None:
    code = (
        "import os, signal\n"
        "print(sorted(int(fd) for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}')))\n"
        "status = open('/proc/self/status').read()\n"
        "print([line for line in status.splitlines() if line.startswith(('SigBlk', 'NoNewPrivs'))])\n"
        "print(os.getpgrp() == os.getpid())\n"
    )
    run = run_under("", [PYTHON, "-c", code], measurements={"fd": 7}).succeeded()
    descriptors, status, leads = run.stdout.splitlines()
    assert json.loads(descriptors) == [0, 1, 2, 7], run.story()
    assert status == "['SigBlk:\\t0000000000000000', 'NoNewPrivs:\\t0']"
    assert leads == "True"
    # Counters are the one thing that is handed over (docs/api.md), and only to a program that has the library.
    events = ["faults.minor", "faults.major"]
    counted = run_under("", [PYTHON, "-c", code], measurements={"fd": 7}, events=events).succeeded()
    assert json.loads(counted.stdout.splitlines()[0]) == [0, 1, 2, 7, 1008, 1009], counted.story()
    alone = run_under("", [PYTHON, "-c", code], measurements={"fd": 7}, events=events, preload="never").succeeded()
    assert json.loads(alone.stdout.splitlines()[0]) == [0, 1, 2, 7], alone.story()


# --- measurements ---------------------------------------------------------------------------------------------


def test_measurements_of_both_forms_and_the_bad_lines(run_under: Runner) -> None:
    script = (
        'echo \'read 1.5 ns\' >&$PAGELAB_MEASURE_FD; echo \'{"name": "write", "value": 2, "unit": "us"}\' >&3;'
        "(echo 'child 3' >&3); echo 'bad nan s' >&3; echo 'worse' >&3"
    )
    run = run_under("", ["bash", "-c", script], measurements={"fd": 3}).succeeded()
    found = [(m.name, m.value, m.unit) for m in run.the_record.measurements]
    assert found == [("read", 1.5, "ns"), ("write", 2.0, "us"), ("child", 3.0, "")]
    (warning,) = [w for w in run.the_record.warnings if w.kind == WarningKind.MEASUREMENT_UNPARSED]
    assert (warning.data["lines"], warning.data["first"]) == (2, "bad nan s")


@pytest.mark.parametrize("stdout", ["null", "inherit", "file"])
def test_measurements_by_regular_expression(run_under: Runner, tmp_path: Path, stdout: str) -> None:
    target = str(tmp_path / "out") if stdout == "file" else stdout
    regex = r"(?P<name>\w+) took (?P<value>[0-9.]+) (?P<unit>ms)"
    run = run_under(
        "",
        ["printf", "sort took 1.5 ms\\nnoise\\nscan took 2 ms\\n"],
        stdout=target,
        measurements={"fd": None, "regex": regex},
    ).succeeded()
    assert [(m.name, m.value) for m in run.the_record.measurements] == [("sort", 1.5), ("scan", 2.0)]
    if stdout == "inherit":
        assert "noise\n" in run.launcher_stderr, "output that is captured must still reach its reader"


@pytest.mark.by_turns(4)
def test_a_million_measurements(run_under: Runner) -> None:
    run = run_under(
        "",
        [PYTHON, "-c", "import os; os.write(3, b'') ; open(3, 'w').write('op 1 ns\\n' * 1000000)"],
        measurements={"fd": 3},
    ).succeeded()
    assert len(run.the_record.measurements) == 1_000_000


def test_an_expression_without_a_value_is_refused(run_under: Runner) -> None:
    run = run_under("", ["true"], measurements={"fd": None, "regex": "took (.*)"})
    assert run.launcher_exit == 2
    assert "group named value" in run.launcher_stderr


# --- the tree's sums ------------------------------------------------------------------------------------------


def test_times_and_memory_are_of_the_whole_tree(run_under: Runner) -> None:
    child = f"{PYTHON} -c 'x = bytearray(80 << 20); sum(i*i for i in range(300000))'"
    one = run_under("", ["sh", "-c", child]).succeeded().the_record
    three = run_under("", ["sh", "-c", f"{child} & {child} & {child}; wait"]).succeeded().the_record
    # Equal children differ by pages; their sum would be three times as much.
    for record in (one, three):
        assert 80 << 20 <= record.peak_rss_bytes < 2 * (80 << 20), "the largest process, not the sum"
    assert three.faults.minor > 2.5 * one.faults.minor
    assert len(three.processes) >= 4
    measured = [p for p in three.processes if p.minor_faults is not None and p.governed]
    assert 0 < sum(p.minor_faults or 0 for p in measured) <= three.faults.minor


def test_a_run_leaves_no_directory_and_its_path_has_one_length(run_under: Runner, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    show = ["sh", "-c", "echo $PAGELAB_PLAN"]
    lengths = {len(run_under("", show, run_dir_root=str(root)).succeeded().stdout) for _ in range(3)}
    assert len(lengths) == 1
    assert list(root.iterdir()) == []


@AS_ROOT
def test_the_cgroup_limits_in_force_are_recorded(run_under: Runner) -> None:
    settings = run_under("", ["true"]).the_record.settings
    assert any(name.startswith(("memory.", "cpuset.", "pids.", "cpu.")) for name in settings.cgroup), settings


def test_a_program_waits_for_the_caller_that_is_told_of_it(tmp_path: Path) -> None:
    """The process is announced before it executes anything, and goes on when the caller answers."""
    ours, theirs = socket.socketpair()
    told = tmp_path / "told"
    request = {
        "schema": "pagelab.request/1",
        "argv": ["touch", str(told)],
        "preload": "never",
        "announce_fd": theirs.fileno(),
        "record": str(tmp_path / "record.json"),
    }
    with subprocess.Popen([str(paths.launcher())], stdin=subprocess.PIPE, pass_fds=(theirs.fileno(),)) as launcher:
        theirs.close()
        assert launcher.stdin is not None
        launcher.stdin.write(json.dumps(request).encode())
        launcher.stdin.close()
        pid = int(ours.makefile().readline())
        assert Path(f"/proc/{pid}/exe").readlink() == paths.launcher().resolve(), "not yet the program"
        assert not told.exists()
        ours.close()
        assert launcher.wait() == 0
    assert told.exists()
    record = Record.model_validate_json((tmp_path / "record.json").read_text())
    assert [process.pid for process in record.processes] == [pid]
