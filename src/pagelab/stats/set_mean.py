"""The geometric mean of the ratios over a set of programs, with its test and the inverted interval."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp, floor
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.interval import Interval, IntervalMethod, NotAchievable
from pagelab.stats.order_statistics import sign_bound
from pagelab.stats.rank_test import PValueMethod
from pagelab.stats.refusal import Refusal, StatsRefusedError, error_rate, one_sample, unit_range

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from pagelab.stats.paired import Pairs

EXACT_PROGRAMS = 14
"""Largest number of programs for which every choice of signs is counted."""
DRAWN = 19_999
"""Number of choices drawn for more programs at ordinary levels; with the observed one, p is a multiple of 0.0001."""
MOST_DRAWN = 1_999_999
"""Most choices drawn; levels that need more have no interval."""
_BEYOND = 20
"""Least number of choices in a tail at its bound; with fewer the verdict would depend on the seed."""
LARGEST_LOG = 700.0
"""Largest log of a ratio in the double range."""
_ROWS = 4_000_000
_EQUAL = 1e-12


@dataclass(frozen=True, slots=True)
class SetRatio:
    """Treatment over baseline, over the programs of a set."""

    ratio: float
    """Geometric mean of the programs' ratios; every program has equal weight."""
    interval: Interval | NotAchievable
    """All ratios that the test does not reject."""
    p: float
    """Two-sided, of "the ratio is 1"."""
    programs: int
    below: int
    """Programs whose own ratio is below 1."""
    above: int
    method: PValueMethod
    """``exact``, or ``drawn``: a seeded sample of the choices of signs."""


def set_ratio(ratios: ArrayLike, *, level: float = 0.95, seed: int = 1, comparisons: int = 1) -> SetRatio:
    """exp of the mean of the log ratios d_i, one per program, with Hartigan's (1969) interval.

    Under the ratio exp(m) each d_i - m has either sign with probability 1/2, *whatever the noise of its program*,
    because the schedule drew the order of policy and baseline in every block. So all 2^n choices of signs are equally
    likely, and p is the share of them with a sum at least as extreme (two-sided: twice the smaller tail). A choice that
    differs from the observed signs in the programs S has a more extreme sum exactly if m lies beyond the mean of d over
    S. So the k-th subset mean from either end bounds the ratios that the test does not reject. Every choice is counted
    up to 14 programs; for more, 19,999 choices are drawn, or as many as a p needs that is corrected by Holm over
    ``comparisons`` at this level, and the test still has exactly its level.

    Ranks are not used: if few programs change much, the set's mean differs from 0, but its median does not.
    """
    found = one_sample(ratios, "ratios")
    if found.min() <= 0:
        raise StatsRefusedError(Refusal.NOT_POSITIVE, f"a ratio is {found.min():g}: no geometric mean exists")
    logs = np.log(found)
    logs = np.where(np.abs(logs) < _EQUAL, 0.0, logs)
    low, high = _subset_means(logs, seed, drawn(level, comparisons))
    size = low.size + 1
    slack = _EQUAL * float(np.abs(logs).max())
    tails = [int((low <= slack).sum()) + 1, int((high >= -slack).sum()) + 1]
    return SetRatio(
        ratio=exp(float(logs.mean())),
        interval=_interval(low, high, logs.size, level),
        p=min(1.0, 2 * min(tails) / size),
        programs=logs.size,
        below=int((logs < 0).sum()),
        above=int((logs > 0).sum()),
        method=PValueMethod.EXACT if logs.size <= EXACT_PROGRAMS else PValueMethod.DRAWN,
    )


def drawn(level: float, comparisons: int = 1) -> int:
    """The number of choices of signs to draw, so that p can be below the error of ``level`` over the comparisons."""
    needed = ceil(2 * _BEYOND * comparisons / error_rate(level)) - 1
    return min(MOST_DRAWN, max(DRAWN, needed))


def smallest_set_p(programs: int, level: float, comparisons: int = 1) -> Fraction:
    """The smallest p of :func:`set_ratio` over so many programs."""
    counted = min(Fraction(1), Fraction(2, 2**programs))
    return counted if programs <= EXACT_PROGRAMS else max(counted, Fraction(2, drawn(level, comparisons) + 1))


def _subset_means(logs: NDArray[np.float64], seed: int, draws: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sorted means over all non-empty subsets of the programs, or over drawn subsets.

    A drawn subset may be empty, which is the observed choice of signs. It counts as extreme for every centre in both
    tails, so it comes first for one tail and last for the other.
    """
    n = logs.size
    if n <= EXACT_PROGRAMS:
        members = (np.arange(1, 2**n)[:, None] >> np.arange(n)) & 1
        means = np.sort(members @ logs / members.sum(axis=1))
        return means, means
    random = np.random.Generator(np.random.PCG64(seed))
    rows = max(1, _ROWS // n)
    sums, sizes = np.empty(draws), np.empty(draws)
    for start in range(0, draws, rows):
        part = slice(start, min(start + rows, draws))
        members = random.integers(0, 2, (part.stop - start, n), dtype=np.int8)
        sums[part], sizes[part] = members @ logs, members.sum(axis=1)
    means = sums / np.maximum(sizes, 1)
    return np.sort(np.where(sizes > 0, means, -np.inf)), np.sort(np.where(sizes > 0, means, np.inf))


def _interval(low: NDArray[np.float64], high: NDArray[np.float64], n: int, level: float) -> Interval | NotAchievable:
    short = sign_bound(n, level)
    if short is not None:
        return short
    k = floor(error_rate(level) / 2 * (low.size + 1))
    if k < 1:
        return NotAchievable(level, 1 - 2 / (low.size + 1), n)
    ends = float(low[k - 1]), float(high[high.size - k])
    if max(abs(end) for end in ends) > LARGEST_LOG:
        raise StatsRefusedError(Refusal.OUT_OF_REACH, "the mean ratio could be any: compare more programs")
    return Interval(exp(ends[0]), exp(ends[1]), level, 1 - 2 * k / (low.size + 1), IntervalMethod.SUBSET_MEANS)


def spread_ratio(pairs: Pairs) -> float:
    """Coefficient of variation of the treatment's executions over the baseline's: one program's value in a set.

    Only pairs in which both finished count, so that both sides have equally many executions from the same blocks. The
    machine's own spread, which both share, brings the ratio nearer to 1. With one pair, or equal times, there is no
    ratio.
    """
    done = pairs.finished
    if len(done) < 2:
        raise StatsRefusedError(
            Refusal.ONE_EXECUTION, f"{len(done)} pairs finished: no spread; run at least 2 (better 10)"
        )
    found = []
    for side, name in ((done.treatment, "the policy"), (done.baseline, "the baseline")):
        scaled = unit_range(side)
        mean, deviation = float(scaled.mean()), float(scaled.std(ddof=1))
        if mean <= 0:
            raise StatsRefusedError(
                Refusal.NOT_POSITIVE, f"{name}: the mean is not above zero: no coefficient of variation"
            )
        if np.ptp(side) == 0:
            raise StatsRefusedError(Refusal.NO_SPREAD, f"{name}: all executions are equal: no ratio of spreads exists")
        found.append(deviation / mean)
    return found[0] / found[1]
