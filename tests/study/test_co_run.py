"""Both conditions of a pair at once on one processor: together or not at all, ended together, and labelled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from fakes import FakeRunner, record, spec_in, tools

from pagelab.analysis.build import analyse
from pagelab.analysis.data import load
from pagelab.study import budget
from pagelab.study.co_run import CoRunExecutor
from pagelab.study.control import resume_study, run_study
from pagelab.study.errors import SpecError, StudyInterruptedError, TooLongError
from pagelab.study.job import Job
from pagelab.study.plan import CO_RUN, Condition
from pagelab.study.schedule import Slot
from pagelab.study.store import RunResult, Store

PAIR = """
name = "together"
executions = 8
warmups = 1
metric = "cpu_s"
co_run = true
[[workload]]
name = "w"
command = ["true"]
[[policy]]
name = "a"
pages = "kernel"
[[policy]]
name = "b"
pages = "4K"
"""


def wrong(tmp_path: Path, text: str) -> str:
    with pytest.raises(SpecError) as raised:
        run_study(spec_in(tmp_path, text), tmp_path / "out", tools())
    return str(raised.value)


def test_both_of_a_block_run_at_once_and_no_others(tmp_path: Path) -> None:
    together = threading.Barrier(2, timeout=20)
    running: set[str] = set()
    most = 0

    def behave(condition: Condition) -> object:
        nonlocal most
        running.add(condition.policy)
        most = max(most, len(running))
        together.wait()  # raises where the other one does not come
        together.wait()
        running.discard(condition.policy)
        return record(condition)

    run_study(spec_in(tmp_path, PAIR), tmp_path / "out", tools(behave))  # type: ignore[arg-type]
    with Store.open(tmp_path / "out", write=False) as store:
        runs = store.runs()
        plan = store.plan()
    assert most == 2
    assert list(runs["status"]) == ["ok"] * 18
    (cpus,) = {tuple(condition.request.cpus or ()) for condition in plan.conditions}
    assert len(cpus) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('metric = "cpu_s"', 'metric = "wall_s"'), 'write metric = "cpu_s"'),
        (("co_run = true", 'co_run = true\nscheduler = "fifo"'), "exclude each other"),
        (("co_run = true", "co_run = true\ncpus = [0, 1]"), 'write cpus = "one"'),
        (('command = ["true"]', 'command = ["true"]\nsetup = ["true"]'), "set-up, tear-down and flushing"),
        (('[[policy]]\nname = "a"', '[[policy]]\nname = "c"\npages = "2M"\n[[policy]]\nname = "a"'), "has 3"),
    ],
)
def test_what_cannot_run_at_once_is_refused(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    assert said in wrong(tmp_path, PAIR.replace(*change))


def test_a_time_is_filled_by_pairs_that_take_as_long_as_their_longer_half(tmp_path: Path) -> None:
    """Six seconds: pairs of 40 and 100 ms take 100, and not the 140 that they would in turn."""

    def behave(condition: Condition) -> object:
        time.sleep(0.04 if condition.policy == "a" else 0.1)
        return record(condition)

    text = PAIR.replace("executions = 8", "minutes = 0.1")
    run_study(spec_in(tmp_path, text), tmp_path / "out", tools(behave))  # type: ignore[arg-type]
    with Store.open(tmp_path / "out", write=False) as store:
        (sized,) = [event["data"] for event in store.events() if event["kind"] == "sized"]
        pilot = budget.fewest_blocks(store.plan())
        spent = budget.spent_s(store)
        runs = store.runs()
    in_turn = float(runs["duration_s"].sum())
    (pace,) = sized["paces"]
    of_pairs = runs.group_by("block").agg(pl.col("duration_s").max().alias("longer"), pl.col("duration_s").sum())
    longer, both = float(of_pairs["longer"].median()), float(of_pairs["duration_s"].median())  # type: ignore[arg-type]
    assert pace["block_s"] >= 0.1
    assert abs(pace["block_s"] - longer) < abs(pace["block_s"] - both)
    (blocks,) = sized["blocks"].values()
    assert blocks > pilot
    # What the pilot took, and the others at its pace: a busy machine changes the pace later.
    assert sized["spent_s"] + (blocks - pilot) * pace["block_s"] <= 6
    assert spent < 0.85 * in_turn


def test_pairs_too_long_for_the_time_are_told_with_the_time_that_would_do(tmp_path: Path) -> None:
    def behave(condition: Condition) -> object:
        time.sleep(0.9)
        return record(condition)

    text = PAIR.replace("executions = 8", "minutes = 0.05").replace("warmups = 1", "warmups = 0")
    with pytest.raises(TooLongError) as raised:
        run_study(spec_in(tmp_path, text), tmp_path / "out", tools(behave))  # type: ignore[arg-type]
    # Six pairs of 0.9 s, and not twelve executions.
    assert 0.08 <= float(raised.value.minutes) <= 0.13


def test_ctrl_c_between_the_two_results_of_a_pair_keeps_both_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: one was kept, and the other counted as failed for ever."""
    at_once, pairs = CoRunExecutor._at_once, []

    def signalled(executor: CoRunExecutor, jobs: list[Job]) -> list[RunResult]:
        found = at_once(executor, jobs)
        pairs.append(jobs)
        if len(pairs) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return found

    monkeypatch.setattr(CoRunExecutor, "_at_once", signalled)
    with pytest.raises(StudyInterruptedError, match="6 runs are kept"):
        run_study(spec_in(tmp_path, PAIR), tmp_path / "out", tools())
    resume_study(tmp_path / "out", tools())
    with Store.open(tmp_path / "out", write=False) as store:
        assert list(store.runs()["status"]) == ["ok"] * 18


