"""The variance of single runs in each layout, from few repeats: moderated towards that of all layouts.

Own variances of few repeats are wrong by large factors, and one for all is wrong where layouts differ, as 4K pages
often do. Empirical Bayes lies between them: layouts' variances are drawn from a scaled inverse χ² distribution with d₀
degrees of freedom, which is fitted to the spread of their logarithms beyond chance, and the moderated variance is
(d₀s₀² + ds²)/(d₀ + d). Without spread beyond chance d₀ is infinite, and all layouts share one variance (Smyth, Linear
models and empirical Bayes methods, Statistical Applications in Genetics and Molecular Biology 3, 2004, section 6.2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, fdtrc, polygamma

Array = NDArray[np.float64]
FEW_REPEATS = 20
"""Layouts with fewer repeats share what they know: a variance of two runs is wrong by three quarters of itself."""
_FEWEST = 6
"""Fewer layouts do not show how variances differ; they share one."""
_SURE = 0.05
"""A variance keeps its own value if it is above the others' with this probability of error, over all layouts."""
_LEAST = 1e-4
"""Variances below this share of the pooled one are taken for it: times have steps, and no logarithm of zero."""
_MANY = 1e6


def moderated(own: Array, repeats: NDArray[np.int64]) -> tuple[Array, Array]:
    """The layouts' variances of single runs and their degrees of freedom; NaN in ``own`` where it is not known.

    Layouts with :data:`FEW_REPEATS` keep their own, and so do those far above the others. ValueError if none is known.
    """
    known = np.isfinite(own) & (repeats >= 2)
    if not known.any():
        raise ValueError("no layout has two repeats")
    freedom = np.where(known, repeats - 1, 0).astype(np.float64)
    values = np.where(known, own, 0.0)
    pooled, total = float(freedom @ values / freedom.sum()), float(freedom.sum())
    centre, prior = _prior(values[known], freedom[known], pooled)
    if not np.isfinite(prior):
        variance, shared = np.full(len(own), pooled), np.full(len(own), total)
    else:
        variance = (prior * centre + freedom * values) / (prior + freedom)
        shared = np.minimum(prior + freedom, total)
    beyond = np.zeros(len(own), dtype=bool)
    if centre > 0:
        chance = fdtrc(np.maximum(freedom, 1), min(prior, _MANY), values / centre)
        beyond = known & (chance < _SURE / known.sum())
    keeps = known & (beyond | (repeats >= FEW_REPEATS))
    return np.where(keeps, values, variance), np.where(keeps, freedom, shared)


def _prior(values: Array, freedom: Array, pooled: float) -> tuple[float, float]:
    """s₀² and d₀: the centre of the layouts' variances, and how many degrees of freedom it counts for."""
    if len(values) < _FEWEST or pooled == 0:
        return pooled, np.inf
    logs = np.log(np.maximum(values, _LEAST * pooled)) - digamma(freedom / 2) + np.log(freedom / 2)
    beyond = float(logs.var(ddof=1) - polygamma(1, freedom / 2).mean())
    if beyond <= 0:
        return pooled, np.inf
    prior = 2 * _trigamma_inverse(beyond)
    return float(np.exp(logs.mean() + digamma(prior / 2) - np.log(prior / 2))), prior


def _trigamma_inverse(value: float) -> float:
    """Newton's method on 1/ψ′, which is convex (Smyth 2004, appendix)."""
    found = 0.5 + 1 / value
    for _ in range(50):
        now = float(polygamma(1, found))
        found += now * (1 - now / value) / float(polygamma(2, found))
    return found
