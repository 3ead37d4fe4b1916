"""Draws studies and keeps every interval at every look; each finished chunk is a file, so a stop loses little."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.coverage.precision.cells import CELLS, Cell, Distribution, true_shift
from pagelab.stats.interval import Interval, NotAchievable
from pagelab.stats.mean import mean_interval
from pagelab.stats.median import median_interval
from pagelab.stats.precision import PrecisionPlan
from pagelab.stats.shift import hodges_lehmann

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVEL = 0.95
SMALL_LOOKS = (6, 10)
"""Numbers of executions simulated at fixed n only."""
RESAMPLES = 999
KINDS = ("exact", "any-shape", "median")
"""Two intervals for the shift, and one for where the baseline lies."""
INTERVALS = (*KINDS, *(f"spent-{kind}" for kind in KINDS), "mean")
"""At 95%, and at the level that the plan gives each look; the mean's, by far the slowest, at 95% only."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of work with a seed of its own: results do not depend on the order of work or on the number of jobs."""

    cell: int
    index: int
    replications: int
    seed: int

    def path(self, work: Path) -> Path:
        return work / f"{CELLS[self.cell].name}-{self.seed}-{self.index:04d}-{self.replications}.npy"


def sizes(cell: Cell) -> tuple[int, ...]:
    return SMALL_LOOKS + cell.looks


def run_chunk(chunk: Chunk, work: Path) -> Path:
    """Simulate, or find it done: an array (replication, n, interval, [relative half-width, covered]) in a file."""
    path = chunk.path(work)
    if path.exists():
        return path
    cell = CELLS[chunk.cell]
    random = np.random.Generator(np.random.PCG64([chunk.seed, chunk.cell, chunk.index]))
    result = np.empty((chunk.replications, len(sizes(cell)), len(INTERVALS), 2))
    for replication in range(chunk.replications):
        result[replication] = _one_study(cell, random)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as out:
        np.save(out, result)
    partial.rename(path)
    return path


def _one_study(cell: Cell, random: np.random.Generator) -> NDArray[np.float64]:
    treatment, baseline = cell.sample(random, cell.looks[-1])
    spent = PrecisionPlan(cell.looks, 1.0, LEVEL).level_at(cell.looks[0])
    shift, median, mean = true_shift(cell), _median(cell.baseline), cell.baseline.mean
    stationary = cell.drift == "none"
    rows = []
    for n in sizes(cell):
        x, y = treatment[:n], baseline[:n]
        reference = float(np.median(y))
        seed = int(random.integers(2**63))
        average = mean_interval(y, level=LEVEL, seed=seed, resamples=RESAMPLES).interval
        row = []
        for level in (LEVEL, spent):
            pair = hodges_lehmann(x, y, level=level)
            centre = median_interval(y, level=level).interval
            row += [
                _entry(pair.interval, reference, shift),
                _entry(pair.any_shape, reference, shift),
                _entry(centre, reference, median if stationary else None),
            ]
        row.append(_entry(average, reference, mean if stationary else None))
        rows.append(row)
    return np.array(rows)


def _entry(interval: Interval | NotAchievable, reference: float, truth: float | None) -> tuple[float, float]:
    """Relative half-width, and 1 when the truth is inside: NaN when there is none, or no interval (infinitely wide)."""
    if isinstance(interval, NotAchievable):
        return np.inf, np.nan
    slack = 1e-12  # rounding to a lattice leaves differences of a few ulps where they are 0
    covered = np.nan if truth is None else float(interval.low - slack <= truth <= interval.high + slack)
    return interval.half_width / reference, covered


@cache
def _median(distribution: Distribution) -> float:
    return distribution.median
