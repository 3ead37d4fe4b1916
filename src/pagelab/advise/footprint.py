"""How far a program uses each pool, from records of it in base and in huge pages."""

from __future__ import annotations

from collections.abc import Mapping

from pagelab.advise.design import TILE
from pagelab.layouts.footprint import pieces_of
from pagelab.record import Record

_POOL_OF = {"heap": "heap", "anon": "anon", "arenas": "anon"}
"""Kinds of memory, and the pool that they share in mosaics."""


def used(records: Mapping[str, Record]) -> dict[str, int]:
    """Bytes by pool, from its beginning to the last byte that was used; ``records``: those of ``4K`` and ``2M``.

    In huge pages every tile that is given back is accounted for, so that record has the extent; but its last tile
    counts as a whole. How much of that was used, the record in base pages says.
    """
    base, huge = _ends(records["4K"]), _ends(records["2M"])
    found = {}
    for pool in sorted({*base, *huge}):
        small, large = base.get(pool, 0), huge.get(pool, 0)
        found[pool] = small if -(-small // TILE) >= -(-large // TILE) else large
    return found


def lacks_huge_pages(record: Record) -> bool:
    """Whether the program touched tiles of 2M that were to be huge, and none of them was."""
    rows = [row for process in record.processes or [] for row in process.placement or []]
    wanted = any(row.asked == "2M" and row.whole_touched_tiles for row in rows)
    return wanted and not any(size.page_bytes >= TILE and size.bytes for row in rows for size in row.by_size)


def _ends(record: Record) -> dict[str, int]:
    found: dict[str, int] = {}
    for kind, _, offset, length in pieces_of(record):
        pool = _POOL_OF[kind]
        found[pool] = max(found.get(pool, 0), offset + length)
    return found
