"""Studentised permutation test for the ratio of a metric between two experiments; it exchanges whole executions.

Under "B is distributed as A, changed by that ratio" every choice of executions is equally likely to be B's, whatever
the distribution: rare modes, ties and unequal numbers of executions included. Studentised, the test keeps its level
in large samples where the two differ in shape as well (Janssen 1997; Chung and Romano 2013).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from math import ceil, comb, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pagelab.stats.nondeterminism.estimate import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pagelab.stats.nondeterminism.data import Executions

Array = NDArray[np.float64]
_CHUNK = 2_000_000
"""Elements of one batch of choices."""
_BEYOND = 20
"""Least number of choices beyond a p at its bound; with fewer the verdict would depend on the seed."""
_ROUNDING = 1e-12
_EQUAL = 1e-9
"""Statistics closer than this are equal: they are the same sums in another order."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Probabilities of a ratio at least as extreme as the observed one, under the given true ratio."""

    lower: float
    """One-sided p of "the true ratio is not lower"."""
    higher: float
    """One-sided p of "the true ratio is not higher"."""
    choices: int
    exact: bool
    """Whether every choice was counted; else a number of random ones, the observed one included."""


@dataclass(frozen=True, slots=True)
class _Moments:
    count: Array
    mean: Array
    squares: Array

    @classmethod
    def of(cls, executions: Executions) -> _Moments:
        rows = list(executions)
        means = np.array([row.mean() for row in rows])
        squares = np.array([row.var() * row.size if np.ptp(row) else 0.0 for row in rows])
        return cls(np.array([float(row.size) for row in rows]), means, squares)

    def stretched(self, unit: float, about: float, means: float, inside: float) -> _Moments:
        """The same in units of ``unit``, with the means' deviations from ``about`` and those inside multiplied."""
        moved = (about + (self.mean - about) * means) / unit
        return _Moments(self.count, moved, self.squares * (inside / unit) ** 2)

    @property
    def middle(self) -> float:
        """Median of the means; rare slow executions do not affect it."""
        return float(np.median(self.mean))


Estimate = Callable[[Array, float], tuple[Array, Array]]
"""From sums of the features (choices × features) of a group of that size: the log of the metric, and what each feature
adds to an execution's influence on it (choices × features)."""


def exchange(
    metric: Metric, base: Executions, new: Executions, ratio: float, *, seed: int, tail: float, choices: int = 4_999
) -> Exchanged:
    """Test "new / base = ``ratio``" of a metric, both one-sided p. At least two executions each.

    ``tail``: the p that will be asked for; the number of random choices is raised until it could be told from its
    neighbours. The base is brought to the ratio first: its values by multiplication, its spreads by stretching the
    deviations. A change of the mean alone is none of the spreads': they must be beyond two null distributions, that of
    the executions as they are (exact where A and B are one program) and that of each side divided by its median.
    """
    total, size = len(base) + len(new), len(new)
    least = max(choices, ceil(_BEYOND / tail))
    every = comb(total, size)
    exact = every <= 4 * least
    counted = every if exact else least
    nulls = [_Null.of(*found, size) for found in _features(metric, _Moments.of(base), _Moments.of(new), ratio)]
    # Counting every choice includes the observed one; among drawn choices it counts as one more.
    beyond = np.full((len(nulls), 2), 0 if exact else 1)
    for chosen in _choices(total, size, every if exact else least - 1, exact, seed):
        for row, null in zip(beyond, nulls, strict=True):
            row += null.beyond(chosen)
    # The observed choice is one of them, whatever the rounding of its statistic in other company.
    lower, higher = np.maximum(beyond.max(axis=0), 1) / counted
    return Exchanged(float(lower), float(higher), counted, exact)


