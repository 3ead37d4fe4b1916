"""Makes the order of the runs: seeded, balanced, and the same on every machine and library version.

A schedule is made of *complete blocks*: each block holds every condition exactly once, in random order. Warm-up blocks
come first. Drift of the machine (temperature, other tenants, memory filling up) then affects all conditions alike,
block by block (randomised complete block design; PREPAGE shuffles its runs for the same reason, over the whole study).

Random numbers are the raw 64-bit outputs of NumPy's ``PCG64(seed)``, whose stream NumPy guarantees (NEP 19). The result
of NumPy's ``Generator.permutation`` is not guaranteed, so this module has its own shuffle: Fisher–Yates from the last
element down; each index is a raw output modulo k, after rejection of outputs ≥ ⌊2⁶⁴/k⌋·k, which is exactly uniform.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

ALGORITHM = "complete-blocks/pcg64-raw/fisher-yates/1"

_RANGE = 1 << 64


@dataclass(frozen=True)
class Slot:
    """One place in the schedule. Positions count from 0 over the whole study, warm-ups included."""

    position: int
    block: int
    """0 … n-1 for the blocks that are analysed; negative for warm-ups: -1 is the last warm-up block. Where each boot
    has its own warm-ups, warm-up w before block b is in block -(b · warm-ups + w + 1)."""
    condition: int
    execution: int
    """Number of this execution within its condition, equal to the block's number."""

    @property
    def warmup(self) -> bool:
        return self.block < 0


Boot = Literal["execution", "block"]
"""What has a boot of its own."""


def schedule(
    conditions: int, blocks: int, warmups: int, seed: int, together: int = 1, boot: Boot | None = None
) -> list[Slot]:
    """The order for ``conditions`` conditions in ``warmups`` + ``blocks`` complete blocks.

    ``together``: the conditions form groups of this size (0 … together-1, and so on). The conditions of a group run
    next to each other in each block, in random order; the order of the groups is random. ``boot``: warm-ups are made in
    each boot, ``warmups`` times the condition before each execution, or all conditions before each block. Pure: the
    same arguments give the same list. The schedule for fewer blocks is a prefix of the one for more.
    Raises ValueError for no conditions, no blocks, groups that do not divide the conditions, or a seed outside
    0 … 2⁶⁴-1.
    """
    if conditions < 1 or blocks < 1 or warmups < 0:
        raise ValueError(f"a schedule needs conditions and blocks, not {conditions} and {blocks} ({warmups} warm-ups)")
    if together < 1 or conditions % together:
        raise ValueError(f"{conditions} conditions are no whole groups of {together}")
    if not 0 <= seed < _RANGE:
        raise ValueError(f"the seed must lie in 0 … 2^64-1, not {seed}")
    draw = raw_source(seed)
    slots: list[Slot] = []
    for numbers in _sharing_an_order(blocks, warmups, boot):
        # A group of one has only one order, which takes no random number.
        order = [
            group * together + member
            for group in shuffled(conditions // together, draw)
            for member in shuffled(together, draw)
        ]
        places = [(number, condition) for number in numbers for condition in order]
        if boot == "execution":
            places = [(number, condition) for condition in order for number in numbers]
        slots += [Slot(len(slots) + index, *place, place[0]) for index, place in enumerate(places)]
    return slots


def _sharing_an_order(blocks: int, warmups: int, boot: Boot | None) -> list[list[int]]:
    """Numbers of the blocks; blocks in one list share an order: a block and the warm-ups of its boot."""
    if boot is None:
        return [[block] for block in range(-warmups, blocks)]
    return [[*(-(block * warmups + number + 1) for number in range(warmups)), block] for block in range(blocks)]


def boots(slots: list[Slot], boot: Boot) -> list[list[Slot]]:
    """The places of each boot, in order: an execution with its warm-ups, or a block with its own.

    ``slots`` is a schedule for boots; places of conditions that have enough executions may be left out of it.
    """
    ends = [
        index + 1
        for index, (slot, following) in enumerate(pairwise(slots))
        if not slot.warmup and (boot == "execution" or following.block != slot.block)
    ]
    edges = [0, *ends, len(slots)] if slots else []
    return [slots[begin:end] for begin, end in pairwise(edges)]


def raw_source(seed: int) -> Callable[[], int]:
    """A source of the raw 64-bit outputs of PCG64 seeded with ``seed``."""
    from numpy.random import PCG64

    generator = PCG64(seed)
    return lambda: int(generator.random_raw())


def shuffled(count: int, draw: Callable[[], int]) -> list[int]:
    """0 … count-1 in random order (Fisher–Yates; Knuth, TAOCP vol. 2, algorithm 3.4.2P)."""
    items = list(range(count))
    for last in range(count - 1, 0, -1):
        other = uniform(last + 1, draw)
        items[last], items[other] = items[other], items[last]
    return items


def uniform(bound: int, draw: Callable[[], int]) -> int:
    """An integer in 0 … bound-1, exactly uniform when ``draw`` is uniform on 0 … 2⁶⁴-1."""
    limit = _RANGE - _RANGE % bound
    while True:
        raw = draw()
        if raw < limit:
            return raw % bound
