"""``bench/results/power.md``: the campaign so far, with the machine's load."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles

from pagelab.machine.provenance import provenance

from . import campaign
from .campaign import Row
from .summary import READ, table, verdicts
from .tools import BY_NAME, CO_RUN, TOOLS

FILE = "power.jsonl"
HOW = {
    "hyperfine": "`hyperfine --runs N 'A' 'B'`, all of A and then all of B, through its shell, times corrected for it. "
    "It prints mean ± σ; the interval and the decision are of Welch's t-test on the times that it exports, as its "
    "`scripts/welch_ttest.py` does.",
    READ: "whether the printed ratio is further from 1 than the ± beside it, as a reader takes it.",
    "pyperf": "`pyperf command -p N` of A, then of B, three values a process after one that is thrown away, loops as "
    "calibrated; the decision is that of `pyperf compare_to` (Student's t-test), the interval is of the same test.",
    "duet": "duet's scheme (Bulej et al., ICPE 2020) for processes, written here as there is no package: both at once, "
    "a processor each, which they change with every pair; geometric mean of the ratios, percentile bootstrap.",
    "perfgate": "`perfgate paired --repeat N`: A, B, A, B ..., times in whole milliseconds; mean difference with the "
    "interval and the decision of its own t-test, both in percent of A's mean.",
    "pagelab": "`pagelab compare --minutes M 'A' 'B'`: blocks of A and B in random order, Hodges–Lehmann estimate of "
    "the pairs' log ratios, test of signed ranks. It compares processor time where a first execution of each did "
    "nothing but work and wait for a processor, and else wall time; all other tools compare wall time. Where not even "
    "six pairs fit, it says so and gives no answer, which counts as a miss.",
    CO_RUN: "`pagelab compare --co-run --executions N 'A' 'B'`: both of a pair at once on one processor, processor "
    "time. Another question: each works in caches that the other uses, too.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("of --only power, which nothing else runs")
    group.add_argument("--seconds", type=float, default=15, help="for each tool and pair of commands (default: 15)")
    group.add_argument("--repetitions", type=int, default=50, help="0: only the summary of what there is (default: 50)")
    group.add_argument(
        "--tools",
        type=_tools,
        default=tuple(BY_NAME),
        metavar="NAME,NAME",
        help=f"ask only these, to have more repetitions in the same time (default: {','.join(BY_NAME)})",
    )
    group.add_argument("--for-minutes", type=float, help="end earlier; the next one goes on")


def _tools(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise argparse.ArgumentTypeError(f"no tool {unknown[0]!r}; there are {', '.join(BY_NAME)}")
    return names


def measure(arguments: argparse.Namespace, results: Path) -> int:
    """Continues the campaign in ``results`` and writes its present state."""
    file, seconds = results / FILE, arguments.seconds
    until = None if arguments.for_minutes is None else time.monotonic() + 60 * arguments.for_minutes
    try:
        if arguments.repetitions:
            with tempfile.TemporaryDirectory(prefix="pagelab-power-") as scratch:
                campaign.run(file, Path(scratch), seconds, arguments.repetitions, 1, until, arguments.tools)
    finally:
        rows = campaign.rows_of(file, seconds)
        if rows:
            (results / "power.md").write_text(document(rows, campaign.begun(file) or {}))
            print(f"\n{len(rows)} answers in {file}; summary in {results / 'power.md'}")
            print("\n".join(verdicts(rows)))
    return 0


def document(rows: Sequence[Row], begun: dict[str, object]) -> str:
    seconds = rows[0].seconds
    versions = begun.get("versions")
    named = ", ".join(f"{name} {number}" for name, number in versions.items()) if isinstance(versions, dict) else ""
    failed = [row for row in rows if row.answer is None]
    repetitions = len({row.place.repetition for row in rows})
    lines = [
        f"# Comparing two commands in {seconds:g} s, {rows[0].at[:16].replace('T', ' ')} to "
        f"{rows[-1].at[:16].replace('T', ' ')} UTC",
        "",
        f"{provenance()['cpu']['model_name']}, {os.cpu_count()} CPUs, Linux {platform.release().split('-')[0]}; "
        f"{named}.",
        _load(rows),
        "",
        f"{repetitions} repetitions, {len(rows)} answers. Each asks every tool about every pair, in random order, so "
        f"that all see the same minutes; each tool has {seconds:g} s in all, its own start and end included (the last "
        "column says what it took). `compute` is a chain of multiplications, `memory` a chain of updates at random "
        "places of 48 MiB; each command runs 60 to 80 ms where nothing else does. Half-widths and estimates are "
        "medians, in percent of A; in brackets the exact 95% interval of a share. Run by `python -m bench --only "
        "power`.",
        "",
        *(f"- {line}" for line in verdicts(rows)),
        *table(rows),
    ]
    if failed:
        # (Where this Python lies says nothing to others.)
        first = (failed[0].error or "").splitlines()[-1].replace(f"{Path(sys.executable).parent}/", "")
        lines += [f"{len(failed)} questions had no answer, the first of them {failed[0].place.tool}'s: {first}", ""]
    lines += ["## What each tool does", ""]
    asked = {row.place.tool for row in rows}
    names = [tool.name for tool in TOOLS if tool.name in asked]
    if TOOLS[0].name in asked:
        names.insert(1, READ)
    lines += [f"- **{name}**: {HOW[name]}" for name in names]
    return "\n".join([*lines, ""])


def _load(rows: Sequence[Row]) -> str:
    """The load by other programs."""
    loads = sorted(row.load[0] for row in rows)
    others = sorted(row.others for row in rows)
    if len(rows) < 4:
        return f"Load {median(loads):.1f}."
    low, middle, high = quantiles(others, n=4)
    first, second, third = quantiles(loads, n=4)
    return (
        f"Other programs took {middle:.0%} of all processors' time while a tool ran (median; quartiles {low:.0%} and "
        f"{high:.0%}); load before {second:.1f} ({first:.1f} and {third:.1f})."
    )