@dataclass(frozen=True, slots=True)
class _Null:
    """One way to make the executions exchangeable, with the observed statistic."""

    products: Array
    features: int
    size: int
    estimate: Estimate
    floor: float
    """Variances below it are rounding: of all executions together, 10⁻¹² of theirs."""
    observed: float

    @classmethod
    def of(cls, features: Array, estimate: Estimate, size: int) -> _Null:
        products = (features[:, :, None] * features[:, None, :]).reshape(features.shape[0], -1)
        choice = np.zeros((1, features.shape[0]))
        choice[0, features.shape[0] - size :] = 1
        everyone = np.ones_like(choice)
        floor = _ROUNDING * float(_group(everyone, products, features.shape[1], features.shape[0], estimate)[1][0])
        floor = floor if np.isfinite(floor) else 0.0
        found = _statistic(choice, products, features.shape[1], size, estimate, floor)
        return cls(products, features.shape[1], size, estimate, floor, float(found[0]))

    def beyond(self, chosen: Array) -> tuple[int, int]:
        """Numbers of choices at least as low, and at least as high, as the observed one."""
        found = _statistic(chosen, self.products, self.features, self.size, self.estimate, self.floor)
        slack = _EQUAL * max(1.0, abs(self.observed)) if np.isfinite(self.observed) else 0.0
        return int((found <= self.observed + slack).sum()), int((found >= self.observed - slack).sum())


