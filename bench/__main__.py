"""``make bench``: measures, prints one line a comparison with its goal, writes ``bench/results``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from pagelab import machine

from . import caches, frames, mapping, models, overhead, reports, simulate_paging, startup, trace, windows
from .power import document as power
from .sample import Result
from .tools import Bench

RESULTS = Path(__file__).parent / "results"
PARTS: dict[str, Callable[[Bench], Iterable[Result]]] = {
    "startup": startup.measure,
    "mapping": mapping.measure,
    "overhead": overhead.measure,
    "windows": windows.measure,
    "frames": frames.measure,
    "trace": trace.measure,
    "paging": simulate_paging.measure,
    "policies": simulate_paging.policies,
    "caches": caches.measure,
    "models": models.measure,
    "reports": reports.measure,
}
THREADS = (
    "Rows of one thread over two compare real time, which needs a machine without other load. In their last\n"
    "column: what is lost to work done twice, as processor time; and what this machine gives two works of one thread\n"
    "each that run side by side and share nothing (2.00: two whole processors).\n"
)
NOTES = {
    "frames": "Rows of one thread (but those without a pause) run on one processor in real time, so that what else\n"
    "the machine does hardly counts. Floors are the same system calls without an engine.\n",
    "paging": THREADS,
    "caches": THREADS,
    "models": "Errors are maximal ones on the published points of GUPS in 25 layouts on each of two machines, judged\n"
    "on layouts that were left out; the layouts of most and of least walk cycles are taken for 4K and 2M. The goal is\n"
    "what others found on the same points (of gp: what is aimed at). The points have R and C alone, so that basu,\n"
    "gandhi, pham and mosmodel, which need H or M, have no row. Times are processor time, which other programs hardly\n"
    "change.\n",
}
"""The text of such a file."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", choices=sorted([*PARTS, "power"]), action="append", help="just this part")
    parser.add_argument("--rounds", type=int, default=15, help="pairs of each comparison (6 give the first interval)")
    power.add_arguments(parser)
    arguments = parser.parse_args()
    if "power" in (arguments.only or ()):
        if arguments.only != ["power"]:
            parser.error("power takes hours, and runs alone")
        return power.measure(arguments, RESULTS)
    started, load = datetime.now(UTC), os.getloadavg()
    files: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory(prefix="pagelab-bench-") as scratch:
        Path(scratch).chmod(0o755)
        bench = Bench(Path(scratch), arguments.rounds)
        for part in arguments.only or PARTS:
            results = files.setdefault(part, [])
            for result in PARTS[part](bench):
                results.append(result)
                print(_row(result), flush=True)
    for name, results in files.items():
        _write(name, started, load, results)
    results = [result for several in files.values() for result in several]
    missed = [result for result in results if result.met is False]
    print(f"\n{len(results)} comparisons, {len(missed)} beyond their goal; written to {RESULTS}")
    return 0


def _row(result: Result) -> str:
    goal = "" if result.goal is None else f"{'≥ ' if result.at_least else ''}{result.goal:g}"
    spread = "" if result.low is None or result.high is None else f"{result.low:.3f} … {result.high:.3f}"
    verdict = {None: "", True: "met", False: "**missed**"}[result.met]
    if result.clear is False:
        verdict += " (interval spans it)"
    baseline = "" if result.baseline is None else f"{result.baseline:.4g} {result.unit}"
    note = f"{verdict}; {result.note}" if verdict and result.note else verdict or result.note
    return (
        f"| {result.name} | {baseline} | {result.treatment:.4g} {result.unit} "
        f"| {result.median:.3f} | {spread} | {goal} | {note} |"
    )


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _table(name: str, started: datetime, load: tuple[float, float, float], results: list[Result]) -> str:
    head = [
        f"# Benchmarks, {started:%Y-%m-%d %H:%M} UTC",
        "",
        f"{_processor()}, {os.cpu_count()} CPUs, Linux {platform.release().split('-')[0]}; load before {load[0]:.1f}.",
        "Medians of interleaved pairs; the interval is the exact order-statistic interval (95%) of the paired",
        "ratios (or differences, for ms; or of the figure itself). Run by `make bench`.",
        NOTES.get(name, ""),
        "| comparison | baseline | treatment | ratio, difference or figure | 95% interval | goal | |",
        "|---|---:|---:|---:|---|---:|---|",
    ]
    return "\n".join([*head, *map(_row, results), ""])


def _write(name: str, started: datetime, load: tuple[float, float, float], results: list[Result]) -> None:
    RESULTS.mkdir(exist_ok=True)
    document = {
        "schema": "pagelab.bench/1",
        "started_at": started.isoformat(),
        "machine": machine.describe(),
        "provenance": machine.provenance(),
        "results": [result.document() for result in results],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1, default=str) + "\n")
    (RESULTS / f"{name}.md").write_text(_table(name, started, load, results))


if __name__ == "__main__":
    sys.exit(main())
