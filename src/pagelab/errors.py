"""Errors that a user can act on. Each class carries the exit code of docs/architecture/contracts.md.

The message names the operation, the object, the errno where there is one, and the next command to type.
"""

from __future__ import annotations

import os
import re
from typing import TypeVar


class PagelabError(Exception):
    """pagelab itself failed; every error meant for users derives from this."""

    exit_code = 4
    another_would_do = False
    """It is about a directory, and another one would do: see :func:`another_would_do`."""


class RunFailedError(PagelabError):
    """The measured program, or runs of a study, failed; results are kept."""

    exit_code = 1


class BadInputError(PagelabError):
    """Flags, TOML, CSV or files that cannot be accepted."""

    exit_code = 2


class MachineError(PagelabError):
    """The machine cannot do it."""

    exit_code = 3


_Error = TypeVar("_Error", bound=PagelabError)


def another_would_do(error: _Error) -> _Error:
    """The same error, marked: the command line adds the option for another directory, where the command has one."""
    error.another_would_do = True
    return error


def system_reason(error: OSError) -> str:
    """``No space left on device (errno 28)``. Errors of libraries that write by themselves have no errno but a text."""
    if error.errno is None:
        return re.sub(r"\(os error (\d+)\)", r"(errno \1)", str(error)) or type(error).__name__
    return f"{error.strerror or os.strerror(error.errno)} (errno {error.errno})"
