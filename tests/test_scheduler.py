"""`scheduler = "fifo"`: what the program gets, what the record says, and the refusal where it is not permitted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagelab import paths
from pagelab.errors import MachineError
from pagelab.record import Record, WarningKind
from pagelab.runner import RunRequest, run

ASK = "import os; print(os.sched_getscheduler(0), os.sched_getparam(0).sched_priority)"


def permitted() -> None:
    done = subprocess.run([paths.launcher(), "--fifo"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(done.stderr.strip())


def run_fifo(argv: list[str], tmp_path: Path, timeout_s: float = 60) -> tuple[Record, str]:
    output = tmp_path / "output"
    cpu = min(os.sched_getaffinity(0))
    record = run(RunRequest(argv=argv, scheduler="fifo", cpus=[cpu], stdout=str(output), timeout_s=timeout_s))
    return record, output.read_text()


def test_the_program_and_what_it_starts_are_real_time(tmp_path: Path) -> None:
    permitted()
    child = f"import subprocess, sys; {ASK}; sys.stdout.flush(); subprocess.run([sys.executable, '-c', {ASK!r}])"
    record, output = run_fifo([sys.executable, "-c", child], tmp_path)
    highest = os.sched_get_priority_max(os.SCHED_FIFO)
    assert output == f"{os.SCHED_FIFO} {highest - 2}\n" * 2
    assert record.settings.scheduler == f"SCHED_FIFO priority {highest - 2}"
    runtime = int(Path("/proc/sys/kernel/sched_rt_runtime_us").read_text())
    period = int(Path("/proc/sys/kernel/sched_rt_period_us").read_text())
    told = [warning for warning in record.warnings if warning.kind == WarningKind.REAL_TIME_LIMITED]
    assert len(told) == (runtime < period)


def test_a_program_that_never_sleeps_is_ended_at_its_time_limit(tmp_path: Path) -> None:
    permitted()
    record, _ = run_fifo([sys.executable, "-c", "while True: pass"], tmp_path, timeout_s=0.5)
    assert record.outcome.status == "timed-out"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be real-time; run: sudo make test")
@pytest.mark.parametrize("policy", [os.SCHED_FIFO, os.SCHED_RR])
def test_a_launcher_that_is_real_time_itself_stays_above_its_program(tmp_path: Path, policy: int) -> None:
    """Their priority was the same: on one processor no time limit ended a program that never sleeps."""
    permitted()
    output = tmp_path / "output"
    spins = f"{ASK}; import sys; sys.stdout.flush()\nwhile True: pass"
    start = f"""
import os, resource
os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
# Whatever goes wrong, the processor is free again after five seconds.
resource.setrlimit(resource.RLIMIT_RTTIME, (5_000_000, 5_000_000))
os.sched_setscheduler(0, {policy}, os.sched_param(50))
from pagelab.runner import RunRequest, run
request = RunRequest(argv={[sys.executable, "-c", spins]!r}, stdout={str(output)!r}, timeout_s=1)
record = run(request)
print(record.outcome.status, record.settings.scheduler)
"""
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, timeout=60, check=False)
    name = "SCHED_FIFO" if policy == os.SCHED_FIFO else "SCHED_RR"
    assert done.stdout == f"timed-out {name} priority 50\n", done.stdout + done.stderr
    assert output.read_text() == f"{policy} 50\n"


def test_without_the_setting_nothing_changes(tmp_path: Path) -> None:
    output = tmp_path / "output"
    record = run(RunRequest(argv=[sys.executable, "-c", ASK], stdout=str(output)))
    assert output.read_text() == f"{os.sched_getscheduler(0)} 0\n"
    assert "FIFO" not in record.settings.scheduler


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to drop rights; run: sudo make test")
def test_it_is_refused_where_it_is_not_permitted() -> None:
    without = [
        "setpriv",
        "--bounding-set",
        "-sys_nice",
        "--inh-caps",
        "-sys_nice",
        "--reuid",
        "65534",
        "--clear-groups",
    ]
    done = subprocess.run([*without, paths.launcher(), "--fifo"], capture_output=True, text=True, check=False)
    assert done.returncode == MachineError.exit_code
    assert "CAP_SYS_NICE" in done.stderr
    assert "prlimit" in done.stderr


def test_a_policy_of_a_study_may_ask_for_it() -> None:
    from pagelab.study.planning import plan_text

    text = 'name = "s"\n[[workload]]\nname = "w"\ncommand = "true"\n[[policy]]\nname = "kernel"\n'
    both = plan_text(text + '[[policy]]\nname = "fifo"\nscheduler = "fifo"\n', Path("/x/s.toml"), Path("/x/out"))
    assert [condition.request.scheduler for condition in both.conditions] == [None, "fifo"]
    whole = plan_text('scheduler = "fifo"\n' + text, Path("/x/s.toml"), Path("/x/out"))
    assert [condition.request.scheduler for condition in whole.conditions] == ["fifo"]


def test_a_study_is_refused_before_its_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pagelab import machine
    from pagelab.study import feasible
    from pagelab.study.planning import plan_text

    fake = tmp_path / "launcher"
    fake.write_text('#!/bin/sh\necho "pagelab-launch: cannot run the program under SCHED_FIFO: EPERM" >&2\nexit 3\n')
    fake.chmod(0o755)
    monkeypatch.setattr(paths, "launcher", lambda: fake)
    feasible._fifo.cache_clear()
    text = 'name = "s"\nscheduler = "fifo"\n[[workload]]\nname = "w"\ncommand = "true"\n[[policy]]\nname = "kernel"\n'
    (condition,) = plan_text(text, Path("/x/s.toml"), Path("/x/out")).conditions
    described = machine.describe()
    try:
        assert feasible.cannot(condition, described) == "cannot run the program under SCHED_FIFO: EPERM"
    finally:
        feasible._fifo.cache_clear()
