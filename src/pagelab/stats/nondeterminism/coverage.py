"""How often the intervals hold the true value: ``python -m pagelab.stats.nondeterminism.coverage``.

Simulates experiments whose true values are known and prints the table of docs/method/nondeterminism.md. Seeded: the
same options print the same table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelab.stats.nondeterminism.data import Executions, Experiment
from pagelab.stats.nondeterminism.estimate import Metric
from pagelab.stats.nondeterminism.settings import Resampling
from pagelab.stats.nondeterminism.table import characterize

MEASUREMENTS = 20
EXECUTIONS = (5, 10, 20, 40)
Draw = Callable[[np.random.Generator, int], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Cell:
    """A program: the level of each execution, in percent of 100, and 1% of normal noise in each measurement."""

    name: str
    shown: str
    level: Draw


CELLS = (
    Cell("nothing", "no spread between executions", lambda _, n: np.full(n, 100.0)),
    Cell("equal", "normal, as much between as inside", lambda random, n: random.normal(100, 1, n)),
    Cell("normal", "normal, 5% between, 1% inside", lambda random, n: random.normal(100, 5, n)),
    Cell("lognormal", "log-normal, sigma 0.1, 1% inside", lambda random, n: 100 * random.lognormal(0, 0.1, n)),
    Cell("modes", "half of the executions 10% slower", lambda random, n: random.choice([95.0, 105.0], n)),
    Cell("rare", "1 in 10 executions 10% slower", lambda random, n: 99 + 10.0 * (random.random(n) < 0.1)),
)


def measure(cell: Cell, random: np.random.Generator, experiments: int, executions: int) -> NDArray[np.float64]:
    """Times, experiments × executions × measurements."""
    levels = cell.level(random, experiments * executions).reshape(experiments, executions, 1)
    return np.asarray(levels + random.normal(0, 1, (experiments, executions, MEASUREMENTS)))


def truth(cell: Cell, group: int) -> dict[Metric, float]:
    """True values, from two million executions; of the impact factor, at this group size."""
    random = np.random.default_rng(10)
    levels = cell.level(random, 2_000_000)
    mean = float(levels.mean())
    draws = 200_000
    between = cell.level(random, draws * group).reshape(draws, group) + random.normal(0, 1, (draws, group))
    within = random.normal(0, 1, (draws, group))
    ratio = between.std(axis=1, ddof=1).mean() * (1 / within.std(axis=1, ddof=1)).mean()
    return {
        Metric.MEAN: mean,
        Metric.MEASUREMENT: float((1 / levels).mean()),
        Metric.UNCLASSIFIED: float(np.sqrt(levels.var() + 1)) / mean,
        Metric.EXECUTION: float(ratio),
    }


def coverage(cell: Cell, executions: int, experiments: int, seed: int) -> dict[Metric, float]:
    """Percent of experiments whose interval holds the true value."""
    random = np.random.default_rng([seed, executions, CELLS.index(cell)])
    data = measure(cell, random, experiments, executions)
    table = characterize(
        [Experiment(str(i), cell.name, Executions.of(rows)) for i, rows in enumerate(data)],
        Resampling(seed=seed, resamples=499, ratio_draws=50, estimate_draws=100),
    )
    true = truth(cell, min(executions, MEASUREMENTS))
    grids = {metric: table.grid(metric) for metric in Metric}
    return {
        metric: 100 * float(((grid.low <= true[metric]) & (true[metric] <= grid.high)).mean())
        for metric, grid in grids.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=int, default=1_000, help="simulated for each figure")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    heads = [f"{short} {n}" for short in ("mean", "measurement", "unclassified", "execution") for n in EXECUTIONS]
    print("| program |", " | ".join(heads), "|")
    print("| --- |", " --: |" * len(heads), sep="")
    for cell in CELLS:
        found = [coverage(cell, n, arguments.experiments, arguments.seed) for n in EXECUTIONS]
        row = [f"{one[metric]:.0f}" for metric in Metric for one in found]
        print(f"| {cell.shown} |", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
