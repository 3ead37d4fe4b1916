"""Sets of programs of known truth: ``python -m bench.coverage.sets`` makes a table of docs/method/nondeterminism.md.

False alarms, coverage and width of what a study says of a set, from executions that are drawn in blocks on a machine
that all its programs share. Seeded: the same options give the same table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

import numpy as np

from bench.coverage.machines import MACHINES, SHAPES, Array
from bench.coverage.tables import experiments_of, put
from pagelab.stats.interval import Interval
from pagelab.stats.paired import paired_shift, pairs_of
from pagelab.stats.refusal import StatsRefusedError
from pagelab.stats.set_mean import set_ratio, spread_ratio

DOCUMENT = Path(__file__).parents[2] / "docs/method/nondeterminism.md"
LEVEL = 0.95
SIZES = ((20, 6), (50, 6), (50, 20))
"""Numbers of programs, and of executions of each."""
QUANTITIES = ("time", "spread")


@dataclass(frozen=True)
class Cell:
    """A population of programs: what the policy does to the log of time and of spread, and how that varies."""

    name: str
    time: float = 0.0
    spread: float = 0.0
    time_varies: float = 0.0
    """Standard deviation between programs."""
    spread_varies: float = 0.0
    share: float = 1.0
    """Share of programs on which the policy has any effect."""
    machine: str = "quiet"


CELLS = (
    Cell("no effect"),
    Cell("no effect, drifting machine", machine="drifting"),
    Cell("no effect, bursts", machine="bursts"),
    Cell("no effect, memory", machine="memory"),
    Cell("no effect on average, programs vary", time_varies=0.02, spread_varies=0.3),
    Cell("2% slower", log(1.02)),
    Cell("2% slower, memory", log(1.02), machine="memory"),
    Cell("spread halved", 0.0, log(0.5)),
    Cell("2% slower and spread halved, programs vary", log(1.02), log(0.5), 0.02, 0.3),
    Cell("1 program in 5: 10% slower, spread doubled", log(1.1), log(2), share=0.2),
)


@dataclass(frozen=True)
class Outcome:
    covered: float
    """Share of intervals that hold the truth."""
    rejected: float
    """Share of p ≤ 0.05."""
    half_width: float
    """Median half-width of the ratio's interval, in percent."""


def ratios_of(cell: Cell, random: np.random.Generator, programs: int, executions: int) -> tuple[Array, Array]:
    """Every program's ratio of times and of spreads, as a study makes them; programs without a spread have none.

    A program has a shape of ``SHAPES`` times a log-normal factor (median 0.37, sigma 0.7). Blocks hold every program
    under both conditions, in random order, on one machine. A factor of the spread stretches log times.
    """
    shapes = list(SHAPES.values())
    has = random.random(programs) < cell.share
    effects = has * random.normal(cell.time, cell.time_varies, programs)
    factors = np.exp(has * random.normal(cell.spread, cell.spread_varies, programs))
    places = random.permuted(np.tile(np.arange(2 * programs), (executions, 1)), axis=1)
    machine = MACHINES[cell.machine](random, 2 * programs * executions).reshape(executions, 2 * programs)
    slow = np.take_along_axis(machine, places, axis=1)
    blocks = np.arange(executions)
    times, spreads = [], []
    for i in range(programs):
        draw, scale = shapes[random.integers(len(shapes))], exp(random.normal(-1, 0.7))
        own = scale * draw(random, (2, executions))
        sides = np.exp(own * [[factors[i]], [1.0]] + [[effects[i]], [0.0]] + slow[:, 2 * i : 2 * i + 2].T)
        pairs = pairs_of(sides[0], sides[1], treatment_blocks=blocks, baseline_blocks=blocks)
        times.append(exp(paired_shift(pairs.apart()).estimate))
        try:
            spreads.append(spread_ratio(pairs))
        except StatsRefusedError:
            continue
    return np.array(times), np.array(spreads)