def test_ctrl_c_ends_both_and_the_study_goes_on_with_whole_pairs(tmp_path: Path) -> None:
    ended = threading.Event()
    calls = threading.Semaphore(5)

    class Patient(FakeRunner):
        def run(self, condition: Condition, stderr: Path) -> object:  # type: ignore[override]
            if not calls.acquire(blocking=False):
                os.kill(os.getpid(), signal.SIGINT)
                assert ended.wait(20), "nobody ended this run"
            return super().run(condition, stderr)

        def give_up(self) -> None:
            ended.set()

    from dataclasses import replace

    with pytest.raises(StudyInterruptedError, match="4 runs are kept"):
        run_study(spec_in(tmp_path, PAIR), tmp_path / "out", replace(tools(), runner=Patient()))
    assert ended.is_set()
    resume_study(tmp_path / "out", tools())
    with Store.open(tmp_path / "out", write=False) as store:
        assert list(store.runs()["status"]) == ["ok"] * 18


def test_one_that_lost_its_partner_is_not_run_alone(tmp_path: Path) -> None:
    run_study(spec_in(tmp_path, PAIR), tmp_path / "out", tools())
    with Store.open(tmp_path / "out", write=False) as store:
        a, b = store.plan().conditions
    runner = FakeRunner()
    slots = [(0, a), (1, b), (1, a), (2, a), (2, b)]
    jobs = [Job(Slot(at, block, one.index, block), one, tmp_path, 1.0) for at, (block, one) in enumerate(slots)]
    from contextlib import nullcontext

    together = list(CoRunExecutor(runner, nullcontext, lambda: None).execute(iter(jobs)))
    assert [len(each) for each in together] == [1, 2, 2]
    done = [one for each in together for one in each]
    assert [job.slot.position for job, _ in done] == [0, 1, 2, 3, 4]
    assert [result.status for _, result in done] == ["not-started", "ok", "ok", "ok", "ok"]
    assert "at once or not at all" in str(done[0][1].message)


def test_a_failure_of_pagelab_in_one_ends_the_session(tmp_path: Path) -> None:
    def behave(condition: Condition) -> object:
        if condition.policy == "b":
            raise RuntimeError("broken")
        return record(condition)

    with pytest.raises(RuntimeError, match="broken"):
        run_study(spec_in(tmp_path, PAIR), tmp_path / "out", tools(behave))  # type: ignore[arg-type]


