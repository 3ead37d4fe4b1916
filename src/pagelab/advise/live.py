"""What a process that runs already touches, and which of it could be collapsed into 2M pages.

The processor sets an accessed bit in the page table's entry of each page that is used. ``1`` into
``/proc/PID/clear_refs`` clears these bits, and ``Referenced`` of ``/proc/PID/smaps`` counts the pages that have them
again (Linux, Documentation/filesystems/proc.rst). A bit says that a page was touched, and nothing of misses: no gain is
promised.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pagelab.analysis import wording
from pagelab.errors import BadInputError
from pagelab.layouts.layout import TILE
from pagelab.placement.errors import NotPermittedError, gone, not_permitted
from pagelab.placement.procfs import Vma, command, executable, mappings
from pagelab.placement.regions import group

SCHEMA: Literal["pagelab.advice-live/1"] = "pagelab.advice-live/1"
_KINDS = ("heap", "anon", "arenas")
_PROCESS_MADVISE, _MADV_COLLAPSE = 440, 25
"""Numbers that all architectures share (include/uapi/asm-generic)."""
_READER = "pagelab advise --pid"
"""What is typed again where the process may not be read."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LiveRegion(_Model):
    """One mapping of private anonymous memory; bytes."""

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
    """Advised: so many from ``start`` on; 0: it is left."""


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
    more_resident_bytes: int
    """At most: what collapsing makes resident that is not."""
    collapse: str | None
    """A shell command that collapses what is advised."""


def watch(pid: int, seconds: float, budget: int | None, wait: Callable[[float], None] = time.sleep) -> LiveAdvice:
    """Clears the accessed bits, waits, and looks which are set again; the process goes on meanwhile.

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


def _candidates(pid: int) -> list[tuple[str, Vma]]:
    """Private anonymous mappings, writable, with a whole tile, that may have transparent 2M pages."""
    return [
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


def advice(pid: int, name: str, found: list[tuple[str, Vma]], seconds: float, budget: int | None) -> LiveAdvice:
    """The regions in order of addresses. Those with the largest touched share are advised first, as far as the
    ``budget`` of bytes in new 2M pages goes (None: all that were touched); of the last one its first tiles."""
    room = budget
    taken: dict[int, int] = {}
    left_out = 0
    for _, vma in sorted(found, key=lambda pair: -_touched(pair[1]) / pair[1].size):
        start, end = _tiles(vma)
        huge = vma.totals.get("AnonHugePages", 0)
        if not _touched(vma) or huge >= end - start:
            continue
        wanted = end - start if room is None else min(end - start, room // TILE * TILE)
        if not wanted:
            left_out += 1
            continue
        taken[vma.start] = wanted
        if room is not None:
            room -= wanted
    regions = [
        LiveRegion(
            kind="heap" if kind == "heap" else "arenas" if kind == "arenas" else "anon",
            start=_tiles(vma)[0],
            end=_tiles(vma)[1],
            resident_bytes=vma.totals.get("Rss", 0),
            touched_bytes=_touched(vma),
            huge_bytes=vma.totals.get("AnonHugePages", 0),
            collapse_bytes=taken.get(vma.start, 0),
        )
        for kind, vma in sorted(found, key=lambda pair: pair[1].start)
    ]
    chosen = [one for one in regions if one.collapse_bytes]
    more = sum(max(0, one.collapse_bytes - min(one.resident_bytes, one.collapse_bytes)) for one in chosen)
    return LiveAdvice(
        pid=pid,
        command=name,
        seconds=seconds,
        budget_bytes=budget,
        verdict=_verdict(regions, seconds),
        regions=regions,
        left_out=left_out,
        more_resident_bytes=more,
        collapse=collapse_command(pid, chosen) if chosen else None,
    )


def _tiles(vma: Vma) -> tuple[int, int]:
    return -(-vma.start // TILE) * TILE, vma.end // TILE * TILE


def _touched(vma: Vma) -> int:
    return vma.totals.get("Referenced", 0)


def _verdict(regions: list[LiveRegion], seconds: float) -> str:
    if not regions:
        return "Nothing to collapse: no private memory of the process has room for a 2M page."
    chosen = [one for one in regions if one.collapse_bytes]
    if not chosen:
        huge = wording.size(sum(one.huge_bytes for one in regions))
        return f"Nothing to collapse: within {seconds:g} s only what has 2M pages already ({huge}) was touched, if any."
    touched = wording.size(sum(one.touched_bytes for one in chosen))
    size = wording.size(sum(one.collapse_bytes for one in chosen))
    return (
        f"{wording.count(len(chosen), 'region')} could be collapsed into 2M pages ({size}); {touched} there were "
        f"touched within {seconds:g} s. What that gains is not known: touched is not missed."
    )


def collapse_command(pid: int, chosen: list[LiveRegion]) -> str:
    """A shell command of ``process_madvise(MADV_COLLAPSE)``; it needs the rights of a tracer and CAP_SYS_NICE."""
    spans = ", ".join(f"({one.start:#x}, {one.collapse_bytes:#x})" for one in chosen)
    code = (
        "import ctypes, os; "
        f"fd = os.pidfd_open({pid}); call = ctypes.CDLL(None, use_errno=True).syscall; "
        f"[print(hex(at), call({_PROCESS_MADVISE}, fd, (ctypes.c_size_t * 2)(at, size), ctypes.c_size_t(1), "
        f"{_MADV_COLLAPSE}, 0) == size or os.strerror(ctypes.get_errno())) for at, size in [{spans}]]"
    )
    return f"sudo python3 -c '{code}'"
