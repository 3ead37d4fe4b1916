"""Variance components of nested repetition, and their interval for the mean (Kalibera and Jones).

Kalibera, Jones: Rigorous benchmarking in reasonable time (ISMM 2013) and Quantifying performance changes with effect
size confidence intervals (University of Kent 4-12, 2012). Levels are counted from the lowest: measurements in an
execution, executions of a binary, binaries.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from pagelab.stats.interval import Interval, IntervalMethod
from pagelab.stats.nondeterminism.data import Executions
from pagelab.stats.refusal import Refusal, StatsRefusedError, error_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Component:
    """Variance at one level of repetition, in squared units of the data."""

    level: str
    units: int
    """Total number of units at this level."""
    variance_of_means: float | None
    """S²: mean over the units one level up of the variance of their parts' means; None if no unit has two parts."""
    raw: float | None
    """T²: S² less the contribution of the levels below; unbiased, may be negative."""

    @property
    def variance(self) -> float | None:
        """The component that is used: ``raw``, but at least 0."""
        return None if self.raw is None else max(0.0, self.raw)


@dataclass(frozen=True, slots=True)
class Components:
    """Grand mean, its interval, and the variance of each level."""

    mean: float
    """Unweighted: mean of the means of the highest level's units."""
    interval: Interval
    levels: tuple[Component, ...]
    """From the lowest level (measurements) to the highest."""
    balanced: bool
    """Whether all units of a level have equally many parts; otherwise interval and components are approximate."""

    @property
    def negative(self) -> tuple[Component, ...]:
        """Components whose estimate was negative and is set to 0."""
        return tuple(level for level in self.levels if level.raw is not None and level.raw < 0)


def variance_components(executions: Executions, *, level: float = 0.95) -> Components:
    """Two levels: measurements in executions. See :func:`nested_components`."""
    return nested_components(list(executions), ("measurement", "execution"), level=level)


def nested_components(nested: Sequence[Any], names: Sequence[str], *, level: float = 0.95) -> Components:
    """Components of ``nested``: sequences of sequences ... of times, as deep as ``names`` is long.

    ``names`` from the lowest level; three levels are ``nested[binary][execution][measurement]`` with names
    ``("measurement", "execution", "compilation")``. With r units at the highest level, the interval is mean ± t S/√r,
    t Student's quantile with r - 1 degrees of freedom and S² the variance of those units' means. T² of a level is its
    S² less the mean over its units of (variance of the unit's parts' means) / (number of parts), which the lower levels
    alone would cause. For balanced data that is Kalibera and Jones's T²ᵢ = S²ᵢ - S²ᵢ₋₁/rᵢ₋₁. A unit with one part has
    no variance of its own; the mean of the other units' is used. Fewer than two highest units are refused.
    """
    if len(names) < 2:
        raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, f"{len(names)} level: at least two are needed")
    if len(nested) < 2:
        message = f"{len(nested)} {names[-1]}: run at least 2 (better 10), one has no spread"
        raise StatsRefusedError(Refusal.ONE_EXECUTION, message)
    means, counts = _means(nested, len(names), names)
    levels: list[Component] = []
    below: NDArray[np.float64] | None = None  # for each unit of this level: the variance that its parts contribute
    for depth, name in enumerate(names):
        units = means[depth]
        groups = counts[depth + 1] if depth + 1 < len(names) else np.array([units.size])
        variances = _variances(units, groups)
        known = variances[~np.isnan(variances)]
        spread = float(known.mean()) if known.size else None
        lost = 0.0 if below is None else float(below.mean())
        raw = None if spread is None or np.isnan(lost) else spread - lost
        levels.append(Component(name, units.size, spread, raw))
        filled = np.where(np.isnan(variances), np.nan if spread is None else spread, variances)
        below = filled / groups
    top = means[-1]
    mean, half = float(top.mean()), _half_width(top, level)
    interval = Interval(mean - half, mean + half, level, None, IntervalMethod.HIERARCHICAL_T)
    balanced = all(np.unique(parts).size == 1 for parts in counts[1:])
    return Components(mean, interval, tuple(levels), balanced)


def t_quantile(degrees: Any, level: float) -> Any:
    """Student's quantile that leaves (1 - level)/2 above; vectorised over ``degrees``."""
    from scipy.special import stdtrit  # heavy: only where it is needed

    return -stdtrit(degrees, float(error_rate(level)) / 2)


def _half_width(means: NDArray[np.float64], level: float) -> float:
    return float(t_quantile(means.size - 1, level)) * sqrt(float(means.var(ddof=1)) / means.size)


def _variances(values: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sample variance of each of consecutive groups; NaN for a group of one."""
    starts = np.cumsum(groups) - groups
    first = np.repeat(values[starts], groups)
    offsets = values - first  # makes the spread of a constant group exactly 0
    centred = offsets - np.repeat(np.add.reduceat(offsets, starts) / groups, groups)
    squares = np.add.reduceat(centred * centred, starts)
    return np.where(groups > 1, squares / np.maximum(groups - 1, 1), np.nan)


def _means(
    nested: Sequence[Any], depth: int, names: Sequence[str]
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.int64]]]:
    """Means and numbers of parts of the units of each level, from the lowest level."""
    counts: list[NDArray[np.int64]] = []
    layer: list[Any] = list(nested)
    for name in reversed(names[1:]):
        try:
            sizes = np.array([len(unit) for unit in layer])
        except TypeError as error:
            message = f"{name}: a number where a sequence was expected; nest as deep as there are levels ({depth})"
            raise StatsRefusedError(Refusal.NOT_ONE_DIMENSIONAL, message) from error
        if (sizes == 0).any():
            message = f"{name} {int(np.flatnonzero(sizes == 0)[0])} is empty: leave it out, and say so"
            raise StatsRefusedError(Refusal.EMPTY, message)
        counts.append(sizes)
        if len(counts) < depth - 1:
            layer = [part for unit in layer for part in unit]
    values = Executions.of(layer).values
    counts.reverse()
    means = [values]
    for sizes in counts:
        starts = np.cumsum(sizes) - sizes
        means.append(np.add.reduceat(means[-1], starts) / sizes)
    return means, [np.ones(values.size, dtype=np.int64), *counts]
