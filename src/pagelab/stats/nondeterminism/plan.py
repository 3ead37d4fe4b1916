"""Finds the cheapest numbers of executions and measurements for a required precision."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.nondeterminism.components import t_quantile
from pagelab.stats.refusal import Refusal, StatsRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pagelab.stats.nondeterminism.components import Components

MOST_EXECUTIONS = 1_000_000
MOST_MEASUREMENTS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """Recommended numbers, and the expected precision with unchanged spread."""

    executions: int
    measurements: int
    """Measurements in each execution."""
    cost: float
    """Total cost, in the unit of the given costs."""
    half_width: float
    """Expected half-width of the interval, in the unit of the data."""


def cheapest_plan(
    components: Components,
    *,
    half_width: float,
    execution_cost: float,
    measurement_cost: float,
    most_measurements: int = MOST_MEASUREMENTS,
) -> Plan:
    """The cheapest n executions of m measurements whose interval is expected to be within ± ``half_width``.

    An execution costs ``execution_cost`` (start and warm-up) and ``measurement_cost`` a measurement, in any one unit.
    With components B (execution) and W (measurement), the expected half-width is t₍n₋₁₎ √((B + W/m)/n). For each n the
    fewest m that do are known, so the optimum is found by looking at each n, not by Kalibera and Jones's square root
    (:func:`repetitions`), which is its continuous form and says nothing about n. Refused where no plan within a million
    executions does.
    """
    if len(components.levels) != 2:
        raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, "two levels: measurements in executions")
    if not (half_width > 0 and execution_cost >= 0 and measurement_cost > 0 and most_measurements >= 1):
        raise StatsRefusedError(
            Refusal.COUNT_OUT_OF_RANGE,
            f"half-width {half_width}, costs {execution_cost} and {measurement_cost}, at most {most_measurements} "
            "measurements: precision and the measurement's cost must be positive",
        )
    within, between = (level.variance for level in components.levels)
    if within is None or between is None:
        raise StatsRefusedError(
            Refusal.ONE_MEASUREMENT, "executions of one measurement do not tell the components apart: measure twice"
        )
    level = components.interval.level
    best: Plan | None = None
    first = 2
    while first <= MOST_EXECUTIONS and (best is None or first * (execution_cost + measurement_cost) < best.cost):
        n = np.arange(first, min(2 * first + 1022, MOST_EXECUTIONS) + 1, dtype=np.float64)
        t = t_quantile(n - 1, level)
        m = _fewest(within, n * (half_width / t) ** 2 - between)
        cost = n * (execution_cost + measurement_cost * np.where(m <= most_measurements, m, np.inf))
        i = int(np.argmin(cost))
        if cost[i] < (np.inf if best is None else best.cost):
            expected = float(t[i]) * sqrt((between + within / m[i]) / n[i])
            best = Plan(int(n[i]), int(m[i]), float(cost[i]), expected)
        first = int(n[-1]) + 1
    if best is None:
        raise StatsRefusedError(
            Refusal.OUT_OF_REACH,
            f"± {half_width:g} would take more than {MOST_EXECUTIONS:,} executions of {most_measurements:,} "
            "measurements: ask for less precision",
        )
    return best


def _fewest(within: float, room: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least number of measurements whose share of the variance fits into ``room``; infinite if none does."""
    if within == 0:
        return np.where(room >= 0, 1.0, np.inf)
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(room > 0, np.maximum(1.0, np.ceil(within / room)), np.inf)


def repetitions(components: Components, costs: Sequence[float]) -> tuple[int, ...]:
    """Best repetition counts of all levels but the highest, from the lowest (Kalibera and Jones 2013).

    rᵢ = ⌈√((cᵢ₊₁/cᵢ) (T²ᵢ/T²ᵢ₊₁))⌉, cᵢ the cost of one more repetition at level i beyond what the levels below cost
    (lowest first, one a level). At least 1. Where T²ᵢ₊₁ is 0 no number of repetitions is too many: refused, with the
    advice to leave that level out.
    """
    levels = components.levels
    if len(costs) != len(levels) or not all(cost > 0 for cost in costs):
        raise StatsRefusedError(
            Refusal.COUNT_OUT_OF_RANGE, f"costs {tuple(costs)}: one positive number for each of {len(levels)} levels"
        )
    found = []
    for lower, upper, cost, above in zip(levels, levels[1:], costs, costs[1:], strict=False):
        if lower.variance is None or upper.variance is None:
            raise StatsRefusedError(
                Refusal.ONE_MEASUREMENT, f"the spread of {lower.level}s is not known: repeat them at least twice"
            )
        if upper.variance == 0:
            raise StatsRefusedError(
                Refusal.NO_SPREAD, f"no spread between {upper.level}s was found: repeat {lower.level}s in one of them"
            )
        found.append(max(1, ceil(sqrt(above / cost * lower.variance / upper.variance))))
    return tuple(found)
