"""Stand-ins for the traces of Lynch and Flynn's paper, captured, simulated and set beside its Tables 1 to 6.

``python -m bench.paging_paper DIR [--instructions 1000000000]``: with the default, each trace has over a billion
references (loads, stores, fetches) and takes minutes to capture. The paper's traces are not to be had, so its values
stand beside for orientation; they are no targets. A capture that is already in DIR is not made again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pagelab import paths
from pagelab.simulate import tables
from pagelab.simulate.page_faults import PAPER_COLOURS, PAPER_MEMORY_MIB, Curves, curves

from .paging_paper_tables import FAULTS_PER_MILLION

PAGE_BYTES = 4096
QUANTUM = 100_000
"""References of a process in its turn, in the stand-in for ``mult``."""


@dataclass(frozen=True)
class StandIn:
    """A trace of the paper, what stands in for it, and why."""

    name: str
    paper_pages: int
    what: str


STAND_INS = (
    StandIn("sor", 12416, "pagelab-workload scimark sor on 48 MiB: over-relaxation, on a dense grid"),
    StandIn("tree", 4518, "Python building search trees and looking for the largest key: a managed heap, as Scheme's"),
    StandIn("tv", 5771, "gcc -O2 on a large generated C file: graph algorithms over a program's structure"),
    StandIn("lin", 1158, "pagelab-workload scimark lu on 4 MiB: what circuit analysis spends its time on"),
    StandIn("mult", 12480, f"the three programs of tree, tv and sorting, in turns of {QUANTUM} references, not hashed"),
)

TREE = """
import random
class Node:
    __slots__ = ("key", "left", "right")
    def __init__(self, key):
        self.key, self.left, self.right = key, None, None
def insert(root, key):
    while True:
        side = "left" if key < root.key else "right"
        below = getattr(root, side)
        if below is None:
            return setattr(root, side, Node(key))
        root = below
def largest(node):
    return max([node.key, *(largest(one) for one in (node.left, node.right) if one is not None)])
rng = random.Random(1991)
while True:
    root = Node(rng.random())
    for _ in range(100_000):
        insert(root, rng.random())
    for _ in range(3):
        largest(root)
"""


def generated_c(functions: int) -> str:
    """A C file with so many functions that call each other."""
    lines = ["#include <stdio.h>", "static int f0(int x, int *a) { return x + a[0]; }"]
    for i in range(1, functions):
        j, k = i * 7919 % i, i * 104729 % i
        lines.append(
            f"int f{i}(int x, int *a) {{ int s = 0; for (int i = 0; i < x % {i % 13 + 3}; i++) "
            f"{{ switch (a[i] & 3) {{ case 0: s += f{j}(x + i, a); break; case 1: s ^= f{k}(s, a + i); break; "
            f"default: a[i] = s * {i} + x; }} }} return s + a[x & 7]; }}"
        )
    return "\n".join(lines) + "\n"


def capture(directory: Path, instructions: int) -> None:
    """Makes the traces that are missing."""
    (directory / "tree.py").write_text(TREE)
    (directory / "tv.c").write_text(generated_c(6000))
    workload = str(paths.workload())
    words = "seq 1 3000000 | rev | sort"
    programs = {
        "sor": [workload, "scimark", "sor", "--bytes", "48M"],
        "tree": [sys.executable, str(directory / "tree.py")],
        "tv": ["gcc", "-O2", "-S", "-o", "/dev/null", str(directory / "tv.c")],
        "lin": [workload, "scimark", "lu", "--bytes", "4M"],
        "sort": ["bash", "-c", words],
    }
    window = ["--count", str(instructions), "--end-program"]
    for name, argv in programs.items():
        _pagelab(directory / f"{name}.trace", "trace", "capture", "--fetches", *window, end=["--", *argv])
    parts = [str(directory / f"{name}.trace") for name in ("tree", "tv", "sort")]
    _pagelab(directory / "mult.trace", "trace", "interleave", "--quantum", str(QUANTUM), *parts)


def _pagelab(out: Path, *arguments: str, end: list[str] | None = None) -> None:
    if out.exists():
        return
    part = out.with_suffix(".part")
    argv = [sys.executable, "-m", "pagelab", *arguments, "--force", "--out", str(part), *(end or [])]
    print(" ".join(argv[2:]), flush=True)
    # A program that was ended with its window has no exit code of its own: the trace counts.
    done = subprocess.run(argv, check=False, stdout=subprocess.DEVNULL)
    if not part.exists():
        raise SystemExit(f"no trace of {out.stem}: exit code {done.returncode}")
    part.rename(out)


def simulated(directory: Path) -> Iterator[tuple[StandIn, Curves]]:
    """Each stand-in with its curves."""
    for one in STAND_INS:
        yield one, curves(directory / f"{one.name}.trace", PAPER_COLOURS)


def _print_beside(found: list[list[str]], paper: tuple[tuple[float, ...], ...]) -> None:
    """Each line of the stand-in's table, and the paper's line for the same memory."""
    print("  " + "".join(f"{cell:>10}" for cell in found[0]))
    for line, values in zip(found[1:], paper, strict=True):
        print("  " + "".join(f"{cell:>10}" for cell in line))
        print(f"  {'paper':>10}" + "".join(f"{value:>10.2f}" for value in values))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.paging_paper", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--instructions", type=int, default=1_000_000_000, help="of each program image")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    capture(arguments.directory, arguments.instructions)
    memory = [mib * (1 << 20) // PAGE_BYTES for mib in PAPER_MEMORY_MIB]
    overview, programs = [], {}
    for one, found in simulated(arguments.directory):
        programs[one.name] = found
        overview.append((one.name, one.what, found.references, found.pages, one.paper_pages))
        faults = found.faults(memory)
        tables.write_frame(faults, arguments.directory / f"{one.name}-faults")
        figure = tables.relative_figure(faults, PAGE_BYTES, f"page faults of the stand-in for {one.name}")
        tables.write_figure(figure, arguments.directory / f"{one.name}-relative")
        print(f"\n{one.name}: {found.references:,} references, {found.pages:,} pages (paper: {one.paper_pages:,})")
        _print_beside(tables.fault_table(faults, PAGE_BYTES), FAULTS_PER_MILLION[one.name])
    columns = ["name", "stand-in", "references", "pages", "pages in the paper"]
    tables.write_frame(pl.DataFrame(overview, schema=columns, orient="row"), arguments.directory / "table-1")
    effective = tables.effective_memory(programs)
    tables.write_frame(effective, arguments.directory / "effective-memory")
    figure = tables.effective_figure(effective, "effective memory utilisation of the stand-ins")
    tables.write_figure(figure, arguments.directory / "effective-memory")
    return 0


if __name__ == "__main__":
    sys.exit(main())
