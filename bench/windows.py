"""Processor time of a window (``pagelab_begin``, ``pagelab_end``): without counters, with one, and with five."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pagelab import paths
from pagelab.runner import RunRequest, run

from .sample import Result, compare, interleave
from .tools import Bench, need

GOAL_US = 2.0
EVENTS: dict[str, tuple[str, ...]] = {
    "without counters": (),
    "one counter (page-faults)": ("page-faults",),
    "five counters (software events)": (
        "page-faults",
        "faults.minor",
        "faults.major",
        "context-switches",
        "cpu-migrations",
    ),
}
GUEST = Path(__file__).parent.parent / "tests" / "guests" / "api" / "windows.c"


def measure(bench: Bench) -> list[Result]:
    program = str(bench.scratch / "windows")
    include = [f"-I{paths.include()}", "-pthread"]
    subprocess.run([need("cc"), "-O2", *include, "-o", program, str(GUEST)], check=True)
    sides = {name: lambda events=events: _window_us(bench, program, events) for name, events in EVENTS.items()}
    samples = interleave({"nothing": lambda: 0.0, **sides}, bench.rounds)
    return [
        compare(
            f"µs of processor time a window: {name}",
            "µs",
            samples["nothing"],
            samples[name],
            kind="difference",
            goal=None if events else GOAL_US,
        )
        for name, events in EVENTS.items()
    ]


def _window_us(bench: Bench, program: str, events: tuple[str, ...]) -> float:
    """The mean of 20,000 empty windows, by the thread's clock."""
    out = bench.scratch / "windows.txt"
    run(RunRequest(argv=(program, "cost"), events=events, stdout=str(out), preload="always"))
    return float(out.read_text().split()[1]) / 1e3
