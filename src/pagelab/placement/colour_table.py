"""The colours of a map as a table for the terminal."""

from __future__ import annotations

from rich.table import Table

from .colours import top
from .model import AddressMap, Colouring, Region

_SHOWN = 8
"""Regions shown, largest first; the others are summed up in words."""
_NAME = 40


def heading(colouring: Colouring) -> str:
    """One line: the number of colours and their definition."""
    how = f"XOR of frame-number bits under {len(colouring.masks)} masks" if colouring.masks else "low bits"
    return f"pages by colour: {colouring.colours} colours ({colouring.source}; {how} of the frame number)"


def table(found: AddressMap, *, everything: bool = False, width: int = 120) -> tuple[Table, str]:
    """The regions with their pages by colour, in the order of addresses, and a note on the omitted ones."""
    with_colours = [region for region in found.regions if region.colours is not None]
    largest = sorted(with_colours, key=lambda region: region.colours.pages if region.colours else 0, reverse=True)
    chosen = {id(region) for region in (with_colours if everything else largest[:_SHOWN])}
    wide = width >= 100
    result = Table(box=None, pad_edge=False, header_style="bold")
    result.add_column("region", no_wrap=True, overflow="ellipsis", max_width=_NAME)
    for name in ("pages", "least", "most", "crowding", "along address"):
        result.add_column(name, justify="right", no_wrap=True)
    if wide:
        result.add_column("fullest colours")
    for region in with_colours:
        if id(region) in chosen:
            result.add_row(*_cells(region, wide))
    rest = [region for region in with_colours if id(region) not in chosen]
    pages = sum(region.colours.pages for region in rest if region.colours)
    return result, f"{len(rest)} smaller regions with {pages:,} pages (--all shows them)" if rest else ""


def _cells(region: Region, wide: bool) -> list[str]:
    colours = region.colours
    if colours is None:
        return []
    name = region.name if len(region.name) <= _NAME else "…" + region.name[1 - _NAME :]
    crowding = "–" if colours.crowding is None else f"{colours.crowding:.2f}"
    cells = [name, f"{colours.pages:,}", f"{colours.least:,}", f"{colours.most:,}", crowding]
    cells.append(f"{colours.along_address:.1%}")
    if wide:
        cells.append(", ".join(f"{colour}: {count:,}" for colour, count in top(colours.counts)))
    return cells


LEGEND = (
    "crowding: 0 = even, about 1 = as by chance, more = crowded; "
    "along address: pages whose colour follows their virtual address, as under page colouring"
)