def measured(tmp_path: Path, *, co_run: bool, seed: int) -> tuple[float, float, tuple[str, ...]]:
    """A machine whose speed changes by 20% from one moment to the next; B takes 5% more processor time. The change, the
    half-width of its interval, and the caveats."""
    rng = np.random.default_rng(seed)
    together = threading.Barrier(2, timeout=20)
    moment = [1.0]

    def behave(condition: Condition) -> object:
        # Both of a pair meet the same moment when they run at once, and a moment each when they do not.
        if co_run:
            if together.wait() == 0:
                moment[0] = float(rng.lognormal(0, 0.2))
            together.wait()
        else:
            moment[0] = float(rng.lognormal(0, 0.2))
        own = 1.05 if condition.policy == "b" else 1.0
        return record(condition, wall_ns=int(1e9 * own * moment[0]))

    text = PAIR.replace("executions = 8", "executions = 12").replace("co_run = true", f"co_run = {str(co_run).lower()}")
    place = tmp_path / f"{co_run}-{seed}"
    place.mkdir()
    run_study(spec_in(place, text), place / "out", tools(behave))  # type: ignore[arg-type]
    with Store.open(place / "out", write=False) as store:
        found = analyse(load(store))
    (contrast,) = [one for one in found.contrasts if one.metric == "cpu_s"]
    assert contrast.relative is not None
    interval = contrast.relative_interval
    assert interval is not None
    return contrast.relative, (interval.high - interval.low) / 2, found.caveats


def test_noise_that_meets_both_at_once_cancels_and_the_page_says_what_was_asked(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        change, narrow, caveats = measured(tmp_path, co_run=True, seed=seed)
        _, wide, alone = measured(tmp_path, co_run=False, seed=seed)
        assert change == pytest.approx(0.05, abs=0.002)
        assert narrow < wide / 5
        assert any("another question" in one for one in caveats)
        assert not any("another question" in one for one in alone)


def test_two_commands_really_run_at_once_on_one_processor(tmp_path: Path) -> None:
    spin = "import time; a = time.monotonic_ns(); sum(range(3_000_000)); print(a, time.monotonic_ns())"
    script = tmp_path / "spin.py"
    script.write_text(spin + "\nimport os; print(sorted(os.sched_getaffinity(0)))\n")
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    commands = [f"{sys.executable} {script} >> {log}" for log in logs]
    done = subprocess.run(
        [sys.executable, "-m", "pagelab", "compare", *commands, "--co-run", "-n", "6", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert CO_RUN in done.stdout
    assert found["metric"] == "cpu_s"
    lines = [log.read_text().splitlines() for log in logs]
    assert len({one for each in lines for one in each[1::2]}) == 1, "one processor"
    times = [[tuple(map(int, line.split())) for line in each[::2]] for each in lines]
    overlapping = sum(a[0] < b[1] and b[0] < a[1] for a, b in zip(*times, strict=True))
    assert overlapping >= 5, times


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("command", ["try", "compare"])
def test_a_command_for_some_seconds_at_once(tmp_path: Path, command: str) -> None:
    """Of the command line: the answer is of processor time, labelled, and the next command asks the same."""
    line = ["--co-run", "--minutes", "0.1", "--json"]
    tried = [
        *line,
        "--env",
        "A=1",
        "--env",
        "A=2",
        "--",
        *("/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"),
    ]
    compared = [
        "sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'",
        "sh -c 'i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done'",
        *line,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pagelab", command, *(tried if command == "try" else compared)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    if command == "try":
        assert found["metric"] == "cpu_s"
        assert found["metric_why"] == CO_RUN
        assert any(CO_RUN[1:] in caveat for caveat in found["caveats"])
        assert found["next"].startswith("pagelab report") or "--co-run" in found["next"]
        assert found["executions"] >= 6
        assert not [caveat for caveat in found["caveats"] if "had no processor" in caveat]
    else:
        assert found["metric"] == "cpu_s"
        assert found["metric_why"] == CO_RUN


def test_three_settings_at_once_are_refused(tmp_path: Path) -> None:
    words = ["try", "--co-run", "--env", "A=1", "--env", "A=2", "--env", "A=3", "--", "true"]
    done = subprocess.run(
        [sys.executable, "-m", "pagelab", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--co-run runs two settings at once, and these are 3; give it two" in done.stderr
