"""``python -m pagelab.study.reboots begin|runs DIR``: the commands that the systemd units call, not for users."""

from __future__ import annotations

import sys
from pathlib import Path

from ...errors import PagelabError
from ..systemd import Systemd
from .boot import begin, runs


def main(what: str, directory: Path) -> int:
    """Runs one command; returns exit code 1 after an error, which is printed for the journal."""
    try:
        if what == "begin":
            begin(directory, Systemd(), _say)
        else:
            from ..launching import local_tools

            runs(directory, Systemd(), local_tools(), _say)
    except (PagelabError, OSError) as error:
        _say(f"error: {error}")
        return 1
    return 0


def _say(text: str) -> None:
    print(f"pagelab: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
