"""Main effects and interactions of a 2^k design whose combinations ran once in every block, on logarithms.

Let y be the logarithm of a combination's value. The main effect of a factor is the mean of y with it less the mean of y
without it, over all combinations of the others. An interaction is a difference of such differences. That of two factors
is y with both, less y with each alone, plus y with neither, averaged over the rest (Box, Hunter and Hunter 2005,
chapter 5, without their factor of a half). Each block gives one value of every effect; whatever slows the whole block
down cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from math import expm1, isfinite
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.interval import Interval, NotAchievable
from pagelab.stats.multiplicity import holm
from pagelab.stats.paired import paired_shift
from pagelab.stats.refusal import Refusal, StatsRefusedError
from pagelab.stats.wilcoxon import signed_rank

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MOST_FACTORS = 6
_ROUNDING = 1e-12
"""Logarithms closer than this are equal: the sign of their difference is rounding."""


@dataclass(frozen=True, slots=True)
class FactorialEffect:
    """One effect in percent; 0 is none, -3 of a main effect means "takes 3% less with it"."""

    factors: tuple[int, ...]
    """Positions of the factors: one for a main effect, several for their interaction."""
    percent: float
    interval: Interval | NotAchievable
    """In percent; its level is for this effect alone."""
    p: float
    p_holm: float
    """p after Holm's correction over all effects of the design."""
    n: int
    """Number of blocks."""


def subsets(factors: int) -> list[tuple[int, ...]]:
    """The effects of a design: main effects first, then interactions of two factors, and so on."""
    return [chosen for size in range(1, factors + 1) for chosen in combinations(range(factors), size)]


def factorial_contrast(factors: int, chosen: tuple[int, ...]) -> NDArray[np.float64]:
    """Weights of the 2^k combinations, ordered so that the last factor changes fastest."""
    levels = np.array(list(product((-1.0, 1.0), repeat=factors)))
    return np.asarray(levels[:, list(chosen)].prod(axis=1) / 2 ** (factors - len(chosen)))


def factorial_effects(values: ArrayLike, *, level: float = 0.95) -> tuple[FactorialEffect, ...]:
    """Every effect of ``values``, shape (blocks, 2^k): above 0, none missing, the last factor changes fastest.

    Estimate and interval are those of :func:`pagelab.stats.paired_shift` on the blocks' values, transformed back; p is
    that of :func:`pagelab.stats.signed_rank`, with Holm's correction over all 2^k - 1 effects. The test is exact, since
    the schedule draws the order within a block: if a factor changes nothing, exchanging its two levels leaves a block's
    distribution unchanged and reverses the sign of each effect with that factor.
    """
    found = np.asarray(values, dtype=np.float64)
    factors = found.shape[1].bit_length() - 1 if found.ndim == 2 else 0
    if not 1 <= factors <= MOST_FACTORS or found.shape[1] != 2**factors or not len(found):
        raise StatsRefusedError(
            Refusal.GROUP_SIZE, f"a design of shape {found.shape}: blocks of 2, 4, ... {2**MOST_FACTORS} combinations"
        )
    if not np.isfinite(found).all() or (found <= 0).any():
        raise StatsRefusedError(Refusal.NOT_POSITIVE, "a value is missing, zero or negative: it has no logarithm")
    logs = np.log(found)
    chosen = subsets(factors)
    apart = [logs @ factorial_contrast(factors, one) for one in chosen]
    apart = [np.where(np.abs(one) < _ROUNDING * 2**factors, 0.0, one) for one in apart]
    tests = [signed_rank(one).p for one in apart]
    adjusted = holm(tests, alpha=round(1 - level, 12)).adjusted
    return tuple(
        _effect(one, differences, p, p_holm, level)
        for one, differences, p, p_holm in zip(chosen, apart, tests, adjusted, strict=True)
    )


def _effect(
    factors: tuple[int, ...], differences: NDArray[np.float64], p: float, p_holm: float | None, level: float
) -> FactorialEffect:
    shift = paired_shift(differences, level=level)
    interval = shift.interval
    if isinstance(interval, Interval):
        low, high = _percent(interval.low), _percent(interval.high)
        interval = Interval(low, high, interval.level, interval.achieved, interval.method)
    assert p_holm is not None
    return FactorialEffect(factors, _percent(shift.estimate), interval, p, p_holm, shift.n)


def _percent(logarithm: float) -> float:
    try:
        found = 100 * expm1(logarithm)
    except OverflowError:
        found = float("inf")
    if not isfinite(found):
        raise StatsRefusedError(Refusal.OVERFLOW, "a ratio exceeds the double range")
    return found
