"""Simulated machines with known disturbances (drift, bursts, other load), for tests and tables.

A machine is a factor on the time of each place of a schedule, in the order in which the executions run. A program is a
distribution of log times, drawn anew for each execution. A study is complete blocks in random order, as pagelab's are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Slowdown = Callable[[np.random.Generator, int], Array]
"""(random, places) → log of the factor at each place of the schedule."""
Draw = Callable[[np.random.Generator, tuple[int, ...]], NDArray[Any]]
"""(random, shape) → log times."""


def quiet(_random: np.random.Generator, places: int) -> Array:
    return np.zeros(places)


def drifting(random: np.random.Generator, places: int) -> Array:
    """A rise by 20% over the study, and a random walk of 1% a place."""
    return np.asarray(np.linspace(0, np.log(1.2), places) + np.cumsum(random.normal(0, 0.01, places)))


def bursts(random: np.random.Generator, places: int) -> Array:
    """40% slower during half of the time, in bursts of 8 executions on average."""
    return 0.34 * _on_and_off(random, places, stays=1 - 1 / 8)


def neighbours(random: np.random.Generator, places: int) -> Array:
    """Five neighbours that come and go independently; each slows by 6% while present (for 2 to 30 executions)."""
    stays = (1 - 1 / 2, 1 - 1 / 4, 1 - 1 / 8, 1 - 1 / 16, 1 - 1 / 30)
    return np.asarray(sum(0.06 * _on_and_off(random, places, each) for each in stays))


def memory(random: np.random.Generator, places: int) -> Array:
    """As measured on a shared machine: 12% from one execution to the next, correlation 0.35."""
    found = np.empty(places)
    fresh = random.normal(0, 0.12 * np.sqrt(1 - 0.35**2), places)
    found[0] = random.normal(0, 0.12)
    for place in range(1, places):
        found[place] = 0.35 * found[place - 1] + fresh[place]
    return found


def _on_and_off(random: np.random.Generator, places: int, stays: float) -> Array:
    changes = random.random(places) >= stays
    return np.asarray((np.cumsum(changes) + random.integers(2)) % 2, dtype=np.float64)


MACHINES: dict[str, Slowdown] = {
    "quiet": quiet,
    "drifting": drifting,
    "bursts": bursts,
    "neighbours": neighbours,
    "memory": memory,
}

SHAPES: dict[str, Draw] = {
    "steady": lambda random, shape: random.normal(0, 0.03, shape),
    "skewed": lambda random, shape: random.exponential(0.1, shape),
    "two modes": lambda random, shape: 0.26 * (random.random(shape) < 0.5) + random.normal(0, 0.01, shape),
    "rare mode": lambda random, shape: 0.26 * (random.random(shape) < 0.1) + random.normal(0, 0.01, shape),
    "heavy tails": lambda random, shape: 0.03 * random.standard_t(2, shape),
    "steps of 2%": lambda random, shape: np.round(random.normal(0, 0.03, shape) / 0.02) * 0.02,
}


@dataclass(frozen=True, slots=True)
class Study:
    """Times of shape blocks × conditions, and the block of each."""

    times: Array

    @property
    def blocks(self) -> NDArray[np.int64]:
        return np.arange(len(self.times))


def study(
    random: np.random.Generator, machine: Slowdown, shapes: tuple[Draw, ...], effects: tuple[float, ...], blocks: int
) -> Study:
    """A study of so many complete blocks; ``effects`` are the logs of the conditions' factors."""
    conditions = len(shapes)
    slow = machine(random, blocks * conditions).reshape(blocks, conditions)
    order = random.permuted(np.tile(np.arange(conditions), (blocks, 1)), axis=1)
    own = np.stack([draw(random, (blocks,)) + effect for draw, effect in zip(shapes, effects, strict=True)], axis=1)
    return Study(np.exp(own + np.take_along_axis(slow, order, axis=1)))
