"""A boot of ``kernel/effect``: its windows, as lines that a study measures by.

``python3 -m kernel.windows LOG WINDOWS SEED``; exit code 1 if the boot went wrong.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel.check import kernel_troubles
from tests.harness.emulated import parts

#: Processes of a boot (guest/effect.c), a window each.
PROCESSES = 4


@dataclass(frozen=True)
class Window:
    """One process of the guest, and what its window counted. ``under``: seed and placement, if several."""

    under: tuple[str, str] | None
    placed: int
    fallen: int
    most: int
    counted: dict[str, Any]


def windows_of(console: str, lines: str) -> list[Window]:
    """The windows in the order of the boot; [] if guest and emulator report different windows."""
    found, codes = parts(console)
    counted = [json.loads(line) for line in lines.splitlines()]
    under, placed = None, []
    for line in found.get("effect", "").splitlines():
        if told := re.fullmatch(r"seed (\d+) (\S+)", line):
            under = (told[1], told[2])
        elif told := re.fullmatch(r"placed (\d+) fallen (\d+) most-of-a-color (\d+)", line):
            placed.append((under, *map(int, told.groups())))
    if codes.get("effect") != 0 or len(placed) != len(counted) or not placed or len(placed) % PROCESSES:
        return []
    return [Window(*one, counted=window) for one, window in zip(placed, counted, strict=True)]


def table(windows: list[Window]) -> Iterator[str]:
    """Of a boot with several seeds: misses by placement, over the means of the seeds' processes."""
    by_placement: dict[str, dict[str, list[Window]]] = {}
    for window in windows:
        seed, placement = window.under or ("", "")
        by_placement.setdefault(placement, {}).setdefault(seed, []).append(window)
    for placement, seeds in by_placement.items():
        means = [statistics.mean(one.counted["memory_reads"] for one in each) for each in seeds.values()]
        every = [one for each in seeds.values() for one in each]
        spread = statistics.stdev(means) if len(means) > 1 else 0.0
        yield (
            f"{placement}: {len(means)} seeds: misses {min(means):.0f} to {max(means):.0f}, "
            f"mean {statistics.mean(means):.0f}, standard deviation {spread:.0f}; "
            f"{sum(one.placed for one in every)} pages placed, {sum(one.fallen for one in every)} fell back, "
            f"at most {max(one.most for one in every)} of a color"
        )


def main() -> int:
    log, counted, seed = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    console = log.read_text(errors="replace").replace("\r", "")
    windows = windows_of(console, counted.read_text() if counted.exists() else "")
    troubles = kernel_troubles(console)
    if troubles or not windows:
        print(console, *troubles, sep="\n", file=sys.stderr)
        print(f"kernel/effect: seed {seed}: the boot failed", file=sys.stderr)
        return 1
    if windows[0].under:
        print(*table(windows), sep="\n")
        return 0
    print(f"seed {seed}")
    for window in windows:
        first = window.counted["levels"][0]
        print(f"misses: {window.counted['memory_reads']} lines")
        print(f"accesses {first['loads'] + first['stores']}")
        print(f"placed {window.placed}, fallen back {window.fallen}, most pages of a color {window.most}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
