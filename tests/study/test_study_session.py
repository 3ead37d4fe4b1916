"""Sessions: every outcome is recorded, set-up and tear-down happen in order, nobody works in a directory twice."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fakes import TWO_BY_TWO, FakeRunner, interrupted, record, spec_in, tools

from harness.processes import is_gone
from pagelab.cli.study import _show_status
from pagelab.record import Record
from pagelab.study import status
from pagelab.study.control import resume_study, run_study
from pagelab.study.errors import SpecError, StudyError, StudyInterruptedError
from pagelab.study.job import RunNotStarted
from pagelab.study.lock import DirectoryLock, holder_of
from pagelab.study.plan import Condition, Plan
from pagelab.study.progress import Silent
from pagelab.study.session import machine_changes
from pagelab.study.status import status_of
from pagelab.study.store import Store
from pagelab.study.this_boot import this_boot

FAKES = Path(__file__).parent / "fakes.py"


def test_runs_follow_the_recorded_schedule(tmp_path: Path) -> None:
    fake = tools()
    run_study(spec_in(tmp_path), tmp_path / "out", fake)
    with Store.open(tmp_path / "out", write=False) as store:
        names = {condition.index: condition.name for condition in store.plan().conditions}
        scheduled = [names[slot.condition] for slot in store.slots()]
        assert isinstance(fake.runner, FakeRunner)
        assert fake.runner.order == scheduled
        assert store.runs()["condition"].to_list() == scheduled
        assert store.meta()["schedule_algorithm"] == "complete-blocks/pcg64-raw/fisher-yates/1"


def test_colours_are_measured_before_the_machine_is_described(tmp_path: Path) -> None:
    order = []

    class Noted(Silent):
        def note(self, text: str) -> None:
            order.append(text)

    def described() -> dict[str, Any]:
        order.append("described")
        return {"machine": {}, "provenance": {}}

    def measured(plan: Plan) -> str:
        order.append("measured")
        return f"measured for {plan.name}"

    fake = replace(tools(), machine=described, colours=measured)
    run_study(spec_in(tmp_path), tmp_path / "out", fake, progress=Noted())
    assert order[:3] == ["measured", "described", "measured for fake"]


OUTCOMES = {
    "failed": {"status": "failed", "exit_code": 3, "signal": None},
    "signalled": {"status": "signalled", "exit_code": None, "signal": int(signal.SIGSEGV)},
    "timed-out": {"status": "timed-out", "exit_code": None, "signal": int(signal.SIGKILL)},
    "ok": {"status": "ok", "exit_code": 0, "signal": None},
}


def test_every_outcome_is_kept(tmp_path: Path) -> None:
    """One workload an outcome; none is dropped, and each says what happened."""
    text = 'name = "s"\nexecutions = 1\nwarmups = 0\n[[policy]]\nname = "kernel"\n'
    for name in (*OUTCOMES, "not-started"):
        text += f'[[workload]]\nname = "{name}"\ncommand = "true"\n'

    def behave(condition: Condition) -> Record:
        if condition.workload == "not-started":
            raise RunNotStarted("seccomp refused the launcher's clone: EPERM")
        return record(condition, outcome=OUTCOMES[condition.workload])

    finished = run_study(spec_in(tmp_path, text), tmp_path / "out", tools(behave))
    assert (finished.runs, finished.failed) == (5, 4)
    with Store.open(tmp_path / "out", write=False) as store:
        runs = store.runs()
        assert dict(runs.select("workload", "status").iter_rows()) == {
            name: name for name in (*OUTCOMES, "not-started")
        }
        said = dict(runs.select("workload", "message").iter_rows())
    assert said == {
        "failed": "ended with exit code 3",
        "signalled": "ended by signal 11 (SIGSEGV)",
        "timed-out": "did not end within None s",
        "not-started": "seccomp refused the launcher's clone: EPERM",
        "ok": None,
    }


def test_steps_happen_in_order_and_are_recorded(tmp_path: Path) -> None:
    text = (
        'name = "s"\nexecutions = 1\nwarmups = 0\nsetup = "echo study >> log"\nteardown = "echo end >> log"\n'
        '[[policy]]\nname = "p"\nsetup = "echo policy >> log"\nteardown = "echo policy-off >> log"\n'
        '[[workload]]\nname = "w"\ncommand = "true"\n\n'
        'setup = ["echo work >> log", { command = ["sh", "-c", "echo two >> log"] }]\n'
        'teardown = "echo work-off >> log; exit 4"\n'
    )

    def behave(condition: Condition) -> Record:
        with (tmp_path / "log").open("a") as log:
            log.write("run\n")
        return record(condition)

    run_study(spec_in(tmp_path, text), tmp_path / "out", tools(behave))
    log = (tmp_path / "log").read_text().split()
    assert log == ["study", "policy", "work", "two", "run", "work-off", "policy-off", "end"]
    with Store.open(tmp_path / "out", write=False) as store:
        steps = store.steps()
        assert steps.filter(pl.col("run_id").is_null())["phase"].to_list() == ["setup", "teardown"]
        assert steps.filter(pl.col("exit_code") == 4)["message"].to_list() == ["exit code 4"]
        assert store.runs()["status"].to_list() == ["ok"], "a tear-down that fails does not take the run back"
        assert "step-failed" in store.warnings()["kind"].to_list()


def test_a_failing_set_up_leaves_the_run_not_started(tmp_path: Path) -> None:
    text = (
        'name = "s"\nexecutions = 2\nwarmups = 0\n[[workload]]\nname = "w"\ncommand = "true"\n'
        '[[policy]]\nname = "good"\n'
        '[[policy]]\nname = "bad"\nsetup = ["echo no such disk >&2; exit 5", "touch never"]\n'
        'teardown = "touch torn-down"\n'
    )
    fake = tools()
    finished = run_study(spec_in(tmp_path, text), tmp_path / "out", fake)
    assert finished.failed == 2
    assert isinstance(fake.runner, FakeRunner)
    assert fake.runner.order == ["w/good", "w/good"]
    assert not (tmp_path / "never").exists()
    assert (tmp_path / "torn-down").exists()
    with Store.open(tmp_path / "out", write=False) as store:
        bad = store.runs().filter(pl.col("policy") == "bad").row(0, named=True)
        assert bad["status"] == "not-started"
        assert bad["message"] == "set-up failed: echo no such disk >&2; exit 5: exit code 5"
        assert bad["wall_s"] is None
        assert "no such disk" in store.steps().filter(pl.col("exit_code") == 5)["output"][0]


def test_a_step_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    text = (
        'name = "s"\nexecutions = 1\nwarmups = 0\nsetup_timeout = "300ms"\n[[policy]]\nname = "p"\n'
        '[[workload]]\nname = "w"\ncommand = "true"\nsetup = "sleep 1000 & echo $! > pid; wait"\n'
    )
    with pytest.raises(StudyError, match="not one run of the first block could be started"):
        run_study(spec_in(tmp_path, text), tmp_path / "out", tools())
    with Store.open(tmp_path / "out", write=False) as store:
        assert "did not end within 0.3 s" in store.runs()["message"][0]
    pid = int((tmp_path / "pid").read_text())
    assert _gone(pid)


def _gone(pid: int) -> bool:
    for _ in range(100):
        if is_gone(pid):
            return True
        time.sleep(0.05)
    return False


def test_the_studys_own_set_up_failing_ends_it_before_the_first_run(tmp_path: Path) -> None:
    spec = spec_in(tmp_path, 'setup = "false"\n' + TWO_BY_TWO)
    with pytest.raises(StudyError, match="set-up failed: false: exit code 1"):
        run_study(spec, tmp_path / "out", tools())
    with Store.open(tmp_path / "out", write=False) as store:
        assert store.runs().is_empty()
        assert store.rows("SELECT reason FROM session") == [("error",)]


def test_a_failure_of_pagelab_itself_ends_the_session_and_resume_continues(tmp_path: Path) -> None:
    left = 5

    def behave(condition: Condition) -> Record:
        nonlocal left
        left -= 1
        if left == 0:
            raise RuntimeError("bug")
        return record(condition)

    with pytest.raises(RuntimeError, match="bug"):
        run_study(spec_in(tmp_path), tmp_path / "out", tools(behave))
    finished = resume_study(tmp_path / "out", tools())
    assert finished.runs == 16
    with Store.open(tmp_path / "out", write=False) as store:
        assert store.runs().filter(pl.col("attempts") == 2)["position"].to_list() == [4]
        assert [warning.kind for warning in store.study_warnings()].count("run-interrupted") == 1


def test_resume_of_a_complete_study_runs_nothing(tmp_path: Path) -> None:
    run_study(spec_in(tmp_path), tmp_path / "out", tools())
    fake = tools()
    assert resume_study(tmp_path / "out", fake).runs == 16
    assert isinstance(fake.runner, FakeRunner)
    assert fake.runner.order == []


def test_a_second_study_in_the_directory_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with DirectoryLock(out):
        for second in (lambda: run_study(spec_in(tmp_path), out, tools()), lambda: DirectoryLock(out).__enter__()):
            with pytest.raises(
                StudyError, match=rf"process {os.getpid()} on .* is running this study.*pagelab study status"
            ):
                second()
        assert not (out / "study.db").exists()
    assert holder_of(out) is None
    run_study(spec_in(tmp_path), out, tools())
    with pytest.raises(StudyError, match="already holds a study; continue it with: pagelab study resume"):
        run_study(spec_in(tmp_path), out, tools())
    for second in (lambda: run_study(spec_in(tmp_path), out, tools()), lambda: resume_study(out, tools())):
        with DirectoryLock(out), pytest.raises(StudyError, match=rf"process {os.getpid()} .* is running this study"):
            second()


def test_a_file_that_is_not_the_studys_own_is_not_overwritten(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    mine = project / "study.toml"
    text = f"# my own\n{TWO_BY_TWO}\n[quick]\nexecutions = 1\n"
    mine.write_text(text)
    for spec, quick in ((spec_in(tmp_path), False), (mine, True)):
        with pytest.raises(StudyError, match=r"/study\.toml is not the file of this study, and would be") as other:
            run_study(spec, project, tools(), quick=quick)
        assert other.value.another_would_do
    assert mine.read_text() == text
    assert run_study(mine, project, tools()).runs == 16, "its own file may lie in its directory"
    assert mine.read_text() == text


def test_killed_while_its_file_is_copied_a_study_can_start_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: half a copy was taken for a file of the user's."""

    def killed_before(path: Path, target: Path) -> Path:
        raise KeyboardInterrupt(f"{path} has its name {target.name} not yet")

    spec, out = spec_in(tmp_path), tmp_path / "out"
    with monkeypatch.context() as killed:
        killed.setattr(Path, "replace", killed_before)
        with pytest.raises(KeyboardInterrupt, match="not yet"):
            run_study(spec, out, tools())
    assert not (out / "study.toml").exists()
    assert run_study(spec, out, tools()).runs == 16
    assert (out / "study.toml").read_text() == spec.read_text()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere; run: sudo -u nobody pytest tests/study")
