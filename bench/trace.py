"""Cost of capturing a trace: processor time in all, against the program's own."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from .sample import Result, compare, interleave
from .tools import Bench, need

GOAL = 100.0
"""For page runs; the other figures have no goal."""

CAPTURES: dict[str, Sequence[str]] = {
    "page runs": (),
    "every reference": ("--full",),
    "every reference with fetches": ("--full", "--fetches"),
}
ROUNDS = 6
"""Captures take seconds each."""


def measure(bench: Bench) -> list[Result]:
    rounds = min(bench.rounds, ROUNDS)
    results = []
    for name, command in _programs(bench).items():
        target = bench.scratch / "bench.trace"
        # A side that is a default argument is bound now, not when the loop has ended.
        sides: dict[str, Callable[[], float]] = {"native": lambda command=command: _cpu_s(command)}
        emulator = [need("qemu-x86_64"), "-cpu", "max", need(command[0]), *command[1:]]
        sides["QEMU without the plugin"] = lambda emulator=emulator: _cpu_s(emulator)
        for label, options in CAPTURES.items():
            capture = [sys.executable, "-m", "pagelab", "trace", "--force", "-o", str(target), *options, "--", *command]
            sides[label] = lambda capture=capture: _cpu_s(capture)
        samples = interleave(sides, rounds)
        for label in list(sides)[1:]:
            goal = GOAL if label == "page runs" else None
            title = f"CPU time, {name}: {label}"
            results.append(compare(title, "s", samples["native"], samples[label], goal=goal))
    return results


def _programs(bench: Bench) -> dict[str, list[str]]:
    """Programs that run for about 0.05 s by themselves: a sort, and a matrix product, the worst case for runs."""
    lines = bench.scratch / "lines"
    if not lines.exists():
        order = random.Random(1)
        lines.write_text("".join(f"{order.random()}\n" for _ in range(200_000)))
    return {
        "sort of 200,000 lines": ["sort", "-o", "/dev/null", str(lines)],
        "matrix product 400 × 400": [bench.compiled("matrix", "-fno-tree-vectorize"), "400"],
    }


def _cpu_s(command: Sequence[str]) -> float:
    """Processor seconds of a command and everything it started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "LC_ALL": "C"}, cwd=Path("/"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
