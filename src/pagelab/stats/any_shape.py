"""Interval for the Hodges-Lehmann shift that does not assume equally shaped distributions: Brunner-Munzel, inverted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.interval import Interval, IntervalMethod, NotAchievable
from pagelab.stats.order_statistics import PairOrder, pair_order, sign_bound

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pagelab.stats.selection import SortedRows


def any_shape_order(pairs: NDArray[np.intp], n: int, m: int, level: float) -> PairOrder | NotAchievable:
    """The ordered pairs that bound the interval; ``pairs`` is the argsort of the n x m differences (ratios), row-major.

    The exact-order interval assumes a pure shift. If one condition is tight and the other wide or bimodal, the standard
    deviation of U is up to 1.22 times that of the untied null (n = m): a nominal 95% covers 89%. This interval contains
    the shifts that the test of Brunner and Munzel (2000) does not reject, with degrees of freedom rounded down. It also
    contains the exact-order interval, so it is never shorter.

    A shift below all differences is always rejected, although the test's variance is 0 there. For any shapes, a true
    shift lies outside all differences with probability at most 2^(1 - min(n, m)), because min(n, m) disjoint pairs are
    independent signs. If that is too much, the interval is ``NotAchievable``.
    """
    exact = pair_order(n, m, level)
    short = sign_bound(min(n, m), level)
    if isinstance(exact, NotAchievable) or short is not None:
        return short if short is not None else exact
    path = placement_path(pairs, n, m)
    share_above = 1 - np.arange(n * m + 1) / (n * m)
    bound = _quantiles(path.degrees, level) * np.sqrt(path.variance)
    rejected_low = share_above - 0.5 > bound
    rejected_high = 0.5 - share_above > bound
    return PairOrder(
        low=min(exact.low, leading(rejected_low)),
        high=min(exact.high, leading(rejected_high[::-1])),
        achieved=None,
        method=IntervalMethod.ANY_SHAPE_ORDER,
    )


def any_shape_of_many(rows: SortedRows, n: int, m: int, level: float) -> Interval | NotAchievable:
    """The same interval, where the n x m pairs are too many to be stored; of tied pairs all are passed at once."""
    exact = pair_order(n, m, level)
    short = sign_bound(min(n, m), level)
    if short is not None:
        return short
    if isinstance(exact, NotAchievable):
        return exact

    def beyond(value: float, *, including: bool) -> tuple[float, float]:
        fallen = rows.passed(value, including=including)
        risen = n - np.cumsum(np.bincount(fallen, minlength=m + 1))[:m]
        passed = int(fallen.sum())
        of_x = (float(((m - fallen) ** 2).sum()) - (n * m - passed) ** 2 / n) / (m * m) / max(1, n - 1) / n
        of_y = (float((risen**2).sum()) - passed**2 / m) / (n * n) / max(1, m - 1) / m
        variance, spread = _with_degrees(np.array([of_x]), np.array([of_y]), n, m)
        return 0.5 - passed / (n * m), float(_quantiles(spread, level)[0] * np.sqrt(variance[0]))

    return rows.widened(exact, level, beyond)


@dataclass(frozen=True, slots=True, eq=False)
class PlacementPath:
    """Brunner and Munzel's variance of U / nm at every shift: index t = 0 … nm is a shift above t ordered pairs."""

    variance: NDArray[np.float64]
    degrees: NDArray[np.float64]
    """Satterthwaite's degrees of freedom; 1 where the variance is 0."""


def placement_path(pairs: NDArray[np.intp], n: int, m: int) -> PlacementPath:
    """S_x^2 / n + S_y^2 / m of the placements (the share of the other sample below a value), along all shifts.

    As the shift passes the difference x_i - y_j, the number of y below x_i falls by one and that of x below y_j rises
    by one. So all sums of squares follow from the order of the pairs, in integers.
    """
    row, column = np.divmod(pairs, m)
    fallen, risen = earlier_in_group(row, n, m), earlier_in_group(column, m, n)
    passed = np.arange(n * m + 1)
    squares_x = n * m * m + _running(1 - 2 * (m - fallen))
    squares_y = _running(2 * risen + 1)
    of_x = (squares_x - (n * m - passed) ** 2 / n) / (m * m) / max(1, n - 1) / n
    of_y = (squares_y - passed**2 / m) / (n * n) / max(1, m - 1) / m
    return PlacementPath(*_with_degrees(of_x, of_y, n, m))


def _with_degrees(
    of_x: NDArray[np.float64], of_y: NDArray[np.float64], n: int, m: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The sum of both parts of the variance, and Satterthwaite's degrees of freedom."""
    of_x, of_y = np.maximum(of_x, 0.0), np.maximum(of_y, 0.0)
    variance = of_x + of_y
    spread = of_x**2 / max(1, n - 1) + of_y**2 / max(1, m - 1)
    return variance, np.divide(variance**2, spread, out=np.ones_like(variance), where=spread > 0)


def earlier_in_group(group: NDArray[np.intp], groups: int, size: int) -> NDArray[np.int64]:
    """For each element, the number of earlier elements of its group; every group has ``size`` elements."""
    found = np.empty(group.size, dtype=np.int64)
    found[np.argsort(group, kind="stable")] = np.tile(np.arange(size), groups)
    return found


def _running(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(steps)])


def leading(flags: NDArray[np.bool_]) -> int:
    """Number of true values before the first false one."""
    return int(flags.size if flags.all() else flags.argmin())


def _quantiles(degrees: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """Student's upper (1 - level) / 2 quantiles, with the degrees of freedom rounded down."""
    whole = np.maximum(1, np.floor(degrees + 1e-9)).astype(np.int64)
    table = np.array([student_quantile(int(df), level) for df in range(int(whole.min()), int(whole.max()) + 1)])
    return np.asarray(table[whole - whole.min()], dtype=np.float64)


@lru_cache(maxsize=4096)
def student_quantile(degrees: int, level: float) -> float:
    """Student's upper (1 - level) / 2 quantile."""
    from scipy.special import stdtrit  # heavy: only where it is needed

    return -float(stdtrit(degrees, (1 - level) / 2))
