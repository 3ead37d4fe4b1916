"""Simulations stream: what they hold goes with the pages of a trace, not with its length."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pagelab import trace

PAGES = 1 << 16
PIECE = 1 << 20
WORKS = [
    ["paging", "--colors", "1,2,4,8,16,32,64"],
    ["paging", "--colors", "1,64", "--policy", "clock", "--memory", "64M"],
    ["cache", "--hierarchy", "zen-3", "-n", "1", "--threads", "1"],
    ["tlb", "--processor", "zen-3", "--threads", "1"],
]


def visits(references: int) -> Iterator[NDArray[np.uint64]]:
    """Pages at random, sixteen loads each; every page is in the first piece or two."""
    rng = np.random.default_rng(5)
    within = np.arange(16, dtype=np.uint64) * np.uint64(8)
    for _ in range(references // PIECE):
        page = rng.integers(0, PAGES, PIECE // 16, dtype=np.uint64) << np.uint64(12)
        yield (np.uint64(0x7F00_0000_0000) + page[:, None] + within).ravel()


def peak_bytes(work: list[str], path: Path) -> int:
    """Of the whole process, as the kernel counts resident pages."""
    kind, *options = work
    command = [sys.executable, "-m", "pagelab", "simulate", kind, str(path), *options]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_maxrss << 10


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS, ids=lambda work: " ".join(work[:3]))
def test_memory_does_not_grow_with_the_trace(work: list[str], tmp_path: Path) -> None:
    for name, references in (("short", 4 << 20), ("long", 80 << 20)):
        trace.write(tmp_path / name, visits(references), level=1)
    short, long = (peak_bytes(work, tmp_path / name) for name in ("short", "long"))
    assert long < short + (48 << 20)
    assert long < 1 << 30