def _choices(total: int, size: int, count: int, exact: bool, seed: int) -> Iterator[Array]:
    """Choices as rows of 0 and 1; 1 means that the execution is assigned to the new experiment."""
    rows = max(1, _CHUNK // total)
    if exact:
        whole = combinations(range(total), size)
        for start in range(0, count, rows):
            chosen = np.zeros((min(rows, count - start), total))
            for row, places in zip(chosen, whole, strict=False):
                row[list(places)] = 1
            yield chosen
        return
    random = np.random.Generator(np.random.PCG64(seed))
    for start in range(0, count, rows):
        order = random.random((min(rows, count - start), total)).argpartition(size - 1, axis=1)[:, :size]
        chosen = np.zeros((order.shape[0], total))
        np.put_along_axis(chosen, order, 1.0, axis=1)
        yield chosen


def _group(chosen: Array, products: Array, features: int, size: int, estimate: Estimate) -> tuple[Array, Array]:
    """Log of the metric of the chosen executions, and its variance."""
    sums = (chosen @ products).reshape(-1, features, features)
    log, weights = estimate(sums[:, 0, :], size)
    return log, np.maximum(np.einsum("pi,pij,pj->p", weights, sums, weights), 0) * size / (size - 1)


def _statistic(chosen: Array, products: Array, features: int, size: int, estimate: Estimate, floor: float) -> Array:
    """Difference of the logs over its standard error; infinite where there is no error and a difference."""
    rest = products.shape[0] - size
    sides = [_group(mask, products, features, n, estimate) for mask, n in ((chosen, size), (1 - chosen, rest))]
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = sides[0][0] - sides[1][0]
        difference = np.where(np.abs(difference) < _ROUNDING, 0.0, difference)
        variances = [np.where(variance < floor, 0.0, variance) for _, variance in sides]
        found = difference / np.sqrt(variances[0] + variances[1])
        # Without spread on either side the influences do not exist: order by the difference alone.
        alone = np.where(difference == 0, 0.0, np.sign(difference) * np.inf)
    return np.where(np.isnan(found), np.nan_to_num(alone, nan=0.0, posinf=np.inf, neginf=-np.inf), found)


def _features(metric: Metric, base: _Moments, new: _Moments, ratio: float) -> list[tuple[Array, Estimate]]:
    if metric in (Metric.MEAN, Metric.MEASUREMENT):
        values = [one.mean if metric is Metric.MEAN else _deviation(one) / one.mean for one in (base, new)]
        values[0] = values[0] * ratio
        return [_average(np.concatenate(values))]
    inside = 1.0
    stretch = ratio
    if metric is Metric.EXECUTION:
        # √(variance between single measurements) grows by the ratio when the means alone are pulled apart by this.
        between = float(base.mean.var(ddof=1))
        rest = float((base.squares / base.count).mean())
        stretch = sqrt(max(0.0, ratio**2 + (ratio**2 - 1) * rest / between)) if between > 0 else 1.0
    else:
        inside = ratio
    unit = float(np.concatenate([base.mean, new.mean]).mean())
    build = _impact if metric is Metric.EXECUTION else _pooled
    alike = [
        base.stretched(unit, base.middle, stretch, inside),
        new.stretched(unit, new.middle, 1.0, 1.0),
    ]
    apart = [
        base.stretched(base.middle, base.middle, stretch, inside),
        new.stretched(new.middle, new.middle, 1.0, 1.0),
    ]
    return [build(_joined(sides)) for sides in (alike, apart)]


def _deviation(one: _Moments) -> Array:
    return np.asarray(np.sqrt(one.squares / np.maximum(one.count - 1, 1)))


def _joined(sides: list[_Moments]) -> _Moments:
    first, second = sides
    return _Moments(
        np.concatenate([first.count, second.count]),
        np.concatenate([first.mean, second.mean]),
        np.concatenate([first.squares, second.squares]),
    )


def _average(values: Array) -> tuple[Array, Estimate]:
    """Features and estimate of the mean of ``values``, one value per execution."""
    centre = float(values.mean())
    features = np.stack([np.ones_like(values), values - centre], axis=1)

    def estimate(sums: Array, count: float) -> tuple[Array, Array]:
        apart = sums[:, 1] / count
        mean = centre + apart
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(mean), np.stack([-apart / mean, 1 / mean], axis=1) / count

    return features, estimate


def _pooled(all_: _Moments) -> tuple[Array, Estimate]:
    """Features and estimate of the CV of all measurements together; means lie around 1."""
    apart = all_.mean - 1
    weight = all_.count / all_.count.mean()
    about = (all_.squares + all_.count * apart**2) / all_.count.mean()
    features = np.stack([np.ones_like(apart), about, weight * apart, weight], axis=1)

    def estimate(sums: Array, _: float) -> tuple[Array, Array]:
        total = sums[:, 3]
        shift = sums[:, 2] / total
        squares = sums[:, 1] - total * shift**2
        degrees = total * all_.count.mean() - 1
        mean = 1 + shift
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(np.maximum(squares, 0) * all_.count.mean() / degrees) / 2 - np.log(mean)
            own = 1 / (2 * squares)
            slope = 1 / (total * mean)
            weights = [
                np.zeros_like(shift),
                own,
                -2 * shift * own - slope,
                shift**2 * own - 1 / (2 * total) + shift * slope,
            ]
        return log, np.stack(weights, axis=1)

    return features, estimate


def _impact(all_: _Moments) -> tuple[Array, Estimate]:
    """Features and estimate of √(variance of single measurements) × mean inverse deviation inside; means are near 1."""
    apart = all_.mean - 1
    inside = all_.squares / all_.count
    with np.errstate(divide="ignore"):
        inverse = 1 / _deviation(all_)
    inverse = inverse / inverse.mean()
    features = np.stack([np.ones_like(apart), apart, apart**2, inside, inverse], axis=1)

    def estimate(sums: Array, count: float) -> tuple[Array, Array]:
        shift = sums[:, 1] / count
        spread = count / (count - 1)
        variance = (sums[:, 2] / count - shift**2) * spread + sums[:, 3] / count
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(np.maximum(variance, 0)) / 2 + np.log(sums[:, 4] / count)
            own = 1 / (2 * variance)
            weights = [
                spread * shift**2 * own - 0.5 - 1,
                -2 * spread * shift * own,
                spread * own,
                own,
                count / sums[:, 4],
            ]
        return log, np.stack(weights, axis=1) / count

    return features, estimate
