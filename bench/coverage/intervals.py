"""Coverage of every interval that a report prints, at fixed n, with the shipped settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bench.coverage.programs import MEASUREMENTS, PROGRAMS, Array, Program, true_median, truth
from pagelab import stats
from pagelab.stats import nondeterminism as nd
from pagelab.stats.interval import Interval
from pagelab.stats.nondeterminism import Estimate, Metric

LEVEL = 0.95
EXECUTIONS = (6, 10, 20, 40)
SPREADS = {
    "mean": Metric.MEAN,
    "CV inside": Metric.MEASUREMENT,
    "CV of everything": Metric.UNCLASSIFIED,
    "impact factor": Metric.EXECUTION,
}
GEOMETRIC = "impact factor, geometric"
SINGLE = {"mean of single measurements": Metric.MEAN, "CV of single measurements": Metric.UNCLASSIFIED}
RATIOS = {
    "ratio of means (Fieller)": Metric.MEAN,
    "ratio of CVs inside": Metric.MEASUREMENT,
    "ratio of CVs of everything": Metric.UNCLASSIFIED,
    "ratio of impact factors": Metric.EXECUTION,
}


@dataclass(frozen=True, slots=True)
class Covered:
    """Share of simulated experiments whose interval held the truth."""

    interval: str
    program: Program
    n: int
    covered: float


def measure(experiments: int, seed: int) -> Iterator[Covered]:
    """Every interval × program × n."""
    for number, program in enumerate(PROGRAMS):
        for n in EXECUTIONS:
            random = np.random.default_rng([seed, number, n])
            times = program.times(random, experiments, n, MEASUREMENTS)
            others = program.times(random, experiments, n, MEASUREMENTS)
            found = {**_spreads(program, times, seed), **_ratios(times, others, seed)}
            if program.differ:
                found |= _singles(program, program.times(random, experiments, n, 1), seed)
            found |= _of_means(program, times.mean(axis=2), others.mean(axis=2), seed)
            for interval, held in found.items():
                yield Covered(interval, program, n, held)


def _characterized(times: Array, seed: int) -> nd.Table:
    experiments = [nd.Experiment(str(i), "a", nd.Executions.of(rows)) for i, rows in enumerate(times)]
    return nd.characterize(experiments, nd.Resampling(seed=seed, level=LEVEL))


def _held(table: nd.Table, metric: Metric, true: float) -> float:
    """An interval that was refused holds nothing."""
    grid = table.grid(metric)
    return float(((grid.low <= true) & (true <= grid.high)).mean())


def _spreads(program: Program, times: Array, seed: int) -> dict[str, float]:
    table = _characterized(times, seed)
    group = min(times.shape[1], MEASUREMENTS)
    found = {name: _held(table, metric, truth(program, metric, group)) for name, metric in SPREADS.items()}
    true = truth(program, None, group)
    impacts = [table.impact(i) for i in range(len(times))]
    found[GEOMETRIC] = float(
        np.mean([isinstance(one, nd.ImpactFactor) and true in one.log_mean.interval for one in impacts])
    )
    return found


def _singles(program: Program, times: Array, seed: int) -> dict[str, float]:
    table = _characterized(times, seed)
    return {name: _held(table, metric, truth(program, metric, 0)) for name, metric in SINGLE.items()}


def _ratios(times: Array, others: Array, seed: int) -> dict[str, float]:
    """Of two experiments of one program: the true change is 0."""
    held = dict.fromkeys(RATIOS, 0)
    settings = nd.Resampling(seed=seed, level=LEVEL)
    for i, sides in enumerate(zip(times, others, strict=True)):
        pair = [nd.Experiment(str(i), name, nd.Executions.of(rows)) for name, rows in zip("ab", sides, strict=True)]
        percent = {one.metric: one.percent for one in nd.changes(pair[0], pair[1], settings).changes}
        for name, metric in RATIOS.items():
            found = percent[metric]
            held[name] += isinstance(found, Estimate) and 0 in found.interval
    return {name: count / len(times) for name, count in held.items()}


def _of_means(program: Program, means: Array, others: Array, seed: int) -> dict[str, float]:
    """Intervals that rest on one value an execution."""
    low, high = true_median(program, MEASUREMENTS)
    every = 4  # of the correlation, whose bootstrap takes the longest
    names = ("median", "shift, exact order", "shift, any shape", "correlation, bootstrap", "correlation, Fisher")
    held = dict.fromkeys((*names, "geometric mean over programs"), 0)
    random = np.random.default_rng([seed, 5])
    spread = float(means.std())
    for number, (values, other) in enumerate(zip(means, others, strict=True)):
        median = stats.median_interval(values, level=LEVEL).interval
        held["median"] += isinstance(median, Interval) and median.low <= high and low <= median.high
        shift = stats.hodges_lehmann(values, other, level=LEVEL)
        for name, interval in (("shift, exact order", shift.interval), ("shift, any shape", shift.any_shape)):
            held[name] += isinstance(interval, Interval) and 0 in interval
        if number % every == 0:
            # Misses that follow the time with a correlation of 1/√2.
            found = nd.correlation(values, values + random.normal(0, spread, values.size), seed=seed, level=LEVEL)
            for name, each in (("correlation, bootstrap", found.interval), ("correlation, Fisher", found.fisher)):
                held[name] += every * (isinstance(each, Interval) and 0.5**0.5 in each)
        mean = nd.geometric_mean(values / other, level=LEVEL)
        held["geometric mean over programs"] += 1 in mean.interval
    looked = every * -(-len(means) // every)
    return {name: count / (looked if "corr" in name else len(means)) for name, count in held.items()}
