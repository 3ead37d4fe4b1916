"""The gain of pairing within blocks in ``pagelab diagnose``: ``python -m bench.coverage.blocks`` makes its tables.

Machines whose disturbances are known (:mod:`bench.coverage.machines`), blocks as a diagnosis has them: three copies of
the control, one pinned value, 24 executions of other conditions, in random order. Compared are the test of spreads that
ships, the same without block effects, and Pitman's and Morgan's test of paired variances, each with the
permutations that ship (999 of them); and the interval of the mean's shift of pairs with Welch's, of executions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.coverage.machines import MACHINES, study
from bench.coverage.tables import cell, main, table
from pagelab.diagnose.spread import block_effects, mean_shift, spread_ratio

COPIES = 3
OTHERS = 24
PERMUTATIONS = 999
ALPHA = 0.05
SLOWER = 0.4
"""Log of the factor of a pin that leaves the spread."""
Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], NDArray[Any]]

SHAPES: dict[str, tuple[Draw, Draw]] = {
    "normal, 3%": (lambda r, n: r.normal(0, 0.03, n), lambda r, n: r.normal(0, 0.015, n)),
    "two modes, 6% apart": (
        lambda r, n: 0.06 * (r.random(n) < 0.5) + r.normal(0, 0.008, n),
        lambda r, n: r.normal(0, 0.008, n),
    ),
}
"""Log times by default, and where their cause is pinned."""


@dataclass(frozen=True)
class Rates:
    """Percent of comparisons that find a difference of spreads."""

    unpaired: float
    pitman_morgan: float
    ships: float


def block(random: np.random.Generator, machine: str, shape: str, blocks: int, *, cause: bool) -> tuple[Array, ...]:
    """Times of control, pinned value and others, conditions × blocks; without a cause pinning makes all 49% slower."""
    draw, pinned = SHAPES[shape]
    shapes = (*[draw] * COPIES, pinned if cause else draw, *[draw] * OTHERS)
    effects = (*[0.0] * COPIES, 0.0 if cause else SLOWER, *random.normal(0, 0.3, OTHERS))
    times = study(random, MACHINES[machine], shapes, effects, blocks).times.T
    return times[:COPIES], times[COPIES : COPIES + 1], times[COPIES + 1 :]


def rates(
    machine: str, shape: str, blocks: int, trials: int, *, cause: bool, permutations: int = PERMUTATIONS
) -> Rates:
    """Rates of rejection at 5%, for each comparison by itself."""
    random = np.random.default_rng([ord(letter) for letter in repr((machine, shape, blocks, cause))])
    found = np.zeros(3)
    for trial in range(trials):
        control, pinned, others = block(random, machine, shape, blocks, cause=cause)
        how: Any = {"seed": trial, "permutations": permutations}
        p = (
            spread_ratio(control, pinned, **how).p,
            pitman_morgan(control, pinned, **how),
            spread_ratio(control, pinned, block_effect=block_effects(others), **how).p,
        )
        found += np.array(p) <= ALPHA
    return Rates(*(100 * found / trials))


def pitman_morgan(control: Array, pinned: Array, *, seed: int, permutations: int) -> float:
    """Permutation p of the correlation of sums and differences, from the pooled variances and covariances of log times.

    With one of each it is Pitman's (1939) and Morgan's: t = sinh(log(s1 / s2)) / sqrt(1 - r²) * sqrt(n - 2). Under the
    two null distributions that :func:`spread_ratio` has, the larger p.
    """
    rows, copies = np.log(np.concatenate([control, pinned])), len(control)
    random = np.random.default_rng(seed)

    def sizes(batch: Array) -> Array:
        centred = batch - batch.mean(axis=2, keepdims=True)
        degrees = batch.shape[2] - 1
        first, second = (part.var(axis=2, ddof=1).mean(axis=1) for part in (batch[:, :copies], batch[:, copies:]))
        both = (centred[:, :copies].mean(axis=1) * centred[:, copies:].mean(axis=1)).sum(axis=1) / degrees
        r2 = np.minimum(both**2 / (first * second), 1 - 1e-9)
        return np.asarray(np.abs(np.sinh(np.log(second / first) / 2)) / np.sqrt(1 - r2))

    found = []
    for each in (rows, rows - np.median(rows, axis=1, keepdims=True)):
        null = sizes(random.permuted(np.broadcast_to(each, (permutations, *rows.shape)), axis=1))
        found.append((1 + int((null >= sizes(rows[None])[0] * (1 - 1e-12)).sum())) / (1 + permutations))
    return max(found)


@dataclass(frozen=True)
class Shifts:
    """Of 95% intervals: percent that hold the truth, and the median width in percent of the control's mean."""

    held: float
    width: float


