"""Page sizes of a condition's memory, asked and got: plain frozen data, a part of :class:`Analysis`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SizeShare:
    """Median over executions of the bytes that pages of one size map."""

    page_bytes: int
    bytes: float


@dataclass(frozen=True)
class PlacementSummary:
    """Of one condition, over its executions."""

    condition: str
    asked: str
    """In words: the sizes that the policy named, by region."""
    by_size: tuple[SizeShare, ...]
    """Of the memory whose placement was measured."""
    resident_bytes: float
    """Median over executions of that."""
    peak_bytes: float
    """Median of the largest process's peak: memory given back unseen is in this and not in ``by_size``."""
    tiles_asked: int | None
    """Whole, touched tiles that a policy named, summed over executions."""
    tiles_got: int | None
    fraction_least: float | None
    """The worst execution's share."""
    fraction_median: float | None
    short_runs: int
    executions: int
