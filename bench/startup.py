"""Milliseconds between spawn and main: natively, through launcher and library, and through the Python command.

Of the Python command also the whole run, with its summary.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pagelab import machine, paths

from .sample import Result, compare, interleave
from .tools import ALL_2M, KERNEL, Bench

GOAL_MS = 30.0
PYTHON_GOAL_MS = 60.0


def measure(bench: Bench) -> list[Result]:
    program = bench.compiled("at_main")
    described = machine.describe()
    sides: dict[str, Callable[[], float]] = {"native": lambda: _until_main([program])}
    for name, toml, events in (
        ("launcher and library, policy kernel", KERNEL, []),
        ("launcher and library, policy 2M", ALL_2M, []),
        ("launcher and library, policy 2M, event set tlb", ALL_2M, ["tlb"]),
    ):
        request = _request_file(bench.scratch, program, toml, events, described)
        sides[name] = lambda request=request: _until_main([str(paths.launcher()), str(request)])
    command = [sys.executable, "-m", "pagelab", "run", "--pages", "2M", "--", program]
    sides["pagelab run --pages 2M"] = lambda: _until_main(command)
    alone = _request_file(bench.scratch, "true", KERNEL, [], described)
    sides["launcher, whole run of true"] = lambda: _whole([str(paths.launcher()), str(alone)])
    sides["pagelab run true"] = lambda: _whole([sys.executable, "-m", "pagelab", "run", "true"])
    samples = interleave(sides, bench.rounds)
    results = [
        compare(
            f"ms added before main: {name}", "ms", samples["native"], samples[name], kind="difference", goal=GOAL_MS
        )
        for name in sides
        if name.startswith("launcher")
    ]
    launched, python = samples["launcher and library, policy 2M"], samples["pagelab run --pages 2M"]
    title = "ms added before main by Python's own start: pagelab run --pages 2M"
    results.append(compare(title, "ms", launched, python, kind="difference", goal=PYTHON_GOAL_MS))
    title = "ms added to the whole run by Python, summary included: pagelab run true"
    launched, python = samples["launcher, whole run of true"], samples["pagelab run true"]
    results.append(compare(title, "ms", launched, python, kind="difference", goal=PYTHON_GOAL_MS))
    return results


def _whole(argv: list[str]) -> float:
    """Milliseconds from spawning a command to its end."""
    begin = time.monotonic_ns()
    subprocess.run(argv, capture_output=True, check=True)
    return (time.monotonic_ns() - begin) / 1e6


def _request_file(scratch: Path, program: str, toml: str, events: list[str], described: dict[str, Any]) -> Path:
    number = len(list(scratch.glob("request-*.json")))
    path = scratch / f"request-{number}.json"
    document = {
        "schema": "pagelab.request/1",
        "argv": [program],
        "policy_toml": toml,
        "machine": described,
        "library": str(paths.library()),
        "preload": "always",
        "events": events,
        "record": str(scratch / f"record-{number}.json"),
    }
    path.write_text(json.dumps(document))
    return path


def _until_main(argv: list[str]) -> float:
    """The program prints the clock as its first act; ours is read just before spawning."""
    begin = time.monotonic_ns()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    stamps = [line for line in done.stdout.splitlines() if line.isdigit() and len(line) > 9]
    if done.returncode != 0 or not stamps:
        raise SystemExit(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return (int(stamps[0]) - begin) / 1e6
