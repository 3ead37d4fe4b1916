"""What a session has of the machine, as one value that tests replace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..record import RunWarning
from .job import Runner
from .plan import Plan
from .prepare import Check


@dataclass(frozen=True)
class Tools:
    """A session's access to the machine; tests replace it."""

    runner: Runner
    check: Check
    machine: Callable[[], dict[str, Any]]
    """The machine as it is now, plain data (``{"machine": …, "provenance": …}``)."""
    noise: Callable[[Plan], RunWarning | None] = lambda _plan: None
    """A warning where the machine is not quiet enough for small effects in what the plan compares."""
    limits: Callable[[Plan], list[RunWarning]] = lambda _plan: []
    """Limits in force that leave programs little room for what the policies take besides; each record has its own."""
    colours: Callable[[Plan], str | None] = lambda _plan: None
    """Measures whether colours matter here where the plan places frames and that is not known; what to tell of it."""
