"""Captures traces with QEMU's user-mode emulator and pagelab's plugin (crates/qemu), or with valgrind's lackey."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelab import environment, paths
from pagelab.errors import BadInputError, MachineError
from pagelab.policy import Policy
from pagelab.trace import pools as governed
from pagelab.trace.data import KINDS, TraceError, kind_codes, page_bits
from pagelab.trace.files import ask, info
from pagelab.trace.operations import output, records
from pagelab.trace.program import emulator, resolve

SLOWDOWN = 30, 100
"""An execution in the emulator takes so many times as long, at least and at most (measured: docs/trace)."""
_NUMBERS = 1 << 64
"""The plugin's addresses and numbers of instructions are below this."""


@dataclass(frozen=True)
class Capture:
    """A captured trace."""

    path: Path
    status: int
    """Exit code of the program, or minus the signal that ended it."""
    references: int
    """Number of references; for page runs, the sum of their counts."""
    records: int
    wall_s: float
    kinds: dict[str, int] | None
    """References by kind; ``None`` for page runs."""
    images: list[dict[str, Any]]
    """Process images in order of address space: pid, parent, command, references, threads, instructions, ended."""
    notes: list[str]
    """Messages about parts of the program that were not captured."""
    cut_off: int
    """Number of processes that outlived the program and were cut off."""


def capture(
    argv: Sequence[str],
    path: Path | str,
    *,
    full: bool = False,
    page_bytes: int | str = 4096,
    kinds: Iterable[str] = ("load", "store"),
    ranges: Sequence[tuple[int, int]] = (),
    first: int = 0,
    count: int | None = None,
    marker: bool = False,
    end_program: bool = False,
    children: bool = True,
    cpu: str = "max",
    sysroot: str | None = None,
    grace_s: float = 5.0,
    pools: bool | Policy = False,
    force: bool = False,
    level: int = 1,
) -> Capture:
    """Runs a program in the emulator and writes its references (docs/trace defines them).

    ``full`` keeps every reference; otherwise page runs of ``page_bytes`` are written. ``ranges`` keeps addresses in
    [low, high). The window is given by ``first`` and ``count``, in instructions of each process image, or by
    ``marker``: the part of the program between ``pagelab_begin`` and ``pagelab_end`` (docs/api), or between
    ``prctl(0x50474c42, 1)`` and ``prctl(0x50474c42, 0)``. ``end_program`` ends the program at the end of the window.

    ``level`` is that of zstd's compression, 1 to 19. With 3, files are some 5% smaller, and a capture takes some 4%
    more processor time.

    ``pools``: heap, mappings and arenas lie where a run under this policy puts them (``True``: each in a pool of its
    own), and the header contains these places.

    Raises :class:`TraceError`, also for a program whose memory cannot be placed in pools.
    """
    program = resolve(argv)
    if pools is not False:
        governed.check_program(program, argv)
    chosen = list(kinds)
    options = _options(chosen, ranges, first, count, marker=marker, end_program=end_program, children=children)
    bits = page_bits(page_bytes)
    options |= {"mode": "references" if full else "runs", "page-bits": str(bits)}
    qemu = emulator(program.target)
    plugin = paths.qemu_plugin()
    parameters = {
        "capture": list(argv),
        "way": "qemu",
        "emulator": _emulator_version(qemu),
        "options": options,
        "ranges": [f"{low:#x}-{high:#x}" for low, high in ranges],
        "cpu": cpu,
    }
    with tempfile.TemporaryDirectory(prefix="pagelab-trace-", dir=_short_directory()) as directory:
        socket = f"{directory}/socket"
        governing = None
        if pools is not False or (marker and program.target == "x86_64" and governed.is_dynamic(program)):
            wanted = pools if isinstance(pools, Policy) else None
            governing = governed.govern(Path(directory), wanted, pools=pools is not False)
            parameters |= governing.parameters
        arguments = [f"{key}={value}" for key, value in options.items()]
        arguments += [f"range={low:x}-{high:x}" for low, high in ranges]
        command = [qemu, "-cpu", cpu, "-plugin", ",".join([str(plugin), f"socket={socket}", *arguments])]
        command += ["-L", sysroot] if sysroot else []
        command += governing.arguments if governing else []
        command += ["-0", program.argv[0], program.file, *program.argv[1:]]
        with environment.restored():
            answer = ask(
                {
                    "work": "capture",
                    "command": command,
                    "socket": socket,
                    "grace_s": grace_s,
                    "records": records(chosen, None if full else page_bytes),
                    "output": output(path, force, level, parameters),
                }
            )
        if governing and governing.pools and answer["images"]:
            _check_governed(governing, argv[0], Path(path))
    if not answer["images"]:
        status = answer["status"]
        raise TraceError("invalid", f"{argv[0]}: the emulator ended with status {status} before the program began")
    return _captured(Path(path), answer)


