"""The tiles of the pools that a program really uses, in one row: layouts are made over this space."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pagelab.errors import BadInputError
from pagelab.layouts.layout import POOLS, TILE, Layout, of_pieces
from pagelab.machine.journal import no_2m_by_others
from pagelab.record import Record
from pagelab.trace import Trace
from pagelab.trace.pools import POOL_BYTES, of_header

FIRST_POOL = 0x6600_0000_0000
"""Where the heap's pool begins, and one after the other those of anonymous memory (docs/policy.md)."""
LAST_POOL = FIRST_POOL + 17 * POOL_BYTES
_POOL_OF = {"heap": "heap", "anon": "anon", "arenas": "anon"}
"""Kinds of memory, and the pool that they share in mosaics."""
Records = Mapping[str, Record]
"""Of one execution each with ``4K`` and with ``2M`` pages, by these names."""


@dataclass(frozen=True)
class Footprint:
    """The used tiles, (pool, offset in bytes), in the order of the pools and of their addresses.

    Position p of the concatenated pools is ``tiles[p]``. Raises :class:`BadInputError` where there is none, or one is
    no whole tile.
    """

    tiles: tuple[tuple[str, int], ...]
    page_bytes: int = TILE

    def __post_init__(self) -> None:
        if not self.tiles:
            raise BadInputError(
                "the program uses no heap or anonymous memory that pages could be chosen for, so there is nothing to "
                "lay out; what it uses: pagelab map -- CMD"
            )
        for pool, at in self.tiles:
            if pool not in POOLS or at % self.page_bytes or not 0 <= at <= POOL_BYTES - 2 * self.page_bytes:
                raise BadInputError(f"{pool} {at:#x}: not a tile of {self.page_bytes} bytes in a pool")
        ordered = sorted(set(self.tiles), key=lambda tile: (POOLS.index(tile[0]), tile[1]))
        object.__setattr__(self, "tiles", tuple(ordered))

    def __len__(self) -> int:
        """Number of tiles."""
        return len(self.tiles)

    @cached_property
    def position(self) -> Mapping[tuple[str, int], int]:
        """Tile → its position in the concatenated pools."""
        return {tile: at for at, tile in enumerate(self.tiles)}

    @property
    def bytes(self) -> int:
        """Bytes of all tiles."""
        return len(self) * self.page_bytes

    @property
    def pools(self) -> tuple[str, ...]:
        """The pools that are used."""
        return tuple(dict.fromkeys(pool for pool, _ in self.tiles))

    def window(self, name: str, start: int, end: int) -> Layout:
        """The layout with large pages at the positions [start, end), cut to the space."""
        return of_pieces(name, self.tiles[max(start, 0) : max(end, 0)], self.page_bytes)

    def at(self, name: str, positions: Iterable[int]) -> Layout:
        """The layout with large pages at these positions."""
        return of_pieces(name, (self.tiles[at] for at in positions), self.page_bytes)

    def positions(self, layout: Layout) -> list[int]:
        """The positions that have large pages under a layout; its tiles outside of the space are left out."""
        return sorted(at for piece in layout.pieces(self.page_bytes) if (at := self.position.get(piece)) is not None)


def of_trace(
    path: Path | str, report: Callable[[int, int | None], None] | None = None, page_bytes: int = TILE
) -> Footprint:
    """The tiles to which a trace has references, in all its address spaces together.

    ``report`` receives the number of references so far. Raises :class:`BadInputError` for a trace that was captured
    without pools, or with two kinds of memory in one.
    """
    trace = Trace(path)
    pools = of_header(trace.header)
    if not pools:
        raise BadInputError(
            f"{path}: the trace was captured without pools, so that no layout fits it; capture it with: "
            "pagelab trace --pools -- CMD"
        )
    if len({pool.start for pool in pools}) < len(pools):
        raise BadInputError(
            f"{path}: the trace has {' and '.join(pool.memory for pool in pools)} in shared pools, but a layout needs "
            "a pool for each; capture it without --policy: pagelab trace --pools -- CMD"
        )
    found, done = np.empty(0, np.uint64), 0
    for batch in trace.runs(page_bytes=page_bytes):
        found = np.union1d(found, batch.page)
        if report is not None:
            done += int(batch.count.sum())
            report(done, None)
    addresses = [int(page) * page_bytes for page in found]
    tiles = [(pool.memory, at - pool.start) for pool in pools for at in addresses if pool.start <= at < pool.end]
    if not tiles:
        raise BadInputError(
            f"{path}: no reference lies in heap or anonymous memory that pages could be chosen for, so there is "
            "nothing to lay out; what the program uses: pagelab map -- CMD"
        )
    return Footprint(tuple(tiles), page_bytes)


