"""Commands without pagelab, whose output the governed ones must repeat."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

DATA = Path(__file__).parent.parent / "data"


def native(argv: list[str], place: Path, stdin: str = os.devnull) -> str:
    """Standard output of the same command without pagelab, which must succeed."""
    with Path(stdin).open() as source:
        done = subprocess.run(argv, cwd=place, stdin=source, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"natively: {argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout
