"""Address translation: its measurements, and the steps in the cost of a load at which its levels end.

A chase visits one line of each of n pages in an order that repeats. If the least recently used entry is replaced, all
lookups hit while n is at most a level's entries, and none from one more on. So the cost a load rises in steps over n;
real processors (hashed sets, other replacement) round the edges. The conclusion is stored as ``pagelab.translation/1``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from pagelab.stats import median_interval
from pagelab.stats.interval import Interval

Kind = Literal["4K", "4K in 2M", "4K in 1G", "2M", "2M in 1G", "dense"]
HostPages = Literal["none", "4K", "2M or larger", "both", "unknown"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Memory(_Model):
    """Memory in pages of one size."""

    page: Literal["4K", "2M", "1G"]
    bytes: int
    huge_bytes: int


class Sample(_Model):
    """One chase: the median of three timed pieces."""

    round: int
    kind: Kind
    pages: int
    chains: int
    ns_per_load: float


class Chases(BaseModel):
    """The output of ``pagelab-workload page-chase`` (``pagelab.page-chase/1``)."""

    model_config = ConfigDict(frozen=True)

    rounds: int
    seed: int
    memories: list[Memory]
    cycle_ns: list[float]
    """Of each round: one of many additions that wait for each other."""
    samples: list[Sample]


class Cycles(_Model):
    """Cycles a load beyond what the same loads take where nothing has to be translated; the median of rounds."""

    median: float
    low: float | None = Field(description="None: too few rounds for an exact 95% interval.")
    high: float | None


class Step(_Model):
    """A level of the hardware ends: longer chases cost more a load."""

    most_that_fit: int = Field(description="Pages of the longest chase that is within a quarter of the step.")
    first_beyond: int = Field(description="Pages of the shortest chase beyond three quarters of it.")
    low: int = Field(description="95% interval of where the step lies, from resampled rounds.")
    high: int
    before: Cycles
    after: Cycles


class WalkCost(_Model):
    """The cost of a load of a chase that misses every level, by the memory that the tables' last level takes."""

    pages: int
    table_bytes: int
    cycles: Cycles


class Levels(_Model):
    """The results of chases over pages of one size."""

    page: Literal["4K", "2M"]
    reference: Kind
    longest: int
    steps: list[Step] = Field(description="The first ends the first level, the second the second one.")
    walks: list[WalkCost]


class TranslationFile(_Model):
    """``pagelab.translation/1``."""

    schema_: Literal["pagelab.translation/1"] = Field(
        default="pagelab.translation/1", validation_alias="schema", serialization_alias="schema"
    )
    levels: list[Levels]
    cycle_ns: float
    host_pages: HostPages
    walks_at_once: Cycles | None = Field(description="Walks under way on average, at least; not cycles but a number.")
    rounds: int
    seed: int
    cpu: str
    virtualisation: str
    host: str
    machine: str
    boot_id: str
    measured_at: str
    pagelab: str | None

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


Costs = NDArray[np.float64]
"""Cycles per load beyond the reference: one row per round, one column per length."""

_MOST_SEGMENTS = 6
_SMALLEST = 2.0
"""Least height of a step in cycles; caches and clocks cause smaller differences."""
_SMALLEST_RATIO = 1.3
_FLOOR = 0.03
"""Root mean square error in logarithms; smaller errors justify no more segments."""
_RESAMPLES = 200


def cycles(values: NDArray[np.float64]) -> Cycles:
    """The median over rounds with its exact interval; ``values`` has one value per round."""
    found = median_interval(values)
    interval = found.interval if isinstance(found.interval, Interval) else None
    return Cycles(
        median=round(found.estimate, 3),
        low=None if interval is None else round(interval.low, 3),
        high=None if interval is None else round(interval.high, 3),
    )


def steps(lengths: list[int], costs: Costs, *, seed: int = 1) -> list[Step]:
    """The steps of ``costs`` (rounds × lengths, in cycles) over rising ``lengths``, the shortest first.

    The medians over rounds are cut into the number of constant pieces that the Bayesian information criterion chooses,
    on the scale log(cycles + 1), by dynamic programming (Auger and Lawrence 1989, "Algorithms for the optimal
    identification of segment neighborhoods"). A step lies between the last length that is within a quarter of it and
    the first beyond three quarters; its interval is that of 200 resamplings of whole rounds, steps identified by their
    order.
    """
    found = _stairs(lengths, np.median(costs, axis=0))
    rng = np.random.default_rng(seed)
    again = []
    for _ in range(_RESAMPLES):
        rows = rng.integers(0, len(costs), len(costs))
        again.append(_stairs(lengths, np.median(costs[rows], axis=0)))
    told = []
    for number, (before, after, fit, beyond) in enumerate(found):
        lows = [stairs[number][2] for stairs in again if len(stairs) > number] or [fit]
        highs = [stairs[number][3] for stairs in again if len(stairs) > number] or [beyond]
        told.append(
            Step(
                most_that_fit=fit,
                first_beyond=beyond,
                low=min(fit, _quantile(lows, 0.025)),
                high=max(beyond, _quantile(highs, 0.975)),
                before=cycles(np.median(costs[:, before], axis=1)),
                after=cycles(np.median(costs[:, after], axis=1)),
            )
        )
    return told


def _quantile(values: list[int], part: float) -> int:
    return int(np.quantile(values, part, method="inverted_cdf"))


def _stairs(lengths: list[int], medians: NDArray[np.float64]) -> list[tuple[slice, slice, int, int]]:
    """For each step: the lengths before, those after, the longest that fits, and the first beyond."""
    edges = _pieces(np.log(np.maximum(medians, 0) + 1))
    edges = _merged(edges, medians)
    found = []
    for (first, middle), (_, last) in pairwise(pairwise(edges)):
        low, high = np.median(medians[first:middle]), np.median(medians[middle:last])
        within = medians <= low + (high - low) / 4
        beyond = medians >= high - (high - low) / 4
        fits = [at for at in range(first, last) if within[at]]
        outside = [at for at in range(max(fits, default=first), last) if beyond[at]]
        fit = max(fits, default=first)
        found.append((slice(first, middle), slice(middle, last), lengths[fit], lengths[min(outside, default=last - 1)]))
    return found


def _pieces(values: NDArray[np.float64]) -> list[int]:
    """Edges of the constant pieces, from 0 to the number of values, by dynamic programming."""
    count = len(values)
    sums, squares = np.concatenate([[0], np.cumsum(values)]), np.concatenate([[0], np.cumsum(values**2)])
    most = min(_MOST_SEGMENTS, count)
    best = np.full((most + 1, count + 1), np.inf)
    last = np.zeros((most + 1, count + 1), dtype=int)
    best[0, 0] = 0
    for pieces in range(1, most + 1):
        for end in range(pieces, count + 1):
            starts = np.arange(pieces - 1, end)
            errors = squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / (end - starts)
            totals = best[pieces - 1, starts] + np.maximum(errors, 0)
            chosen = int(np.argmin(totals))
            best[pieces, end], last[pieces, end] = totals[chosen], starts[chosen]
    criteria = [
        count * np.log(best[pieces, count] / count + _FLOOR**2) + 2 * pieces * np.log(count)
        for pieces in range(1, most + 1)
    ]
    edges = [count]
    for pieces in range(int(np.argmin(criteria)) + 1, 0, -1):
        edges.append(int(last[pieces, edges[-1]]))
    return edges[::-1]


def _merged(edges: list[int], medians: NDArray[np.float64]) -> list[int]:
    """The edges without those at which the cost falls, or rises by too little to be a level's end."""
    while len(edges) > 2:
        levels = [float(np.median(medians[a:b])) for a, b in pairwise(edges)]
        weak = [
            at
            for at, (low, high) in enumerate(pairwise(levels))
            if high - low < _SMALLEST or high + 1 < _SMALLEST_RATIO * (low + 1)
        ]
        if not weak:
            break
        worst = min(weak, key=lambda at: levels[at + 1] - levels[at])
        del edges[worst + 1]
    return edges
