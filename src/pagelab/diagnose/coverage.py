"""How often a diagnosis is wrong: ``python -m pagelab.diagnose.coverage`` prints the tables of docs/diagnose.md.

Simulates run times whose spread is known. Seeded: the same options print the same tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelab.diagnose.spread import between_values, spread_ratio
from pagelab.stats.multiplicity import holm

COPIES = 3
SOURCES = (1, 5, 2, 1, 4, 4, 2, 2, 1)
"""Pinned values of each source of a whole diagnosis."""
Draw = Callable[[np.random.Generator, tuple[int, ...]], NDArray[Any]]


@dataclass(frozen=True)
class Shape:
    """A distribution of run times around 100."""

    name: str
    draw: Draw


def _drifting(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """The machine is a busier one in some blocks: both level and noise follow."""
    blocks = np.cumsum(random.normal(0, 0.3, shape[-1]))
    return np.asarray(100 + 2 * blocks + random.normal(0, 1, shape) * np.exp(blocks))


SHAPES = (
    Shape("normal", lambda random, n: random.normal(100, 2, n)),
    Shape("log-normal (σ = 0.5)", lambda random, n: 90 + 10 * random.lognormal(0, 0.5, n)),
    Shape("exponential", lambda random, n: 90 + random.exponential(5, n)),
    Shape("two modes, 30% apart", lambda random, n: random.choice([85.0, 115.0], n) + random.normal(0, 1, n)),
    Shape("1 in 10 is 30% slower", lambda random, n: 100 + 30 * (random.random(n) < 0.1) + random.normal(0, 1, n)),
    Shape("t with 3 degrees", lambda random, n: 200 + random.standard_t(3, n)),
    Shape("drifting machine", _drifting),
)


def false_alarms(shape: Shape, blocks: int, diagnoses: int, permutations: int) -> float:
    """Percent of diagnoses of an A/A program that accuse any source of anything, after Holm."""
    random = np.random.default_rng([1, blocks, SHAPES.index(shape) if shape in SHAPES else len(SHAPES)])
    wrong = 0
    for number in range(diagnoses):
        rows = shape.draw(random, (COPIES + sum(SOURCES), blocks))
        default, rest = rows[:COPIES], np.split(rows[COPIES:], np.cumsum(SOURCES)[:-1])
        settings = {"seed": number, "permutations": permutations}
        p = [spread_ratio(default, values, **settings).p for values in rest]
        p += [between_values(values, drawn=True, **settings).p for values in rest if len(values) > 1]
        wrong += any(holm(p).rejected)
    return 100 * wrong / diagnoses


@dataclass(frozen=True)
class Change:
    """A default and a pinned distribution, with the true ratio of their standard deviations."""

    name: str
    default: Draw
    pinned: Draw
    ratio: float


_MODES_SD = float(np.hypot(15, 1))
CHANGES = (
    Change("normal, half", lambda r, n: r.normal(100, 4, n), lambda r, n: r.normal(100, 2, n), 0.5),
    Change("log-normal, half", lambda r, n: 10 * r.lognormal(0, 0.5, n), lambda r, n: 5 * r.lognormal(0, 0.5, n), 0.5),
    Change("exponential, equal", lambda r, n: 90 + r.exponential(5, n), lambda r, n: 90 + r.exponential(5, n), 1.0),
    Change(
        "two modes → one",
        lambda r, n: r.choice([85.0, 115.0], n) + r.normal(0, 1, n),
        lambda r, n: r.normal(85, 1, n),
        1 / _MODES_SD,
    ),
    Change(
        "1 in 10 slower → never",
        lambda r, n: 100 + 30 * (r.random(n) < 0.1) + r.normal(0, 1, n),
        lambda r, n: r.normal(100, 1, n),
        1 / float(np.hypot(9, 1)),
    ),
    Change(
        "exponential, equal, 50% slower",
        lambda r, n: 90 + r.exponential(5, n),
        lambda r, n: 135 + r.exponential(5, n),
        1.0,
    ),
    Change(
        "1 in 10 slower, equal, all 50% slower",
        lambda r, n: 100 + 30 * (r.random(n) < 0.1) + r.normal(0, 1, n),
        lambda r, n: 150 + 30 * (r.random(n) < 0.1) + r.normal(0, 1, n),
        1.0,
    ),
    Change("normal, double", lambda r, n: r.normal(100, 2, n), lambda r, n: r.normal(110, 4, n), 2.0),
)


def covered(change: Change, blocks: int, values: int, trials: int, permutations: int) -> tuple[float, float]:
    """Percent of 95% intervals that hold the true log ratio, and of tests that reject at 0.05 / 15."""
    random = np.random.default_rng([2, blocks, values, CHANGES.index(change)])
    held = found = 0
    for number in range(trials):
        default = change.default(random, (COPIES, blocks))
        pinned = change.pinned(random, (values, blocks))
        result = spread_ratio(default, pinned, seed=number, permutations=permutations)
        held += result.log_ratio.low <= log(change.ratio) <= result.log_ratio.high
        found += result.p <= 0.05 / 15
    return 100 * held / trials, 100 * found / trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--diagnoses", type=int, default=1000)
    parser.add_argument("--permutations", type=int, default=999)
    options = parser.parse_args()
    sizes = (10, 20)
    print("| A/A program | " + " | ".join(f"{n} blocks" for n in sizes) + " |\n|---|" + "---|" * len(sizes))
    for shape in SHAPES:
        found = [false_alarms(shape, n, options.diagnoses, options.permutations) for n in sizes]
        print(f"| {shape.name} | " + " | ".join(f"{percent:.1f}%" for percent in found) + " |", flush=True)
    print("\n| spread | " + " | ".join(f"{n} × {v}" for n in sizes for v in (1, 4)) + " |")
    print("|---|" + "---|" * (2 * len(sizes)))
    for change in CHANGES:
        cells = [covered(change, n, v, options.diagnoses, options.permutations) for n in sizes for v in (1, 4)]
        print(f"| {change.name} | " + " | ".join(f"{h:.0f}% ({f:.0f}%)" for h, f in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
