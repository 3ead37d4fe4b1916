"""Identifies the present boot of the kernel, and its uptime."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Boot:
    """One boot of a kernel, and the time since it began."""

    id: str | None
    """The kernel's random name of the boot; None where it cannot be read."""
    uptime_s: float
    """Seconds since the boot began, including suspension."""


def this_boot() -> Boot:
    """The present boot."""
    try:
        name = _ID.read_text().strip()
    except OSError:
        name = None
    return Boot(name, time.clock_gettime(time.CLOCK_BOOTTIME))
