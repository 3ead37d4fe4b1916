"""How far a loaded file's data reaches past what is in the file (bss), from its ELF program headers."""

from __future__ import annotations

import struct
from functools import lru_cache
from pathlib import Path

_LOAD = 1
_HEADERS_BYTES = 1 << 16


@lru_cache(maxsize=256)
def memory_end(path: str) -> int | None:
    """Bytes from the file's load address to the end of its memory image; ``None`` where it is no 64-bit ELF file."""
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
