"""How often advice finds a block that gains, and how often it advises where nothing gains, on disturbed machines.

``python -m bench.coverage.advise`` writes the tables of docs/advise.md. A program of 200 MiB has one block, of 10 to
70 MiB at a random place, that gains by huge pages. Three ways of looking at as many executions are compared:
differences of means over executions whose order is random (what pagelab did before), pairs with noise of heavy tails in
one round, and the same in rounds that become finer where something gains.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bench.coverage.machines import MACHINES, SHAPES
from bench.coverage.tables import cell as marked
from bench.coverage.tables import put, table
from pagelab.advise.choose import SURE
from pagelab.advise.design import TILE, Region, mosaics, regions, rows
from pagelab.advise.effects import Effects
from pagelab.advise.screening import FIRST, ROUNDS, Round, blocks_for, estimated, refined

Array = NDArray[np.float64]
Chosen = list[Region]

DOCUMENT = Path(__file__).parents[2] / "docs/advise.md"
TILES = 100
HOT = (5, 35)
"""Least and largest size of the block that gains, in tiles."""
GAINS = (0.0, 0.05, 0.15)
NOISE = (("quiet", "rare mode"), ("drifting", "heavy tails"), ("bursts", "steady"), ("memory", "heavy tails"))


class Machine:
    """Runs mosaics of a program with one block that gains."""

    def __init__(self, gain: float, noise: tuple[str, str], seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._noise = noise
        tiles = int(self.rng.integers(*HOT))
        start = int(self.rng.integers(0, TILES - tiles))
        self.hot = Region("anon", start * TILE, (start + tiles) * TILE)
        self._gain = gain

    def found(self, parts: Chosen) -> float:
        """Share of the block that lies in these regions."""
        inside = (max(0, min(one.end, self.hot.end) - max(one.start, self.hot.start)) for one in parts)
        return sum(inside) / self.hot.bytes

    def run(self, parts: Chosen, included: NDArray[np.bool_], blocks: int, *, adjacent: bool) -> Array:
        """Times, shape (blocks, mosaics)."""
        count = len(included)
        order = np.array([self._order(count, adjacent) for _ in range(blocks)])
        times = np.empty((blocks, count))
        machine, program = self._noise
        np.put_along_axis(times, order, MACHINES[machine](self.rng, blocks * count).reshape(blocks, count), axis=1)
        clean = 1 - self._gain * included @ np.array([self.found([one]) for one in parts])
        return np.asarray(clean * np.exp(times + SHAPES[program](self.rng, (blocks, count))))

    def _order(self, count: int, adjacent: bool) -> NDArray[np.int64]:
        if not adjacent:
            return self.rng.permutation(count)
        pairs, swapped = self.rng.permutation(count // 2), self.rng.integers(0, 2, count // 2)
        return np.stack([2 * pairs + swapped, 2 * pairs + 1 - swapped], axis=1).ravel()


def by_means(machine: Machine, executions: int) -> Chosen:
    """The regions chosen by means over executions within blocks, as many regions as fit; shrunk with normal noise."""
    counts = [count for count in (7, 15, 31, 63) if 3 * rows(count) <= executions]
    parts = regions({"anon": TILES * TILE}, (counts or [7])[-1])
    included = mosaics(len(parts), machine.rng)
    times = machine.run(parts, included, max(2, executions // len(included)), adjacent=False)
    sure, mean = _shrunk_means(included, times)
    return [part for part, p, gain in zip(parts, sure, mean, strict=True) if p >= SURE and gain > 0]


def _shrunk_means(included: NDArray[np.bool_], times: Array) -> tuple[Array, Array]:
    blocks, count = times.shape
    centred = times - times.mean(axis=1, keepdims=True)
    raw = -2 * (centred @ np.where(included, 1.0, -1.0)).mean(axis=0) / count / times.mean()
    left = centred - centred.mean(axis=0)
    noise = np.sqrt((left**2).sum() / ((blocks - 1) * (count - 1)))
    error = 2 * noise / times.mean() / np.sqrt(times.size)
    null = np.linspace(0.02, 0.98, 49)[:, None, None]
    spread = (error * np.geomspace(0.5, max(2.0, 4 * np.abs(raw).max() / error), 60))[:, None]
    mixed = null * stats.norm.pdf(raw, scale=error) + (1 - null) * stats.norm.pdf(raw, scale=np.hypot(spread, error))
    likelihood = np.log(mixed).sum(axis=2) + np.log(null * (1 - null))[:, :, 0]
    i, j = np.unravel_index(likelihood.argmax(), likelihood.shape)
    none, width = null[i, 0, 0], spread[j, 0]
    with_one = (1 - none) * stats.norm.pdf(raw, scale=np.hypot(width, error))
    has = with_one / (with_one + none * stats.norm.pdf(raw, scale=error))
    shrink = width**2 / (width**2 + error**2)
    return has * stats.norm.cdf(np.sqrt(shrink) * raw / error), has * shrink * raw


def by_pairs(machine: Machine, executions: int) -> Chosen:
    """The regions chosen by pairs in one round."""
    return _by_rounds(machine, executions, rounds=1)


def by_rounds(machine: Machine, executions: int) -> Chosen:
    """The regions chosen by pairs in several rounds, as ``pagelab advise`` does."""
    return _by_rounds(machine, executions, rounds=ROUNDS)


def _by_rounds(machine: Machine, executions: int, rounds: int) -> Chosen:
    parts, effects = estimates(machine, executions, rounds)
    return [part for part, p, gain in zip(parts, effects.sure, effects.mean, strict=True) if p >= SURE and gain > 0]


def estimates(machine: Machine, executions: int, rounds: int = ROUNDS) -> tuple[list[Region], Effects]:
    """Regions of the last round, and their estimated gains."""
    wanted = regions({"anon": TILES * TILE}, FIRST)
    ran: list[Round] = []
    while len(ran) < rounds:
        blocks = blocks_for(len(wanted), executions, first=not ran) if rounds > 1 else executions // rows(len(wanted))
        if not blocks:
            break
        parts, included = wanted, mosaics(len(wanted), machine.rng)
        ran.append(Round(parts, included, machine.run(parts, included, blocks, adjacent=True)))
        executions -= ran[-1].times.size
        effects = estimated(ran, parts, machine.rng)
        wanted = refined(parts, effects)
    return parts, effects


WAYS: dict[str, Callable[[Machine, int], Chosen]] = {"means": by_means, "pairs": by_pairs, "rounds": by_rounds}
EXECUTIONS = (72, 200)


def cell(gain: float, noise: tuple[str, str], executions: int, trials: int) -> dict[str, tuple[float, float, float]]:
    """By way: share of studies with advice, of the block that it finds, and of the advised bytes that lie in it."""
    found = {}
    for name, way in WAYS.items():
        advised = block = inside = 0.0
        for trial in range(trials):
            machine = Machine(gain, noise, trial)
            chosen = way(machine, executions)
            share = machine.found(chosen)
            block += share
            if chosen:
                advised += 1
                inside += share * machine.hot.bytes / sum(one.bytes for one in chosen)
        found[name] = (advised / trials, block / trials, inside / advised if advised else float("nan"))
    return found


@dataclass(frozen=True)
class Held:
    """Percent of 95% intervals with the true gain; NaN where there are none."""

    regions: float
    gaining: float
    """Coverage of the gains of regions that gain."""
    promised: float
    """Coverage of the total gain of all chosen regions."""


def intervals(gain: float, noise: tuple[str, str], executions: int, trials: int) -> Held:
    """Coverage of the intervals that ``pagelab advise`` prints before fresh executions check them."""
    of_regions: list[tuple[bool, bool]] = []
    of_promises: list[bool] = []
    for trial in range(trials):
        machine = Machine(gain, noise, trial)
        parts, found = estimates(machine, executions)
        true = np.array([gain * machine.found([part]) for part in parts])
        for at in range(len(parts)):
            _, low, high = found.gain(np.arange(len(parts)) == at)
            of_regions.append((true[at] > 0, low - 1e-12 <= true[at] <= high + 1e-12))
        chosen = (found.sure >= SURE) & (found.mean > 0)
        if chosen.any():
            _, low, high = found.gain(chosen)
            of_promises.append(low <= true[chosen].sum() <= high)
    gaining = [held for gains, held in of_regions if gains]
    return Held(*(_percent(each) for each in ([held for _, held in of_regions], gaining, of_promises)))


def _percent(held: list[bool]) -> float:
    return 100 * sum(held) / len(held) if held else float("nan")


def _intervals(pool: ProcessPoolExecutor, trials: int) -> Iterator[list[str]]:
    cells = [(gain, noise) for gain in GAINS for noise in NOISE]
    found = [[pool.submit(intervals, *one, executions, trials) for executions in EXECUTIONS] for one in cells]
    for (gain, noise), row in zip(cells, found, strict=True):
        shares = [share for one in row for share in (one.result().regions, one.result().gaining, one.result().promised)]
        shown = ("–" if np.isnan(share) else marked(share, wanted=90) for share in shares)
        yield [f"{', '.join(noise)}; {100 * gain:g}%", *shown]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.coverage.advise", description=__doc__)
    parser.add_argument("--trials", type=int, default=30, help="simulated for each figure")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=("found", "intervals"), help="the tables of what is found, or of intervals")
    arguments = parser.parse_args()
    if arguments.only != "found":
        with ProcessPoolExecutor(arguments.jobs) as pool:
            names = [f"{what}, {n}" for n in EXECUTIONS for what in ("regions", "that gain", "promised")]
            text = table(["machine, program; gain", *names], _intervals(pool, arguments.trials))
        put("intervals of gains", f"{text}\n\nEach figure: {arguments.trials} studies.", DOCUMENT)
    if arguments.only != "intervals":
        _found_tables(arguments.trials, arguments.jobs)
    return 0


def _found_tables(trials: int, jobs: int) -> None:
    cells = [(gain, noise, executions) for gain in GAINS for noise in NOISE for executions in EXECUTIONS]
    with ProcessPoolExecutor(jobs) as pool:
        pending = {one: pool.submit(cell, *one, trials) for one in cells}
        found = {one: each.result() for one, each in pending.items()}
    heads = ["machine, program", *(f"{way}, {executions}" for executions in EXECUTIONS for way in WAYS)]
    put("false advice", table(heads, _rows(found, 0.0, _advised)), DOCUMENT)
    for gain in GAINS[1:]:
        put(f"gain of {100 * gain:g}%", table(heads, _rows(found, gain, _found)), DOCUMENT)


Results = dict[tuple[float, tuple[str, str], int], dict[str, tuple[float, float, float]]]


def _rows(found: Results, gain: float, shown: Callable[[tuple[float, float, float]], str]) -> Iterator[list[str]]:
    for noise in NOISE:
        results = [found[gain, noise, executions][way] for executions in EXECUTIONS for way in WAYS]
        yield [", ".join(noise), *map(shown, results)]


def _advised(one: tuple[float, float, float]) -> str:
    return f"{100 * one[0]:.0f}"


def _found(one: tuple[float, float, float]) -> str:
    return f"{100 * one[1]:.0f}" + ("" if np.isnan(one[2]) else f" ({100 * one[2]:.0f})")


if __name__ == "__main__":
    sys.exit(main())
