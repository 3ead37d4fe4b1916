"""The map of one process: what lies where, in pages of which size. Plain data, published as ``pagelab.map/1``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ..record import RunWarning, SizeBytes

SCHEMA = "pagelab.map/1"
PICTURE_FORMATS = ("svg", "png", "html")
"""Suffixes of the pictures that can be drawn."""

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
    """Where the pages lie in physical memory; only root sees it."""

    lowest: int
    highest: int
    runs: int
    """Pieces that are contiguous in both address spaces."""
    longest_run_pages: int


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
    mappings: list[Mapping]


class AddressMap(_Model):
    """A process at one moment."""

    schema_: Literal["pagelab.map/1"] = Field(default="pagelab.map/1", alias="schema")
    pid: int
    command: str
    policy: str | None = None
    """Name of the policy it ran under, where pagelab started it under one."""
    taken_at: str
    moment: Literal["now", "exit"]
    """``exit``: just before the process gave its memory back."""
    base_page_bytes: int
    method: Literal["scan", "pagemap"]
    """``scan``: page sizes by the ioctl PAGEMAP_SCAN; ``pagemap``: an older kernel, where only root sees page sizes."""
    folios: bool
    """Sizes between the base page and 2M were told apart (kpageflags, root); without, they count as base pages."""
    by_size: list[SizeBytes]
    regions: list[Region]
    warnings: list[RunWarning] = Field(default_factory=list)
