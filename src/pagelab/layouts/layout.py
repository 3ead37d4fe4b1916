"""A layout: which whole tiles of the pools have large pages; everything else has base pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pagelab import policy
from pagelab.errors import BadInputError
from pagelab.trace.pools import POOL_BYTES, Pool

POOLS = ("heap", "anon", "arenas")
"""The kinds of memory that have a pool, in the order in which layouts put them one after the other."""
PLACES = tuple(
    Pool(memory, 0x6600_0000_0000 + at * POOL_BYTES, 0x6600_0000_0000 + (at + 1) * POOL_BYTES)
    for at, memory in enumerate(POOLS)
)
"""Where a layout's policy puts them: a rule for each gives each a pool of its own (docs/policy.md)."""
BASE_PAGE = 4096
TILE = 2 << 20
"""The page size of layouts that name none."""


@dataclass(frozen=True, order=True)
class Tile:
    """The bytes [start, end) of a pool, and the size of the pages that back them: whole pages only.

    Raises :class:`BadInputError` for anything else.
    """

    pool: str
    start: int
    end: int
    page_bytes: int = TILE

    def __post_init__(self) -> None:
        size = self.page_bytes
        if self.pool not in POOLS:
            raise BadInputError(f"tile of {self.pool!r}: pools are {', '.join(POOLS)}")
        if size <= BASE_PAGE or size & (size - 1):
            raise BadInputError(f"tile of pages of {size} bytes: a power of two above {BASE_PAGE}")
        if not 0 <= self.start < self.end <= POOL_BYTES - size:
            raise BadInputError(
                f"tile {self.start:#x}-{self.end:#x}: it is empty, or reaches beyond the {self.pool}'s pool"
            )
        if self.start % size or self.end % size:
            raise BadInputError(f"tile {self.start:#x}-{self.end:#x}: not of whole pages of {size} bytes")

    @property
    def bytes(self) -> int:
        """Length of the tile."""
        return self.end - self.start


@dataclass(frozen=True)
class Layout:
    """A name, and sorted, disjoint tiles; neighbours of one page size are joined. Raises :class:`BadInputError`."""

    name: str
    tiles: tuple[Tile, ...]

    def __post_init__(self) -> None:
        tiles = sorted(self.tiles, key=lambda tile: (POOLS.index(tile.pool), tile.start))
        joined: list[Tile] = []
        for tile in tiles:
            last = joined[-1] if joined else None
            if last is None or last.pool != tile.pool or last.end < tile.start:
                joined.append(tile)
            elif tile.start < last.end:
                raise BadInputError(f"layout {self.name}: tiles overlap in {tile.pool} at {tile.start:#x}")
            elif last.page_bytes == tile.page_bytes:
                joined[-1] = Tile(tile.pool, last.start, tile.end, tile.page_bytes)
            else:
                joined.append(tile)
        object.__setattr__(self, "tiles", tuple(joined))

    @property
    def huge_bytes(self) -> int:
        """Bytes in large pages."""
        return sum(tile.bytes for tile in self.tiles)

    def pieces(self, page_bytes: int = TILE) -> frozenset[tuple[str, int]]:
        """(pool, offset) of each page of ``page_bytes``."""
        return frozenset(
            (tile.pool, at)
            for tile in self.tiles
            if tile.page_bytes == page_bytes
            for at in range(tile.start, tile.end, page_bytes)
        )

    def toml(self, align_bytes: int = TILE) -> str:
        """The layout as a policy's TOML: a rule for each pool, so that each has one of its own.

        Blocks of a pool are aligned to its largest page size (docs/layouts.md). For memory to lie at the same offsets
        under every layout, each pool has a tile of ``align_bytes`` at its far end, where no program comes.
        """
        lines = [f'name = "{self.name}"']
        for pool in POOLS:
            pieces = [
                f'["{tile.start}", "{tile.end}", "{_size(tile.page_bytes)}"]'
                for tile in self.tiles
                if tile.pool == pool
            ]
            pieces.append(f'["{POOL_BYTES - align_bytes}", "{POOL_BYTES}", "{_size(align_bytes)}"]')
            inner = "".join(f"  {piece},\n" for piece in pieces)
            lines.append(f'\n[[rule]]\nmemory = "{pool}"\npages = {{ mosaic = [\n{inner}], otherwise = "4K" }}')
        return "\n".join(lines) + "\n"

    def policy(self, align_bytes: int = TILE) -> policy.Policy:
        """The layout as a validated policy: for runs, and for ``pagelab.simulate.placements.placement``."""
        return policy.parse(self.toml(align_bytes), f"layout {self.name}")


def of_pieces(name: str, pieces: Iterable[tuple[str, int]], page_bytes: int = TILE) -> Layout:
    """The layout with large pages at these (pool, offset)."""
    return Layout(name, tuple(Tile(pool, at, at + page_bytes, page_bytes) for pool, at in sorted(set(pieces))))


def _size(page_bytes: int) -> str:
    for unit, bits in (("G", 30), ("M", 20), ("K", 10)):
        if page_bytes % (1 << bits) == 0:
            return f"{page_bytes >> bits}{unit}"
    raise BadInputError(f"page size {page_bytes}: not of whole KiB")


@dataclass(frozen=True)
class Distinct:
    """Layouts of which no two coincide, and the merged ones."""

    layouts: tuple[Layout, ...]
    merged: tuple[tuple[str, str], ...]
    """(name of one that coincided, name of the one that is kept)."""

    @property
    def asked(self) -> int:
        """Number of layouts before coinciding ones were merged."""
        return len(self.layouts) + len(self.merged)


def distinct(layouts: Sequence[Layout]) -> Distinct:
    """The first of each set of layouts with equal tiles. Raises :class:`BadInputError` for two of the same name."""
    kept: dict[tuple[Tile, ...], Layout] = {}
    merged: list[tuple[str, str]] = []
    names = [layout.name for layout in layouts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInputError(f"two layouts are named {twice}")
    for layout in layouts:
        first = kept.setdefault(layout.tiles, layout)
        if first is not layout:
            merged.append((layout.name, first.name))
    return Distinct(tuple(kept.values()), tuple(merged))
