"""``python -m bench.aa``: real comparisons of a command with itself, on this machine as it is now.

Executions of one short command in complete blocks of two, in the order of pagelab's schedule, and then 10 blocks a
comparison: how often do pairs, and the rank sum that ignores them, find a difference that is not there; and how wide
are their intervals? Writes ``bench/results/aa.md`` and ``aa.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from pagelab.stats import Interval, blocks_pay, paired_ratio, pairs_of, rank_sum, relative_effect, signed_rank
from pagelab.study.schedule import schedule

RESULTS = Path(__file__).parent / "results"
LEVEL = 0.95
NUMBERS = 20_000


def execute(words: list[str]) -> tuple[float, float]:
    """Wall and processor time of one execution, in seconds."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        begin = time.monotonic()
        child = os.posix_spawnp(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
        _, status, usage = os.wait4(child, 0)
        wall = time.monotonic() - begin
    finally:
        os.close(null)
    if status:
        raise SystemExit(f"{words[0]} failed: status {status}")
    return wall, usage.ru_utime + usage.ru_stime


def judged(times: np.ndarray, blocks: int) -> dict[str, float]:
    """Shares of false alarms, and median half-widths in percent, for times of shape blocks × 2 (A, B)."""
    alarms, loose_alarms, widths, loose_widths, narrower = [], [], [], [], []
    for part in times.reshape(-1, blocks, 2):
        a, b = part.T
        labels = np.arange(blocks)
        pairs = pairs_of(b, a, treatment_blocks=labels, baseline_blocks=labels)
        ratio, loose = paired_ratio(pairs, level=LEVEL).interval, relative_effect(b, a, level=LEVEL).interval
        assert isinstance(ratio, Interval)
        assert isinstance(loose, Interval)
        alarms.append(signed_rank(pairs.apart()).p <= 1 - LEVEL)
        loose_alarms.append(rank_sum(b, a).p <= 1 - LEVEL)
        widths.append(ratio.half_width)
        loose_widths.append(loose.half_width)
        pay = blocks_pay(pairs)
        narrower += [pay.narrower] if pay else []
    return {
        "comparisons": len(alarms),
        "false_alarms": float(np.mean(alarms)),
        "false_alarms_unpaired": float(np.mean(loose_alarms)),
        "half_width_percent": float(np.median(widths)),
        "half_width_unpaired_percent": float(np.median(loose_widths)),
        "spread_of_pairs": float(np.median(narrower)) if narrower else float("nan"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.aa", description=__doc__)
    parser.add_argument("--comparisons", type=int, default=200)
    parser.add_argument("--blocks", type=int, default=10, help="pairs of each comparison")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    started, load = datetime.now(UTC), os.getloadavg()
    total = arguments.comparisons * arguments.blocks
    times = np.empty((total, 2, 2))
    with tempfile.TemporaryDirectory(prefix="pagelab-aa-") as scratch:
        numbers = Path(scratch) / "numbers"
        shuffled = np.random.default_rng(arguments.seed).permutation(NUMBERS)
        numbers.write_text("\n".join(map(str, shuffled)) + "\n")
        for slot in schedule(2, total, 0, arguments.seed):
            times[slot.block, slot.condition] = execute(["sort", "-n", str(numbers)])
    found = {name: judged(times[:, :, i], arguments.blocks) for i, name in enumerate(("wall", "processor"))}
    document = {
        "schema": "pagelab.bench.aa/1",
        "started_at": started.isoformat(),
        "load": [load, os.getloadavg()],
        "blocks": arguments.blocks,
        "found": found,
        "times_s": times.tolist(),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "aa.json").write_text(json.dumps(document) + "\n")
    (RESULTS / "aa.md").write_text(table(started, load[0], found, arguments.blocks))
    print(table(started, load[0], found, arguments.blocks))
    return 0


def table(started: datetime, load: float, found: dict[str, dict[str, float]], blocks: int) -> str:
    head = [
        f"# A command against itself, {started:%Y-%m-%d %H:%M} UTC",
        "",
        f"`sort -n` of {NUMBERS:,} numbers, {blocks} pairs a comparison; {os.cpu_count()} CPUs, load {load:.1f}.",
        "Run by `python -m bench.aa`. False alarms at 5%; in brackets without blocks.",
        "",
        "| time | comparisons | false alarms | median half-width | spread of pairs over that of any two |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, one in found.items():
        head.append(
            f"| {name} | {one['comparisons']} | {100 * one['false_alarms']:.1f}% "
            f"({100 * one['false_alarms_unpaired']:.1f}%) | {one['half_width_percent']:.1f}% "
            f"({one['half_width_unpaired_percent']:.1f}%) | {one['spread_of_pairs']:.2f} |"
        )
    return "\n".join([*head, ""])


if __name__ == "__main__":
    sys.exit(main())
