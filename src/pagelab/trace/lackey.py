"""Capture with valgrind's lackey: slow, another implementation, and no plugin."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pagelab import environment
from pagelab.errors import BadInputError, MachineError
from pagelab.trace.capture import Capture
from pagelab.trace.data import KINDS
from pagelab.trace.operations import ask, output, records


def capture_with_lackey(
    argv: Sequence[str],
    path: Path | str,
    *,
    full: bool = False,
    page_bytes: int | str = 4096,
    kinds: Iterable[str] = ("load", "store"),
    force: bool = False,
    level: int = 3,
) -> Capture:
    """As :func:`~pagelab.trace.capture`, without windows, ranges and children; threads are not distinguished."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise MachineError("cannot find valgrind; run: sudo apt install valgrind")
    if not argv or shutil.which(argv[0]) is None:
        name = argv[0] if argv else "nothing"
        raise BadInputError(f"cannot trace {name}: not found, or not executable; give its path")
    parameters = {"capture": list(argv), "way": "lackey", "emulator": _version(valgrind), "kinds": list(kinds)}
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb"):
        try:
            command = [valgrind, "--tool=lackey", "--trace-mem=yes", f"--log-fd={writing}", *argv]
            process = subprocess.Popen(command, pass_fds=[writing], env=environment.inherited())
        finally:
            os.close(writing)
        try:
            written = ask(
                {
                    "work": "convert",
                    "input": f"/dev/fd/{reading}",
                    "format": "lackey",
                    "records": records(kinds, None if full else page_bytes),
                    "output": output(path, force, level, parameters),
                }
            )
        except BaseException:
            process.kill()
            raise
        finally:
            status = process.wait()
    return Capture(
        Path(path),
        status,
        written["references"],
        written["records"],
        0.0,
        _kinds(path) if full else None,
        [{"command": list(argv), "references": written["references"], "ended": "exit" if status >= 0 else "killed"}],
        ["lackey records one process, and does not distinguish its threads"],
        0,
    )


def _kinds(path: Path | str) -> dict[str, int]:
    from pagelab.trace.operations import info

    found: dict[str, Any] = info(path, thorough=True)["thorough"]
    return dict(zip(KINDS, found["kinds"], strict=True))


def _version(valgrind: str) -> str:
    return subprocess.run([valgrind, "--version"], capture_output=True, text=True, check=False).stdout.strip()
