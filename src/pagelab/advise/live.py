"""The memory that a running process touches, and the part of it that could be collapsed into 2M pages.

The processor sets an accessed bit in the page table's entry of each page that is used. ``1`` into
``/proc/PID/clear_refs`` clears these bits, and ``Referenced`` of ``/proc/PID/smaps`` counts the pages that have them
again (Linux, Documentation/filesystems/proc.rst), those of a whole mapping together. A bit says that a page was
touched, and nothing of misses: no gain is promised. Which tiles have memory, ``pagemap`` tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from pagelab.advise.tiles import Tiles, collapsible, whole
from pagelab.analysis import wording
from pagelab.errors import BadInputError
from pagelab.layouts.layout import TILE
from pagelab.placement.errors import NotPermittedError, explained, gone, not_permitted
from pagelab.placement.procfs import Vma, command, executable, mappings
from pagelab.placement.regions import group

SCHEMA: Literal["pagelab.advice-live/1"] = "pagelab.advice-live/1"
_KINDS = ("heap", "anon", "arenas")
_PROCESS_MADVISE, _MADV_COLLAPSE = 440, 25
"""Numbers that all architectures share (include/uapi/asm-generic)."""
_MOST_SPANS = 1000
"""In one command: 35 characters each, and Linux takes 128 KiB in one argument."""
_READER = "pagelab advise --pid"
"""What is typed again where the process may not be read."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Span(_Model):
    """The addresses of adjoining tiles of 2 MiB."""

    start: int
    end: int


class LiveRegion(_Model):
    """One mapping of private anonymous memory, with its sizes in bytes."""

    kind: Literal["heap", "anon", "arenas"]
    start: int
    """Addresses of its whole tiles of 2 MiB."""
    end: int
    resident_bytes: int
    """Of the whole mapping, like all that follows."""
    touched_bytes: int
    """In pages that were used while it was watched; a large page counts whole."""
    huge_bytes: int
    """In 2M pages already."""
    collapse_bytes: int
    """Advised, in whole tiles; 0: it is left."""
    collapse_spans: list[Span]
    """Where they are: tiles that have memory and are no 2M page."""


class LiveAdvice(_Model):
    """What ``pagelab advise --pid --json`` prints, published as ``docs/schema/advice-live-1.json``."""

    schema_: Literal["pagelab.advice-live/1"] = Field(default=SCHEMA, alias="schema")
    pid: int
    command: str
    seconds: float
    """How long it was watched."""
    budget_bytes: int | None
    verdict: str
    regions: list[LiveRegion]
    left_out: int
    """Regions that were touched, and for which the budget had no room."""
    left_out_bytes: int
    """Tiles of touched regions that could be collapsed, too, and for which the budget or the command had no room."""
    more_resident_bytes: int
    """What collapsing makes resident that is not."""
    collapse: str | None
    """A shell command that collapses what is advised."""


@dataclass(frozen=True)
class Candidate:
    """A mapping, and its tiles that can be collapsed."""

    kind: str
    vma: Vma
    tiles: Tiles


def watch(pid: int, seconds: float, budget: int | None, wait: Callable[[float], None] = time.sleep) -> LiveAdvice:
    """Clears the accessed bits, waits, and reads which are set again; the process runs meanwhile.

    Raises `BadInputError` where there is no such process, `MachineError` where its bits may not be cleared or it ends.
    """
    name = command(pid, _READER) if mappings(pid, _READER) else ""
    _clear(pid)
    wait(seconds)
    return advice(pid, name, _candidates(pid), seconds, budget)


def _clear(pid: int) -> None:
    try:
        with Path(f"/proc/{pid}/clear_refs").open("w", encoding="ascii") as file:
            file.write("1\n")
    except PermissionError as error:
        raise not_permitted(f"cannot clear the accessed bits of process {pid}", pid, error, _READER) from error
    except (FileNotFoundError, ProcessLookupError) as error:
        if Path(f"/proc/{pid}").exists():
            raise NotPermittedError(
                "cannot clear accessed bits: this kernel has no /proc/PID/clear_refs (CONFIG_PROC_PAGE_MONITOR)"
            ) from error
        raise gone(pid, "its accessed bits", _READER) from error
    except OSError as error:
        raise BadInputError(
            f"cannot clear the accessed bits of process {pid}: {error.strerror} (errno {error.errno})"
        ) from error


def _candidates(pid: int) -> list[Candidate]:
    """Private anonymous mappings, writable, with a whole tile, that may have transparent 2M pages."""
    found = [
        (one.kind, vma)
        for one in group(mappings(pid, _READER), executable(pid))
        if one.kind in _KINDS
        for vma in one.vmas
        if vma.permissions.startswith("rw")
        and vma.permissions.endswith("p")
        and not vma.is_hugetlb
        and "nh" not in vma.flags
        and vma.end // TILE > -(-vma.start // TILE)
    ]
    with explained(pid, "pagemap", _READER), Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
        return [Candidate(kind, vma, collapsible(pagemap, vma)) for kind, vma in found]


