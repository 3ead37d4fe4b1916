"""Estimates R of a layout from its repeats, by an estimator that is chosen beforehand, and the error from noise.

A layout has few repeats, but relative noise is alike in all layouts. So the relative deviations of all runs from their
layout's estimate are pooled. The standard error for n repeats is that of estimates from n deviations drawn at random
from the pool (bootstrap; Efron and Tibshirani 1993, chapter 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pagelab.model_run.document import EstimatorName

Array = NDArray[np.float64]
LOW = 0.25
"""The low quantile. Other programs only add time, so a low value is best; the minimum would rest on one run."""
_DRAWS = 2000


def estimate(values: Array, how: EstimatorName) -> float:
    """The mean, the median or the lower quartile of ``values``, shape (repeats,)."""
    if how == "mean":
        return float(values.mean())
    return float(np.quantile(values, 0.5 if how == "median" else LOW))


@dataclass(frozen=True)
class Noise:
    """Relative deviations of single runs from their layout's estimate, pooled over all layouts, shape (runs,)."""

    deviations: Array
    how: EstimatorName

    @classmethod
    def of(cls, runs: Mapping[str, Sequence[float]], how: EstimatorName) -> Noise:
        """Pools the run times of each layout. Layouts with one run do not count; ValueError if no layout has two.

        Deviations from an estimate of n runs are too small by a factor √((n − 1)/n), and are divided by it.
        """
        found = []
        for values in runs.values():
            own = np.asarray(values, dtype=np.float64)
            if own.size >= 2:
                found.append((own / estimate(own, how) - 1) * np.sqrt(own.size / (own.size - 1)))
        if not found:
            raise ValueError("noise needs a layout with two runs")
        return cls(np.concatenate(found), how)

    @property
    def run_sd(self) -> float:
        """Relative standard deviation of one run around its layout's estimate: the root of the mean square."""
        return float(np.sqrt(np.mean(self.deviations**2)))

    def error(self, repeats: int, seed: int = 1) -> float:
        """Relative standard error of an estimate from this number of repeats."""
        drawn = np.random.default_rng([seed, repeats]).choice(self.deviations, (_DRAWS, repeats))
        if self.how == "mean":
            return float(drawn.mean(axis=1).std())
        return float(np.quantile(drawn, 0.5 if self.how == "median" else LOW, axis=1).std())


def perfect(error: float, layouts: int) -> float:
    """Median of a perfect model's maximal error if each of ``layouts`` has this relative standard error.

    The maximum of n absolute normal deviates is below z with probability (2Φ(z) − 1)^n.
    """
    return float(error * ndtri((1 + 0.5 ** (1 / layouts)) / 2))
