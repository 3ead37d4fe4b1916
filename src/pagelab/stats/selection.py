"""Order statistics of all pairs of values, without storing the pairs: selection in rows that are sorted.

The differences (ratios) of two samples and the averages of two differences are matrices whose rows are sorted if the
samples are. The k-th smallest entry is found by narrowing each row to the entries between two values from a sample of
the rest (Johnson and Mizoguchi, SIAM J. Comput. 7, 1978, select in such matrices; the sampling is Floyd and Rivest's,
CACM 18, 1975). An expected O(n log m) a round, and a handful of rounds. Entries are computed as they would be stored,
and compared as such: the result is the same number as that of a sort, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pagelab.stats.interval import Interval, IntervalMethod

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pagelab.stats.order_statistics import PairOrder

    Floats = NDArray[np.float64]
    Places = NDArray[np.int64]

    class Beyond(Protocol):
        def __call__(self, value: float, *, including: bool) -> tuple[float, float]: ...


_SAMPLE = 4_000
_STORED = 1_000_000
"""So many entries are sorted at once."""
_MARGIN = 3.0
"""Standard errors around the sample's quantile: the entry that is looked for lies outside in a few of a thousand
rounds, which are then repeated."""


@dataclass(frozen=True, slots=True, eq=False)
class SortedRows:
    """A matrix of rows that do not fall from left to right. Row i has the columns ``first[i]`` … ``end[i] - 1``."""

    entry: Callable[[Places, Places], Floats]
    """(rows, columns) -> entries."""
    first: Places
    end: Places

    @property
    def size(self) -> int:
        return int((self.end - self.first).sum())

    def value(self, rank: int, seed: int = 1) -> float:
        """The entry of this rank, counted from 0, in ascending order."""
        random = np.random.Generator(np.random.PCG64([seed, rank]))
        low, high = self.first, self.end
        before = 0
        """Number of entries left of ``low``, none of them larger than what is looked for."""
        single = False
        while True:
            left = int((high - low).sum())
            if left <= _STORED:
                return float(np.partition(self._entries(low, high), rank - before)[rank - before])
            below, above = self._around(low, high, (rank - before) / left, random, single=single)
            start = self._count(below, low, high, including=False)
            stop = self._count(above, low, high, including=True)
            smaller, upto = before + int((start - low).sum()), before + int((stop - low).sum())
            if rank < smaller:
                high = start
            elif rank >= upto:
                low, before = stop, upto
            elif below == above:
                return below
            else:
                low, high, before = start, stop, smaller
            # Of many ties, the two can be the ends of all the rest: a single one then always leaves some out.
            single = int((high - low).sum()) == left

    def median(self) -> float:
        """The median, as :func:`pagelab.stats.order_statistics.middle` of all entries."""
        low, high = self.value((self.size - 1) // 2), self.value(self.size // 2)
        return low if low == high else low / 2 + high / 2

    def passed(self, value: float, *, including: bool) -> Places:
        """For each row, the column after its last entry below ``value``, or of at most ``value``."""
        return self._count(value, self.first, self.end, including=including)

    def bound(self, order: PairOrder, level: float) -> Interval:
        """As :meth:`PairOrder.bound` of all entries in ascending order."""
        low, high = self.value(order.low - 1), self.value(self.size - order.high)
        return Interval(low, high, level, order.achieved, order.method)

    def widened(self, exact: PairOrder, level: float, beyond: Beyond) -> Interval:
        """The any-shape interval: that of ``exact``, joined with all shifts that a studentised test does not reject.

        ``beyond``: how far the share of entries above a value is from a half, and how far it may be.
        """
        inner = self.bound(exact, level)

        def above_all(value: float) -> bool:
            apart, allowed = beyond(value, including=True)
            return apart > allowed

        def below_all(value: float) -> bool:
            apart, allowed = beyond(value, including=False)
            return -apart > allowed

        low = inner.low if above_all(inner.low) else _last_kept(above_all, self.value(0), inner.low)
        high = inner.high if below_all(inner.high) else _last_kept(below_all, self.value(self.size - 1), inner.high)
        return Interval(low, high, level, None, IntervalMethod.ANY_SHAPE_ORDER)

    def _entries(self, low: Places, high: Places) -> Floats:
        counts = high - low
        rows = np.repeat(np.arange(low.size), counts)
        columns = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)
        return self.entry(rows, columns)

    def _around(
        self, low: Places, high: Places, share: float, random: np.random.Generator, *, single: bool
    ) -> tuple[float, float]:
        """Two entries between which the entry at this share of the rest is likely to lie; ``single``: twice one."""
        ends = np.cumsum(high - low)
        drawn = np.sort(random.integers(0, int(ends[-1]), _SAMPLE))
        rows = np.searchsorted(ends, drawn, side="right")
        columns = low[rows] + drawn - (ends[rows] - (high - low)[rows])
        found = np.sort(self.entry(rows, columns))
        error = _MARGIN * sqrt(_SAMPLE * share * (1 - share)) + 1
        at = share * (_SAMPLE - 1)
        if single:
            return float(found[int(at)]), float(found[int(at)])
        return float(found[max(0, int(at - error))]), float(found[min(_SAMPLE - 1, ceil(at + error))])

    def _count(self, value: float, low: Places, high: Places, *, including: bool) -> Places:
        """For each row, the first column in ``low`` … ``high`` whose entry is above ``value`` (or equal to it)."""
        low, high = low.copy(), high.copy()
        open_rows = np.flatnonzero(low < high)
        while open_rows.size:
            middle = (low[open_rows] + high[open_rows]) // 2
            entries = self.entry(open_rows, middle)
            left = entries <= value if including else entries < value
            low[open_rows[left]] = middle[left] + 1
            high[open_rows[~left]] = middle[~left]
            open_rows = open_rows[low[open_rows] < high[open_rows]]
        return low


def differences(treatment: Floats, baseline: Floats) -> SortedRows:
    """All differences treatment - baseline."""
    x, y = np.sort(treatment), np.sort(baseline)[::-1]
    return SortedRows(lambda rows, columns: x[rows] - y[columns], *_whole(x.size, y.size))


def ratios(treatment: Floats, baseline: Floats) -> SortedRows:
    """All ratios treatment / baseline, of treatment >= 0 and baseline > 0."""
    x, y = np.sort(treatment), np.sort(baseline)[::-1]
    return SortedRows(lambda rows, columns: x[rows] / y[columns], *_whole(x.size, y.size))


def averages(values: Floats) -> SortedRows:
    """All averages of two values, each also with itself (Walsh averages)."""
    found = np.sort(values)
    n = found.size
    return SortedRows(
        lambda rows, columns: found[rows] / 2 + found[columns] / 2, np.arange(n), np.full(n, n, dtype=np.int64)
    )


def _whole(rows: int, columns: int) -> tuple[Places, Places]:
    return np.zeros(rows, dtype=np.int64), np.full(rows, columns, dtype=np.int64)


def _last_kept(rejected: Callable[[float], bool], outer: float, inner: float) -> float:
    """The number from ``inner`` towards ``outer`` beyond which all are rejected; ``inner`` is not. By halving."""
    if not rejected(outer):
        return outer
    while True:
        middle = outer / 2 + inner / 2
        if not min(outer, inner) < middle < max(outer, inner):
            return inner
        if rejected(middle):
            outer = middle
        else:
            inner = middle
