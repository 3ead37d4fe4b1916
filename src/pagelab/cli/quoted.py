"""Commands whose words were put into one pair of quotes."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from pagelab.errors import BadInputError


def refuse_quoted(argv: Sequence[str], command: str) -> None:
    """Raises BadInputError for one word that is no program, but whose first part is one; ``command`` got it."""
    if len(argv) != 1 or " " not in argv[0] or Path(argv[0]).exists() or shutil.which(argv[0]):
        return
    try:
        words = shlex.split(argv[0])
    except ValueError:
        return
    if words and shutil.which(words[0]):
        typed = [*sys.argv[1:-1]] if sys.argv[-1] == argv[0] else command.split()[1:]
        before = shlex.join(["pagelab", *typed, *([] if typed[-1:] == ["--"] else ["--"])])
        raise BadInputError(f"cannot find the program {shlex.quote(argv[0])}; leave the quotes out: {before} {argv[0]}")