def advice(pid: int, name: str, found: Sequence[Candidate], seconds: float, budget: int | None) -> LiveAdvice:
    """The regions in order of addresses, and which of their tiles are advised: all tiles of the touched regions, or as
    many of these as fit into ``budget`` bytes of new 2M pages.

    The budget goes to the tiles with most touched memory, as far as that is known: what is resident in the tile, times
    the share of the mapping's resident memory that was touched.
    """
    found = sorted(found, key=lambda one: one.vma.start)
    useful = [one for one in found if _touched(one.vma)]
    start, resident = (np.concatenate([np.zeros(0, np.int64), *columns]) for columns in _columns(useful))
    owner = np.repeat(np.arange(len(useful)), [len(one.tiles.start) for one in useful])
    share = np.array([_touched(one.vma) / max(1, one.vma.totals.get("Rss", 0)) for one in useful])
    best = np.argsort(-resident * share[owner], kind="stable")
    runs = _runs(start, owner, np.sort(best if budget is None else best[: budget // TILE]))
    runs = sorted(sorted(runs, key=len, reverse=True)[:_MOST_SPANS], key=lambda run: int(run[0]))
    spans: dict[int, list[Span]] = {}
    for run in runs:
        span = Span(start=int(start[run[0]]), end=int(start[run[-1]]) + TILE)
        spans.setdefault(useful[owner[run[0]]].vma.start, []).append(span)
    regions = [_region(one, spans.get(one.vma.start, [])) for one in found]
    advised = sum(one.collapse_bytes for one in regions)
    return LiveAdvice(
        pid=pid,
        command=name,
        seconds=seconds,
        budget_bytes=budget,
        verdict=_verdict(regions, seconds),
        regions=regions,
        left_out=sum(len(one.tiles.start) > 0 and one.vma.start not in spans for one in useful),
        left_out_bytes=len(start) * TILE - advised,
        more_resident_bytes=advised - sum(int(resident[run].sum()) for run in runs),
        collapse=collapse_command(pid, [span for own in spans.values() for span in own]) if spans else None,
    )


def _columns(found: Sequence[Candidate]) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Addresses and resident bytes of the tiles."""
    return [one.tiles.start for one in found], [one.tiles.resident for one in found]


def _runs(start: NDArray[np.int64], owner: NDArray[np.int64], taken: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The indexes ``taken``, split where the tiles do not adjoin or the mapping ends."""
    if not len(taken):
        return []
    cut = (np.diff(start[taken]) != TILE) | (np.diff(owner[taken]) != 0)
    return np.split(taken, np.flatnonzero(cut) + 1)


def _region(one: Candidate, spans: list[Span]) -> LiveRegion:
    """The mapping in the form of the answer."""
    start, end = whole(one.vma)
    return LiveRegion(
        kind="heap" if one.kind == "heap" else "arenas" if one.kind == "arenas" else "anon",
        start=start,
        end=end,
        resident_bytes=one.vma.totals.get("Rss", 0),
        touched_bytes=_touched(one.vma),
        huge_bytes=one.vma.totals.get("AnonHugePages", 0),
        collapse_bytes=sum(span.end - span.start for span in spans),
        collapse_spans=spans,
    )


def _touched(vma: Vma) -> int:
    """Bytes of the pages that were used, in the whole mapping."""
    return vma.totals.get("Referenced", 0)


def _verdict(regions: list[LiveRegion], seconds: float) -> str:
    """The first line of the answer."""
    if not regions:
        return "Nothing to collapse: no private memory of the process has room for a 2M page."
    chosen = [one for one in regions if one.collapse_bytes]
    if not chosen:
        if not any(one.touched_bytes for one in regions):
            return f"Nothing to collapse: no private memory with room for a 2M page was touched within {seconds:g} s."
        huge = wording.size(sum(one.huge_bytes for one in regions))
        return (
            f"Nothing to collapse: where memory was touched within {seconds:g} s, all that lies in whole tiles of "
            f"2 MiB is in 2M pages already ({huge})."
        )
    touched = wording.size(sum(one.touched_bytes for one in chosen))
    resident = wording.size(sum(one.resident_bytes for one in chosen))
    size = wording.size(sum(one.collapse_bytes for one in chosen))
    whose = "this whole region" if len(chosen) == 1 else "these whole regions"
    return (
        f"{size} in {wording.count(len(chosen), 'region')} could be collapsed into 2M pages. Of the {resident} "
        f"resident in {whose}, {touched} were touched within {seconds:g} s; the kernel does not tell where in them. "
        "What that gains is not known: touched is not missed."
    )


def collapse_command(pid: int, spans: Sequence[Span]) -> str:
    """A shell command that calls ``process_madvise(MADV_COLLAPSE)`` on each tile. It needs the rights of a tracer and
    CAP_SYS_NICE. It continues after a tile that fails, reports how many failed and why, and then returns 1."""
    listed = ", ".join(f"({one.start:#x}, {one.end:#x})" for one in spans)
    code = (
        "import collections, ctypes, os, sys; "
        f"fd = os.pidfd_open({pid}); call = ctypes.CDLL(None, use_errno=True).syscall; call.restype = ctypes.c_long; "
        f"tiles = [at for start, end in [{listed}] for at in range(start, end, {TILE:#x})]; "
        "failed = collections.defaultdict(list); "
        f"[failed[os.strerror(ctypes.get_errno())].append(at) for at in tiles if call({_PROCESS_MADVISE}, fd, "
        f"(ctypes.c_size_t * 2)(at, {TILE:#x}), ctypes.c_size_t(1), {_MADV_COLLAPSE}, 0) != {TILE:#x}]; "
        'print(len(tiles) - sum(map(len, failed.values())), "of", len(tiles), "tiles are in 2M pages now"); '
        '[print(len(at), "not:", why + "; the first at", hex(at[0])) for why, at in failed.items()]; '
        "sys.exit(len(failed) > 0)"
    )
    return f"sudo python3 -c '{code}'"