def written_bytes(path: Path) -> int:
    """Bytes so far of the trace that is being written to ``path``; 0 before.

    QEMU's has this name once the program has begun, lackey's once it is whole. What was written last is it: an older
    trace may have the name, and an older part may have been left.
    """
    written = [(-1, 0)]
    for file in (path, *path.parent.glob(f"{glob.escape(path.name)}.part-*")):
        with contextlib.suppress(FileNotFoundError):
            status = file.stat()
            written.append((status.st_mtime_ns, status.st_size))
    return max(written)[1]


def _check_governed(governing: governed.Governing, name: str, path: Path) -> None:
    """Removes a trace whose header names pools that the program did not have, and raises :class:`TraceError`."""
    refusals = governing.refusals()
    if refusals or not governing.reached():
        path.unlink(missing_ok=True)
        why = ", ".join(refusals) or "the library did not come into it (another C library, or set-user-id?)"
        raise TraceError(
            "invalid", f"{name}: its memory was not put into pools: {why}; capture it without: pagelab trace -- {name}"
        )


def _captured(path: Path, answer: dict[str, Any]) -> Capture:
    from pagelab.trace.data import KINDS

    kinds = answer["kinds"]
    return Capture(
        path,
        answer["status"],
        answer["references"],
        answer["records"],
        answer["wall_s"],
        None if kinds is None else dict(zip(KINDS, kinds, strict=True)),
        answer["images"],
        answer["notes"],
        answer["cut_off"],
    )


def _options(
    kinds: list[str],
    ranges: Sequence[tuple[int, int]],
    first: int,
    count: int | None,
    *,
    marker: bool,
    end_program: bool,
    children: bool,
) -> dict[str, str]:
    kind_codes(kinds)
    if "other" in kinds:
        raise TraceError("invalid", "the emulator gives loads, stores and fetches, no other references")
    for low, high in ranges:
        if not 0 <= low < high < _NUMBERS:
            raise TraceError("invalid", f"--range {low:x}-{high:x}: LOW below HIGH, HIGH below 2^64")
    windowed = first > 0 or count is not None
    if marker and windowed:
        raise TraceError("invalid", "a window is given by instructions or by the marker, not by both")
    for name, number, least in (("--first", first, 0), ("--count", count, 1)):
        if number is not None and not least <= number < _NUMBERS:
            raise TraceError("invalid", f"{name} {number}: a number of instructions, from {least} up, below 2^64")
    if end_program and not (marker or count is not None):
        raise TraceError("invalid", "the program can end with the window only where the window has an end")
    options = {"kinds": "+".join(kinds)}
    if first:
        options["first"] = str(first)
    if count is not None:
        options["count"] = str(count)
    if marker:
        options["marker"] = "on"
    if end_program:
        options["quit"] = "on"
    if not children:
        options["children"] = "off"
    return options


def _short_directory() -> str | None:
    """A directory for sockets with a short path: socket paths have at most 107 bytes, and no comma may be in them."""
    usual = tempfile.gettempdir()
    return None if len(usual) < 60 and "," not in usual else "/tmp"


def _emulator_version(qemu: str) -> str:
    shown = subprocess.run([qemu, "--version"], capture_output=True, text=True, check=False).stdout
    return shown.splitlines()[0] if shown else qemu


def capture_with_lackey(
    argv: Sequence[str],
    path: Path | str,
    *,
    full: bool = False,
    page_bytes: int | str = 4096,
    kinds: Iterable[str] = ("load", "store"),
    force: bool = False,
    level: int = 1,
) -> Capture:
    """Captures with valgrind's lackey, like :func:`~pagelab.trace.capture` but without windows, ranges and children;
    threads are not distinguished.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise MachineError("cannot find valgrind; run: sudo apt install valgrind")
    if not argv or shutil.which(argv[0]) is None:
        name = argv[0] if argv else "nothing"
        raise BadInputError(f"cannot trace {name}: not found, or not executable; give its path")
    parameters = {"capture": list(argv), "way": "lackey", "emulator": _valgrind_version(valgrind), "kinds": list(kinds)}
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb"):
        try:
            # Lines of a forked child would come between its parent's.
            options = ["--tool=lackey", "--trace-mem=yes", "--child-silent-after-fork=yes"]
            command = [valgrind, *options, f"--log-fd={writing}", *argv]
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
    found: dict[str, Any] = info(path, thorough=True)["thorough"]
    return dict(zip(KINDS, found["kinds"], strict=True))


def _valgrind_version(valgrind: str) -> str:
    return subprocess.run([valgrind, "--version"], capture_output=True, text=True, check=False).stdout.strip()
