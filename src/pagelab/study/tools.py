"""A session's functions that touch the machine, in one value that tests replace."""

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
    """The functions by which a session touches the machine; tests replace them."""

    runner: Runner
    check: Check
    machine: Callable[[], dict[str, Any]]
    """Returns the machine as it is now, as plain data (``{"machine": …, "provenance": …}``)."""
    noise: Callable[[Plan], RunWarning | None] = lambda _plan: None
    """Returns a warning where the machine is too noisy for small effects in the metrics of the plan; else None."""
    limits: Callable[[Plan], list[RunWarning]] = lambda _plan: []
    """Returns warnings of resource limits that leave programs little room beside what the policies need; each record
    has its own."""
    colours: Callable[[Plan], str | None] = lambda _plan: None
    """Measures whether colours have an effect on this machine, where the plan places frames and that is not known;
    returns a message or None."""
    has_event: Callable[[str], bool] = lambda _name: False
    """Whether the launcher's table has this event for the machine's processor; it refuses a run with another one."""
