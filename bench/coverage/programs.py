"""Simulated programs with known times: a distribution, with or without differences between executions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelab.stats.nondeterminism import Metric

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], NDArray[Any]]
MEASUREMENTS = 20
NOISE = 1.0
"""Standard deviation of each measurement, in percent of 100."""
SHAPES: dict[str, Draw] = {
    "normal": lambda random, shape: random.normal(100, 5, shape),
    "lognormal": lambda random, shape: 100 * random.lognormal(0, 0.3, shape),
    "two modes": lambda random, shape: random.choice([95.0, 105.0], shape),
    "rare mode": lambda random, shape: 99 + 10.0 * (random.random(shape) < 0.1),
}
DESCRIBED = {
    "normal": "sd 5%",
    "lognormal": "sigma 0.3",
    "two modes": "half is 10% slower",
    "rare mode": "1 in 10 is 10% slower",
}


@dataclass(frozen=True, slots=True)
class Program:
    """``differ``: executions have a level of that shape, and normal noise inside.

    Else measurements have that shape, and executions do not differ.
    """

    shape: str
    differ: bool

    @property
    def shown(self) -> str:
        return f"{self.shape}, {'between executions' if self.differ else 'inside only'}"

    def times(self, random: np.random.Generator, experiments: int, executions: int, measurements: int) -> Array:
        """Times, shape experiments × executions × measurements."""
        shape = (experiments, executions, 1 if self.differ else measurements)
        noise = random.normal(0, NOISE, (experiments, executions, measurements))
        return np.asarray(SHAPES[self.shape](random, shape) + noise)


PROGRAMS = tuple(Program(shape, differ) for differ in (True, False) for shape in SHAPES)


@cache
def truth(program: Program, metric: Metric | None, group: int) -> float:
    """The true value, from 200,000 executions; the CV inside at ``MEASUREMENTS``, the impact factor at this group size.

    None: the geometric mean of the impact factor's ratios.
    """
    random = np.random.default_rng([10, group])
    draws = 200_000
    if metric in (Metric.MEAN, Metric.UNCLASSIFIED):
        times = SHAPES[program.shape](random, (4_000_000,))
        mean = float(times.mean())
        return mean if metric is Metric.MEAN else float(np.sqrt(times.var() + NOISE**2)) / mean
    inside = np.concatenate([program.times(random, 1, draws // 10, MEASUREMENTS)[0] for _ in range(10)])
    if metric is Metric.MEASUREMENT:
        return float((inside.std(axis=1, ddof=1) / inside.mean(axis=1)).mean())
    between = program.times(random, draws, group, 1)[:, :, 0].std(axis=1, ddof=1)
    within = inside[:, :group].std(axis=1, ddof=1)
    if metric is Metric.EXECUTION:
        return float(between.mean() * (1 / within).mean())
    return float(np.exp(np.log(between).mean() - np.log(within).mean()))


@cache
def true_sd_of_logs(program: Program, *, noise: bool = True) -> float:
    """Of single measurements; without ``noise``, of the executions' levels."""
    random = np.random.default_rng(12)
    times = SHAPES[program.shape](random, (4_000_000,)) + (random.normal(0, NOISE, 4_000_000) if noise else 0)
    return float(np.log(times).std())


@cache
def true_median(program: Program, measurements: int) -> tuple[float, float]:
    """Ends of the median of an execution's mean: the same, but for a gap between modes."""
    random = np.random.default_rng(11)
    means = np.concatenate([program.times(random, 1, 100_000, measurements)[0].mean(axis=1) for _ in range(10)])
    return float(np.quantile(means, 0.4995)), float(np.quantile(means, 0.5005))
