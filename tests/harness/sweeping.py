"""Input of sweep tests: two small traces, small hardware, and a file with every kind of table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagelab import trace
from pagelab.simulate.placements import History

SMALL = """
name = "small"
[cache]
level = [{ name = "L1", size = "4K", ways = 4, cycles = 4 }, { name = "L2", size = "64K", ways = 2, cycles = 10 }]
[tlb]
first = [{ name = "L1", pages = ["4K"], entries = 8, ways = 4 }, { name = "L1 2M", pages = ["2M"], entries = 2 }]
"""
ALL = """
traces = ["*.trace"]
seeds = 2
seeds_per_task = 1

[[paging]]
colors = "1,2"
memory = ["16K", "64K"]
policies = ["lru", "random"]

[[cache]]
hierarchy = "small.toml"
frames = ["kernel", "random"]
memory = "64M"

[[tlb]]
processor = "small.toml"
pages = ["4K", "2M"]
"""
"""A trace has 3 tasks of paging (one draws nothing), 4 of caches and 2 of TLBs."""
HISTORY = History(memory_bytes=64 << 20)


def references(seed: int, count: int = 20_000) -> NDArray[np.uint64]:
    """Over 1 MiB, near the last one more often than not."""
    steps = np.random.default_rng(seed).integers(-2048, 2049, count)
    return (0x7F00_0000_0000 + np.abs(np.cumsum(steps)) % (1 << 20)).astype(np.uint64)


def lay_out(directory: Path) -> None:
    """The traces ``one`` and ``two``, and ``small.toml``."""
    for name, seed in (("one", 1), ("two", 2)):
        trace.write(directory / f"{name}.trace", [references(seed)])
    (directory / "small.toml").write_text(SMALL)


def written(here: Path, text: str = ALL) -> Path:
    path = here / "all.toml"
    path.write_text(text)
    return path


def cli(*arguments: object) -> subprocess.CompletedProcess[str]:
    """``pagelab simulate sweep``."""
    command = [sys.executable, "-m", "pagelab", "simulate", "sweep", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
