"""The null distribution of the rank sum: counts of the C(N, n) equally likely assignments by their sum.

Counts are exact Python integers throughout. Polynomials in x (x^s stands for "sum s") are packed into one big
integer, a fixed number of bits a coefficient (Kronecker substitution), so that one shift and one addition by the
integer library update a whole row: the shift algorithm of Streitberg and Roehmel (1986) without a Python-level
inner loop.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import comb, prod
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

EXACT_LIMIT = 400
"""Largest n + m that is counted exactly: a few seconds with ties (docs/method.md has the times)."""


def field_bytes(largest: int) -> int:
    return (largest.bit_length() + 7) // 8


def unpack(packed: int, width: int, fields: int) -> list[int]:
    raw = packed.to_bytes(width * fields, "little")
    return [int.from_bytes(raw[i : i + width], "little") for i in range(0, width * fields, width)]


@lru_cache(maxsize=64)
def untied_cumulative(n: int, m: int) -> tuple[int, ...]:
    """Number of assignments with U <= u, for u = 0 … floor(nm / 2), when all N values differ.

    The generating function is the Gaussian binomial: the product over i = 1 … n of (1 - x^(m+i)) / (1 - x^i).
    Dividing before multiplying keeps every partial product's coefficients within C(N, n), so no field overflows.
    """
    n, m = min(n, m), max(n, m)
    fields = n * m // 2 + 1
    width = field_bytes(comb(n + m, n))
    mask = (1 << (8 * width * fields)) - 1
    packed = 1
    for i in range(1, n + 1):
        step = i
        while step < fields:  # 1 / (1 - x^i) = (1 + x^i)(1 + x^2i)(1 + x^4i)…
            packed = (packed + (packed << (8 * width * step))) & mask
            step *= 2
        if m + i < fields:
            packed = (packed - (packed << (8 * width * (m + i)))) & mask
    return tuple(accumulate(unpack(packed, width, fields)))


@lru_cache(maxsize=1024)
def order_index(n: int, m: int, tail: Fraction) -> tuple[int, Fraction]:
    """Largest k with P(U <= k - 1) <= ``tail`` under the untied null, and that probability; k = 0 if there is none.

    With D the ordered pairwise differences, [D_(k), D_(nm + 1 - k)] misses on either side with that probability.
    """
    total = comb(n + m, n)
    cumulative = untied_cumulative(n, m)
    allowed = tail * total
    k = bisect_right(cumulative, allowed.numerator // allowed.denominator)
    return k, Fraction(cumulative[k - 1], total) if k else Fraction(0)


class SubsetSums:
    """Counts of the k-element subsets of ``scores`` by their sum, for non-negative integer scores with repeats.

    The scores are split into a low and a high half. A subset takes j of the low half and k - j of the high half, so
    a tail is a sum of products of the halves' counts; the halves are far smaller than the whole distribution.
    """

    def __init__(self, scores: Sequence[int], k: int) -> None:
        ordered = sorted(scores)
        half = len(ordered) // 2
        self._k = k
        self._low = _rows(ordered[:half], k)
        self._high = [(least, list(accumulate(counts))) for least, counts in _rows(ordered[half:], k)]

    def at_most(self, limit: int) -> int:
        """Number of subsets whose sum is <= ``limit``."""
        found = 0
        for j, (least, counts) in enumerate(self._low):
            if 0 <= self._k - j < len(self._high):
                least_high, cumulative = self._high[self._k - j]
                found += _pairs_at_most(counts, cumulative, limit - least - least_high)
        return found


_SPARSE = 64
"""Up to this many different sums of a block, shift-and-add is faster than multiplication."""


class BlockSums:
    """Counts of the choices that take ``k`` elements of each block, by the sum over all blocks.

    ``blocks`` are (non-negative integer scores, k). The blocks' own distributions are convolved.
    """

    def __init__(self, blocks: Sequence[tuple[Sequence[int], int]]) -> None:
        width = field_bytes(self.total(blocks))
        packed, self._least, fields = 1, 0, 1
        for scores, k in blocks:
            least, counts = _rows(sorted(scores), k)[k]
            self._least += least
            chosen = [(place, count) for place, count in enumerate(counts) if count]
            if len(chosen) <= _SPARSE:
                packed = sum((packed * count) << (8 * width * place) for place, count in chosen)
            else:
                packed *= int.from_bytes(b"".join(count.to_bytes(width, "little") for count in counts), "little")
            fields += len(counts) - 1
        self._cumulative = list(accumulate(unpack(packed, width, fields)))

    @staticmethod
    def total(blocks: Sequence[tuple[Sequence[int], int]]) -> int:
        """Total number of choices."""
        return prod(comb(len(scores), k) for scores, k in blocks)

    def at_most(self, limit: int) -> int:
        """Number of choices whose sum is <= ``limit``."""
        place = limit - self._least
        return 0 if place < 0 else self._cumulative[min(place, len(self._cumulative) - 1)]


def _rows(ordered: Sequence[int], k: int) -> list[tuple[int, list[int]]]:
    """For each size j <= min(k, len): the least sum of j scores, and the numbers of j-subsets 0, 1, 2 ... above it.

    Rows start at their least sum (the first j of the ordered scores), which keeps the packed integers short.
    """
    most = min(k, len(ordered))
    width = field_bytes(comb(len(ordered), len(ordered) // 2))
    packed = [1] + [0] * most
    for used, score in enumerate(ordered):
        for j in range(min(used + 1, most), 0, -1):
            packed[j] += packed[j - 1] << (8 * width * (score - ordered[j - 1]))
    least = list(accumulate(ordered, initial=0))
    largest = list(accumulate(reversed(ordered), initial=0))
    return [(least[j], unpack(row, width, largest[j] - least[j] + 1)) for j, row in enumerate(packed)]


def _pairs_at_most(counts: list[int], cumulative: list[int], limit: int) -> int:
    """Sum over s of counts[s] * (number of high subsets with sum <= limit - s)."""
    if limit < 0:
        return 0
    beyond = max(0, limit - len(cumulative) + 1)  # for s < beyond every high subset is within the limit
    whole = cumulative[-1] * sum(counts[:beyond])
    part = counts[beyond : limit + 1]
    start = limit - beyond
    window = cumulative[max(0, start - len(part) + 1) : start + 1]
    partial: int = sum(map(mul, part, reversed(window)))
    return whole + partial
