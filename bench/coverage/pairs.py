"""Pairs on machines with known truth: ``python -m bench.coverage.pairs`` makes the tables of docs/method/pairs.md.

False alarms of the test within blocks, coverage of its intervals, and their width beside those that ignore the blocks.
Seeded: the same options give the same tables.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from bench.coverage.machines import MACHINES, SHAPES, study
from bench.coverage.tables import experiments_of, put
from pagelab.stats.interval import Interval
from pagelab.stats.paired import paired_ratio, pairs_of
from pagelab.stats.rank_test import rank_sum
from pagelab.stats.relative import relative_effect
from pagelab.stats.wilcoxon import signed_rank

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/method/pairs.md"
CSV = ROOT / "docs/method/pairs_coverage.csv"
LEVEL = 0.95
SIZES = (10, 40)
EFFECT = float(np.log(1.05))
"""The treatment takes 5% longer."""
TRUTH_BLOCKS = 200_000
UNEQUAL = {
    "steady, two modes": ("steady", "two modes"),
    "steady, skewed": ("steady", "skewed"),
    "rare mode, two modes": ("rare mode", "two modes"),
    "steady, rare mode": ("steady", "rare mode"),
}
"""Baseline and treatment of different shapes."""


@dataclass(frozen=True, slots=True)
class Cell:
    machine: str
    program: str
    n: int
    experiments: int
    false_alarms: float
    """Share of p ≤ 0.05 where both conditions are one program; empty where they are not."""
    false_alarms_unpaired: float
    found: float
    """Share of p ≤ 0.05 where the treatment is 5% slower."""
    found_unpaired: float
    coverage: float
    coverage_any_shape: float
    coverage_unpaired: float
    half_width: float
    """Median half-width, in percent."""
    half_width_unpaired: float


def cell(machine: str, program: str, n: int, experiments: int, seed: int) -> Cell:
    """One cell of the table. ``program``: a shape, or baseline and treatment of ``UNEQUAL``."""
    random = np.random.default_rng([seed, n, *map(ord, machine + program)])
    names = UNEQUAL.get(program, (program, program))
    shapes = SHAPES[names[0]], SHAPES[names[1]]
    truths = _truths(random, machine, shapes) if program in UNEQUAL else (100 * np.expm1(EFFECT),) * 2
    counts = np.zeros(7)
    widths: list[tuple[float, float]] = []
    for _ in range(experiments):
        one = study(random, MACHINES[machine], shapes, (0.0, EFFECT), n)
        baseline, treatment = one.times.T
        null = treatment / np.exp(EFFECT)
        pairs = pairs_of(treatment, baseline, treatment_blocks=one.blocks, baseline_blocks=one.blocks)
        same = pairs_of(null, baseline, treatment_blocks=one.blocks, baseline_blocks=one.blocks)
        ratio, loose = paired_ratio(pairs, level=LEVEL), relative_effect(treatment, baseline, level=LEVEL)
        assert isinstance(ratio.interval, Interval)
        assert isinstance(ratio.any_shape, Interval)
        assert isinstance(loose.interval, Interval)
        counts += [
            signed_rank(same.apart()).p <= 1 - LEVEL,
            rank_sum(null, baseline).p <= 1 - LEVEL,
            signed_rank(pairs.apart()).p <= 1 - LEVEL,
            rank_sum(treatment, baseline).p <= 1 - LEVEL,
            truths[0] in ratio.interval,
            truths[0] in ratio.any_shape,
            truths[1] in loose.interval,
        ]
        widths.append((ratio.interval.half_width, loose.interval.half_width))
    shares = counts / experiments
    if program in UNEQUAL:
        shares[:2] = np.nan
    return Cell(machine, program, n, experiments, *map(float, shares), *map(float, np.median(widths, axis=0)))


def _truths(random: np.random.Generator, machine: str, shapes: tuple) -> tuple[float, float]:
    """What the two estimates estimate: medians of averages of two pairs, and of ratios of executions anywhere."""
    one = np.log(study(random, MACHINES[machine], shapes, (0.0, EFFECT), TRUTH_BLOCKS).times)
    if machine == "drifting":  # its walk goes on for ever: many short studies in place of a long one
        parts = [study(random, MACHINES[machine], shapes, (0.0, EFFECT), 20).times for _ in range(TRUTH_BLOCKS // 20)]
        one = np.log(np.concatenate(parts))
    apart = one[:, 1] - one[:, 0]
    other = random.permutation(len(apart))
    return tuple(
        float(100 * np.expm1(np.median(each))) for each in ((apart + apart[other]) / 2, one[:, 1] - one[other, 0])
    )


def cells(experiments: int, seed: int, jobs: int) -> Iterator[Cell]:
    wanted = [(machine, program, n) for machine in MACHINES for program in (*SHAPES, *UNEQUAL) for n in SIZES]
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(cell, *zip(*wanted, strict=True), [experiments] * len(wanted), [seed] * len(wanted))


def write(found: list[Cell]) -> None:
    with CSV.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, [field.name for field in fields(Cell)], lineterminator="\n")
        table.writeheader()
        for one in found:
            row = {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(one).items()}
            table.writerow({key: "" if value != value else value for key, value in row.items()})


def tables(found: list[Cell]) -> dict[str, str]:
    """By name of their place in the document."""
    at = {(one.machine, one.program, one.n): one for one in found}
    heads = [f"{machine} {n}" for machine in MACHINES for n in (10, 40)]

    def table(programs: list[str], of: str, other: str = "") -> str:
        lines = [f"| program | {' | '.join(heads)} |", f"| --- |{' --: |' * len(heads)}"]
        for program in programs:
            row = []
            for machine in MACHINES:
                for n in (10, 40):
                    one = at[machine, program, n]
                    value = getattr(one, of)
                    shown = f"{value:.1f}" if of.startswith("half") else f"{100 * value:.1f}"
                    if other:
                        second = getattr(one, other)
                        shown += f" ({second:.1f})" if of.startswith("half") else f" ({100 * second:.1f})"
                    row.append(shown)
            lines.append(f"| {program} | {' | '.join(row)} |")
        return "\n".join(lines)

    return {
        "alarms": table(list(SHAPES), "false_alarms", "false_alarms_unpaired"),
        "coverage": table(list(SHAPES), "coverage", "coverage_unpaired"),
        "unequal": table(list(UNEQUAL), "coverage", "coverage_any_shape"),
        "width": table([*SHAPES, *UNEQUAL], "half_width", "half_width_unpaired"),
        "found": table(list(SHAPES), "found", "found_unpaired"),
    }


def main() -> int:
    arguments = experiments_of("python -m bench.coverage.pairs", __doc__, "simulated for each cell")
    found = list(cells(arguments.experiments, arguments.seed, arguments.jobs))
    write(found)
    for name, text in tables(found).items():
        put(f"pairs: {name}", text, DOCUMENT)
    worst = 100 * max(one.false_alarms for one in found if one.false_alarms == one.false_alarms)
    least = [100 * min(getattr(one, of) for one in found) for of in ("coverage", "coverage_any_shape")]
    print(f"{len(found)} cells; false alarms at most {worst:.1f}%, coverage at least {least[0]:.1f}%, {least[1]:.1f}%")
    return 0


if __name__ == "__main__":
    sys.exit(main())
