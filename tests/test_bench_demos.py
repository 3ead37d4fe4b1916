"""``bench/demos.py``: a change that the other demos do not show is counted as false."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from bench import demos

SHARE = {"quick": -0.10, "same": 0.0}


def _written(directory: Path, seed: int, claimed: set[str]) -> None:
    """A finished demo of forty blocks: what it measured is planted, what it says it found is given."""
    random, executions, contrasts = Random(seed), [], []
    for program, share in SHARE.items():
        for block in range(40):
            level = random.lognormvariate(0, 0.3)
            for policy, factor in (("kernel", 1.0), ("2M", 1 + share)):
                seconds = level * factor * random.lognormvariate(0, 0.02)
                executions.append(
                    {
                        "analysed": True,
                        "workload": program,
                        "policy": policy,
                        "block": block,
                        "values": {"cpu_s": seconds},
                    }
                )
        contrasts.append(
            {
                "planned": True,
                "workload": program,
                "policy": "2M",
                "baseline": "kernel",
                "metric": "cpu_s",
                "relative": share - 0.01,
                "relative_interval": {"low": share - 0.03, "high": share + 0.01},
                "verdict": "lower" if program in claimed else "no-difference",
            }
        )
    report = directory / "out" / "report"
    report.mkdir(parents=True)
    report.joinpath("analysis.json").write_text(json.dumps({"executions": executions, "contrasts": contrasts}))
    session: dict[str, Any] = {"began": "2026-01-01T00:00:00+00:00", "took_s": 300, "load": [0, 1], "code": 0}
    directory.joinpath("session.json").write_text(json.dumps(session))


def test_a_change_that_the_others_do_not_show_is_false(tmp_path: Path) -> None:
    claims = [{"quick"}, {"quick", "same"}, {"quick"}, set[str]()]
    for number, claimed in enumerate(claims, 1):
        _written(tmp_path / f"{number:02}", number, claimed)
    found = [demos.found_by(tmp_path / f"{number:02}") for number in range(1, 5)]
    answers = [demos.answered(found, nth) for nth in range(4)]
    assert [(one.true, one.false) for one in answers] == [(1, 0), (1, 1), (1, 0), (0, 0)]
    assert all(abs(one.widest - 2) < 1e-9 and abs(one.median - 2) < 1e-9 for one in answers)
    # All goals but the five changes: one false in four is more than two in ten.
    assert [line.count("**missed**") for line in demos.verdicts(answers)] == [0, 0, 1, 1]
    # Beside other programs the goal is of the half-widths alone, and wider.
    beside = demos.verdicts([replace(one, median=7.0) for one in answers], beside=True)
    assert [line.count("goal") for line in beside] == [1, 0, 0, 0]
    assert "≤ 8 in 4 of 4 (goal: all: met)" in beside[0]


def test_the_summary_of_finished_demos_is_written_without_another_run(tmp_path: Path) -> None:
    for number in range(1, 4):
        _written(tmp_path / f"{number:02}", number, {"quick"})
    found = [demos.found_by(tmp_path / f"{number:02}") for number in range(1, 4)]
    sessions = [demos.Session("2026-01-01T00:00:00+00:00", 300, (0.0, 1.0), 0)] * 3
    text = demos.document(sessions, found, "")
    row = next(line for line in text.splitlines() if line.startswith("| quick: 2M against kernel"))
    assert "| 120 |" in row
    assert row.endswith("| 3 of 3 |")
    assert "a false change in 0 of 3" in text
