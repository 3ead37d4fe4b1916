"""Misses against cachegrind's on the same program: equal, event by event, under cachegrind's way to count."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from harness.packages import need
from pagelab.simulate.cache_runs import cache
from pagelab.simulate.placements import History
from pagelab.simulate.references import FETCH, LOAD, STORE

PROGRAM = r"""
#include <string.h>
static double table[40][97];
static unsigned char text[30000];
int main(void) {
    unsigned long state = 1, sum = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 97; i++)
            for (int j = 0; j < 40; j++) table[j][i] += i * j;      /* against the rows */
        for (int i = 0; i < 4000; i++) {
            state = state * 6364136223846793005ul + 1442695040888963407ul;
            unsigned long at = (state >> 33) % (sizeof text - 8), word;
            memcpy(&word, text + at, 8);                            /* across lines */
            sum += word;
            text[at]++;
        }
    }
    return (int)(sum & 1);
}
"""
KINDS = {"I ": FETCH, " L": LOAD, " S": STORE, " M": LOAD}
"""Cachegrind counts a modification as a read."""
SAME = {"PATH": os.environ["PATH"]}
"""The environment lies on the program's stack: another variable there (pytest's own, say) moves its addresses."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for tool in ("valgrind", "cc"):
        need(tool)
    directory = tmp_path_factory.mktemp("cachegrind")
    (directory / "program.c").write_text(PROGRAM)
    binary = directory / "program"
    # Static: both tools then see the same addresses, without a loader that looks at its environment.
    subprocess.run(["cc", "-O1", "-static", "-o", binary, directory / "program.c"], check=True)
    return binary


@pytest.fixture(scope="module")
def references(program: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    done = subprocess.run(
        ["valgrind", "--tool=lackey", "--trace-mem=yes", program], capture_output=True, text=True, check=False, env=SAME
    )
    lines = re.findall(r"^(I | [LSM]) ([0-9a-f]+),(\d+)$", done.stderr, re.MULTILINE)
    assert len(lines) > 100_000
    kinds = np.array([KINDS[kind] for kind, _, _ in lines], np.uint64)
    addresses = np.array([int(address, 16) for _, address, _ in lines], np.uint64)
    return addresses, kinds, np.array([int(size) for _, _, size in lines], np.uint64)


def cachegrind(program: Path, sizes: dict[str, tuple[int, int]]) -> dict[str, int]:
    flags = [f"--{name}={size},{ways},64" for name, (size, ways) in sizes.items()]
    out = program.with_suffix(".out")
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--cachegrind-out-file={out}", *flags, program]
    subprocess.run(command, capture_output=True, check=False, env=SAME)
    text = out.read_text()
    events, summary = (re.search(rf"^{name}: (.*)$", text, re.MULTILINE) for name in ("events", "summary"))
    assert events
    assert summary
    return dict(zip(events[1].split(), map(int, summary[1].split()), strict=True))


@pytest.mark.parametrize(
    "sizes",
    [
        {"I1": (4096, 2), "D1": (4096, 2), "LL": (32768, 4)},
        {"I1": (8192, 1), "D1": (16384, 8), "LL": (65536, 16)},
        {"I1": (1024, 4), "D1": (2048, 1), "LL": (8192, 2)},
    ],
    ids=str,
)
def test_misses_are_cachegrinds(
    program: Path, references: tuple[np.ndarray, np.ndarray, np.ndarray], sizes: dict[str, tuple[int, int]]
) -> None:
    theirs = cachegrind(program, sizes)
    names = {"I1": "instruction", "D1": "data", "LL": "unified"}
    levels = [
        {"name": name, "serves": names[name], "size": size, "ways": ways, "writebacks_allocate": False}
        for name, (size, ways) in sizes.items()
    ]
    hierarchy = {"name": "cachegrind", "cache": {"straddling": "whole", "level": levels}}
    # Cachegrind indexes by virtual addresses: under page colouring, frames have the same bits above the page offset.
    runs = cache([references], hierarchy, "page-coloring:colors=64", history=History(turnover=0), threads=1)
    ours = {row["level"]: row for row in runs.levels.iter_rows(named=True)}
    counted = {
        "Ir": ours["I1"]["fetch_accesses"],
        "I1mr": ours["I1"]["fetch_misses"],
        "ILmr": ours["LL"]["fetch_misses"],
        "Dr": ours["D1"]["load_accesses"],
        "D1mr": ours["D1"]["load_misses"],
        "DLmr": ours["LL"]["load_misses"],
        "Dw": ours["D1"]["store_accesses"],
        "D1mw": ours["D1"]["store_misses"],
        "DLmw": ours["LL"]["store_misses"],
    }
    assert counted == theirs