def shifts(machine: str, shape: str, blocks: int, trials: int) -> tuple[Shifts, Shifts]:
    """Intervals from executions (Welch), and from pairs (the released method)."""
    random = np.random.default_rng([ord(letter) for letter in repr(("shifts", machine, shape, blocks))])
    true, ends = float(np.exp(SLOWER)) - 1, np.empty((2, trials, 2))
    for trial in range(trials):
        control, pinned, _ = block(random, machine, shape, blocks, cause=False)
        ends[0, trial] = welch(control, pinned)
        found = mean_shift(control, pinned)
        ends[1, trial] = found.low, found.high
    held = 100 * ((ends[..., 0] <= true) & (true <= ends[..., 1])).mean(axis=1)
    width = 100 * np.median(ends[..., 1] - ends[..., 0], axis=1)
    return Shifts(held[0], width[0]), Shifts(held[1], width[1])


def welch(control: Array, pinned: Array) -> tuple[float, float]:
    """Fieller's interval of the ratio of means of independent executions, with Satterthwaite's degrees of freedom."""
    from scipy.stats import t as student

    a, b = float(control.mean()), float(pinned.mean())
    v_a, v_b = float(control.var(ddof=1)) / control.size, float(pinned.var(ddof=1)) / pinned.size
    parts = v_b, (b / a) ** 2 * v_a
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / (pinned.size - 1) + parts[1] ** 2 / (control.size - 1))
    t2 = float(student.ppf((2 - ALPHA) / 2, degrees)) ** 2
    root = sqrt(max(0.0, t2 * (a**2 * v_b + b**2 * v_a - t2 * v_a * v_b)))
    below = a**2 - t2 * v_a
    return (a * b - root) / below - 1, (a * b + root) / below - 1


def tables(trials: int) -> Mapping[str, Callable[[], str]]:
    """Markdown by the name of its place in docs/diagnose.md."""
    sizes = (10, 30)

    def spreads() -> str:
        columns = ("as they are", "Pitman–Morgan", "and without block effects")
        heads = ["machine", "times", "blocks", *(f"false: {c}" for c in columns), *(f"found: {c}" for c in columns)]

        def rows() -> Iterator[list[str]]:
            for machine in MACHINES:
                for shape in SHAPES:
                    for blocks in sizes:
                        both = [rates(machine, shape, blocks, trials, cause=cause) for cause in (False, True)]
                        shown = [f"{x:.0f}" for one in both for x in (one.unpaired, one.pitman_morgan, one.ships)]
                        yield [machine, shape, str(blocks), *shown]

        return table(heads, rows())

    def means() -> str:
        heads = ["machine", "times", "blocks", "Welch: held", "width", "pairs: held", "width"]

        def rows() -> Iterator[list[str]]:
            for machine in MACHINES:
                for shape in SHAPES:
                    for blocks in sizes:
                        found = shifts(machine, shape, blocks, 5 * trials)
                        shown = [x for one in found for x in (cell(one.held, wanted=90), f"{one.width:.1f}%")]
                        yield [machine, shape, str(blocks), *shown]

        return table(heads, rows())

    return {"spreads within blocks": spreads, "mean shifts within blocks": means}


if __name__ == "__main__":
    main("python -m bench.coverage.blocks", __doc__, tables)
