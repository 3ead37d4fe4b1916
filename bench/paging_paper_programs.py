"""The programs that stand in for Lynch and Flynn's."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pagelab import paths

QUANTUM = 100_000
"""References per turn of a program, in the stand-in for ``mult``."""
SHARE = 4
"""Of ``mult``, tree and gcc run for this part of the others' instructions; make and the shell to their ends."""


@dataclass(frozen=True)
class StandIn:
    """A trace of the paper, what stands in for it, and why."""

    name: str
    paper: str
    """The paper's program."""
    paper_pages: int
    what: str


STAND_INS = (
    StandIn("sor", "Fortran, sparse-matrix over-relaxation", 12416, "pagelab-workload scimark sor, 48 MiB"),
    StandIn("tree", "Scheme, trees and their largest element", 4518, "Python, search trees and their largest key"),
    StandIn("tv", "Pascal timing verifier of a processor", 5771, "gcc -O2 of a large generated C file"),
    StandIn("lin", "circuit analysis", 1158, "pagelab-workload scimark lu, 4 MiB"),
    StandIn(
        "mult",
        "make, router, design-rule checker, tree, xld, shell commands",
        12480,
        f"tree, gcc, make with gcc, as and ld, a shell's commands, in turns of {QUANTUM:,} references",
    ),
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

MAKEFILE = """
OBJECTS = one.o two.o three.o four.o
program: $(OBJECTS)
\tgcc -o $@ $(OBJECTS)
%.o: %.c
\tgcc -O1 -c -o $@ $<
"""

SHELL = """
cd "$(dirname "$0")"
seq 1 30000 > numbers
rev numbers | sort > sorted
grep -c 7 numbers sorted
awk '{ s += $1 } END { print s }' numbers
sed 's/1/one/g' numbers | wc
ls -lR /usr/share/doc | head -2000 | cut -c1-40 | uniq | tail -3
find /usr/lib/gcc -name '*.h' | xargs cat | tr -s ' ' | sort -u | wc -l
cat numbers sorted | md5sum
diff numbers sorted | head -5
expr 6 '*' 7; date; uname -a; id; pwd
gzip -k -f sorted; gzip -l sorted.gz
"""


def generated_c(functions: int, seed: int = 0) -> str:
    """A C file with functions that call each other."""
    lines = ["#include <stdio.h>", f"int g{seed}_0(int x, int *a) {{ return x + a[0]; }}"]
    for i in range(1, functions):
        j, k = i * 7919 % i, i * 104729 % i
        lines.append(
            f"int g{seed}_{i}(int x, int *a) {{ int s = 0; for (int i = 0; i < x % {i % 13 + 3}; i++) "
            f"{{ switch (a[i] & 3) {{ case 0: s += g{seed}_{j}(x + i, a); break; case 1: s ^= g{seed}_{k}(s, a + i); "
            f"break; default: a[i] = s * {i} + x; }} }} return s + a[x & 7]; }}"
        )
    return "\n".join(lines) + "\n"


def capture(directory: Path, instructions: int) -> None:
    """Makes the traces that are missing."""
    _prepare(directory)
    workload = str(paths.workload())
    tree = [sys.executable, str(directory / "tree.py")]
    tv = ["gcc", "-O2", "-S", "-o", "/dev/null", str(directory / "tv.c")]
    alone = {
        "sor": [workload, "scimark", "sor", "--bytes", "48M"],
        "tree": tree,
        "tv": tv,
        "lin": [workload, "scimark", "lu", "--bytes", "4M"],
    }
    share = {"mult-tree": tree, "mult-tv": tv}
    whole = {
        "mult-make": ["make", "-B", "-C", str(directory / "make"), "program"],
        "mult-shell": ["bash", str(directory / "commands.sh")],
    }
    for programs, count in ((alone, instructions), (share, instructions // SHARE), (whole, None)):
        for name, argv in programs.items():
            window = [] if count is None else ["--count", str(count), "--end-program"]
            _pagelab(directory, name, "trace", "capture", "--fetches", *window, end=["--", *argv])
    parts = [str(directory / f"{name}.trace") for name in (*share, *whole)]
    _pagelab(directory, "mult", "trace", "interleave", "--quantum", str(QUANTUM), end=parts)


def _prepare(directory: Path) -> None:
    """Writes the inputs of the programs."""
    (directory / "tree.py").write_text(TREE)
    (directory / "tv.c").write_text(generated_c(6000))
    (directory / "commands.sh").write_text(SHELL)
    project = directory / "make"
    project.mkdir(exist_ok=True)
    (project / "Makefile").write_text(MAKEFILE)
    for number, name in enumerate(("one", "two", "three", "four"), 1):
        main = "int main(int n, char **v) { int a[32] = {0}; return g1_9(n, a); }\n" if number == 1 else ""
        (project / f"{name}.c").write_text(generated_c(12, number) + main)


def _pagelab(directory: Path, name: str, *arguments: str, end: list[str]) -> None:
    out = directory / f"{name}.trace"
    if out.exists():
        return
    part = out.with_suffix(".part")
    argv = [sys.executable, "-m", "pagelab", *arguments, "--force", "--out", str(part), *end]
    print(" ".join(argv[2:]), flush=True)
    # A program that was ended with its window has no exit code of its own: the trace counts.
    done = subprocess.run(argv, check=False, stdout=subprocess.DEVNULL)
    if not part.exists():
        raise SystemExit(f"no trace of {name}: exit code {done.returncode}")
    part.rename(out)
