"""Estimates R of a layout from its repeats, by an estimator that is chosen beforehand, and the error from noise.

A layout has few repeats. So the relative deviations of all runs from the estimate of their layout's other runs are
pooled. A run has no part in that estimate: from one that it belongs to, its deviation is too small, and that of a
median of three is none. The standard error for n repeats is that of estimates from n deviations drawn at random from
the pool (bootstrap; Efron and Tibshirani 1993, chapter 6).

The pool has the shape of the noise. Its size differs between layouts, so a layout's error is scaled by the root of its
own moderated variance over the pooled one (:mod:`pagelab.models.noise`). An interval that is printed for two or three
layouts rests on their own runs alone (:class:`Own`), with Student's t.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from pagelab.model_run.document import EstimatorName
from pagelab.models.noise import moderated

Array = NDArray[np.float64]
LOW = 0.25
"""The low quantile. Other programs only add time, so a low value is best; the minimum would rest on one run."""
_DRAWS = 2000
_MANY = 1e6


def estimate(values: Array, how: EstimatorName) -> float:
    """The mean, the median or the lower quartile of ``values``, shape (repeats,)."""
    return float(_estimates(values, how))


def _estimates(values: Array, how: EstimatorName) -> Array:
    """The estimate of each row."""
    if how == "mean":
        return np.asarray(values.mean(axis=-1))
    return np.asarray(np.quantile(values, 0.5 if how == "median" else LOW, axis=-1))


@dataclass(frozen=True)
class Noise:
    """Relative deviations of single runs from their layout's estimate, pooled over all layouts, shape (runs,)."""

    deviations: Array
    how: EstimatorName
    own: Mapping[str, Own]
    """Of each layout, from its own runs."""

    @classmethod
    def of(cls, runs: Mapping[str, Sequence[float]], how: EstimatorName) -> Noise:
        """Pools the run times of each layout. Layouts with one run do not count; ValueError if no layout has two.

        A deviation from the estimate of n − 1 other runs contains the error of that estimate. With a variance of v by
        that of one run, deviations are spread too widely by a factor √(1 + v), and are brought together by it.
        """
        known = {name: Own.of(values, how) for name, values in runs.items() if len(values) >= 1}
        by_count: dict[int, list[Array]] = {}
        for values in runs.values():
            own = np.asarray(values, dtype=np.float64)
            if own.size >= 2:
                by_count.setdefault(own.size, []).append((own - _by_others(own, how)) / estimate(own, how))
        if not by_count:
            raise ValueError("noise needs a layout with two runs")
        wide = {count: np.concatenate(found) for count, found in by_count.items()}
        pool = np.concatenate(list(wide.values()))
        if not pool.any():
            return cls(pool, how, known)
        narrow = [_narrowed(wide[count], _share(pool, count - 1, how)) for count in wide]
        return cls(np.concatenate(narrow), how, known)

    @property
    def run_sd(self) -> float:
        """Relative standard deviation of one run around its layout's estimate: the root of the mean square."""
        return float(np.sqrt(np.mean(self.deviations**2)))

    def error(self, repeats: int, seed: int = 1) -> float:
        """Relative standard error of an estimate from this number of repeats."""
        return _drawn_error(self.deviations, repeats, self.how, seed)

    def errors(self) -> dict[str, tuple[float, float]]:
        """Relative standard error of each layout's estimate, and its degrees of freedom."""
        sd = np.array([one.sd for one in self.own.values()])
        repeats = np.array([one.repeats for one in self.own.values()])
        variance, freedom = moderated(sd**2, repeats)
        known = np.isfinite(sd)
        pooled = float(np.sum((repeats[known] - 1) * sd[known] ** 2) / np.sum(repeats[known] - 1))
        scale = np.sqrt(variance / pooled) if pooled > 0 else np.zeros(len(sd))
        drawn = {int(count): self.error(int(count)) for count in np.unique(repeats)}
        return {
            name: (float(drawn[one.repeats] * scale[i]), float(freedom[i]))
            for i, (name, one) in enumerate(self.own.items())
        }


@dataclass(frozen=True)
class Own:
    """A layout's noise from its own runs alone."""

    sd: float
    """Standard deviation of its runs, relative to the estimate; NaN for one run."""
    repeats: int
    error: float
    """Relative standard error of the estimate if noise is normal; heavier tails make that of a median smaller."""

    @classmethod
    def of(cls, values: Sequence[float], how: EstimatorName) -> Own:
        """The noise of a layout's run times."""
        own = np.asarray(values, dtype=np.float64)
        sd = float(own.std(ddof=1)) / estimate(own, how) if own.size >= 2 else np.nan
        return cls.told(sd, own.size, how)

    @classmethod
    def told(cls, sd: float, repeats: int, how: EstimatorName) -> Own:
        """The noise of a layout with this relative standard deviation."""
        return cls(sd, repeats, sd * _normal_error(repeats, how))


def combined(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Standard error of a sum of parts with own errors and degrees of freedom, and the degrees of freedom of it.

    Welch and Satterthwaite: (Σ eᵢ²)²/Σ(eᵢ⁴/dᵢ). Infinite if all errors are zero. An error without degrees of freedom
    is not known (one run has no spread): then that of the sum is NaN.
    """
    if any(own <= 0 or not np.isfinite(error) for error, own in parts):
        return np.nan, 0.0
    squares = np.array([error**2 for error, _ in parts])
    if not squares.any():
        return 0.0, np.inf
    freedom = squares.sum() ** 2 / np.sum(squares**2 / np.array([own for _, own in parts]))
    return float(np.sqrt(squares.sum())), float(freedom)


def times(freedom: float | None) -> float:
    """Half width of a 95% interval in standard errors; None: infinitely many degrees of freedom."""
    if freedom is None:
        freedom = _MANY
    return float(stdtrit(min(freedom, _MANY), 0.975)) if freedom > 0 else np.nan


@lru_cache(maxsize=256)
def _normal_error(repeats: int, how: EstimatorName) -> float:
    """Standard error of an estimate from this number of standard normal values."""
    if how == "mean":
        return float(1 / np.sqrt(repeats))
    return _drawn_error(ndtri((np.arange(_DRAWS) + 0.5) / _DRAWS), repeats, how, 1)


def _by_others(own: Array, how: EstimatorName) -> Array:
    """For each run of a layout, the estimate from the others."""
    others = np.tile(own, (own.size, 1))[~np.eye(own.size, dtype=bool)].reshape(own.size, own.size - 1)
    return _estimates(others, how)


def _drawn_error(deviations: Array, repeats: int, how: EstimatorName, seed: int) -> float:
    drawn = np.random.default_rng([seed, repeats]).choice(deviations, (_DRAWS, repeats))
    return float(_estimates(drawn, how).std())


def _share(pool: Array, repeats: int, how: EstimatorName) -> float:
    """Variance of an estimate from this number of runs, over that of one run; it depends on the pool's shape only."""
    if how == "mean" or repeats == 1:
        return 1 / repeats
    return _drawn_error(pool, repeats, how, 1) ** 2 / float(pool.var())


def _narrowed(deviations: Array, share: float) -> Array:
    mean = float(deviations.mean())
    narrowed: Array = mean + (deviations - mean) / np.sqrt(1 + share)
    return narrowed


def perfect(error: float, layouts: int) -> float:
    """Median of a perfect model's maximal error if each of ``layouts`` has this relative standard error.

    The maximum of n absolute normal deviates is below z with probability (2Φ(z) − 1)^n.
    """
    return float(error * ndtri((1 + 0.5 ** (1 / layouts)) / 2))
