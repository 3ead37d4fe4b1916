"""Pairs of commands with a known difference of work."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..tools import need

SOURCE = Path(__file__).with_name("work.c")
KINDS = ("compute", "memory")
STEPS = {"compute": 60_000_000, "memory": 300_000}
"""Steps of the first command, by kind: about 50 ms on an idle machine."""
MEBIBYTES = 48
"""Memory of the memory-bound pair: more than the last-level cache (32 MiB) of the machine this was written on."""
_CALIBRATIONS = 25


@dataclass(frozen=True)
class Ran:
    """One execution: wall and processor time in seconds."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Work:
    """The work of the commands. ``steps_per_run`` steps take as long as the whole first command with its start.

    Start and first touches must count: otherwise 5% more steps would take less than 5% more time.
    """

    program: str
    steps_per_run: dict[str, float]

    def commands(self, kind: str, planted: float) -> tuple[list[str], list[str]]:
        """A, and B that takes 1 + ``planted`` times as long."""
        steps = STEPS[kind]
        more = round(planted * self.steps_per_run[kind])
        return self._command(kind, steps), self._command(kind, steps + more)

    def _command(self, kind: str, steps: int) -> list[str]:
        return [self.program, kind, str(steps), str(MEBIBYTES)]

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "steps": STEPS, "mebibytes": MEBIBYTES}


def compiled(directory: Path) -> str:
    path = directory / "work"
    subprocess.run([need("cc"), "-O2", "-o", str(path), str(SOURCE)], check=True)
    return str(path)


def calibrated(program: str) -> Work:
    """By processor time, which other programs stretch least; medians over interleaved executions."""
    found = {}
    for kind in KINDS:
        whole, more = [], []
        for _ in range(_CALIBRATIONS):
            once = execute([program, kind, str(STEPS[kind]), str(MEBIBYTES)]).cpu_s
            twice = execute([program, kind, str(2 * STEPS[kind]), str(MEBIBYTES)]).cpu_s
            whole.append(once)
            more.append((twice - once) / STEPS[kind])
        found[kind] = median(whole) / median(more)
    return Work(program, found)


def execute(words: list[str], cpu: int | None = None) -> Ran:
    """One execution from start to end, its output thrown away; raises SystemExit where it fails."""
    child, began = started(words, cpu)
    _, status, usage = os.wait4(child, 0)
    wall = time.monotonic() - began
    if status:
        raise SystemExit(f"{words[0]} failed: status {status}")
    return Ran(wall, usage.ru_utime + usage.ru_stime)


def started(words: list[str], cpu: int | None = None) -> tuple[int, float]:
    """Process id, and when it was started; on ``cpu`` alone if one is given."""
    null = os.open(os.devnull, os.O_RDWR)
    before = os.sched_getaffinity(0)
    try:
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
        began = time.monotonic()
        child = os.posix_spawnp(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
        return child, began
    finally:
        if cpu is not None:
            os.sched_setaffinity(0, before)
        os.close(null)
