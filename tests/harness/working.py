"""Functions for test processes and cluster workers: in a module, since work is sent by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def double(number: int) -> int:
    return 2 * number


def own_process(_: int) -> int:
    return os.getpid()


def sleep(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def refuse(number: int) -> int:
    raise ValueError(f"no {number}")


def die_where_marked(job: tuple[int, str | None]) -> int:
    """Dies of SIGKILL at the first try, where the job has a file to remember it by; and always, with "always"."""
    number, mark = job
    if mark == "always":
        os.kill(os.getpid(), signal.SIGKILL)
    if mark is not None and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number
