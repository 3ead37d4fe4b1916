"""A runner that measures nothing, quickly: studies are tested without a launcher. Also a study to be killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pagelab.record import Record
from pagelab.study.control import resume_study, run_study
from pagelab.study.errors import StudyInterruptedError
from pagelab.study.plan import Condition
from pagelab.study.tools import Tools

TWO_BY_TWO = """\
name = "fake"
executions = 3
seed = 7
warmups = 1
baseline = "kernel"

[[workload]]
name = "a"
command = "true"

[[workload]]
name = "b"
command = "true"

[[policy]]
name = "kernel"

[[policy]]
name = "4K"
pages = "4K"
"""


def record(condition: Condition, *, wall_ns: int = 1_000_000, **changes: Any) -> Record:
    """A record of a run of ``condition``; ``changes`` replace whole top-level parts."""
    parts: dict[str, Any] = {
        "schema": "pagelab.record/1",
        "started_at": datetime.now(UTC).isoformat(),
        "command": {
            "argv": condition.request.argv,
            "cwd": condition.request.cwd,
            "executable": "/bin/true",
            "env": {},
            "env_bytes": 100,
        },
        "policy": {"name": condition.policy_name, "toml": condition.request.policy_toml, "path": None, "digest": "0"},
        "settings": {
            "cpus": [0],
            "aslr": None,
            "node": None,
            "uid": os.getuid(),
            "gid": os.getgid(),
            "timeout_s": condition.request.timeout_s,
            "preloaded": False,
            "flush": "none",
            "scheduler": "other",
        },
        "outcome": {"status": "ok", "exit_code": 0, "signal": None},
        "time": {"wall_ns": wall_ns, "user_ns": wall_ns // 2, "system_ns": wall_ns // 4},
        "peak_rss_bytes": 1 << 20,
        "faults": {"minor": 10, "major": 0},
        "counters": [],
        "processes": [],
        "placement": {"by_size": [], "whole_touched_tiles": 0, "tiles_as_asked": 0, "placed_fraction": None},
        "fetch": {},
        "measurements": [],
        "warnings": [],
    }
    return Record.model_validate({**parts, **changes})


class FakeRunner:
    """Calls ``behave`` for every run and remembers the order."""

    def __init__(self, behave: Callable[[Condition], Record] = record) -> None:
        self.behave = behave
        self.order: list[str] = []

    def run(self, condition: Condition, stderr: Path) -> Record:
        self.order.append(condition.name)
        stderr.write_text("")
        return self.behave(condition)


def _can_do(_condition: Condition) -> str | None:
    return None


def tools(
    behave: Callable[[Condition], Record] = record, check: Callable[[Condition], str | None] | None = None
) -> Tools:
    return Tools(FakeRunner(behave), check or _can_do, lambda: {"machine": {}, "provenance": {}})


def spec_in(directory: Path, text: str = TWO_BY_TWO) -> Path:
    path = directory / "s.toml"
    path.write_text(text)
    return path


def interrupted(tmp_path: Path, text: str = TWO_BY_TWO, after: int = 5) -> Path:
    """A study stopped by Ctrl-C after some runs."""
    left = after

    def behave(condition: Condition) -> Record:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return record(condition)

    with pytest.raises(
        StudyInterruptedError,
        match=rf"stopped by SIGINT; {after - 1} runs are kept; continue with: pagelab study resume",
    ):
        run_study(spec_in(tmp_path, text), tmp_path / "out", tools(behave))
    return tmp_path / "out"


def main() -> None:
    """``fakes.py run SPEC DIR LOG`` / ``fakes.py resume DIR LOG``: a session that logs every run it finishes."""

    def behave(condition: Condition) -> Record:
        time.sleep(float(os.environ.get("FAKE_RUN_S", "0.003")))
        if int(os.environ.get("FAKE_RUNS_UNTIL_KILLED", "0")) == len(fake.runner.order):
            os.kill(os.getpid(), signal.SIGKILL)
        return record(condition)

    fake = tools(behave)
    assert isinstance(fake.runner, FakeRunner)
    if sys.argv[1] == "run":
        run_study(Path(sys.argv[2]), Path(sys.argv[3]), fake)
    else:
        resume_study(Path(sys.argv[2]), fake)


if __name__ == "__main__":
    main()
