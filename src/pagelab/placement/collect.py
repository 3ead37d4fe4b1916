"""Puts the map of a process together from smaps, pagemap and, for root, kpageflags."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np

from .. import machine
from ..record import RunWarning, SizeBytes, WarningKind
from . import folios, nodes, procfs, regions, scan
from .errors import explained, gone, is_alive, is_root
from .model import AddressMap, FrameRun, Frames, Mapping, NodeBytes, Region, Tile
from .procfs import Vma

_VSYSCALL = 1 << 63
"""Mappings above belong to the kernel and have no page-table entries of the process."""
UNKNOWN = 0
"""Page size of tiles that an old kernel does not tell apart."""


def collect(
    pid: int,
    *,
    frames: bool = False,
    moment: Literal["now", "exit"] = "now",
    use_scan: bool = True,
    use_nodes: bool | None = None,
) -> AddressMap:
    """The map of process ``pid``. With ``frames``, every piece of physical memory is listed (root).

    The process runs on meanwhile unless its caller holds it: what it maps or frees during the look (some
    milliseconds a GiB) may be seen half. ``use_scan`` and ``use_nodes`` are for tests: they force the way of older
    kernels, and asking for nodes on a machine that has one.

    Raises :class:`NoSuchProcessError`, :class:`NotPermittedError` and :class:`ProcessGoneError`.
    """
    vmas = procfs.mappings(pid)
    command, executable = procfs.command(pid), procfs.executable(pid)
    offered = machine.describe()
    with ExitStack() as stack:
        look = _Look(pid, offered["base_page_bytes"], offered["thp_bytes"] or 0, stack, use_scan)
        wants_nodes = nodes.count() > 1 if use_nodes is None else use_nodes
        found = [
            _region(look, group, frames=frames, with_nodes=wants_nodes) for group in regions.group(vmas, executable)
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
        regions=found,
        warnings=look.warnings(),
    )


class _Look:
    """The open files of one look at one process."""

    def __init__(self, pid: int, page: int, huge: int, stack: ExitStack, use_scan: bool) -> None:
        self.pid, self.page, self.huge = pid, page, huge
        with explained(pid, "pagemap"):
            self.pagemap: BinaryIO = Path(f"/proc/{pid}/pagemap").open("rb", buffering=0)  # noqa: SIM115
        stack.enter_context(self.pagemap)
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

    def placed(self, start: int, end: int) -> folios.Placed:
        with explained(self.pid, "pagemap"):
            return folios.placed(scan.read_entries(self.pagemap, start, end, self.page), start, self.page)

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
    except OSError:  # lockdown, or a container's root: the map then goes without
        return None
    stack.callback(flags.close)
    return flags


def _region(look: _Look, group: regions.Group, *, frames: bool, with_nodes: bool) -> Region:
    sizes: dict[int, int] = defaultdict(int)
    by_node: dict[int, int] = defaultdict(int)
    zero = swapped = 0
    mappings, pieces = [], []
    for vma in group.vmas:
        extents = look.extents(vma) if vma.start < _VSYSCALL else np.zeros(0, scan.EXTENT)
        zero += _bytes(extents[(extents["category"] & scan.ZERO) > 0])
        swapped += _bytes(extents[(extents["category"] & scan.SWAPPED) > 0])
        present = extents[(extents["category"] & (scan.PRESENT | scan.ZERO)) == scan.PRESENT]
        tiles = list(_tiles(look, vma, present))
        for size, count in _sizes(look, vma, tiles).items():
            sizes[size] += count
        if look.flags is not None:
            for start, end in _joined(present):
                pieces += folios.runs(look.placed(start, end), look.page)
        if with_nodes:
            _add_nodes(look, tiles, by_node)
        mappings.append(_mapping(vma, tiles))
    return Region(
        kind=group.kind,
        name=group.name,
        start=group.vmas[0].start,
        end=group.vmas[-1].end,
        mapped_bytes=sum(vma.size for vma in group.vmas),
        resident_bytes=sum(sizes.values()),
        zero_bytes=zero,
        swapped_bytes=swapped,
        by_size=_listed(sizes),
        nodes=_node_list(by_node) if with_nodes else None,
        frames=_frames(pieces),
        frame_runs=_frame_runs(pieces) if frames and look.flags is not None else None,
        mappings=mappings,
    )


def _bytes(extents: scan.Extents) -> int:
    return int((extents["end"] - extents["start"]).sum())


def _joined(present: scan.Extents) -> Iterator[tuple[int, int]]:
    """Present ranges whatever their category, neighbours joined."""
    plain = present.copy()
    plain["category"] = scan.PRESENT
    for extent in scan.merge(plain):
        yield int(extent["start"]), int(extent["end"])


def _tiles(look: _Look, vma: Vma, present: scan.Extents) -> Iterator[Tile]:
    """Resident pieces with the size of the pages that map them, neighbours of one size joined."""
    if not look.scans and _is_mixed(vma):
        yield from (Tile(start=start, end=end, page_bytes=UNKNOWN) for start, end in _joined(present))
        return
    last: Tile | None = None
    for start, end, size in _sized(look, vma, present):
        if last is not None and last.end == start and last.page_bytes == size:
            last = Tile(start=last.start, end=end, page_bytes=size)
            continue
        if last is not None:
            yield last
        last = Tile(start=start, end=end, page_bytes=size)
    if last is not None:
        yield last


def _sized(look: _Look, vma: Vma, present: scan.Extents) -> Iterator[tuple[int, int, int]]:
    whole = _hugetlb_size(vma) or (look.huge if not look.scans and _huge_bytes(vma) else None)
    for extent in present:
        start, end = int(extent["start"]), int(extent["end"])
        if whole or int(extent["category"]) & scan.HUGE:
            yield start, end, whole or look.huge
        elif look.flags is None:
            yield start, end, look.page
        else:
            yield from _by_folio(look, look.flags, start, end)


def _by_folio(look: _Look, flags: folios.FrameFlags, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    pages = look.placed(start, end)
    if not len(pages.frames):
        yield start, end, look.page
        return
    own, following = flags.of(pages.frames), flags.of(pages.frames + np.uint64(1))
    sizes = folios.folio_sizes(pages, own, following, look.page, max(look.huge // look.page, 2))
    edges = np.flatnonzero((np.diff(sizes) != 0) | (np.diff(pages.addresses) != look.page)) + 1
    for low, high in zip(np.append(0, edges), np.append(edges, len(sizes)), strict=True):
        yield int(pages.addresses[low]), int(pages.addresses[high - 1]) + look.page, int(sizes[low])


def _huge_bytes(vma: Vma) -> int:
    return sum(vma.totals.get(name, 0) for name in ("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"))


def _is_mixed(vma: Vma) -> bool:
    return 0 < _huge_bytes(vma) < vma.totals.get("Rss", 0)


def _hugetlb_size(vma: Vma) -> int | None:
    return vma.totals.get("KernelPageSize") if vma.is_hugetlb else None


def _sizes(look: _Look, vma: Vma, tiles: list[Tile]) -> dict[int, int]:
    """Resident bytes by page size. Where tiles have no sizes, smaps has the sums."""
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
            found = nodes.of_pages(look.pid, addresses)
        for node, count in zip(*np.unique(found[found >= 0], return_counts=True), strict=True):
            by_node[int(node)] += int(count) * step


def _frames(pieces: list[tuple[int, int, int]]) -> Frames | None:
    if not any(frame for _, frame, _ in pieces):
        return None
    return Frames(
        lowest=min(frame for _, frame, _ in pieces),
        highest=max(frame + pages - 1 for _, frame, pages in pieces),
        runs=len(pieces),
        longest_run_pages=max(pages for _, _, pages in pieces),
    )


def _frame_runs(pieces: list[tuple[int, int, int]]) -> list[FrameRun]:
    return [FrameRun(start=start, frame=frame, pages=pages) for start, frame, pages in pieces]


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
