"""Each execution, or block, in a boot of its own: nothing is lost or run twice, and it always comes to an end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fakes import record, tools
from machines import PROGRAM_AND_POLICIES, Machine, begun, machine_in

from pagelab.analysis import analyse, load
from pagelab.analysis.following import following_of
from pagelab.errors import BadInputError, MachineError
from pagelab.record import Record
from pagelab.study.control import resume_study, run_study
from pagelab.study.errors import SpecError, StudyError
from pagelab.study.interim_looks import Look
from pagelab.study.job import RunNotStarted
from pagelab.study.plan import Condition
from pagelab.study.planning import plan_text
from pagelab.study.progress import Silent
from pagelab.study.reboots import arming, boot, count
from pagelab.study.status import status_of
from pagelab.study.store import Store


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return machine_in(tmp_path / "machine", monkeypatch)


TEXT = f"""\
name = "fresh"
executions = 2
seed = 7
warmups = 1
between = "reboot"

[reboot]
each = "execution"
settle = "0s"

{PROGRAM_AND_POLICIES}"""
IN_BLOCKS = TEXT.replace('each = "execution"', 'each = "block"')


def boots_of(out: Path) -> tuple[dict[int, list[str]], dict[tuple[int, str], str]]:
    """Analysed block -> boots of its executions; (block, condition) -> boot, warm-ups with negative blocks."""
    with Store.open(out, write=False) as store:
        rows = store.runs().select("block", "condition", "boot_id", "warmup").rows()
    blocks: dict[int, list[str]] = {}
    for block, _, name, warmup in rows:
        if not warmup:
            blocks.setdefault(block, []).append(name)
    return blocks, {(block, condition): name for block, condition, name, _ in rows}


def check_complete(machine: Machine, out: Path, each: str, *, cuts: int = 0) -> None:
    """Every place has one run, in its boot; the machine is as it was."""
    with Store.open(out, write=False) as store:
        assert store.rows("PRAGMA integrity_check") == [("ok",)]
        assert sorted(store.finished()) == [slot.position for slot in store.slots()]
        analysed = [slot for slot in store.slots() if not slot.warmup]
        warmups = store.plan().warmups
    blocks, where = boots_of(out)
    if each == "execution":
        assert len({name for names in blocks.values() for name in names}) == len(analysed), "a boot for each"
    else:
        assert sum(len(set(names)) - 1 for names in blocks.values()) <= cuts, "a boot for each block that was not cut"
        assert len({frozenset(names) for names in blocks.values()}) == len(blocks)
    for (block, condition), name in where.items():
        if block >= 0:
            own = {where[-(block * warmups + number + 1), condition] for number in range(warmups)}
            assert own <= {name}, "warm-ups are made in the boot of what they warm up"
    assert machine.systemd.armed() is None
    left = sorted(path.name for path in (machine.root / "system").iterdir())
    assert left == ["basic.target.wants", "default.target"]
    assert not list((machine.root / "system/basic.target.wants").iterdir())


@pytest.mark.parametrize(("text", "boots"), [(TEXT, 4), (IN_BLOCKS, 2)])
def test_each_has_a_boot_of_its_own(machine: Machine, tmp_path: Path, text: str, boots: int) -> None:
    out = begun(machine, tmp_path, text)
    assert status_of(out).state == "not-started"
    assert machine.until_usual(out) == ["restarted"] * boots + ["usual"]
    check_complete(machine, out, "execution" if boots == 4 else "block")
    assert (machine.root / "ran").read_text().count("\n") == 8, "four executions and four warm-ups, each once"
    assert status_of(out).boots == boots
    assert status_of(out).state == "complete"


def test_the_smallest_study_has_one_boot(machine: Machine, tmp_path: Path) -> None:
    text = IN_BLOCKS.replace("executions = 2", "executions = 1").replace("warmups = 1", "warmups = 0")
    out = begun(machine, tmp_path, text)
    assert machine.until_usual(out) == ["restarted", "usual"]
    check_complete(machine, out, "block")


@pytest.mark.parametrize("text", [TEXT.replace("executions = 2", "executions = 1"), IN_BLOCKS], ids=["one", "block"])
def test_cut_at_every_moment_once_it_still_completes(machine: Machine, text: str) -> None:
    """Before and after each write of the store, the count and the units, each call, and in each execution."""
    each = "block" if text is IN_BLOCKS else "execution"
    with TemporaryDirectory(dir="/dev/shm") as memory:  # some 150 studies, and thousands of fsyncs
        _cut_at_every_moment(machine, Path(memory), text, each)


def _cut_at_every_moment(machine: Machine, tmp_path: Path, text: str, each: str) -> None:
    out = begun(machine, tmp_path, text)
    machine.until_usual(out)
    moments = machine.moments()
    runs = (machine.root / "ran").read_text().count("\n")
    assert moments > 50, moments
    for cut in range(moments):
        there = tmp_path / f"cut-{cut}"
        there.mkdir()
        machine.cut = cut
        out = begun(machine, there, text)
        (machine.root / "ran").unlink()
        ends = machine.until_usual(out)
        assert ends.count("cut") == 1, (cut, ends)
        assert ends[-1] == "usual"
        check_complete(machine, out, each, cuts=1)
        ran = Counter((machine.root / "ran").read_text().split())
        # What was in progress, and the warm-up before it.
        assert sum(ran.values()) - runs <= (2 if each == "execution" else 3), (cut, ran)


def test_what_was_finished_before_a_cut_stays_as_it_was(machine: Machine, tmp_path: Path) -> None:
    def behave(condition: Condition) -> Record:
        flag = tmp_path / "third"
        seen = len(flag.read_text()) if flag.exists() else 0
        flag.write_text("." * (seen + 1))
        if seen == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return record(condition, wall_ns=1_000_000 + seen)

    machine.behave = behave
    out = begun(machine, tmp_path, TEXT)
    assert [machine.boot(out) for _ in range(3)] == ["restarted", "restarted", "cut"]
    query = "SELECT run.id, position, record_json FROM run JOIN schedule USING (position) WHERE block >= 0 ORDER BY 2"
    with Store.open(out, write=False) as store:
        before = store.rows(query)
    assert len(before) == 2
    assert machine.until_usual(out)[-1] == "usual"
    with Store.open(out, write=False) as store:
        assert store.rows(query)[:2] == before
        told = [one.message for one in store.study_warnings() if one.kind == "run-interrupted"]
        assert len(told) == 1
        assert store.rows("SELECT count(*) FROM attempt WHERE outcome = 'repeated'") == [(1,)], "the warm-up"
    check_complete(machine, out, "execution")


def crash(_condition: Condition) -> Record:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_three_boots_without_a_finished_execution_stop_it(machine: Machine, tmp_path: Path) -> None:
    machine.behave = crash
    out = begun(machine, tmp_path, TEXT)
    assert machine.until_usual(out) == ["cut", "cut", "cut", "usual"]
    assert machine.systemd.armed() is None
    status = status_of(out)
    assert status.state == "killed"
    assert "3 boots in a row finished no analysed execution" in (status.boots_stopped or "")
    assert machine.boot(out) == "usual", "and no later boot tries again"

    machine.behave = record
    arming.resume(out, tools(), machine.systemd, Silent())
    assert status_of(out).boots_stopped is None
    assert machine.until_usual(out) == ["restarted"] * 4 + ["usual"]
    check_complete(machine, out, "execution")


def test_warm_ups_are_no_progress(machine: Machine, tmp_path: Path) -> None:
    """Else a machine whose second run crashes it would restart for ever."""

    def behave(condition: Condition) -> Record:
        flag = machine.root / (machine.root / "boot_id").read_text().strip()
        if flag.exists():
            crash(condition)
        flag.touch()
        return record(condition)

    machine.behave = behave
    out = begun(machine, tmp_path, TEXT)
    assert machine.until_usual(out) == ["cut", "cut", "cut", "usual"]


def test_two_failed_boots_are_forgiven_by_a_third(machine: Machine, tmp_path: Path) -> None:
    def behave(condition: Condition) -> Record:
        return record(condition) if machine.boots % 3 == 0 else crash(condition)

    machine.behave = behave
    out = begun(machine, tmp_path, TEXT)
    ends = machine.until_usual(out)
    unhappy = ["cut", "cut", "restarted"]
    assert ends == [*unhappy[1:], *unhappy * 3, "usual"]
    check_complete(machine, out, "execution")


def test_an_error_is_a_failed_boot_and_the_reason_is_kept(machine: Machine, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    out = begun(machine, tmp_path, TEXT.replace('"true"', '"./program"'))
    program.write_text("#!/bin/sh\n# other\n")
    assert machine.until_usual(out) == ["failed", "failed", "failed", "usual"]
    assert "program has changed since the study began" in (status_of(out).boots_stopped or "")
    assert machine.systemd.armed() is None


def test_a_study_of_which_nothing_starts_ends_at_once(machine: Machine, tmp_path: Path) -> None:
    def behave(_condition: Condition) -> Record:
        raise RunNotStarted("perf_event_open: EPERM")

    machine.behave = behave
    out = begun(machine, tmp_path, TEXT)
    assert machine.until_usual(out) == ["restarted", "restarted", "usual"], "the two executions of the first block"
    assert "not one run of the first block could be started" in (status_of(out).boots_stopped or "")


def test_a_failed_run_is_a_result_and_goes_on(machine: Machine, tmp_path: Path) -> None:
    machine.behave = lambda condition: record(condition, outcome={"status": "failed", "exit_code": 3, "signal": None})
    out = begun(machine, tmp_path, TEXT)
    assert machine.until_usual(out) == ["restarted"] * 4 + ["usual"]
    assert status_of(out).statuses["failed"] == 8


def test_asked_to_stop_it_does_not_restart_the_machine(machine: Machine, tmp_path: Path) -> None:
    def behave(condition: Condition) -> Record:
        os.kill(os.getpid(), signal.SIGTERM)
        return record(condition)

    machine.behave = behave
    out = begun(machine, tmp_path, TEXT)
    assert machine.boot(out) == "stays"
    assert machine.systemd.armed() == out.resolve(), "and goes on at the next boot, whoever restarts it"
    assert status_of(out).repeated == 1


def test_a_used_boot_is_left_at_once(machine: Machine, tmp_path: Path) -> None:
    """As when the unit is started by hand a second time."""
    out = begun(machine, tmp_path, TEXT)
    assert machine.boot(out) == "restarted"
    (machine.root / "calls").write_text("")
    assert machine._process(lambda: boot.runs(out, machine.systemd, tools(), print)) == 0
    assert "reboot" in machine.calls()
    with Store.open(out, write=False) as store:
        assert len(store.finished()) == 2


def test_stopped_by_hand_the_next_boot_is_a_usual_one(
    machine: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    out = begun(machine, tmp_path, TEXT)
    machine.boot(out)
    assert arming.stop(machine.systemd) == (out.resolve(), False)
    assert machine.boot(out) == "usual"
    assert machine._process(lambda: boot.runs(out, machine.systemd, tools(), print)) == 0
    assert "reboot" not in machine.calls(), "a unit that is still under way does not restart it either"
    assert arming.stop(machine.systemd) == (None, False)


def test_what_cannot_be_counted_is_a_usual_boot(
    machine: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = begun(machine, tmp_path, TEXT)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(count, "write", full)
    assert machine.boot(out) == "usual"
    (out / "study.db").write_bytes(b"no store")
    assert machine.boot(out) == "usual"
    assert machine.systemd.armed() is None, "a damaged store ends it"


def test_the_network_is_down_unless_services_stay(machine: Machine, tmp_path: Path) -> None:
    out = begun(machine, tmp_path, TEXT)
    machine.boot(out)
    flags = {name: (machine.root / "net" / name / "flags").read_text().strip() for name in ("lo", "eth0")}
    assert flags == {"lo": "0x9", "eth0": "0x1002"}
    there = tmp_path / "kept"
    there.mkdir()
    kept = begun(machine, there, TEXT.replace('settle = "0s"', 'settle = "0s"\nkeep = ["ssh.service"]'))
    machine.boot(kept)
    assert (machine.root / "net/eth0/flags").read_text().strip() == "0x1003"
    assert (
        "Wants=pagelab-study.service getty.target systemd-user-sessions.service ssh.service\n"
        in (machine.root / "system/pagelab-study.target").read_text()
    )


def test_the_runs_have_the_user_who_asked(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher takes the user from these variables: without them a boot ran the programs as root."""
    asked = {"SUDO_UID": "1234", "SUDO_GID": "1235", "PATH": "/bin"}
    for name, value in {**asked, "PAGELAB_X": "two\rlines", "PAGELAB_Y\n": "", "OTHER": "not kept"}.items():
        monkeypatch.setenv(name, value)
    begun(machine, tmp_path, TEXT)
    for unit in ("pagelab-study.service", "pagelab-study-begin.service"):
        with (machine.root / "system" / unit).open(newline="") as file:
            lines = file.read().split("\n")
        for name, value in asked.items():
            assert f'Environment="{name}={value}"' in lines
        assert not [line for line in lines if "PAGELAB_X" in line or "PAGELAB_Y" in line or "OTHER" in line]