def test_a_destination_that_cannot_be_written_is_found_before_the_first_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir(mode=0o555)
    with pytest.raises(StudyError, match="cannot write"):
        run_study(spec_in(tmp_path), out, tools())


def test_a_lock_is_for_its_owner_only(tmp_path: Path) -> None:
    """Whoever may open the file can hold the lock."""
    (tmp_path / ".lock").touch(0o644)  # as earlier versions made it
    with DirectoryLock(tmp_path):
        assert (tmp_path / ".lock").stat().st_mode & 0o777 == 0o600
    (tmp_path / ".lock").unlink()
    with DirectoryLock(tmp_path):
        assert (tmp_path / ".lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user's files; run: sudo make test")
def test_root_continues_whosever_study_it_is_and_removes_no_lock_of_others(tmp_path: Path) -> None:
    for name in (".lock", "study.db"):
        (tmp_path / name).touch(0o600)
    os.chown(tmp_path / ".lock", 1234, 1234)
    with pytest.raises(StudyError, match="it belongs to user 1234") as refused, DirectoryLock(tmp_path):
        pass
    assert "rm " not in str(refused.value)
    os.chown(tmp_path / "study.db", 1234, 1234)
    with DirectoryLock(tmp_path):
        pass


@pytest.mark.parametrize("kind", ["link", "hard-link", "fifo", "dangling"])
def test_what_lies_in_the_place_of_a_lock_is_neither_written_nor_waited_for(tmp_path: Path, kind: str) -> None:
    precious = tmp_path / "precious"
    if kind != "dangling":
        precious.write_text("the user's own")
    run_study(spec_in(tmp_path), out := tmp_path / "out", tools())
    (lock := out / ".lock").unlink()
    if kind == "fifo":
        os.mkfifo(lock)
    elif kind == "hard-link":
        lock.hardlink_to(precious)
    else:
        lock.symlink_to(precious)
    with pytest.raises(StudyError, match=r"cannot lock .*\.lock: it is not a file of pagelab's; run: ls -l .*; rm "):
        resume_study(out, tools())
    assert status_of(out).state == "complete"
    assert not precious.exists() if kind == "dangling" else precious.read_text() == "the user's own"


