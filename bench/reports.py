"""Import and report of 8 million measurements: seconds, memory, and the size of the page."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from .sample import Result, absolute
from .tools import Bench

EXECUTIONS, MEASUREMENTS = 40, 100_000
"""Number of executions of each of two conditions, and of measurements in each execution."""
GOAL_S, GOAL_MIB, GOAL_PAGE_MB = 60.0, 2048.0, 5.0


def measure(bench: Bench) -> Iterator[Result]:
    times = bench.scratch / "times.csv"
    _write(times)
    studies = [bench.scratch / f"{number}.study" for number in range(min(bench.rounds, 3))]
    imported = [_run(["import", str(times), "--into", str(study)]) for study in studies]
    reported = [_run(["report", str(study)]) for study in studies]
    pages = [(study / "report" / "index.html").stat().st_size / 1e6 for study in studies]
    yield absolute("report of 8 million measurements", "s", [seconds for seconds, _ in reported], goal=GOAL_S)
    yield absolute("… its peak memory", "MiB", [mib for _, mib in reported], goal=GOAL_MIB)
    yield absolute("… its page", "MB", pages, goal=GOAL_PAGE_MB)
    yield absolute("import of the same from a CSV of 165 MB", "s", [seconds for seconds, _ in imported])
    yield absolute("… its peak memory", "MiB", [mib for _, mib in imported])


def _write(path: Path) -> None:
    """Executions differ by 2%, measurements within by 10%; the second condition is 3% faster."""
    draw = random.Random(1)
    with path.open("w") as file:
        file.write("policy,execution,measurement,time\n")
        for policy, factor in (("4K", 1.0), ("2M", 0.97)):
            for execution in range(EXECUTIONS):
                mean = factor * draw.gauss(1.0, 0.02)
                for number in range(MEASUREMENTS):
                    file.write(f"{policy},{execution},{number},{mean * draw.lognormvariate(0, 0.1):.6f}\n")


def _run(arguments: list[str]) -> tuple[float, float]:
    """Seconds, and peak memory of the process in MiB."""
    begin = time.monotonic()
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "pagelab", *arguments],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, used = os.wait4(child, 0)
    if status != 0:
        raise SystemExit(f"bench: pagelab {arguments[0]} ended with status {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - begin, used.ru_maxrss / 1024
