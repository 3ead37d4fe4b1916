"""The geometric mean of the ratios over a set of programs, with its test and the inverted interval."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, floor
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
"""Most programs of which every choice of signs is counted."""
DRAWN = 19_999
"""Choices drawn where there are more; with the observed one, a p is a multiple of 0.0001."""
LARGEST_LOG = 700.0
"""Beyond, a ratio is no double."""
_ROWS = 4_000_000
_EQUAL = 1e-12


@dataclass(frozen=True, slots=True)
class SetRatio:
    """Treatment over baseline, over the programs of a set."""

    ratio: float
    """Geometric mean of the programs' ratios: every program counts alike."""
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


def set_ratio(ratios: ArrayLike, *, level: float = 0.95, seed: int = 1) -> SetRatio:
    """exp of the mean of the programs' log ratios d_i, one a program, with Hartigan's (1969) interval.

    Under the ratio exp(m) each d_i - m has either sign with probability 1/2, *whatever the noise of its program*: the
    schedule drew the order of policy and baseline in every block. So all 2^n choices of signs are equally likely, and p
    is the share of them with a sum at least as far out (two-sided: twice the smaller tail). Choosing signs that
    differ from the observed in the programs S moves the sum beyond it exactly when m lies beyond the mean of d over S;
    so the k-th of the ordered means of all subsets from either end bound the ratios that the test does not reject.
    Exact up to 14 programs; then 19,999 choices are drawn, with which the test still has its level exactly.

    Not of ranks: a set in which few programs change much has a mean that differs from 0 and a middle that does not.
    """
    found = one_sample(ratios, "ratios")
    if found.min() <= 0:
        raise StatsRefusedError(Refusal.NOT_POSITIVE, f"a ratio is {found.min():g}: no geometric mean exists")
    logs = np.log(found)
    logs = np.where(np.abs(logs) < _EQUAL, 0.0, logs)
    low, high = _subset_means(logs, seed)
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


def _subset_means(logs: NDArray[np.float64], seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means over all non-empty subsets of the programs, or over drawn ones, rising.

    A drawn subset may be empty: its choice of signs is the observed one, which lies beyond every centre on either side,
    so that it stands first for the one tail and last for the other.
    """
    n = logs.size
    if n <= EXACT_PROGRAMS:
        members = (np.arange(1, 2**n)[:, None] >> np.arange(n)) & 1
        means = np.sort(members @ logs / members.sum(axis=1))
        return means, means
    random = np.random.Generator(np.random.PCG64(seed))
    rows = max(1, _ROWS // n)
    sums, sizes = np.empty(DRAWN), np.empty(DRAWN)
    for start in range(0, DRAWN, rows):
        part = slice(start, min(start + rows, DRAWN))
        members = random.integers(0, 2, (part.stop - start, n), dtype=np.int8)
        sums[part], sizes[part] = members @ logs, members.sum(axis=1)
    means = sums / np.maximum(sizes, 1)
    return np.sort(np.where(sizes > 0, means, -np.inf)), np.sort(np.where(sizes > 0, means, np.inf))


def _interval(low: NDArray[np.float64], high: NDArray[np.float64], n: int, level: float) -> Interval | NotAchievable:
    short = sign_bound(n, level)
    if short is not None:
        return short
    k = floor(error_rate(level) / 2 * (low.size + 1))
    ends = float(low[k - 1]), float(high[high.size - k])
    if max(abs(end) for end in ends) > LARGEST_LOG:
        raise StatsRefusedError(Refusal.OUT_OF_REACH, "the mean ratio could be any: compare more programs")
    return Interval(exp(ends[0]), exp(ends[1]), level, 1 - 2 * k / (low.size + 1), IntervalMethod.SUBSET_MEANS)


def spread_ratio(pairs: Pairs) -> float:
    """Coefficient of variation of the treatment's executions over that of the baseline's: one program's part in a set.

    Of the pairs that both finished, so that both sides are of as many executions and ran in the same blocks. What the
    machine adds to both is in it, and brings it nearer to 1. One pair has no spread; neither have times that are all
    equal: no ratio exists.
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
