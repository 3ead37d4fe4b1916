"""Values of options that several simulators share: sizes and lists of them."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from pagelab import terminal
from pagelab.errors import BadInputError
from pagelab.machine.settings import size_name
from pagelab.sizes import size_bytes


def page_bytes_of(text: str) -> int:
    """The value of ``--page-size``."""
    found = size_bytes(text, "--page-size")
    if found < 1 or found & (found - 1):
        raise BadInputError(f"--page-size {text}: not a power of two; allowed: 4K, 16K, 64K, 2M ...")
    return found


def warn_of_killed(trace: Path) -> None:
    """Warns on standard error where the program of ``trace`` was killed while it was captured: its rest is missing."""
    from pagelab.trace import TraceError, info

    try:
        images = (info(trace)["ending"] or {}).get("images") or ()
    except TraceError:
        return  # told by what reads it
    killed = sum(image["ended"] == "killed" for image in images)
    if not killed:
        return
    who = "its program was" if len(images) == 1 else f"{killed} of its {len(images)} processes were"
    terminal.say(f"warning: {trace} is incomplete: {who} killed; see: pagelab trace info {shlex.quote(str(trace))}\n")


def memories(text: str, page_bytes: int, counts: Sequence[int]) -> list[int]:
    """The sizes of ``--memory`` in pages. Refuses sizes of no whole number of pages, and numbers of colours
    (``--colors``) that divide none of the sizes: the cells of either would all be empty.
    """
    found = []
    for part in text.split(","):
        size = size_bytes(part, "--memory")
        if size < page_bytes or size % page_bytes:
            raise BadInputError(
                f"--memory {part.strip()}: {size} bytes are no whole number of pages of {page_bytes}; "
                f"the next that is: --memory {size_name(max(1, -(-size // page_bytes)) * page_bytes)}"
            )
        if size // page_bytes in found:
            raise BadInputError(f"--memory {text}: {part.strip()} is named twice; name it once")
        found.append(size // page_bytes)
    for count in counts:
        if count < 1:
            raise BadInputError(f"--colors {count}: there is at least 1 colour")
        if all(pages % count for pages in found):
            divided = size_name(-(-found[-1] // count) * count * page_bytes)
            raise BadInputError(
                f"--colors {count}: {count} colours divide none of the memories of --memory {text} ({found[-1]} pages "
                f"are the last); one that they divide: --memory {divided}"
            )
    return found


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
            f"or run: ls -ld {out.absolute().parent}"
        ) from error
