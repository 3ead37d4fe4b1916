"""The boot of the kernel under which this process runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Boot:
    """One boot of a kernel, and how far it is."""

    id: str | None
    """The kernel's random name of it; None where it cannot be read."""
    uptime_s: float
    """Seconds since it began, suspension included."""


def this_boot() -> Boot:
    """The boot as it is now."""
    try:
        name = _ID.read_text().strip()
    except OSError:
        name = None
    return Boot(name, time.clock_gettime(time.CLOCK_BOOTTIME))
