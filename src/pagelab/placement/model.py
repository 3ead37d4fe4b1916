"""The map of one process: its regions, pages and sizes. Plain data, published as ``pagelab.map/1``."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from ..record import RunWarning, SizeBytes
from ..terminal import Shown
from .words import process, sizes

SCHEMA = "pagelab.map/1"

Kind = Literal["heap", "anon", "arenas", "file", "data", "stack", "shared", "special"]
"""As in records, and ``shared`` (shared memory), ``special`` (vdso and the like)."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tile(_Model):
    """Resident bytes ``[start, end)``, all mapped by pages of ``page_bytes``."""

    start: int
    end: int
    page_bytes: int


class FrameRun(_Model):
    """``pages`` base pages in a row, both in the address space from ``start`` and in memory from ``frame``."""

    start: int
    frame: int
    pages: int


class Frames(_Model):
    """Pages in physical memory; only root can read it."""

    lowest: int
    highest: int
    runs: int
    """Pieces that are contiguous in both address spaces."""
    longest_run_pages: int


class Colouring(_Model):
    """The definition of colours in a map."""

    colours: int
    masks: list[str]
    """Hexadecimal; bit i of a colour is the parity of the frame number under mask i. Empty: the frame number modulo
    ``colours``."""
    source: str
    """Where the number comes from: a cache of the machine, the policy, or ``given``."""


class RegionColours(_Model):
    """Pages of a region by colour."""

    pages: int
    """Base pages whose frames are known."""
    least: int
    """Pages of the emptiest colour."""
    most: int
    """Pages of the fullest colour."""
    crowding: float | None
    """Chi-squared of equal counts over its degrees of freedom: 0 = even, about 1 = as by chance, more = crowded;
    ``None`` for one colour."""
    along_address: float
    """Share of pages whose colour follows the address (virtual page number modulo the colours, turned by the commonest
    offset): 1 under page colouring, about 1 / colours by chance."""
    counts: list[int]
    """Pages by colour."""
    _grid: npt.NDArray[np.int64] | None = PrivateAttr(default=None)
    _bin_bytes: int = PrivateAttr(default=0)

    def attach_grid(self, grid: npt.NDArray[np.int64], bin_bytes: int) -> None:
        """Pages by bin of the address axis and group of colours, for the picture; not part of the published map."""
        self._grid, self._bin_bytes = grid, bin_bytes

    @property
    def grid(self) -> tuple[npt.NDArray[np.int64], int] | None:
        """Pages by bin and group of colours, and the bytes of a bin; ``None`` in a map that was read back."""
        return None if self._grid is None else (self._grid, self._bin_bytes)


class NodeBytes(_Model):
    node: int
    bytes: int


class Mapping(_Model):
    """One mapping (VMA) of the process."""

    start: int
    end: int
    permissions: str
    path: str
    """As the kernel gives it: a path, ``[heap]``, ``[anon:name]`` or nothing."""
    huge_advice: Literal["huge", "nohuge"] | None
    tiles: list[Tile]


class Region(_Model):
    """Mappings that belong together: a pool, a library, an anonymous area."""

    kind: Kind
    name: str
    start: int
    end: int
    """From the first to the last mapping; gaps between them are not mapped."""
    mapped_bytes: int
    resident_bytes: int
    """Mapped by pages of the process; the shared zero page does not count."""
    zero_bytes: int
    """Mapped by the shared zero page: read and never written."""
    swapped_bytes: int
    by_size: list[SizeBytes]
    nodes: list[NodeBytes] | None = None
    """By memory node; ``None`` where the machine has one node only."""
    frames: Frames | None = None
    frame_runs: list[FrameRun] | None = None
    colours: RegionColours | None = None
    """``None`` where frames are not known."""
    mappings: list[Mapping]


_PRINTED = 8
"""Regions of a printed map."""


class AddressMap(Shown, _Model):
    """A process at one moment; printed as a short table of its largest regions."""

    schema_: Literal["pagelab.map/1"] = Field(default="pagelab.map/1", alias="schema")
    pid: int
    command: str
    policy: str | None = None
    """Name of the policy it ran under, where pagelab started it under one."""
    taken_at: str
    moment: Literal["now", "peak", "exit"]
    """``exit``: just before the process gave its memory back; ``peak``: while it ran, when it had most."""
    base_page_bytes: int
    method: Literal["scan", "pagemap"]
    """``scan``: page sizes by the ioctl PAGEMAP_SCAN; ``pagemap``: an older kernel, where only root sees page sizes."""
    folios: bool
    """Sizes between the base page and 2M were distinguished (kpageflags, root); else they count as base pages."""
    by_size: list[SizeBytes]
    peak_bytes: int | None = None
    """The most that was resident at any time so far, without pages of hugetlbfs; ``None`` where the kernel does not
    tell."""
    left_bytes: int | None = None
    """Of a map at its peak: what was resident when the process ended."""
    colouring: Colouring | None = None
    """``None`` where frames are not known."""
    regions: list[Region]
    warnings: list[RunWarning] = Field(default_factory=list)

    @property
    def resident_bytes(self) -> int:
        """All that is resident."""
        return sum(entry.bytes for entry in self.by_size)

    def __str__(self) -> str:
        return Shown.__str__(self)

    def _title(self) -> str:
        return process(self.pid, self.command, self.moment, self.by_size)

    def _rows(self) -> list[tuple[str, str]]:
        largest = sorted(self.regions, key=lambda region: -region.resident_bytes)[:_PRINTED]
        return [(region.name, sizes(region.by_size).plain) for region in largest if region.resident_bytes]
