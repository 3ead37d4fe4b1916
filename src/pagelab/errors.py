"""Errors that a user can act on. Each class carries the exit code of docs/architecture/contracts.md.

The message names the operation, the object, the errno where there is one, and the next command to type.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
from pathlib import Path
from typing import TypeVar


class PagelabError(Exception):
    """pagelab itself failed. Every error for users derives from this class."""

    exit_code = 4
    another_would_do = False
    """Whether the error is about a directory and another directory would do: see :func:`another_would_do`."""


class RunFailedError(PagelabError):
    """The measured program, or some runs of a study, failed; the results are kept."""

    exit_code = 1


class BadInputError(PagelabError):
    """A flag, TOML, CSV or other file is not acceptable."""

    exit_code = 2


class MachineError(PagelabError):
    """The machine cannot do what was requested."""

    exit_code = 3


_Error = TypeVar("_Error", bound=PagelabError)


def another_would_do(error: _Error) -> _Error:
    """Marks an error and returns it: the command line then adds the option for another directory, if there is one."""
    error.another_would_do = True
    return error


def quoted(place: Path | str) -> str:
    """A file or directory as one word of a shell, for the commands that messages name."""
    return shlex.quote(str(place))


def system_reason(error: OSError) -> str:
    """``No space left on device (errno 28)``; only the text for errors of libraries, which may have no errno."""
    if error.errno is None:
        return re.sub(r"\(os error (\d+)\)", r"(errno \1)", str(error)) or type(error).__name__
    return f"{error.strerror or os.strerror(error.errno)} (errno {error.errno})"


_OF_MEDIUM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EFBIG}
_NEXT = {
    errno.ENOSPC: "make room, or name another place; run: df -h {place}",
    errno.EDQUOT: "make room, or name another place; run: quota",
    errno.EROFS: "name a place that can be written to; run: findmnt -T {place}",
    errno.EFBIG: "raise the limit of a file's size; run: ulimit -f",
    errno.EISDIR: "name a file; run: ls -ld {place}",
}


def is_of_medium(error: OSError) -> bool:
    """Whether the machine is short of something (room, memory, descriptors), rather than a name being wrong."""
    return error.errno in _OF_MEDIUM


def next_step(error: OSError, place: str | Path) -> str:
    """What to do about a failed read or write, and the command that shows more of ``place``."""
    return _NEXT.get(error.errno or 0, "run: ls -ld {place}").format(place=quoted(place))


def cannot_write(path: Path, error: OSError, what: str = "") -> PagelabError:
    """The error for a file that cannot be written, ``what`` being ``the picture``, for instance: to be raised."""
    message = f"cannot write {what and what + ' '}{path}: {system_reason(error)}; "
    kind = MachineError if is_of_medium(error) else BadInputError
    return kind(message + next_step(error, path.absolute().parent))
