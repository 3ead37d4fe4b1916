"""Identifies the kind of a mapping (heap, arena, library …) by its path, its neighbours, and pagelab's pools."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath

from .model import Kind
from .procfs import Vma

HEAP_POOL_START = 0x6600_0000_0000
ANON_POOLS_START = 0x6700_0000_0000
POOL_BYTES = 0x100_0000_0000
ANON_POOLS = 16
FRAME_POOL_START = 0x65C0_0000_0000
FRAME_POOL_BYTES = 1 << 36
"""Size of the area in which the engine keeps pages with known frames (crates/preload, ``frames::pool::chunks``)."""
_PAGE_BYTES = 4096
_ARENA_BYTES = 64 << 20
"""Size and alignment of the heap of each of glibc's thread arenas (HEAP_MAX_SIZE on 64-bit)."""


@dataclass
class Group:
    """Mappings that belong together and form one region."""

    kind: Kind
    name: str
    vmas: list[Vma] = field(default_factory=list)


def pool_of(address: int) -> tuple[Kind, str] | None:
    """The pagelab pool that contains an address; ``None`` outside of them."""
    if HEAP_POOL_START <= address < HEAP_POOL_START + POOL_BYTES:
        return "heap", "heap pool"
    if FRAME_POOL_START <= address < FRAME_POOL_START + FRAME_POOL_BYTES:
        return "special", "frame pool"
    number, outside = divmod(address - ANON_POOLS_START, POOL_BYTES)
    if address >= ANON_POOLS_START and number < ANON_POOLS and outside >= 0:
        return "anon", "anonymous pool" if number == 0 else f"anonymous pool {number + 1}"
    return None


def group(vmas: list[Vma], executable: str | None) -> list[Group]:
    """Groups mappings into regions, in the order of their first addresses."""
    arenas = _arena_starts(vmas)
    groups: dict[tuple[str, ...], Group] = {}
    before: Vma | None = None
    loaded: Vma | None = None
    touching = ""
    for vma in vmas:
        kind, name = _identify(vma, before, loaded, executable, arenas)
        if vma.path.startswith("/") and vma.offset == 0:
            loaded = vma
        # Plain anonymous memory is one region as long as it is contiguous; everything else is grouped by name.
        if kind == "anon" and name == "anonymous":
            if before is None or before.end != vma.start or not touching:
                touching = f"{vma.start:#x}"
        else:
            touching = ""
        key = (kind, name, touching)
        groups.setdefault(key, Group(kind, name)).vmas.append(vma)
        before = vma
    return list(groups.values())


def _identify(
    vma: Vma, before: Vma | None, loaded: Vma | None, executable: str | None, arenas: set[int]
) -> tuple[Kind, str]:
    pool = pool_of(vma.start)
    if pool is not None and not vma.path.startswith("/"):
        in_arena = vma.start - vma.start % _ARENA_BYTES in arenas
        return ("arenas", f"arenas in the {pool[1]}") if in_arena else pool
    if vma.path.startswith("["):
        return _bracketed(vma)
    if vma.path:
        return _named(vma, executable)
    if vma.start - vma.start % _ARENA_BYTES in arenas:
        return "arenas", "malloc arenas"
    if before is not None and _is_bss(vma, before, loaded):
        return "data", f"bss of {_short(before.path)}"
    if loaded is not None and _is_copied_data(vma, loaded):
        return "data", f"data of {_short(loaded.path)}"
    return "anon", "anonymous"


def _bracketed(vma: Vma) -> tuple[Kind, str]:
    if vma.path == "[heap]":
        return "heap", "heap"
    if vma.path.startswith("[stack"):
        return "stack", "stack"
    if vma.path.startswith("[anon:"):
        name = vma.path[len("[anon:") : -1]
        return ("arenas" if "arena" in name else "anon"), name
    if vma.path.startswith("[anon_shmem:"):
        return "shared", vma.path[len("[anon_shmem:") : -1]
    return "special", vma.path


def _named(vma: Vma, executable: str | None) -> tuple[Kind, str]:
    if vma.is_hugetlb:
        return "anon", "hugetlb"
    if vma.permissions[3] == "s" and vma.path.startswith(("/dev/shm/", "/SYSV", "/memfd:", "/dev/zero")):
        return "shared", vma.path
    if "w" in vma.permissions and vma.permissions[3] == "p" and _has_code(vma.path, executable):
        return "data", f"data of {_short(vma.path)}"
    return "file", vma.path


def _has_code(path: str, executable: str | None) -> bool:
    name = PurePosixPath(path.removesuffix(" (deleted)")).name
    return path == executable or name.endswith(".so") or ".so." in name


def _is_bss(vma: Vma, before: Vma, loaded: Vma | None) -> bool:
    """Whether anonymous memory continues a file's writable data, and at least half of it is in the file's headers.

    If other anonymous memory follows without a gap, the kernel makes one mapping of both.
    """
    continues = before.end == vma.start and before.path.startswith("/") and before.permissions[3] == "p"
    if not continues or "w" not in before.permissions or "w" not in vma.permissions:
        return False
    if loaded is None or loaded.path != before.path:
        return True
    return _is_mostly_inside(vma, loaded) is not False


def _is_copied_data(vma: Vma, loaded: Vma) -> bool:
    """Whether it is anonymous memory inside a loaded image: a frame policy's engine replaced its data by a copy."""
    return "w" in vma.permissions and vma.start >= loaded.start and _is_mostly_inside(vma, loaded) is True


def _is_mostly_inside(vma: Vma, loaded: Vma) -> bool | None:
    """Whether at least half of the memory lies in the pages of a loaded file's image; ``None`` if it is no ELF file."""
    image = memory_end(loaded.path)
    if image is None:
        return None
    end = (loaded.start + image + _PAGE_BYTES - 1) & -_PAGE_BYTES
    return end - vma.start >= vma.size // 2


def _arena_starts(vmas: Iterable[Vma]) -> set[int]:
    """Starts of malloc's arena heaps: aligned to 64 MiB, first writable, then reserved up to the next 64 MiB."""
    found = set()
    written: Vma | None = None
    for vma in vmas:
        anonymous = not vma.path or vma.path.startswith("[anon:")
        if not anonymous:
            written = None
        elif vma.start % _ARENA_BYTES == 0 and vma.permissions.startswith("rw"):
            written = vma
        elif written is not None and vma.permissions.startswith("---"):
            if vma.end == written.start + _ARENA_BYTES:
                found.add(written.start)
            written = None
        elif written is not None and vma.end > written.start + _ARENA_BYTES:
            written = None
    return found


def _short(path: str) -> str:
    return PurePosixPath(path).name


_LOAD = 1
_HEADERS_BYTES = 1 << 16


@lru_cache(maxsize=256)
def memory_end(path: str) -> int | None:
    """Bytes from the file's load address to the end of its memory image; ``None`` if it is no 64-bit ELF file."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEADERS_BYTES)
    except OSError:
        return None
    if head[:6] != b"\x7fELF\x02\x01" or len(head) < 64:
        return None
    (offset,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    ends, starts = [], []
    for at in range(offset, min(offset + size * count, len(head) - 55), size or 1):
        kind, _, _, address, _, _, memory_bytes, _ = struct.unpack_from("<IIQQQQQQ", head, at)
        if kind == _LOAD:
            starts.append(address)
            ends.append(address + memory_bytes)
    return max(ends) - (min(starts) & ~0xFFF) if ends else None
