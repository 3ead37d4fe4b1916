"""The simulated cells: pairs of distributions with known truth, in units of the baseline's centre (about 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Component:
    """One mode: normal(centre, scale), or exp(normal(log centre, scale))."""

    weight: float
    centre: float
    scale: float
    kind: Literal["normal", "lognormal"] = "normal"

    def of_normal(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.kind == "normal":
            return self.centre + self.scale * z
        return np.asarray(self.centre * np.exp(self.scale * z), dtype=np.float64)

    def cdf(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        from scipy.special import ndtr

        if self.kind == "lognormal":
            t = np.log(np.maximum(t, 1e-300) / self.centre)
            return np.asarray(ndtr(t / self.scale), dtype=np.float64)
        return np.asarray(ndtr((t - self.centre) / self.scale), dtype=np.float64)

    @property
    def mean(self) -> float:
        return self.centre if self.kind == "normal" else float(self.centre * np.exp(self.scale**2 / 2))


@dataclass(frozen=True, slots=True)
class Distribution:
    """A mixture of modes; weights add to 1."""

    components: tuple[Component, ...]

    def sample(self, random: np.random.Generator, n: int) -> NDArray[np.float64]:
        chosen = random.choice(len(self.components), size=n, p=[c.weight for c in self.components])
        z = random.standard_normal(n)
        return np.asarray(np.choose(chosen, [c.of_normal(z) for c in self.components]), dtype=np.float64)

    def cdf(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(sum(c.weight * c.cdf(t) for c in self.components), dtype=np.float64)

    @property
    def mean(self) -> float:
        return sum(c.weight * c.mean for c in self.components)

    @property
    def median(self) -> float:
        return _root(lambda t: float(self.cdf(np.array(t))) - 0.5)


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the table: two conditions, and what the blocks share."""

    name: str
    description: str
    treatment: Distribution
    baseline: Distribution
    drift: Literal["none", "linear", "walk"] = "none"
    """Added to both executions of a block: a rise by 10% over the study, or a random walk of 1% steps."""
    rounding: float | None = None
    looks: tuple[int, ...] = field(default=(20, 30, 40, 60))

    @property
    def pure_shift(self) -> bool:
        return self.treatment == self.baseline

    def sample(self, random: np.random.Generator, blocks: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """One study: the treatment's and the baseline's executions in block order."""
        shared = np.zeros(blocks)
        if self.drift == "linear":
            shared = np.linspace(0.0, 0.1, blocks)
        elif self.drift == "walk":
            shared = np.cumsum(0.01 * random.standard_normal(blocks))
        both = (self.treatment.sample(random, blocks) + shared, self.baseline.sample(random, blocks) + shared)
        if self.rounding is None:
            return both
        step = self.rounding
        return np.round(both[0] / step) * step, np.round(both[1] / step) * step


def normal(centre: float, scale: float) -> Distribution:
    return Distribution((Component(1.0, centre, scale),))


def bimodal(share: float, distance: float, scale: float) -> Distribution:
    """``share`` of the executions in a mode ``distance`` slower."""
    return Distribution((Component(1 - share, 1.0, scale), Component(share, 1.0 + distance, scale)))


TIGHT = normal(1.0, 0.001)
PLAIN = normal(1.0, 0.03)
SKEWED = Distribution((Component(1.0, 1.0, 0.3, "lognormal"),))
EVEN = bimodal(0.5, 0.3, 0.01)
RARE = bimodal(0.1, 0.3, 0.01)

CELLS = (
    Cell("normal", "normal, sd 3%, both", PLAIN, PLAIN),
    Cell("lognormal", "lognormal, sigma 0.3, both", SKEWED, SKEWED),
    Cell("bimodal-even", "modes 30% apart, half of the executions in each, both", EVEN, EVEN),
    Cell("bimodal-rare", "1 execution in 10 is 30% slower, both", RARE, RARE),
    Cell("rounded", "normal, sd 3%, recorded in steps of 2% (ties), both", PLAIN, PLAIN, rounding=0.02),
    Cell("drift-linear", "normal, sd 3%, plus a rise by 10% over the study, both", PLAIN, PLAIN, drift="linear"),
    Cell("drift-walk", "normal, sd 3%, plus a random walk of 1% a block, both", PLAIN, PLAIN, drift="walk"),
    Cell("wide-tight", "normal, sd 3%, against sd 0.1%", PLAIN, TIGHT),
    Cell("lognormal-tight", "lognormal against normal, sd 0.1%", SKEWED, TIGHT),
    Cell("rare20-tight", "1 in 5 is 30% slower, against normal, sd 0.1%", bimodal(0.2, 0.3, 0.01), TIGHT),
    Cell("bimodal45-tight", "45% are 30% slower, against normal, sd 0.1%", bimodal(0.45, 0.3, 0.01), TIGHT),
    Cell("bimodal-even-plain", "half are 30% slower, against normal, sd 3%", EVEN, PLAIN),
    Cell("bimodal-even-rare", "half are 30% slower, against 1 in 10", EVEN, RARE),
)


@cache
def true_shift(cell: Cell) -> float:
    """Median of treatment less baseline for a random pair, by numerical integration (drift and rounding cancel)."""
    if cell.pure_shift:
        return 0.0
    z = _normal_nodes()

    def excess(t: float) -> float:
        below = sum(c.weight * float(np.mean(cell.treatment.cdf(t + c.of_normal(z)))) for c in cell.baseline.components)
        return below - 0.5

    return _root(excess)


@cache
def _normal_nodes() -> NDArray[np.float64]:
    """Midpoints of 20,000 equally likely slices of the standard normal distribution."""
    from scipy.special import ndtri

    return np.asarray(ndtri((np.arange(20_000) + 0.5) / 20_000), dtype=np.float64)


def _root(f: Callable[[float], float], low: float = -10.0, high: float = 10.0) -> float:
    """Where f changes sign, by bisection; the middle of that piece where f is flat (between two modes)."""
    tolerance = 1e-9
    ends = []
    for target in (-tolerance, tolerance):
        a, b = low, high
        for _ in range(80):
            middle = (a + b) / 2
            a, b = (middle, b) if f(middle) < target else (a, middle)
        ends.append((a + b) / 2)
    return (ends[0] + ends[1]) / 2
