"""What the disk and the console of the emulated machine must show after the study: read from outside."""

from __future__ import annotations

import re
import sqlite3
import sys
from pathlib import Path

from pagelab.study.schedule import boots, schedule

CONDITIONS, EXECUTIONS, WARMUPS, SEED = 3, 3, 1, 15
ALLOWED = re.compile(
    r"systemd-(journald|udevd|fsckd|initctl)[a-z-]*\.(service|socket)|pagelab-study\.service|(serial-)?getty@.*\.service"
)
"""Beside the study: the system manager's own, and logins on the console."""


def check_failing(work: Path) -> None:
    """Three boots tried it, each ended by its error; then the machine was left alone."""
    store = sqlite3.connect(work / "srv/fresh.study/study.db")
    sessions = store.execute("SELECT boot_id, reason FROM session").fetchall()
    assert [reason for _, reason in sessions] == ["error"] * 3, sessions
    assert len({name for name, _ in sessions}) == 3
    assert store.execute("SELECT count(*) FROM run").fetchone() == (0,)
    why = store.execute("SELECT value FROM meta WHERE key = 'reboots_stopped'").fetchone()[0]
    assert "3 boots in a row" in why, why
    assert "the disk is not there" in why, why
    usual = said(work).split("=== usual")[1].split("=== end")[0]
    assert "pagelab-study" not in usual, usual
    assert "stopped: 3 boots in a row" in usual, usual
    print(f"stopped: {why!r}")


def said(work: Path) -> str:
    return (work / "console.log").read_text(errors="replace").replace("\r", "")


def check(work: Path) -> None:
    """Every planned run once, each execution in a boot of its own, whatever was killed."""
    console = said(work)
    store = sqlite3.connect(work / "srv/fresh.study/study.db")
    assert store.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    expected = schedule(CONDITIONS, EXECUTIONS, WARMUPS, SEED, boot="execution")
    rows = store.execute("SELECT position, condition, execution, status, boot_id FROM run ORDER BY position").fetchall()
    assert [row[:3] for row in rows] == [(slot.position, slot.condition, slot.execution) for slot in expected]
    assert {row[3] for row in rows} == {"ok"}
    boot_of = {row[0]: row[4] for row in rows}
    own = [{boot_of[slot.position] for slot in boot} for boot in boots(expected, "execution")]
    assert all(len(names) == 1 for names in own), "a warm-up is in another boot than its execution"
    assert len(set.union(*own)) == CONDITIONS * EXECUTIONS, "two executions share a boot"

    killed = store.execute("SELECT count(*) FROM session WHERE reason = 'killed'").fetchone()[0]
    outcomes = dict(store.execute("SELECT outcome, count(*) FROM attempt GROUP BY outcome").fetchall())
    assert outcomes["finished"] == len(expected)
    assert console.count("=== killed") == 2
    assert killed >= 1, "no session was killed at work"
    assert outcomes.get("interrupted", 0) >= 1, "no execution was killed"
    started = console.count("=== execution")
    assert started - len(expected) <= outcomes.get("interrupted", 0) + outcomes.get("repeated", 0)

    beside = (work / "srv/beside").read_text().splitlines()
    for line in beside:
        units = [word for word in line.split() if "." in word]
        foreign = [unit for unit in units if not ALLOWED.fullmatch(unit)]
        assert not foreign, f"beside the study: {foreign}"
        up = [flags for flags in line.split() if flags.startswith("0x") and int(flags, 16) & 1]
        assert len(up) <= 1, f"interfaces that are up, the loopback among them: {up}"
    usual = console.split("=== usual")[1].split("=== end")[0]
    assert "pagelab-study" not in usual, usual
    assert "default.target" not in usual.split("/etc/systemd/system")[1], "the default target was changed"
    assert "graphical.target" in usual.split("/etc")[0], usual
    assert "complete" in usual, usual
    names = sorted({word for line in beside for word in line.split() if "." in word})
    print(f"{len(rows)} runs, each once, in {CONDITIONS * EXECUTIONS} boots of their own")
    print(f"{len(beside)} sessions, {killed} of them killed; attempts: {outcomes}; beside the study: {names}")


if __name__ == "__main__":
    try:
        (check_failing if sys.argv[2:] == ["failing"] else check)(Path(sys.argv[1]))
    except (AssertionError, IndexError) as error:
        print(f"not as expected: {error!r}")
        sys.exit(1)
