"""Ratio of two means of paired executions, and its test, which exchanges the executions of a pair."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil, sqrt
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.interval import Interval, IntervalMethod
from pagelab.stats.refusal import Refusal, StatsRefusedError, baseline_near_zero, error_rate

if TYPE_CHECKING:
    from pagelab.stats.paired import Pairs

_EXACT_PAIRS = 14
_FLIPS = 9_999
_BEYOND = 20
"""Least number of choices beyond a p at its bound; with fewer the verdict would depend on the seed."""
_EQUAL = 1e-9
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class MeanRatio:
    """Change of the mean in percent of the baseline's, over pairs in which both executions finished."""

    percent: float
    interval: Interval
    n: int


@dataclass(frozen=True, slots=True)
class Flipped:
    """Probabilities of a ratio at least as extreme as the observed one, under the given true ratio."""

    lower: float
    """One-sided p of "the true ratio is not lower"."""
    higher: float
    choices: int
    exact: bool


def paired_mean_ratio(pairs: Pairs, *, level: float = 0.95) -> MeanRatio:
    """100 (mean treatment / mean baseline - 1) with Fieller's interval (1954) for correlated means.

    All ratios R with |x̄ - R ȳ| <= t sd(x - R y) / sqrt(n), t Student's with n - 1 degrees of freedom.
    Refused if the baseline's mean is not distinguishable from 0: the set of ratios is then unbounded.
    """
    from scipy.special import stdtrit  # heavy: only where it is needed

    x, y = pairs.treatment, pairs.baseline
    n = x.size
    if n < 2:
        raise StatsRefusedError(Refusal.ONE_EXECUTION, "one pair has no spread: run at least 2 (better 10)")
    error_rate(level)
    scale = float(max(np.abs(x).max(), np.abs(y).max())) or 1.0
    x, y = x / scale, y / scale
    a, b = float(x.mean()), float(y.mean())
    (v_x, both), (_, v_y) = np.cov(x, y) / n
    t2 = float(stdtrit(n - 1, (1 + level) / 2)) ** 2
    denominator = b * b - t2 * v_y
    if denominator <= 0:
        enough = ceil(n * t2 * v_y / (b * b)) + 1 if b else None
        raise StatsRefusedError(Refusal.OUT_OF_REACH, baseline_near_zero(enough))
    middle = a * b - t2 * both
    root = sqrt(max(0.0, middle**2 - denominator * (a * a - t2 * v_x)))
    low, high = (100 * ((middle + side * root) / denominator - 1) for side in (-1, 1))
    return MeanRatio(100 * (a / b - 1), Interval(low, high, level, None, IntervalMethod.FIELLER), n)


def flipped(pairs: Pairs, ratio: float, *, seed: int, tail: float) -> Flipped:
    """Test "treatment / baseline = ``ratio``" by the mean of x - ratio y, both one-sided p.

    If the treatment is distributed as the baseline times the ratio, the schedule's random order makes each sign equally
    likely. Up to 14 pairs every choice of signs is counted; with more, enough random ones to resolve a p at ``tail``.
    """
    apart = pairs.treatment - ratio * pairs.baseline
    # Values at the limit differ from it by rounding only, whose sign means nothing.
    apart[np.abs(apart) <= _ROUNDING * (np.abs(pairs.treatment) + np.abs(ratio * pairs.baseline))] = 0.0
    observed = float(apart.sum())
    slack = _EQUAL * float(np.abs(apart).sum())
    exact = apart.size <= _EXACT_PAIRS
    if exact:
        signs = np.array(list(product((-1.0, 1.0), repeat=apart.size)))
        sums, extra = signs @ apart, 0
    else:
        random = np.random.Generator(np.random.PCG64(seed))
        count = max(_FLIPS, ceil(_BEYOND / tail))
        rows = max(1, 4_000_000 // apart.size)
        parts = [
            (2.0 * random.integers(0, 2, (min(rows, count - start), apart.size)) - 1) @ apart
            for start in range(0, count, rows)
        ]
        sums, extra = np.concatenate(parts), 1  # the observed choice counts as one
    size = sums.size + extra
    lower = (int((sums <= observed + slack).sum()) + extra) / size
    higher = (int((sums >= observed - slack).sum()) + extra) / size
    return Flipped(lower, higher, size, exact)
