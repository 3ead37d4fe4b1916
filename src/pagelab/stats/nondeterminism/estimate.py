"""Estimates with their interval, or the reason for its absence, and warnings about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pagelab.stats.refusal import StatsRefusedError

if TYPE_CHECKING:
    from pagelab.stats.interval import Interval
    from pagelab.stats.refusal import Refusal


class Metric(StrEnum):
    """The metrics that ALLOC compares (section 4.2); smaller is better in each."""

    MEAN = "mean-response-time"
    MEASUREMENT = "nondeterminism-in-measurement"
    UNCLASSIFIED = "unclassified-nondeterminism"
    EXECUTION = "nondeterminism-in-execution"


class IntervalWarningKind(StrEnum):
    """Why an interval may not have its level; stable names for reports and JSON."""

    FEW_EXECUTIONS = "few-executions"
    """Fewer than 10: no interval of so few knows of a slow mode that none of them met."""
    UNBALANCED = "unbalanced"
    """Executions have different numbers of measurements: the hierarchical interval is approximate."""
    NEGATIVE_COMPONENT = "negative-component"
    """The spread between executions is less than the spread within explains: the component is set to 0."""
    DEPENDENT_MEASUREMENTS = "dependent-measurements"
    """Neighbouring measurements resemble (or avoid) each other: the spread within is misjudged."""
    WARM_UP = "warm-up"
    """The first measurements of the executions are at another level than the rest."""
    LEVEL_SHIFT = "level-shift"
    """The level changes in the second half of the executions, at the same place in each."""
    TREND = "trend"
    """Executions become slower or faster over the schedule: they do not vary around one mean."""
    DEPENDENT_EXECUTIONS = "dependent-executions"
    """Neighbouring executions resemble (or avoid) each other: every interval is too short (or too long)."""
    SMALL_GROUPS = "small-groups"
    """Groups of three: their ratios of standard deviations have no variance, and their mean converges slowly."""


@dataclass(frozen=True, slots=True)
class IntervalWarning:
    """A warning about the intervals of one experiment, in words."""

    kind: IntervalWarningKind
    message: str
    metrics: frozenset[Metric]
    """The metrics whose intervals may not have their level."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its interval."""

    value: float
    interval: Interval

    @property
    def half_width(self) -> float:
        """ALLOC's measurement error."""
        return self.interval.half_width


@dataclass(frozen=True, slots=True)
class Refused:
    """No value: the reason, and the missing data."""

    refusal: Refusal
    message: str

    def error(self) -> StatsRefusedError:
        return StatsRefusedError(self.refusal, self.message)

    def __str__(self) -> str:
        return self.message
