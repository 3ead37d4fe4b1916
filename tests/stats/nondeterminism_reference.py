"""A second implementation of draws and standard errors, naive on purpose: Python integers, NumPy's own std.

It repeats docs/method/nondeterminism.md draw by draw, so that the native loops can be compared digit by digit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

MASK = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15
IMPACT, IMPACT_NULL = 2, 4

Rows = Sequence[Sequence[float]]


def mix(value: int) -> int:
    value = (value + GAMMA) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


class Stream:
    """xoshiro256++ seeded by SplitMix64 at an address made of four words."""

    def __init__(self, seed: int, key: int, part: int, index: int) -> None:
        address = mix(mix(mix(mix(seed) ^ key) ^ part) ^ index)
        self.state = [mix((address + i * GAMMA) & MASK) for i in range(4)]

    def next(self) -> int:
        a, b, c, d = self.state
        rotated = (a + d) & MASK
        result = (((rotated << 23) | (rotated >> 41)) + a) & MASK
        c, d = c ^ a, d ^ b
        self.state = [a ^ d, b ^ c, c ^ (b << 17) & MASK, ((d << 45) | (d >> 19)) & MASK]
        return result

    def below(self, bound: int) -> int:
        while True:
            product = self.next() * bound
            if (product & MASK) >= 2**64 % bound:
                return product >> 64

    def each_below(self, bounds: Sequence[int]) -> Iterator[int]:
        word = 0
        for i, bound in enumerate(bounds):
            if i % 4 == 0:
                word = self.next()
            product = (word & 0xFFFF) * bound
            word >>= 16
            if bound > 1 << 16 or (product & 0xFFFF) < 2**16 % bound:
                yield self.below(bound)
            else:
                yield product >> 16


def shuffled_front(values: list[float] | list[int], size: int, stream: Stream) -> None:
    if size < len(values):
        for k, further in enumerate(stream.each_below([len(values) - k for k in range(size)])):
            values[k], values[k + further] = values[k + further], values[k]  # type: ignore[index]  # a list of one kind or the other


def spread(values: Sequence[float]) -> float:
    """Standard deviation; relative to the first value, because NumPy's own loses what differs in the last digits."""
    return float(np.std(np.subtract(values, values[0]), ddof=1))


def levels(rows: Rows) -> tuple[float, float, float]:
    """Mean of means, mean of CVs, CV of everything."""
    means = [float(np.mean(row)) for row in rows]
    cvs = [float(np.std(row, ddof=1) / np.mean(row)) if len(row) > 1 else float("nan") for row in rows]
    together = np.concatenate([np.asarray(row) for row in rows])
    return float(np.mean(means)), float(np.mean(cvs)), float(np.std(together, ddof=1) / np.mean(together))


def ratio(between: Sequence[float], within: Sequence[float]) -> float | None:
    if min(within) == max(within):
        return None
    return spread(between) / spread(within)


@dataclass
class Drawn:
    ratios: list[float]
    zeros: int

    @property
    def mean(self) -> float:
        return float(np.mean(self.ratios))

    @property
    def log_mean(self) -> float:
        with np.errstate(divide="ignore"):
            return float(np.exp(np.mean(np.log(self.ratios))))


def fill(draws: int, draw: Callable[[], float | None]) -> Drawn | None:
    found = Drawn([], 0)
    while len(found.ratios) < draws and found.zeros <= 19 * draws:
        value = draw()
        if value is None:
            found.zeros += 1
        else:
            found.ratios.append(value)
    return found if len(found.ratios) == draws else None


def drawer(rows: list[list[float]], size: int, order: list[int], stream: Stream) -> Callable[[], float | None]:
    def draw() -> float | None:
        row = rows[stream.below(len(rows))]
        shuffled_front(row, size, stream)
        within = row[:size]
        shuffled_front(order, size, stream)
        chosen = order[:size]
        picks = stream.each_below([len(rows[i]) for i in chosen])
        return ratio([rows[i][position] for i, position in zip(chosen, picks, strict=True)], within)

    return draw


