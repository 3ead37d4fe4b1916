"""Coverage of every interval that a report prints, at fixed n, with the shipped settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bench.coverage.programs import MEASUREMENTS, PROGRAMS, SHAPES, Array, Program, true_median, true_sd_of_logs, truth
from pagelab import stats
from pagelab.diagnose import judge
from pagelab.diagnose.spread import between_values, coefficient_of_variation, mean_shift, spread_ratio
from pagelab.stats import nondeterminism as nd
from pagelab.stats.interval import Interval
from pagelab.stats.nondeterminism import Estimate, Metric
from pagelab.stats.paired_mean import paired_mean_ratio

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
RATIOS_OF_SINGLES = {
    "ratio of means of single measurements (Fieller)": Metric.MEAN,
    "ratio of CVs of single measurements": Metric.UNCLASSIFIED,
}
COPIES = 3
"""Copies of the default in every block of a diagnosis, against one pinned value."""
DRAWN_VALUES = 5
SLOW = 4
"""Only one in this many experiments is used for the slowest methods: bootstraps, permutations, drawn signs."""


@dataclass(frozen=True, slots=True)
class Covered:
    """Share of simulated experiments whose interval contained the truth."""

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
            found = {**_spreads(program, times, seed), **_ratios(RATIOS, times, others, seed)}
            if program.differ:
                single, other = (program.times(random, experiments, n, 1) for _ in range(2))
                found |= _singles(program, single, seed) | _ratios(RATIOS_OF_SINGLES, single, other, seed)
                found |= _diagnosed(program, random, n, -(-experiments // SLOW), seed)
            found |= _of_means(program, times.mean(axis=2), others.mean(axis=2), seed)
            for interval, held in found.items():
                yield Covered(interval, program, n, held)


def _characterized(times: Array, seed: int) -> nd.Table:
    experiments = [nd.Experiment(str(i), "a", nd.Executions.of(rows)) for i, rows in enumerate(times)]
    return nd.characterize(experiments, nd.Resampling(seed=seed, level=LEVEL))


def _held(table: nd.Table, metric: Metric, true: float) -> float:
    """Share of intervals that contain the truth; a refused interval contains nothing."""
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


def _ratios(names: Mapping[str, Metric], times: Array, others: Array, seed: int) -> dict[str, float]:
    """Coverage of ratios between two experiments of one program, whose true change is 0."""
    held = dict.fromkeys(names, 0)
    settings = nd.Resampling(seed=seed, level=LEVEL)
    for i, sides in enumerate(zip(times, others, strict=True)):
        pair = [nd.Experiment(str(i), name, nd.Executions.of(rows)) for name, rows in zip("ab", sides, strict=True)]
        percent = {one.metric: one.percent for one in nd.changes(pair[0], pair[1], settings).changes}
        for name, metric in names.items():
            found = percent[metric]
            held[name] += isinstance(found, Estimate) and 0 in found.interval
    return {name: count / len(times) for name, count in held.items()}


def _of_means(program: Program, means: Array, others: Array, seed: int) -> dict[str, float]:
    """Coverage of intervals from one value per execution; the two of a block are independent draws of one program."""
    low, high = true_median(program, MEASUREMENTS)
    random = np.random.default_rng([seed, 5])
    spread = float(means.std())
    held: dict[str, list[bool]] = {}

    def holds(name: str, interval: object, true: float, most: float | None = None) -> None:
        """``most``: where every value from ``true`` up to it is the truth."""
        inside = isinstance(interval, Interval) and interval.low <= (true if most is None else most)
        held.setdefault(name, []).append(inside and isinstance(interval, Interval) and true <= interval.high)

    blocks = np.arange(means.shape[1])
    for number, (values, other) in enumerate(zip(means, others, strict=True)):
        holds("median", stats.median_interval(values, level=LEVEL).interval, low, high)
        pairs = stats.pairs_of(values, other, treatment_blocks=blocks, baseline_blocks=blocks)
        sizes = {
            "shift": stats.hodges_lehmann(values, other, level=LEVEL),
            "relative change": stats.relative_effect(values, other, level=LEVEL),
            "ratio of pairs": stats.paired_ratio(pairs, level=LEVEL),
        }
        for name, size in sizes.items():
            holds(f"{name}, exact order", size.interval, 0)
            holds(f"{name}, any shape", size.any_shape, 0)
        holds("ratio of means of pairs (Fieller)", paired_mean_ratio(pairs, level=LEVEL).interval, 0)
        holds("geometric mean over programs", nd.geometric_mean(values / other, level=LEVEL).interval, 1)
        if number % SLOW == 0:
            # Misses that follow the time with a correlation of 1/√2.
            misses = values + random.normal(0, spread, values.size)
            found = nd.correlation(values, misses, seed=seed, level=LEVEL)
            holds("correlation, bootstrap", found.interval, 0.5**0.5)
            holds("correlation, Fisher", found.fisher, 0.5**0.5)
            holds("set of programs", stats.set_ratio(values / other, level=LEVEL, seed=seed + number).interval, 1)
    return {name: sum(each) / len(each) for name, each in held.items()}


def _diagnosed(
    program: Program, random: np.random.Generator, blocks: int, experiments: int, seed: int
) -> dict[str, float]:
    """What ``pagelab diagnose`` shows of so many blocks, one time an execution; a pin without effect, at equal spread.

    The share: of drawn values whose effects have the program's shape and make half of the variance.
    """
    sd = true_sd_of_logs(program)
    spread = coefficient_of_variation(sd)
    held = dict.fromkeys(
        (
            "diagnose: variance removed",
            "diagnose: mean shift",
            "diagnose: spread of the default",
            "diagnose: share of drawn values",
        ),
        0,
    )
    for number in range(experiments):
        rows = program.times(random, COPIES + 1, blocks, 1)[:, :, 0]
        levels = np.log(SHAPES[program.shape](random, (DRAWN_VALUES, 1)))
        drawn = np.exp(levels + random.normal(0, true_sd_of_logs(program, noise=False), (DRAWN_VALUES, blocks)))
        share = between_values(drawn, drawn=True, seed=seed, permutations=1).share
        assert share is not None
        ends = (
            (spread_ratio(rows[:COPIES], rows[COPIES:], seed=seed + number, level=LEVEL).removed, 0.0),
            (mean_shift(rows[:COPIES], rows[COPIES:], level=LEVEL), 0.0),
            (judge.default_spread(rows[:COPIES], LEVEL), spread),
            (share, 0.5),
        )
        for name, (found, true) in zip(held, ends, strict=True):
            held[name] += found.low <= true <= found.high
    return {name: count / experiments for name, count in held.items()}
