"""Makes inputs of the bundled benchmarks from a seed: the same bytes on every machine and Python version.

Only :meth:`random.Random.getrandbits` is used, and what is built on it here. Python guarantees only the stream of
``random()``, but the generator's 32-bit words have never changed.
"""

from __future__ import annotations

import random
from collections.abc import MutableSequence, Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """A source of choices. ``label`` separates the streams of different inputs under one seed."""

    def __init__(self, seed: int, label: str) -> None:
        self._random = random.Random(f"{seed} {label}")

    def below(self, bound: int) -> int:
        """A number in 0 … bound − 1, uniform to within bound / 2⁶⁴."""
        return self._random.getrandbits(64) * bound >> 64

    def between(self, low: int, high: int) -> int:
        """A number in low … high, both included."""
        return low + self.below(high - low + 1)

    def one(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """All of ``items`` in random order (Fisher and Yates)."""
        result: MutableSequence[T] = list(items)
        for last in range(len(result) - 1, 0, -1):
            other = self.below(last + 1)
            result[last], result[other] = result[other], result[last]
        return list(result)

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def bytes(self, count: int) -> bytes:
        return self._random.getrandbits(8 * count).to_bytes(count, "little") if count else b""