def impact(rows: Rows, size: int, seed: int, key: int, draws: int) -> Drawn | None:
    held = [list(row) for row in rows]
    return fill(draws, drawer(held, size, list(range(len(rows))), Stream(seed, key, IMPACT, 0)))


def impact_null(rows: Rows, size: int, seed: int, key: int, draws: int) -> Drawn | None:
    pool = [value for row in rows for value in row]
    order = list(range(len(rows)))
    stream = Stream(seed, key, IMPACT_NULL, 0)

    def draw() -> float | None:
        execution = stream.below(len(rows))
        shuffled_front(pool, size, stream)
        within = pool[:size]
        shuffled_front(order, size, stream)
        between, following = [], size
        for i in order[:size]:
            position = stream.below(len(rows[i])) if i == execution else size
            if position >= size:
                other = following + stream.below(len(pool) - following)
                pool[following], pool[other] = pool[other], pool[following]
                position, following = following, following + 1
            between.append(pool[position])
        return ratio(between, within)

    return fill(draws, draw)


def log_spread(rows: Rows) -> float:
    """Log of the CV of everything."""
    together = np.concatenate([np.asarray(row) for row in rows])
    return float(np.log(np.std(together, ddof=1) / np.mean(together)))


def log_impact(rows: Rows) -> float:
    """Log of what the impact factor is about: the deviation of single measurements of different executions, times the
    mean inverse deviation inside."""
    means = [np.mean(row) for row in rows]
    between = np.var(means, ddof=1) + np.mean([np.var(row) for row in rows])
    return float(np.log(between) / 2 + np.log(np.mean([1 / np.std(row, ddof=1) for row in rows])))


def jackknife(rows: Rows, statistic: Callable[[Rows], float]) -> float:
    """Its variance: from the statistic without each execution in turn."""
    without = [statistic([row for j, row in enumerate(rows) if j != i]) for i in range(len(rows))]
    return float((len(rows) - 1) * np.var(without))


def infinitesimal(rows: Rows) -> float:
    """Variance of the log of the CV of everything when each execution is weighted a little more in turn."""
    counts = np.array([len(row) for row in rows], dtype=float)
    means = np.array([np.mean(row) for row in rows])
    squares = np.array([len(row) * np.var(row) for row in rows])

    def log_of(weights: np.ndarray) -> float:
        total = (weights * counts).sum()
        grand = (weights * counts * means).sum() / total
        return float(np.log((weights * (squares + counts * (means - grand) ** 2)).sum() / total) / 2 - np.log(grand))

    n, step = len(rows), 1e-5
    slopes = [(log_of(np.ones(n) + e) - log_of(np.ones(n) - e)) / (2 * step) for e in step * np.eye(n)]
    return float(np.square(slopes).sum() * n / (n - 1))


def normal_variance(share: float, n: int, total: int) -> float:
    """Of the log of a standard deviation, ``share`` of the variance between executions."""
    return (share**2 / (n - 1) + ((1 - share) ** 2 / (total - n) if total > n else 0)) / 2


def pooled_error(rows: Rows) -> tuple[float, float]:
    """Shift and standard error of the log of the CV of everything."""
    n, total = len(rows), sum(map(len, rows))
    within = sum(len(row) * np.var(row) for row in rows) / max(total - n, 1)
    between = max(0.0, np.var([np.mean(row) for row in rows], ddof=1) - within * n / total)
    share = min(1.0, max(between / (between + within), n / total))
    normal = normal_variance(share, n, total)
    variance = min(jackknife(rows, log_spread), 4 * infinitesimal(rows))
    lost = -np.log(1 - share * (total / n - 1) / (total - 1)) / 2
    return lost + normal / 2, float(np.sqrt(((n - 1) * variance + 4 * normal) / (n + 3)))


def impact_error(rows: Rows) -> tuple[float, float]:
    """Shift and standard error of the log of the impact factor."""
    n, total = len(rows), sum(map(len, rows))
    between = np.var([np.mean(row) for row in rows], ddof=1)
    share = between / (between + np.mean([np.var(row) for row in rows]))
    normal = normal_variance(share, n, total) + 0.5 / (total - n)
    return share**2 / (4 * (n - 1)), float(np.sqrt(max(jackknife(rows, log_impact), normal)))