def pieces_of(record: Record) -> list[tuple[str, int, int, int]]:
    """The memory that governed processes had in pools: kind of memory, number of the pool, offset in it, bytes."""
    return [
        (piece.region, *divmod(piece.start - FIRST_POOL, POOL_BYTES), piece.end - piece.start)
        for process in record.processes or []
        for piece in process.placement or []
        if piece.region in POOLS and FIRST_POOL <= piece.start < piece.end <= LAST_POOL
    ]


def of_record(record: Record, page_bytes: int = TILE) -> Footprint:
    """The tiles between the first and the last address that governed processes of a run had in each pool.

    A record has no holes: reserved memory that was never touched (as in malloc's arenas) counts, too; a trace is more
    accurate. Raises :class:`BadInputError` where nothing was governed in pools, and where kinds of memory share one.
    """
    pieces = pieces_of(record)
    if not pieces:
        raise BadInputError(
            "the record has no memory in pools: no process was governed; use a trace: pagelab trace --pools -- CMD"
        )
    lying = {(region, pool) for region, pool, *_ in pieces}
    if len({pool for _, pool in lying}) < len(lying):
        kinds = " and ".join(dict.fromkeys(region for region, *_ in pieces))
        raise BadInputError(
            f"the record has {kinds} in shared pools, but a layout needs a pool for each; use a trace: pagelab trace "
            "--pools -- CMD"
        )
    tiles = {
        (region, at)
        for region, _, start, length in pieces
        for at in range(start // page_bytes * page_bytes, start + length, page_bytes)
    }
    return Footprint(tuple(tiles), page_bytes)


def refuse_other_input(traced: Footprint, records: Records, argv: Sequence[str], *, whole: bool) -> None:
    """Raises `BadInputError` where the trace's memory is not that of native executions.

    It is not if a pool of the trace ends more than one tile above the native end, or, for a trace of the ``whole``
    execution, if its tiles hold less than nine tenths of what was touched in 4K pages, by more than one tile. The
    native end tells nothing there: memory may be reserved and never touched.
    """
    native, touched = of_record(records["2M"], traced.page_bytes), touched_bytes(records["4K"])
    for pool in POOLS:
        ends = [
            max((at + one.page_bytes for own, at in one.tiles if own == pool), default=0) for one in (traced, native)
        ]
        has = traced.page_bytes * sum(own == pool for own, _ in traced.tiles)
        least = 0.9 * touched[pool] - traced.page_bytes
        if ends[0] - ends[1] > traced.page_bytes:
            what = f"it uses {ends[0] >> 20} MiB of the {pool} pool, an execution {ends[1] >> 20} MiB"
        elif whole and has < least:
            what = f"it touches {has >> 20} MiB of the {pool} pool, an execution {touched[pool] >> 20} MiB"
        else:
            continue
        raise BadInputError(
            f"the trace is of another input: {what}; the command must do the same every time; see both: pagelab trace "
            f"--pools -- {shlex.join(argv)}"
        )


def touched_bytes(record: Record) -> dict[str, int]:
    """Pool → bytes in pages of it, of any size, of the governed process that has most: those of others may have the
    same addresses."""
    found = dict.fromkeys(POOLS, 0)
    for process in record.processes or []:
        rows = process.placement or []
        for pool in POOLS:
            own = sum(size.bytes for row in rows if row.region == pool for size in row.by_size)
            found[pool] = max(found[pool], own)
    return found


def used(records: Mapping[str, Record]) -> dict[str, int]:
    """Pool → bytes from its beginning to the last byte that was used; ``records`` are those of ``4K`` and ``2M``.
    Bytes between may never have been touched: reserved memory counts.

    The record in huge pages counts every tile that was given back, so it has the whole extent; but it counts the last
    tile as a whole. The record in base pages shows how much of that tile was used.
    """
    base, huge = _ends(records["4K"]), _ends(records["2M"])
    found = {}
    for pool in sorted({*base, *huge}):
        small, large = base.get(pool, 0), huge.get(pool, 0)
        found[pool] = small if -(-small // TILE) >= -(-large // TILE) else large
    return found


def lacks_huge_pages(record: Record) -> bool:
    """Whether the program touched tiles of 2M that were requested as huge pages, and none of them became one."""
    rows = [row for process in record.processes or [] for row in process.placement or []]
    wanted = any(row.asked == "2M" and row.whole_touched_tiles for row in rows)
    return wanted and not any(size.page_bytes >= TILE and size.bytes for row in rows for size in row.by_size)


def no_huge_pages(consequence: str) -> str:
    """The message if :func:`lacks_huge_pages`, with the processes that may be the reason."""
    others = no_2m_by_others()
    advice = f"{others}; repeat when it has ended, or see: pagelab doctor" if others else "see: pagelab doctor"
    return f"the kernel gave the program's memory no 2M page, so {consequence}; {advice}"


def _ends(record: Record) -> dict[str, int]:
    found: dict[str, int] = {}
    for kind, _, offset, length in pieces_of(record):
        pool = _POOL_OF[kind]
        found[pool] = max(found.get(pool, 0), offset + length)
    return found