def test_more_executions_take_more_boots(machine: Machine, tmp_path: Path) -> None:
    out = begun(machine, tmp_path, TEXT)
    machine.until_usual(out)
    with pytest.raises(BadInputError, match=r"all runs of .* are done"):
        arming.resume(out, tools(), machine.systemd, Silent())
    arming.resume(out, tools(), machine.systemd, Silent(), executions=3)
    assert machine.until_usual(out) == ["restarted"] * 2 + ["usual"]
    check_complete(machine, out, "execution")


def test_a_precision_stop_ends_it_at_a_look(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def decide(look: Look, _store: Store) -> dict[str, Any]:
        return {"look": look.blocks, "stop": look.blocks == 20, "reason": "target-met"}

    # Its frames would start threads in a fork.
    monkeypatch.setattr(Look, "decide", decide)
    text = IN_BLOCKS.replace("executions = 2\n", "").replace("warmups = 1", "warmups = 0")
    text = text.replace("[reboot]", '[precision]\ntarget = "5%"\nlooks = [20, 30]\n\n[reboot]')
    out = begun(machine, tmp_path, text)
    assert machine.until_usual(out) == ["restarted"] * 20 + ["usual"]
    assert status_of(out).state == "stopped"


def test_the_order_in_the_report_tells_of_the_boots(machine: Machine, tmp_path: Path) -> None:
    def behave(condition: Condition) -> Record:
        return crash(condition) if machine.boots == 3 and condition.policy == "4K" else record(condition)

    machine.behave = behave
    out = begun(machine, tmp_path, IN_BLOCKS.replace("executions = 2", "executions = 6"))
    assert machine.until_usual(out).count("cut") == 1
    with Store.open(out, write=False) as store:
        design = analyse(load(store)).design
        split = sum(len(set(names)) > 1 for names in boots_of(out)[0].values())
    assert (
        "each block after a fresh boot, with 1 warm-up of all conditions before it in the same boot" in design.schedule
    )
    told = [note for note in design.notes if "more than one boot" in note]
    assert bool(told) == bool(split)
    assert all(f"{split} block of 6" in note for note in told)


def test_the_report_of_an_unfinished_study_names_the_command_that_restarts(machine: Machine, tmp_path: Path) -> None:
    out = begun(machine, tmp_path, IN_BLOCKS)
    machine.boot(out)
    with Store.open(out, write=False) as store:
        data = load(store)
    assert following_of(analyse(data), data).command == f"sudo pagelab study resume {out} --reboot"


def test_nothing_restarts_without_agreement(tmp_path: Path) -> None:
    spec = tmp_path / "s.toml"
    spec.write_text(TEXT)
    with pytest.raises(StudyError, match=r"restarts this machine, .* to give it: sudo pagelab study run .* --reboot"):
        run_study(spec, tmp_path / "out", tools())
    assert not (tmp_path / "out").exists()


def test_a_study_that_has_begun_is_not_resumed_without_agreement(machine: Machine, tmp_path: Path) -> None:
    out = begun(machine, tmp_path, TEXT)
    with pytest.raises(StudyError, match=r"sudo pagelab study resume .* --reboot"):
        resume_study(out, tools())


def test_a_refused_restart_leaves_the_study_for_the_next_boot(machine: Machine, tmp_path: Path) -> None:
    spec = tmp_path / "s.toml"
    spec.write_text(TEXT)

    def inhibited(words: list[str]) -> str:
        if words == ["reboot"]:
            raise MachineError("systemctl reboot failed: inhibited")
        return ""

    with pytest.raises(
        MachineError, match=r"goes on at the next boot, .* to prevent it: sudo pagelab study stop-reboots"
    ):
        arming.run(spec, tmp_path / "out", tools(), replace(machine.systemd, call=inhibited), Silent())
    assert machine.until_usual(tmp_path / "out") == ["restarted"] * 4 + ["usual"]


@pytest.mark.parametrize("word", ["daemon-reload", "reboot"])
def test_who_presses_ctrl_c_or_meets_an_error_while_it_is_armed_has_usual_boots(
    machine: Machine, tmp_path: Path, word: str
) -> None:
    spec = tmp_path / "s.toml"
    spec.write_text(TEXT)

    def pressed(words: list[str]) -> str:
        if words == [word]:
            raise KeyboardInterrupt if word == "reboot" else MachineError("systemctl daemon-reload failed")
        return ""

    with pytest.raises((MachineError, KeyboardInterrupt)):
        arming.run(spec, tmp_path / "out", tools(), replace(machine.systemd, call=pressed), Silent())
    assert machine.systemd.armed() is None
    assert machine.boot(tmp_path / "out") == "usual"


def test_another_study_in_the_place_of_this_one_gets_no_boots(machine: Machine, tmp_path: Path) -> None:
    out = begun(machine, tmp_path, TEXT)
    shutil.rmtree(out)
    spec = tmp_path / "ordinary.toml"
    spec.write_text(f'name = "fresh"\nexecutions = 2\n{PROGRAM_AND_POLICIES}')
    run_study(spec, out, tools())
    assert machine.boot(out) == "usual"
    assert machine.systemd.armed() is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('between = "reboot"', 'between = "shutdown"', "between: .*'nothing' or 'reboot'"),
        ('between = "reboot"\n', "", r'\[reboot\] needs between = "reboot"'),
        ("executions = 2", "minutes = 3", "minutes and between"),
        ("executions = 2", "co_run = true", "co_run and between"),
        ('each = "execution"', 'each = "run"', "each: .*'execution' or 'block'"),
        ('settle = "0s"', 'settle = "2h"', "settle"),
        ('settle = "0s"', 'keep = ["ssh"]', "keep"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(SpecError, match=message):
        plan_text(TEXT.replace(old, new), tmp_path / "s.toml", tmp_path / "out")


def test_the_command_tells_what_would_happen_and_does_nothing(tmp_path: Path) -> None:
    spec = tmp_path / "s.toml"
    spec.write_text(TEXT)

    def asked(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pagelab", "study", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = asked("run", "s.toml")
    assert done.returncode == 2
    assert "fresh restarts this machine 5 times: 4 boots, each for one execution and its warm-up" in done.stdout
    assert "to give it: sudo pagelab study run s.toml --into fresh.study --reboot" in done.stderr
    assert asked("run", "s.toml", "--dry-run").stdout == done.stdout
    for words, message in (
        (("--minutes", "3"), "--minutes and between"),
        (("--cluster", "2"), "--cluster and between"),
    ):
        done = asked("run", "s.toml", *words)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    spec.write_text(TEXT[: TEXT.index("between")] + TEXT[TEXT.index("[[workload]]") :])
    done = asked("run", "s.toml", "--reboot")
    assert done.returncode == 2
    assert "--reboot: the study does not restart the machine" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.toml"]
