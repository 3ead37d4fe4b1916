"""Writes the inputs of the demonstration: a study of page size and prepaging that takes minutes. See demo.toml."""

from __future__ import annotations

import random
import subprocess
from importlib.resources import files
from pathlib import Path

from ... import paths, whole_file
from ...errors import PagelabError

SPEC = "demo.toml"
SCRIPTS = ("memory_heavy.py", "sqlite_index.py")
LINES = "lines.txt"
SCANNED = "scan.dat"
SOURCE = "generated.c"
INPUTS = "inputs"

_LINE_COUNT = 400_000
_SCANNED_BYTES = "32M"
_FUNCTIONS = 120


def make_inputs(directory: Path) -> Path:
    """Writes the study's inputs into ``directory``; returns its study.toml. The same bytes every time."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in (SPEC, *SCRIPTS):
        whole_file.put(directory / name, files(__package__).joinpath(name).read_bytes())
    draw = random.Random(1)
    whole_file.put(directory / LINES, "".join(f"{draw.getrandbits(128):032x}\n" for _ in range(_LINE_COUNT)))
    whole_file.put(directory / SOURCE, "".join(_function(number, draw) for number in range(_FUNCTIONS)))
    made = subprocess.run(
        [paths.workload(), "make-file", "--file", directory / SCANNED, "--bytes", _SCANNED_BYTES],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise PagelabError(f"cannot make {directory / SCANNED}: {made.stderr.strip()}")
    return directory / SPEC


def _function(number: int, draw: random.Random) -> str:
    """A C function as work for a compiler: loops, branches, and arithmetic with constants of its own."""
    lines = [f"unsigned f{number}(unsigned a, unsigned b)", "{", f"    for (int i = 0; i < {number + 2}; i++) {{"]
    for _ in range(6):
        bound, factor, shift = draw.randrange(1 << 20), draw.randrange(3, 999), draw.randrange(1, 31)
        lines.append(f"        if (a > {bound}) a = a * {factor} + b; else b ^= a >> {shift};")
    return "\n".join([*lines, "    }", "    return a ^ b;", "}", ""])
