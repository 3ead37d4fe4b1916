"""Tables of a map for the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from ..record import SizeBytes
from .colours import top
from .model import AddressMap, Colouring, Region
from .words import process, size, sizes

WIDE = 116
"""A terminal with at least this many columns shows everything."""
_NAME = 40
_LEAST_NAME = 10
_NARROW_REST = 64
_GAP = 2
"""Columns between two columns of a table."""
_SHOWN = 24
"""Number of regions that are shown one by one; the smaller rest is summed up."""


MUCH = 1.1
"""A peak is shown and mentioned if it is at least this many times what is left at the end."""


def summary(found: AddressMap) -> str:
    """One line of text: the process, and its pages by size."""
    total = found.resident_bytes
    line = process(found.pid, found.command, found.moment, found.by_size)
    peak = found.peak_bytes or 0
    if found.moment == "exit" and peak > MUCH * total:
        line += f"\nat its peak it had {size(peak)}; this is what is left; map it then: --at SECONDS"
    if found.moment == "peak":
        more = f"its peak was {size(peak)}; " if peak > MUCH * total else ""
        line += f"\n{more}at its end it had {size(found.left_bytes or 0)}; map that instead: --at exit"
    return line


def fuller(at_peak: AddressMap | None, at_end: AddressMap) -> AddressMap:
    """The map at the peak if it has much more memory than the one at the end, else the latter."""
    left = at_end.resident_bytes
    if at_peak is None or at_peak.resident_bytes <= MUCH * left:
        return at_end
    return at_peak.model_copy(update={"left_bytes": left, "peak_bytes": at_end.peak_bytes or at_peak.peak_bytes})


def table(found: AddressMap, *, everything: bool = False, width: int = 120) -> Table:
    """Table of the regions by address, with residency and page sizes, and frames if known.

    If ``width`` is below :data:`WIDE` columns, frames, kinds and shares are left out rather than cut off.
    """
    shape = _Shape(
        wide=width >= WIDE,
        swap=any(region.swapped_bytes for region in found.regions),
        nodes=any(region.nodes is not None for region in found.regions),
        frames=width >= WIDE and any(region.frames for region in found.regions),
    )
    result = Table(box=None, pad_edge=False, header_style="bold")
    for name, options in shape.columns().items():
        result.add_column(name, **options)
    shown, rest = _split(found.regions, everything)
    for region in shown:
        result.add_row(*shape.cells(region, width))
    if rest:
        result.add_row(*shape.rest(rest), style="dim")
    return result


@dataclass(frozen=True)
class _Shape:
    """The columns of the table."""

    wide: bool
    swap: bool
    nodes: bool
    frames: bool

    def columns(self) -> dict[str, Any]:
        right: dict[str, Any] = {"justify": "right", "no_wrap": True}
        all_columns = {
            "address": (True, {"style": "dim", "no_wrap": True}),
            "kind": (self.wide, {"no_wrap": True}),
            "name": (True, {"no_wrap": True, "overflow": "ellipsis"}),
            "mapped": (True, right),
            "resident": (True, right),
            "swapped": (self.swap, right),
            "by page size": (True, {"overflow": "fold"}),
            "nodes": (self.nodes, {"no_wrap": True}),
            "frames": (self.frames, right),
            "pieces": (self.frames, right),
        }
        return {name: options for name, (shown, options) in all_columns.items() if shown}

    def cells(self, region: Region, width: int) -> list[Text | str]:
        name = _NAME if self.wide else max(_LEAST_NAME, width - _NARROW_REST)
        cells: list[Text | str] = [f"{region.start:#x}"]
        cells += [region.kind] if self.wide else []
        cells += [Text(_fitting(region.name, name)), size(region.mapped_bytes), size(region.resident_bytes)]
        cells += [size(region.swapped_bytes)] if self.swap else []
        cells.append(sizes(region.by_size, shares=self.wide))
        if self.nodes:
            cells.append(" ".join(f"{node.node}: {size(node.bytes)}" for node in region.nodes or []))
        if self.frames and region.frames:
            cells += [f"{region.frames.lowest:#x}–{region.frames.highest:#x}", f"{region.frames.runs:,}"]
        return cells

    def rest(self, regions: list[Region]) -> list[Text | str]:
        cells: list[Text | str] = [""]
        cells += [""] if self.wide else []
        mapped, resident = sum(r.mapped_bytes for r in regions), sum(r.resident_bytes for r in regions)
        hint = " smaller regions (--all shows them)" if self.wide else " smaller (--all)"
        cells += [f"{len(regions)}{hint}", size(mapped), size(resident)]
        cells += [size(sum(r.swapped_bytes for r in regions))] if self.swap else []
        return [*cells, sizes(_sum(regions), shares=self.wide)]


def _fitting(name: str, width: int) -> str:
    """The path, shortened to its end if too long: paths differ at the end."""
    return name if len(name) <= width else "…" + name[1 - width :]


def _split(regions: list[Region], everything: bool) -> tuple[list[Region], list[Region]]:
    if everything or len(regions) <= _SHOWN:
        return regions, []
    largest = sorted(regions, key=lambda region: (region.resident_bytes, region.mapped_bytes), reverse=True)
    threshold = {id(region) for region in largest[: _SHOWN - 1]}
    return (
        [region for region in regions if id(region) in threshold],
        [region for region in regions if id(region) not in threshold],
    )


def _sum(regions: list[Region]) -> list[SizeBytes]:
    sizes: dict[int, int] = {}
    for region in regions:
        for entry in region.by_size:
            sizes[entry.page_bytes] = sizes.get(entry.page_bytes, 0) + entry.bytes
    return [SizeBytes(page_bytes=count, bytes=total) for count, total in sorted(sizes.items())]


_SHOWN_WITH_COLOURS = 8
"""At most this many regions are shown, the largest first; the others are summed up in words."""


def colour_heading(colouring: Colouring) -> str:
    """One line of text: the number of colours and their definition."""
    how = f"XOR of frame-number bits under {len(colouring.masks)} masks" if colouring.masks else "low bits"
    return f"pages by colour: {colouring.colours} colours ({colouring.source}; {how} of the frame number)"


def colour_table(found: AddressMap, *, everything: bool = False, width: int = 120) -> tuple[Table, str]:
    """The regions with their pages by colour, in the order of addresses, and a note on the omitted ones."""
    with_colours = [region for region in found.regions if region.colours is not None]
    largest = sorted(with_colours, key=lambda region: region.colours.pages if region.colours else 0, reverse=True)
    chosen = {id(region) for region in (with_colours if everything else largest[:_SHOWN_WITH_COLOURS])}
    wide = width >= 100
    numbers = ("pages", "least", "most", "crowding", "along address")
    rows = [_colour_cells(region, wide) for region in with_colours if id(region) in chosen]
    # A number that is cut off reads like another number: only names give way.
    taken = sum(
        _GAP + max(len(cell) for cell in column) for column in zip(numbers, *(row[1:6] for row in rows), strict=True)
    )
    name_width = _NAME if wide else max(_LEAST_NAME, min(_NAME, width - taken))
    result = Table(box=None, pad_edge=False, header_style="bold")
    result.add_column("region", no_wrap=True)
    for name in numbers:
        result.add_column(name, justify="right", no_wrap=True)
    if wide:
        result.add_column("fullest colours")
    for name, *cells in rows:
        result.add_row(Text(_fitting(name, name_width)), *cells)
    rest = [region for region in with_colours if id(region) not in chosen]
    pages = sum(region.colours.pages for region in rest if region.colours)
    return result, f"{len(rest)} smaller regions with {pages:,} pages (--all shows them)" if rest else ""


def _colour_cells(region: Region, wide: bool) -> list[str]:
    colours = region.colours
    if colours is None:
        return []
    crowding = "–" if colours.crowding is None else f"{colours.crowding:.2f}"
    cells = [region.name, f"{colours.pages:,}", f"{colours.least:,}", f"{colours.most:,}", crowding]
    cells.append(f"{colours.along_address:.1%}")
    if wide:
        cells.append(", ".join(f"{colour}: {count:,}" for colour, count in top(colours.counts)))
    return cells


COLOUR_LEGEND = (
    "crowding: 0 = even, about 1 = as by chance, more = crowded; "
    "along address: pages whose colour follows their virtual address, as under page colouring"
)