def truth(cell: Cell, executions: int, programs: int = 40_000) -> dict[str, float]:
    """Geometric mean of the ratios of the whole population, at so many executions.

    Known where the policy leaves the spread alone. Where it does not, the ratio of skewed times has no known centre,
    and it is that of many programs.
    """
    if cell.spread == 0:
        return {"time": exp(cell.share * cell.time), "spread": 1.0}
    random = np.random.default_rng([2, executions, *map(ord, cell.name)])
    parts = [ratios_of(cell, random, 1000, executions) for _ in range(programs // 1000)]
    return {
        quantity: exp(float(np.concatenate([np.log(part[i]) for part in parts]).mean()))
        for i, quantity in enumerate(QUANTITIES)
    }


def simulate(
    cell: Cell, *, programs: int, executions: int, experiments: int, seed: int, true: dict[str, float] | None = None
) -> dict[str, Outcome]:
    """Simulates studies of sets of programs and judges them as reports do."""
    random = np.random.default_rng([seed, programs, executions, *map(ord, cell.name)])
    true = true or truth(cell, executions)
    held, wrong = dict.fromkeys(QUANTITIES, 0), dict.fromkeys(QUANTITIES, 0)
    widths: dict[str, list[float]] = {quantity: [] for quantity in QUANTITIES}
    for number in range(experiments):
        for quantity, ratios in zip(QUANTITIES, ratios_of(cell, random, programs, executions), strict=True):
            found = set_ratio(ratios, level=LEVEL, seed=seed + number)
            assert isinstance(found.interval, Interval)
            held[quantity] += true[quantity] in found.interval
            wrong[quantity] += found.p <= 1 - LEVEL
            widths[quantity].append(100 * found.interval.half_width / found.ratio)
    return {
        quantity: Outcome(
            held[quantity] / experiments, wrong[quantity] / experiments, float(np.median(widths[quantity]))
        )
        for quantity in QUANTITIES
    }


def _one(cell: Cell, programs: int, executions: int, experiments: int, seed: int) -> dict[str, Outcome]:
    return simulate(cell, programs=programs, executions=executions, experiments=experiments, seed=seed)


def outcomes(experiments: int, seed: int, jobs: int) -> Iterator[tuple[Cell, tuple[int, int], dict[str, Outcome]]]:
    wanted = [(cell, *size) for cell in CELLS for size in SIZES]
    with ProcessPoolExecutor(jobs) as pool:
        found = pool.map(_one, *zip(*wanted, strict=True), [experiments] * len(wanted), [seed] * len(wanted))
        for (cell, *size), outcome in zip(wanted, found, strict=True):
            yield cell, (size[0], size[1]), outcome


def table(found: list[tuple[Cell, tuple[int, int], dict[str, Outcome]]], experiments: int) -> str:
    heads = [f"{quantity} {programs} × {n}" for quantity in QUANTITIES for programs, n in SIZES]
    lines = [f"| programs | {' | '.join(heads)} |", f"| --- |{' --: |' * len(heads)}"]
    for cell in CELLS:
        mine = {size: outcome for one, size, outcome in found if one == cell}
        cells = [_shown(mine[size][quantity]) for quantity in QUANTITIES for size in SIZES]
        lines.append(f"| {cell.name} | {' | '.join(cells)} |")
    error = 100 * (0.05 * 0.95 / experiments) ** 0.5
    return "\n".join(lines) + f"\n\nEach figure: {experiments:,} studies; standard error {error:.1f} at 5 and 95%."


def _shown(one: Outcome) -> str:
    return f"{100 * one.covered:.1f} ({100 * one.rejected:.1f}) ±{one.half_width:.1f}"


def main() -> int:
    arguments = experiments_of("python -m bench.coverage.sets", __doc__, "simulated for each figure")
    found = list(outcomes(arguments.experiments, arguments.seed, arguments.jobs))
    put("coverage of sets", table(found, arguments.experiments), DOCUMENT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
