"""Values of options that several simulators share: sizes and lists of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from pagelab import terminal
from pagelab.errors import BadInputError, quoted
from pagelab.sizes import numbers, size_bytes

DEFAULT_COLOURS = "1..64"


def page_bytes_of(text: str) -> int:
    """The value of ``--page-size``."""
    found = size_bytes(text, "--page-size")
    if found < 1 or found & (found - 1):
        raise BadInputError(f"--page-size {text}: not a power of two; allowed: 4K, 16K, 64K, 2M ...")
    return found


def warn_of_killed(trace: Path) -> None:
    """Warns on standard error where the program of ``trace`` was killed while it was captured: its rest is missing."""
    from pagelab.trace import TraceError
    from pagelab.trace.files import killed

    try:
        missing = killed(trace)
    except TraceError:
        return  # told by what reads it
    if missing:
        see = f"pagelab trace info {quoted(trace)}"
        terminal.say(f"warning: {trace} is incomplete: {missing}; see: {see}\n")


def default_colours(trace: Path) -> str:
    """The value of ``--colors`` if none is given: what the trace was reduced for, or the powers of two to 64."""
    from pagelab.trace import TraceError
    from pagelab.trace.files import info

    try:
        reduction = info(trace)["header"].get("reduction")
    except TraceError:
        return DEFAULT_COLOURS  # told by what reads it
    return ",".join(map(str, reduction["colours"])) if reduction else DEFAULT_COLOURS


def colours_and_memories(
    colors: str | None, memory: str, page_bytes: int, default: str = DEFAULT_COLOURS
) -> tuple[list[int], list[int]]:
    """The counts of ``--colors`` and the sizes of ``--memory`` in pages. Without ``--colors``: of the ``default`` those
    that divide a size, since the results for others would all be missing.

    Refuses what :func:`~pagelab.simulate.page_faults.memory_pages` refuses.
    """
    from pagelab.simulate.page_faults import memory_pages

    counts = numbers(default if colors is None else colors, "--colors")
    sizes = [(part.strip(), size_bytes(part, "--memory")) for part in memory.split(",")]
    found = memory_pages(sizes, page_bytes, () if colors is None else counts, ("--memory", "--colors"))
    if colors is None:
        fitting = [count for count in counts if any(pages % count == 0 for pages in found)]
        if not fitting:
            memory_pages(sizes, page_bytes, counts, ("--memory", "--colors"))  # raises, and names a size
        counts = fitting
    return counts, found


def directory(out: Path | None) -> None:
    """Makes the directory of ``--out``, before anything is simulated for it."""
    if out is None:
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise BadInputError(
            f"cannot write to --out {out}: {error.strerror} (errno {error.errno}); name another place, "
            f"or run: ls -ld {quoted(out.absolute().parent)}"
        ) from error
