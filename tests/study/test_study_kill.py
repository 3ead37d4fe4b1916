"""kill -9 at random moments: no run is lost but the one in progress, none is doubled, and the order stays."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from fakes import TWO_BY_TWO

from pagelab.study.lock import holder_of
from pagelab.study.schedule import schedule
from pagelab.study.store import Store

FAKES = Path(__file__).parent / "fakes.py"
KILLS = 12
BLOCKS = 300
"""More than the moments before all kills suffice for, on a fast machine as well."""


def test_killed_at_random_moments_a_study_still_completes(tmp_path: Path) -> None:
    spec, out = tmp_path / "s.toml", tmp_path / "out"
    spec.write_text(TWO_BY_TWO.replace("executions = 3", f"executions = {BLOCKS}"))
    moments = random.Random(20260101)
    before: list[tuple[int, str]] = []
    kills = 0
    for _ in range(KILLS):
        if _session(spec, out, kill_after_s=moments.uniform(0.0, 0.35)):
            kills += 1
        rows = _runs(out)
        assert rows[: len(before)] == before, "what was committed stays as it was"
        assert holder_of(out) is None, "the lock dies with its holder"
        before = rows
    while not _complete(out):
        _session(spec, out, kill_after_s=None)
    assert kills >= KILLS // 2, "most sessions must have been killed at work for this to test anything"
    with Store.open(out, write=False) as store:
        assert store.rows("PRAGMA integrity_check") == [("ok",)]
        expected = schedule(4, BLOCKS, 1, 7)
        assert store.slots() == expected
        rows = store.rows("SELECT position, condition, execution FROM run ORDER BY position")
        assert rows == [(slot.position, slot.condition, slot.execution) for slot in expected]
        repeated = store.rows("SELECT position FROM attempt WHERE outcome = 'interrupted' ORDER BY id")
        told = [w.data["position"] for w in store.study_warnings() if w.kind == "run-interrupted"]
        assert told == [row[0] for row in repeated]
        finished = store.rows("SELECT count(*) FROM attempt WHERE outcome = 'finished'")
        assert finished == [(len(expected),)]


def test_what_a_killed_session_set_up_is_torn_down_by_the_next(tmp_path: Path) -> None:
    """As with `mkdir` in a set-up: left as it was, the repeated run could not be set up again."""
    spec, out = tmp_path / "s.toml", tmp_path / "out"
    policy = '[[policy]]\nname = "4K"\nsetup = "mkdir work"\nteardown = "rmdir work"\n'
    kernel = policy.replace("4K", "kernel")
    workloads = TWO_BY_TWO.split("[[policy]]")[0]
    spec.write_text('setup = "mkdir session"\nteardown = "rmdir session"\n' + workloads + kernel + policy)
    command = [sys.executable, FAKES, "run", spec, out]
    killed = subprocess.run(command, env={**os.environ, "FAKE_RUNS_UNTIL_KILLED": "5"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "work").exists()
    assert (tmp_path / "session").exists()
    subprocess.run([sys.executable, FAKES, "resume", out], check=True)
    assert not (tmp_path / "work").exists()
    assert not (tmp_path / "session").exists()
    with Store.open(out, write=False) as store:
        assert store.rows("SELECT status, count(*) FROM run GROUP BY status") == [("ok", 16)]
        assert store.rows("SELECT count(*) FROM step WHERE message IS NOT NULL") == [(0,)]


def _session(spec: Path, out: Path, kill_after_s: float | None) -> bool:
    """One session; whether it was killed while it worked (imports done, store there)."""
    arguments = ["resume", out] if (out / "study.db").exists() else ["run", spec, out]
    process = subprocess.Popen([sys.executable, FAKES, *arguments], env={**os.environ, "FAKE_RUN_S": "0.002"})
    if kill_after_s is None:
        assert process.wait(120) == 0
        return False
    while process.poll() is None and holder_of(out) is None:  # out of the interpreter's start
        time.sleep(0.005)
    time.sleep(kill_after_s)
    killed = process.poll() is None
    process.kill()
    process.wait()
    return killed


def _runs(out: Path) -> list[tuple[int, str]]:
    if not (out / "study.db").exists():
        return []
    connection = sqlite3.connect(out / "study.db")
    rows = connection.execute("SELECT position, record_json FROM run ORDER BY position").fetchall()
    connection.close()
    assert [row[0] for row in rows] == list(range(len(rows))), "no gap: at most the run in progress was lost"
    return rows


def _complete(out: Path) -> bool:
    return len(_runs(out)) == 4 * (BLOCKS + 1)
