"""The demonstration: a study of page size and prepaging that takes minutes. See demo.toml."""

from __future__ import annotations

import random
import subprocess
from importlib.resources import files
from pathlib import Path

from ... import paths
from ...errors import PagelabError

SPEC = "demo.toml"
SCRIPT = "memory_heavy.py"
LINES = "lines.txt"
SCANNED = "scan.dat"
INPUTS = "inputs"

_LINE_COUNT = 400_000
_SCANNED_BYTES = "32M"


def make_inputs(directory: Path) -> Path:
    """Writes what the study reads into ``directory``; returns its study.toml. The same bytes every time."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in (SPEC, SCRIPT):
        (directory / name).write_bytes(files(__package__).joinpath(name).read_bytes())
    draw = random.Random(1)
    with (directory / LINES).open("w", encoding="ascii") as file:
        file.writelines(f"{draw.getrandbits(128):032x}\n" for _ in range(_LINE_COUNT))
    made = subprocess.run(
        [paths.workload(), "make-file", "--file", directory / SCANNED, "--bytes", _SCANNED_BYTES],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise PagelabError(f"cannot make {directory / SCANNED}: {made.stderr.strip()}")
    return directory / SPEC