def test_the_status_of_another_users_session_is_told_by_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_yours(_directory: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(status, "holder_of", not_yours)
    states = []

    def behave(condition: Condition) -> Record:
        states.append(status_of(tmp_path / "out"))
        return record(condition)

    run_study(spec_in(tmp_path), tmp_path / "out", tools(behave))
    assert {(one.state, one.holder.pid if one.holder else None) for one in states} == {("running", os.getpid())}
    assert status_of(tmp_path / "out").state == "complete"
    with Store.open(tmp_path / "out") as store:
        gone = subprocess.Popen(["true"])
        gone.wait()
        store.begin_session(gone.pid, socket.gethostname(), this_boot().id, {})
    assert status_of(tmp_path / "out").holder is None, "that process has ended"


def test_another_users_session_is_not_called_killed_where_that_cannot_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def not_yours(_directory: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(status, "holder_of", not_yours)
    run_study(spec_in(tmp_path), out := tmp_path / "out", tools())

    def state(pid: int, host: str, boot: str | None, began: str) -> str:
        with Store.open(out) as store:
            store._db.execute("DELETE FROM run WHERE position = 0")
            session = store.begin_session(pid, host, boot, {})
            store._db.execute("UPDATE session SET started_at = ? WHERE id = ?", (began, session))
        return status_of(out).state

    here, boot, now = socket.gethostname(), this_boot().id, datetime.now(UTC).isoformat()
    assert state(os.getpid(), here, boot, now) == "running"
    assert state(os.getpid(), here, boot, "2026-01-01T00:00:00.000+00:00") == "killed", "the number was used again"
    assert state(os.getpid(), here, "another", now) == "killed", "the machine has been started anew"
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert state(ended.pid, here, boot, now) == "killed", "nobody has waited for it yet"
    assert state(os.getpid(), "a-container", boot, now) == "running-or-killed"
    assert state(os.getpid(), "a-node", "another", now) == "running-or-killed"
    _show_status(status_of(out), out)
    shown = capsys.readouterr().out
    assert "running or killed: its lock is another user's" in shown
    assert f"owner sees with: pagelab study status {out}" in " ".join(shown.split())
    assert "resume" not in shown


def test_a_link_under_a_name_of_a_studys_file_is_not_followed(tmp_path: Path) -> None:
    (precious := tmp_path / "precious").write_text("the user's own")
    (out := tmp_path / "out").mkdir()
    (out / ".study.toml.part").symlink_to(precious)
    run_study(spec_in(tmp_path), out, tools())
    assert precious.read_text() == "the user's own"
    assert (out / "study.toml").read_text() == TWO_BY_TWO


def test_a_destination_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(StudyError, match=r"cannot make .*out: .*errno") as refused:
        run_study(spec_in(tmp_path), tmp_path / "out", tools())
    assert refused.value.another_would_do


def test_a_program_that_is_not_there_is_found_before_the_first_run(tmp_path: Path) -> None:
    spec = spec_in(tmp_path, TWO_BY_TWO.replace('"true"', '"trew"'))
    with pytest.raises(StudyError, match=r"s.toml:13: cannot find the program trew in PATH; run: command -v trew$"):
        run_study(spec, tmp_path / "out", tools())
    assert not (tmp_path / "out").exists()


def test_a_program_that_cannot_be_executed_is_not_called_missing(tmp_path: Path) -> None:
    """Regression: "cannot find the program" was said of a file without the right to execute it."""
    (tmp_path / "a.awk").write_text("#!/usr/bin/awk -f\n")
    spec = spec_in(tmp_path, TWO_BY_TWO.replace('"true"', f'"{tmp_path}/a.awk"'))
    with pytest.raises(
        StudyError,
        match=f"s.toml:13: cannot run .*a.awk: it is not executable; run: chmod .x {tmp_path}/a.awk$",
    ):
        run_study(spec, tmp_path / "out", tools())


def test_ctrl_c_ends_cleanly_and_resume_goes_on(tmp_path: Path) -> None:
    out = interrupted(tmp_path, TWO_BY_TWO.replace('name = "4K"\n', 'name = "4K"\nteardown = "echo off >> log"\n'))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with Store.open(out, write=False) as store:
        assert store.runs()["position"].to_list() == [0, 1, 2, 3]
        assert store.rows("SELECT reason FROM session") == [("interrupted",)]
        names = {condition.index: condition.name for condition in store.plan().conditions}
        begun = [names[slot.condition] for slot in store.slots()[:5]]
    torn_down = (tmp_path / "log").read_text().split()
    assert len(torn_down) == sum(name.endswith("4K") for name in begun), "the abandoned run was torn down too"
    assert resume_study(out, tools()).runs == 16


def test_ctrl_c_between_two_runs_starts_no_other(tmp_path: Path) -> None:
    fake = tools()
    assert isinstance(fake.runner, FakeRunner)

    class Pressing(Silent):
        def finished(self, condition: str, status: str, message: str | None, left_s: float | None) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(StudyInterruptedError, match="1 run is kept"):
        run_study(spec_in(tmp_path), tmp_path / "out", fake, progress=Pressing())
    assert len(fake.runner.order) == 1
    assert resume_study(tmp_path / "out", tools()).runs == 16


def test_a_tear_down_that_a_second_ctrl_c_cuts_short_is_done_first_of_all_by_the_next_session(tmp_path: Path) -> None:
    log = tmp_path / "log"
    down = (
        f"echo down >> {log}; [ -e {tmp_path}/once ] || {{ touch {tmp_path}/once; kill -INT {os.getpid()}; sleep 60; }}"
    )

    def behave(condition: Condition) -> Record:
        with log.open("a") as file:
            file.write("run\n")
        if not (tmp_path / "once").exists():
            os.kill(os.getpid(), signal.SIGINT)
        return record(condition)

    text = TWO_BY_TWO.replace('name = "4K"\n', f"name = \"4K\"\nteardown = '{down}'\n").replace(
        'name = "kernel"\n', f"name = \"kernel\"\nteardown = '{down}'\n"
    )
    with pytest.raises(StudyInterruptedError, match="in the middle of a tear-down, which the next session does first"):
        run_study(spec_in(tmp_path, text), tmp_path / "out", tools(behave))
    assert log.read_text().split() == ["run", "down"]
    assert resume_study(tmp_path / "out", tools(behave)).runs == 16
    assert log.read_text().split()[:4] == ["run", "down", "down", "run"]


def test_a_session_killed_in_the_tear_down_it_owed_leaves_it_to_the_next(tmp_path: Path) -> None:
    """The first is killed in a run, the second while it does that run's tear-down."""
    log, out = tmp_path / "log", tmp_path / "out"
    down = f"echo down >> {log}; [ -e {tmp_path}/once ] || {{ touch {tmp_path}/once; kill -KILL $PPID; }}"
    text = TWO_BY_TWO.replace('name = "4K"\n', f"name = \"4K\"\nteardown = '{down}'\n").replace(
        'name = "kernel"\n', f"name = \"kernel\"\nteardown = '{down}'\n"
    )
    spec = spec_in(tmp_path, text)
    killed = {**os.environ, "FAKE_RUNS_UNTIL_KILLED": "1"}
    first = subprocess.run([sys.executable, FAKES, "run", spec, out, tmp_path / "x"], env=killed, check=False)
    assert first.returncode == -signal.SIGKILL
    assert not log.exists()
    second = subprocess.run([sys.executable, FAKES, "resume", out, tmp_path / "x"], check=False)
    assert second.returncode == -signal.SIGKILL
    log.write_text("")
    resume_study(out, tools())
    assert len(log.read_text().split()) == 17, "what was owed, and each run's own"


def test_an_ignored_hang_up_stays_ignored(tmp_path: Path) -> None:
    """As under nohup."""

    def behave(condition: Condition) -> Record:
        os.kill(os.getpid(), signal.SIGHUP)
        return record(condition)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run_study(spec_in(tmp_path), tmp_path / "out", tools(behave)).runs == 16
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_renamed_study_is_continued_with_its_policies(tmp_path: Path) -> None:
    """Regression: a policy in its directory "has changed", and was to be put back."""
    (tmp_path / "out" / "policies").mkdir(parents=True)
    (tmp_path / "out" / "policies" / "4K.toml").write_text('pages = "4K"\n')
    text = TWO_BY_TWO.replace('pages = "4K"', f'file = "{tmp_path}/out/policies/4K.toml"')
    moved = interrupted(tmp_path, text).rename(tmp_path / "its new name")
    (moved / "policies" / "4K.toml").write_text('pages = "2M"\n')
    with pytest.raises(StudyError, match=r"4K\.toml has changed since the study began; put it back"):
        resume_study(moved, tools())
    (moved / "policies" / "4K.toml").write_text('pages = "4K"\n')
    assert resume_study(moved, tools()).runs == 16


def test_directories_are_one_word_in_the_commands_that_are_named(tmp_path: Path) -> None:
    place = tmp_path / "My Documents"
    place.mkdir()
    out = interrupted(place)
    with pytest.raises(StudyError, match=r"continue it with: pagelab study resume '.*/My Documents/out'$"):
        run_study(place / "s.toml", out, tools())


def test_a_program_that_changed_in_between_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    out = interrupted(tmp_path, TWO_BY_TWO.replace('"true"', '"./program"'))
    before = program.read_text()
    program.write_text(before + "# other\n")
    for as_begun in (False, True):
        with pytest.raises(StudyError, match="program has changed since the study began; put it back, or start a new"):
            resume_study(out, tools(), as_begun=as_begun)
    program.write_text(before)
    assert resume_study(out, tools()).runs == 16


@pytest.mark.parametrize("gone", [False, True])
def test_a_copy_of_the_file_that_changed_or_is_gone_is_written_again_where_that_is_asked_for(
    gone: bool, tmp_path: Path
) -> None:
    out = interrupted(tmp_path, TWO_BY_TWO)
    copy = out / "study.toml"
    before = copy.read_bytes()
    copy.unlink() if gone else copy.write_bytes(before + b"# other\n")
    what = "cannot read .*study.toml" if gone else "study.toml has changed since the study began"
    with pytest.raises(StudyError, match=rf"{what}.*; with that file as it was: pagelab study resume .* --as-begun"):
        resume_study(out, tools())
    assert resume_study(out, tools(), as_begun=True).runs == 16
    assert copy.read_bytes() == before


PRECISE = 'name = "s"\nwarmups = 1\n[precision]\ntarget = "5%"\nlooks = [20, 30, 40]\n' + TWO_BY_TWO.split("\n\n", 1)[1]


@pytest.mark.parametrize(("spread", "blocks"), [(0, 20), (200_000, 40)])
def test_a_precision_stop_ends_after_whole_blocks_at_a_planned_look(tmp_path: Path, spread: int, blocks: int) -> None:
    counts: dict[str, int] = {}

    def behave(condition: Condition) -> Record:
        counts[condition.name] = number = counts.get(condition.name, 0) + 1
        return record(condition, wall_ns=1_000_000 + (number + 5 * condition.index) * 7919 % 13 * spread)

    finished = run_study(spec_in(tmp_path, PRECISE), tmp_path / "out", tools(behave))
    assert finished.stopped_at == blocks
    assert finished.runs == 4 * (blocks + 1)
    with Store.open(tmp_path / "out", write=False) as store:
        looks = [event["data"] for event in store.events() if event["kind"] == "look"]
    assert [look["look"] for look in looks] == [look for look in (20, 30, 40) if look <= blocks]
    assert [look["stop"] for look in looks] == [False] * (len(looks) - 1) + [True]
    assert looks[-1]["reason"] == ("target-met" if spread == 0 else "maximum-reached")
    assert resume_study(tmp_path / "out", tools()).runs == finished.runs, "a stopped study stays stopped"


def test_sigterm_in_another_process_ends_it_with_everything_kept(tmp_path: Path) -> None:
    spec_in(tmp_path, TWO_BY_TWO.replace("executions = 3", "executions = 500"))
    process = subprocess.Popen(
        [sys.executable, FAKES, "run", tmp_path / "s.toml", tmp_path / "out"],
        stderr=subprocess.PIPE,
        env={**os.environ, "FAKE_RUN_S": "0.01"},
    )
    _wait_for_runs(tmp_path / "out", 10)
    assert holder_of(tmp_path / "out") is not None
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert b"StudyInterruptedError" in said
    assert holder_of(tmp_path / "out") is None
    with Store.open(tmp_path / "out", write=False) as store:
        positions = store.runs()["position"].to_list()
        assert positions == list(range(len(positions)))
        assert store.rows("SELECT reason FROM session") == [("interrupted",)]


def _wait_for_runs(directory: Path, count: int) -> None:
    for _ in range(600):
        try:
            with Store.open(directory, write=False) as store:
                if len(store.finished()) >= count:
                    return
        except StudyError:
            pass
        time.sleep(0.05)
    raise AssertionError("no runs appeared")


def test_a_wrong_spec_makes_no_directory(tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        run_study(spec_in(tmp_path, "name = 1"), tmp_path / "out", tools())
    assert not (tmp_path / "out").exists()


def test_a_study_of_which_nothing_starts_ends_after_its_first_block(tmp_path: Path) -> None:
    def behave(_condition: Condition) -> Record:
        raise RunNotStarted("perf_event_open: EPERM")

    with pytest.raises(StudyError, match=r"not one run of the first block could be started; .*perf_event_open: EPERM"):
        run_study(spec_in(tmp_path), tmp_path / "out", tools(behave))
    with Store.open(tmp_path / "out", write=False) as store:
        assert store.runs()["status"].to_list() == ["not-started"] * 4


def test_what_could_not_be_started_in_a_later_session_is_repeated(tmp_path: Path) -> None:
    out = interrupted(tmp_path)

    def behave(_condition: Condition) -> Record:
        raise RunNotStarted("a disk is not mounted")

    refused = rf"not one of the first 4 runs of this session could be started; .*resume {out}"
    with pytest.raises(StudyError, match=refused):
        resume_study(out, tools(behave))
    with pytest.raises(StudyError, match=refused):
        resume_study(out, tools(behave))
    assert resume_study(out, tools()).runs == 16
    assert status_of(out).statuses["not-started"] == 0


def test_a_study_of_which_nothing_started_goes_on_when_that_is_mended(tmp_path: Path) -> None:
    def behave(_condition: Condition) -> Record:
        raise RunNotStarted("perf_event_open: EPERM")

    with pytest.raises(StudyError, match="mend it, then continue with: pagelab study resume"):
        run_study(spec_in(tmp_path), tmp_path / "out", tools(behave))
    assert resume_study(tmp_path / "out", tools()).runs == 16
    assert status_of(tmp_path / "out").statuses["ok"] == 16


def test_what_this_machine_cannot_do_now_is_not_resumed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    text = TWO_BY_TWO.replace('command = "true"\n', f'command = "true"\ncwd = "{tmp_path}/data"\n', 1)
    out = interrupted(tmp_path, text)
    (tmp_path / "data").rmdir()
    with pytest.raises(StudyError, match=rf"a/kernel cannot run now: there is no directory {tmp_path}/data; mend it"):
        resume_study(out, tools())
    (tmp_path / "data").mkdir()
    with pytest.raises(StudyError, match="cannot run now: no pool of 2M pages; mend it, then continue with: pagelab"):
        resume_study(out, tools(check=lambda one: "no pool of 2M pages" if one.policy == "4K" else None))
    assert len(Store.open(out, write=False).finished()) == 4, "nothing was lost"
    assert resume_study(out, tools()).runs == 16


def test_what_set_ups_make_is_there_again_before_it_is_asked_for(tmp_path: Path) -> None:
    """The study's set-up makes the directory of the runs, and its tear-down removes it."""
    text = TWO_BY_TWO.replace("seed = 7\n", 'seed = 7\nsetup = "mkdir -p work"\nteardown = "rm -r work"\n').replace(
        'command = "true"\n', 'command = "true"\ncwd = "work"\n'
    )
    out = interrupted(tmp_path, text)
    assert not (tmp_path / "work").exists()
    assert resume_study(out, tools()).runs == 16


def test_what_a_killed_run_left_changed_is_mended_before_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    moves = 'setup = "mv data away"\nteardown = "mv away data"\n'
    text = TWO_BY_TWO.replace('name = "4K"\n', f'name = "4K"\n{moves}').replace(
        'command = "true"\n', f'command = "true"\ncwd = "{tmp_path}"\n'
    )
    spec, out = spec_in(tmp_path, text), tmp_path / "out"
    for after in range(1, 5):
        killed = {**os.environ, "FAKE_RUNS_UNTIL_KILLED": str(after)}
        command = ["run", spec, out] if after == 1 else ["resume", out]
        subprocess.run([sys.executable, FAKES, *command, tmp_path / "x"], env=killed, cwd=tmp_path, check=False)

    def check(_one: Condition) -> str | None:
        return None if (tmp_path / "data").exists() else "there is no data"

    assert resume_study(out, tools(check=check)).runs == 16
    assert (tmp_path / "data").is_dir()


def test_a_condition_that_never_starts_does_not_lock_the_study(tmp_path: Path) -> None:
    """Interrupted between the runs of a block, the first runs of the next session may all be of that condition."""

    def behave(condition: Condition) -> Record:
        if condition.policy == "4K":
            raise RunNotStarted("its pool is empty")
        return record(condition)

    for after in (3, 5, 6, 7):
        out = tmp_path / str(after)
        out.mkdir()
        left = after

        def stopping(condition: Condition) -> Record:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGINT)
            return behave(condition)

        with pytest.raises(StudyInterruptedError):
            run_study(spec_in(tmp_path), out / "out", tools(stopping))
        resume_study(out / "out", tools(behave))
        assert status_of(out / "out").statuses["ok"] == 8


def test_an_extended_study_is_checked_as_well(tmp_path: Path) -> None:
    run_study(spec_in(tmp_path), tmp_path / "out", tools())
    with pytest.raises(StudyError, match="cannot run now: no pool"):
        resume_study(tmp_path / "out", tools(check=lambda _one: "no pool"), executions=6)
    assert status_of(tmp_path / "out").statuses["not-started"] == 0


def test_a_machine_is_another_with_another_command_line_or_memory() -> None:
    def found(memory_bytes: int, cmdline: str) -> dict[str, Any]:
        return {"provenance": {"memory_bytes": memory_bytes, "kernel": {"release": "6.12", "cmdline": cmdline}}}

    before = found(1019248640, "quiet")
    assert machine_changes(before, found(1019252736, "quiet")) == [], "a page more, as kernels have from boot to boot"
    assert machine_changes(before, found(1019248640, "quiet mitigations=off")) == [
        "kernel.cmdline: quiet → quiet mitigations=off"
    ]
    assert machine_changes(before, found(2038497280, "quiet")) == ["memory_bytes: 1019248640 → 2038497280"]
    assert machine_changes(before, {}) != []
