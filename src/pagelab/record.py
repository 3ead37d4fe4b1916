"""The record of one run: request, result, times and counts.

Capture writes records and analysis reads them; nothing else passes between the two. Names include the units; ``None``
means "not measured", never zero. The models are generated (``pagelab.contract``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagelab.contract import record as contract
from pagelab.contract.record import (
    ColourTable,
    Command,
    Counter,
    Faults,
    Fetch,
    FileResidency,
    Frames,
    FramesEngine,
    FramesStrategy,
    GuestCounters,
    Measurement,
    Outcome,
    Placement,
    PolicyAsked,
    Process,
    Region,
    RunWarning,
    Settings,
    SizeBytes,
    Times,
    WarningKind,
)
from pagelab.terminal import Shown

__all__ = [
    "ColourTable",
    "Command",
    "Counter",
    "Faults",
    "Fetch",
    "FileResidency",
    "Frames",
    "FramesEngine",
    "FramesStrategy",
    "GuestCounters",
    "Measurement",
    "Outcome",
    "Placement",
    "PolicyAsked",
    "Process",
    "Record",
    "Region",
    "RunWarning",
    "Settings",
    "SizeBytes",
    "Times",
    "WarningKind",
    "about_the_machine",
    "is_short",
]


def about_the_machine(data: Mapping[str, Any]) -> bool:
    """Whether a warning, by its ``data``, is about the machine and not the run. All runs on a machine have it, and a
    study reports it once.
    """
    return bool(data.get("scope") == "machine")


def is_short(warning: Mapping[str, Any]) -> bool:
    """Whether a warning says that over 1% of the memory lacks pages of the requested size; up to 1% only informs."""
    return warning["kind"] == WarningKind.PLACEMENT_SHORTFALL and warning.get("severity") != "info"


class Record(Shown, contract.Record):
    """One run, whole; printed as a short table."""

    def __str__(self) -> str:
        return Shown.__str__(self)

    def _title(self) -> str:
        return f"{self.outcome.status}: {' '.join(self.command.argv)[:80]} (policy {self.policy.name})"

    def _rows(self) -> list[tuple[str, str]]:
        time, placement = self.time, self.placement
        rows = [
            ("wall", f"{time.wall_ns / 1e9:.6g} s"),
            ("user, system", f"{time.user_ns / 1e9:.6g} s, {time.system_ns / 1e9:.6g} s"),
            ("peak", f"{self.peak_rss_bytes / (1 << 20):.1f} MiB"),
            ("faults", f"{self.faults.minor:,} minor, {self.faults.major:,} major"),
        ]
        if placement.placed_fraction is not None:
            asked, got = placement.whole_touched_tiles, placement.tiles_as_asked
            rows.append(("tiles", f"{got:,} of {asked:,} as asked ({placement.placed_fraction:.1%})"))
        rows += [(one.name, f"{one.count:,}" if one.count is not None else one.status) for one in self.counters]
        rows += [(one.kind.value, one.message) for one in self.warnings if one.severity != "info"]
        return rows
