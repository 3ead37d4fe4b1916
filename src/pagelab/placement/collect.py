"""Builds the map of a process from smaps, pagemap and, for root, kpageflags."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np

from .. import machine
from ..record import RunWarning, SizeBytes, WarningKind
from . import folios, pages, procfs, regions, scan
from .colours import ColourFunction, ColourSummary
from .errors import explained, gone, is_alive, is_root
from .model import AddressMap, Mapping, NodeBytes, Region, Tile
from .procfs import Vma

_VSYSCALL = 1 << 63
"""Mappings from this address on belong to the kernel; the process has no page-table entries for them."""
UNKNOWN = 0
"""Stands for the page size of tiles if an old kernel does not report it."""


def collect(
    pid: int,
    *,
    frames: bool = False,
    colouring: ColourFunction | None = None,
    moment: Literal["now", "peak", "exit"] = "now",
    use_scan: bool = True,
    use_nodes: bool | None = None,
) -> AddressMap:
    """The map of process ``pid``. With ``frames``, every piece of physical memory is listed (root); with ``colouring``,
    pages are counted by colour (root).

    The process runs on meanwhile unless the caller holds it. Memory that it maps or frees during the look (some
    milliseconds per GiB) may be seen in part. ``use_scan`` and ``use_nodes`` are for tests: they force the method of
    older kernels, and the request for nodes on a machine with a single node.

    Raises :class:`NoSuchProcessError`, :class:`NotPermittedError` and :class:`ProcessEndedError`.
    """
    vmas, peak = procfs.mappings(pid), procfs.peak_bytes(pid)
    command, executable = procfs.command(pid), procfs.executable(pid)
    offered = machine.describe()
    with ExitStack() as stack:
        look = _Look(pid, offered["base_page_bytes"], offered["thp_bytes"] or 0, stack, use_scan)
        wants_nodes = scan.node_count() > 1 if use_nodes is None else use_nodes
        found = [
            _region(look, group, frames=frames, colouring=colouring, with_nodes=wants_nodes)
            for group in regions.group(vmas, executable)
        ]
    if not is_alive(pid) or procfs.mappings(pid)[0].start != vmas[0].start:
        raise gone(pid, "its memory")
    return AddressMap(
        pid=pid,
        command=command,
        taken_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        moment=moment,
        base_page_bytes=look.page,
        method="scan" if look.scans else "pagemap",
        folios=look.flags is not None,
        by_size=_sum(region.by_size for region in found),
        peak_bytes=peak,
        colouring=colouring.described if colouring is not None and any(region.colours for region in found) else None,
        regions=found,
        warnings=look.warnings(),
    )


class _Look:
    """The open files that one map of one process is read from."""

    def __init__(self, pid: int, page: int, huge: int, stack: ExitStack, use_scan: bool) -> None:
        self.pid, self.page, self.huge = pid, page, huge
        with explained(pid, "pagemap"):
            pagemap = Path(f"/proc/{pid}/pagemap").open("rb", buffering=0)  # noqa: SIM115 (the stack closes it)
        self.pagemap: BinaryIO = stack.enter_context(pagemap)
        self.scans = use_scan
        self.flags = _frame_flags(stack) if is_root() else None

    def extents(self, vma: Vma) -> scan.Extents:
        with explained(self.pid, "pagemap"):
            if self.scans:
                try:
                    return scan.scan(self.pagemap, vma.start, vma.end)
                except scan.UnsupportedError:
                    self.scans = False
            return scan.scan_entries(self.pagemap, vma.start, vma.end, self.page)

    def placed(self, spans: list[pages.Span]) -> folios.Placed:
        """The pages in these ranges that have a frame."""
        found = []
        with explained(self.pid, "pagemap"):
            for start, end in spans:
                entries = scan.read_entries(self.pagemap, start, end, self.page)
                found.append(folios.placed(entries, start, self.page))
        return folios.Placed(*(np.concatenate(column) for column in zip(*found, strict=True)))

    def warnings(self) -> list[RunWarning]:
        if self.scans:
            return []
        message = (
            "this kernel has no PAGEMAP_SCAN (Linux 6.7): sums by page size come from smaps, and where a mapping has "
            "pages of several sizes their places are unknown"
        )
        return [RunWarning(kind=WarningKind.PLACEMENT_UNKNOWN, severity="info", message=message)]


def _frame_flags(stack: ExitStack) -> folios.FrameFlags | None:
    try:
        flags = folios.FrameFlags()
    except OSError:  # lockdown, or a container's root: the map is then made without frame flags
        return None
    stack.callback(flags.close)
    return flags


def _region(
    look: _Look, group: regions.Group, *, frames: bool, colouring: ColourFunction | None, with_nodes: bool
) -> Region:
    sizes: dict[int, int] = defaultdict(int)
    by_node: dict[int, int] = defaultdict(int)
    zero = swapped = 0
    mappings = []
    start, end = group.vmas[0].start, group.vmas[-1].end
    colours = None if colouring is None else ColourSummary(colouring, start, end, look.page)
    summary = pages.FrameSummary(look.page, wanted=frames and look.flags is not None, colours=colours)
    for vma in group.vmas:
        extents = look.extents(vma) if _has_pages(look, vma) else np.zeros(0, scan.EXTENT)
        zero += _bytes(extents[(extents["category"] & scan.ZERO) > 0])
        swapped += _bytes(extents[(extents["category"] & scan.SWAPPED) > 0])
        present = extents[(extents["category"] & (scan.PRESENT | scan.ZERO)) == scan.PRESENT]
        tiles = _tiles(look, vma, present, summary)
        for size, count in _sizes(look, vma, tiles).items():
            sizes[size] += count
        if with_nodes:
            _add_nodes(look, tiles, by_node)
        mappings.append(_mapping(vma, tiles))
    return Region(
        kind=group.kind,
        name=group.name,
        start=start,
        end=end,
        mapped_bytes=sum(vma.size for vma in group.vmas),
        resident_bytes=sum(sizes.values()),
        zero_bytes=zero,
        swapped_bytes=swapped,
        by_size=_listed(sizes),
        nodes=_node_list(by_node) if with_nodes else None,
        frames=summary.frames(),
        frame_runs=summary.pieces(),
        colours=None if colours is None else colours.colours(),
        mappings=mappings,
    )


def _has_pages(look: _Look, vma: Vma) -> bool:
    """Whether the mapping may have pages. Without PAGEMAP_SCAN, reserved terabytes would be read entry by entry."""
    empty = not any(vma.totals.get(name) for name in ("Rss", "Swap", "Private_Hugetlb", "Shared_Hugetlb"))
    return vma.start < _VSYSCALL and (look.scans or not empty)


def _bytes(extents: scan.Extents) -> int:
    return int((extents["end"] - extents["start"]).sum())


def _tiles(look: _Look, vma: Vma, present: scan.Extents, summary: pages.FrameSummary) -> list[Tile]:
    """Resident pieces with the size of the pages that map them; neighbours of one size are joined."""
    if look.flags is None:
        return pages.tiles([pages.from_extents(present, _extent_sizes(look, vma, present["category"]))])
    parts = []
    for spans in pages.batches(present, look.page):
        placed = look.placed(spans)
        category = pages.categories(present, placed.addresses)
        placed = folios.Placed(placed.addresses[category > 0], placed.frames[category > 0])
        summary.add(placed)
        size = _extent_sizes(look, vma, category[category > 0])
        small = size == look.page
        size[small] = _folio_sizes(look, look.flags, folios.Placed(*(column[small] for column in placed)))
        parts.append(pages.from_pages(placed.addresses, size, look.page))
    return pages.tiles(parts)


def _extent_sizes(look: _Look, vma: Vma, category: pages.Words) -> pages.Words:
    """Page sizes as the page table shows them."""
    if not look.scans and _is_mixed(vma):
        return np.full(len(category), UNKNOWN, np.uint64)
    whole = _hugetlb_size(vma) or (look.huge if not look.scans and _huge_bytes(vma) else None)
    if whole:
        return np.full(len(category), whole, np.uint64)
    return np.where((category & scan.HUGE) > 0, look.huge, look.page).astype(np.uint64)


def _folio_sizes(look: _Look, flags: folios.FrameFlags, placed: folios.Placed) -> pages.Words:
    own, following = flags.of(placed.frames), flags.of(placed.frames + np.uint64(1))
    return folios.folio_sizes(placed, own, following, look.page, max(look.huge // look.page, 2))


def _huge_bytes(vma: Vma) -> int:
    return sum(vma.totals.get(name, 0) for name in ("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"))


def _is_mixed(vma: Vma) -> bool:
    return 0 < _huge_bytes(vma) < vma.totals.get("Rss", 0)


def _hugetlb_size(vma: Vma) -> int | None:
    return vma.totals.get("KernelPageSize") if vma.is_hugetlb else None


def _sizes(look: _Look, vma: Vma, tiles: list[Tile]) -> dict[int, int]:
    """Resident bytes by page size, from smaps if the tiles have no sizes."""
    if any(tile.page_bytes == UNKNOWN for tile in tiles):
        huge = _huge_bytes(vma)
        return {look.page: max(0, sum(tile.end - tile.start for tile in tiles) - huge), look.huge: huge}
    sizes: dict[int, int] = defaultdict(int)
    for tile in tiles:
        sizes[tile.page_bytes] += tile.end - tile.start
    return sizes


def _add_nodes(look: _Look, tiles: list[Tile], by_node: dict[int, int]) -> None:
    for tile in tiles:
        step = tile.page_bytes or look.page
        addresses = np.arange(tile.start, tile.end, step, dtype=np.uint64)
        with explained(look.pid, "the nodes of the pages"):
            found = scan.nodes_of_pages(look.pid, addresses)
        for node, count in zip(*np.unique(found[found >= 0], return_counts=True), strict=True):
            by_node[int(node)] += int(count) * step


def _mapping(vma: Vma, tiles: list[Tile]) -> Mapping:
    advice: Literal["huge", "nohuge"] | None = "huge" if "hg" in vma.flags else None
    return Mapping(
        start=vma.start,
        end=vma.end,
        permissions=vma.permissions,
        path=vma.path,
        huge_advice="nohuge" if "nh" in vma.flags else advice,
        tiles=tiles,
    )


def _listed(sizes: dict[int, int]) -> list[SizeBytes]:
    return [SizeBytes(page_bytes=size, bytes=count) for size, count in sorted(sizes.items()) if count > 0]


def _node_list(by_node: dict[int, int]) -> list[NodeBytes]:
    return [NodeBytes(node=node, bytes=count) for node, count in sorted(by_node.items())]


def _sum(lists: Iterable[list[SizeBytes]]) -> list[SizeBytes]:
    sizes: dict[int, int] = defaultdict(int)
    for entries in lists:
        for entry in entries:
            sizes[entry.page_bytes] += entry.bytes
    return _listed(sizes)
