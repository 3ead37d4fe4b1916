"""Independence diagnostics: neighbours, warm-up, trend, and the effective number of measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

ALARM = 0.01
"""A diagnostic with p below this raises a warning: one false alarm in a hundred tests."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Lag-1 correlation, with a p that is exact in its first two moments under any order being equally likely."""

    correlation: float
    p_value: float


@dataclass(frozen=True, slots=True)
class LevelChange:
    """The most likely place of one change of level at the same place in every execution."""

    after: int
    """Number of measurements before the change; the value for ``drop_first`` if they are warm-up."""
    places: int
    """Number of places that were tested."""
    percent: float
    """Mean before it over mean after it, less 1, in percent; averaged over executions."""
    p_value: float
    """At most: each place's p times the number of places (union bound)."""

    @property
    def is_early(self) -> bool:
        """Whether it is in the first half, so that dropping the measurements before it keeps most of the data."""
        return 2 * self.after <= self.places + 1


@dataclass(frozen=True, slots=True)
class ScheduleTrend:
    """Kendall's tau of the executions' means over the schedule."""

    tau: float
    p_value: float
    percent: float | None
    """Median of the last third of executions over the first third's, less 1; None with fewer than three."""


@dataclass(frozen=True, slots=True)
class Dependence:
    """Results of the diagnostics; None with too few values or without spread."""

    inside: Neighbours | None
    """Neighbouring measurements inside executions."""
    between: Neighbours | None
    """Neighbouring executions in the schedule (their means)."""
    change: LevelChange | None
    trend: ScheduleTrend | None
    measurements: int
    autocorrelation_time: float | None
    """Measurements that carry the information of one independent measurement; at least 1."""
    is_lower_bound: bool
    """Whether the correlation had not decayed within the examined lags."""

    @property
    def effective_measurements(self) -> float | None:
        """Effective sample size of all measurements, for questions inside executions. For the mean over executions the
        sample size is the number of executions, whatever this is."""
        return None if self.autocorrelation_time is None else self.measurements / self.autocorrelation_time


def two_sided(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Two-sided p of a standard normal value; NaN stays NaN."""
    from scipy.special import ndtr

    return 2 * np.asarray(ndtr(-np.abs(z)))


def p_values(columns: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """p of each diagnostic for all experiments: ``inside``, ``between``, ``change``, ``trend``; NaN: not computed.

    Kendall's S gets the continuity correction of 1.
    """
    s = columns["trend_s"]
    with np.errstate(invalid="ignore", divide="ignore"):
        kendall = np.sign(s) * np.maximum(np.abs(s) - 1, 0) / np.sqrt(columns["trend_variance"])
    return {
        "inside": two_sided(columns["lag_one_z"]),
        "between": two_sided(columns["means_lag_one_z"]),
        "change": np.minimum(1.0, columns["change_places"] * two_sided(columns["change_z"])),
        "trend": two_sided(kendall),
    }


def dependence_at(
    columns: Mapping[str, NDArray[np.float64]], p: Mapping[str, NDArray[np.float64]], i: int, measurements: int
) -> Dependence:
    """The diagnostics of experiment ``i``."""

    def known(name: str) -> float | None:
        value = float(columns[name][i])
        return None if np.isnan(value) else value

    def neighbours(name: str, which: str) -> Neighbours | None:
        correlation = known(name)
        return None if correlation is None else Neighbours(correlation, float(p[which][i]))

    change = trend = None
    if (after := known("change_after")) is not None:
        places, shift = int(columns["change_places"][i]), float(columns["change_shift"][i])
        change = LevelChange(int(after), places, 100 * shift, float(p["change"][i]))
    if (tau := known("trend_tau")) is not None:
        shift_or_none = known("trend_shift")
        percent = None if shift_or_none is None else 100 * shift_or_none
        trend = ScheduleTrend(tau, float(p["trend"][i]), percent)
    return Dependence(
        inside=neighbours("lag_one", "inside"),
        between=neighbours("means_lag_one", "between"),
        change=change,
        trend=trend,
        measurements=measurements,
        autocorrelation_time=known("memory"),
        is_lower_bound=known("memory_truncated") == 1.0,
    )
