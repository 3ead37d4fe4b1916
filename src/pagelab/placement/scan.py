"""Reads the pages of a process from the kernel: which are resident or huge, and the memory node of each.

Resident and huge pages come from the ioctl PAGEMAP_SCAN, or from ``pagemap`` entries on older kernels; nodes from
``move_pages(2)``. All need only the right to read the other process's memory (ptrace access).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import platform
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

FILE, PRESENT, SWAPPED, ZERO, HUGE = 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6
"""Page categories (``PAGE_IS_…`` in the kernel's fs.h)."""

Extents = npt.NDArray[np.void]
"""Ranges of pages of one category: fields ``start``, ``end`` (addresses) and ``category`` (bits)."""

EXTENT = np.dtype([("start", "<u8"), ("end", "<u8"), ("category", "<u8")])
_PAGEMAP_SCAN = 0xC0606610  # _IOWR('f', 16, struct pm_scan_arg of 96 bytes)
_VECTOR = 8192
_ENTRIES = 1 << 16


class UnsupportedError(Exception):
    """The kernel has no PAGEMAP_SCAN (before Linux 6.7)."""


def scan(pagemap: BinaryIO, start: int, end: int) -> Extents:
    """Present and swapped pages of a range by PAGEMAP_SCAN; neighbours of one category are joined.

    Raises :class:`UnsupportedError`, and ``OSError`` if the process is gone.
    """
    vector = np.zeros(_VECTOR, EXTENT)
    wanted = PRESENT | SWAPPED
    returned = wanted | HUGE | ZERO | FILE
    found = []
    while start < end:
        argument = bytearray(
            struct.pack("12Q", 96, 0, start, end, 0, vector.ctypes.data, _VECTOR, 0, 0, 0, wanted, returned)
        )
        try:
            count = fcntl.ioctl(pagemap, _PAGEMAP_SCAN, argument)
        except OSError as error:
            if error.errno == errno.ENOTTY:
                raise UnsupportedError from error
            raise
        found.append(vector[:count].copy())
        walked_to = struct.unpack_from("Q", argument, 32)[0]
        if walked_to <= start:
            break
        start = walked_to
    return merge(np.concatenate(found)) if found else np.zeros(0, EXTENT)


def read_entries(pagemap: BinaryIO, start: int, end: int, page: int) -> npt.NDArray[np.uint64]:
    """The 64-bit ``pagemap`` entries of a range; bits 0 to 54 are the frame number, 0 for all but root."""
    pagemap.seek(start // page * 8)
    raw = pagemap.read((end - start) // page * 8)
    return np.frombuffer(raw[: len(raw) // 8 * 8], dtype="<u8")


def scan_entries(pagemap: BinaryIO, start: int, end: int, page: int) -> Extents:
    """As :func:`scan`, but from ``pagemap`` entries, which do not distinguish huge and zero pages."""
    found = []
    for low in range(start, end, _ENTRIES * page):
        entries = read_entries(pagemap, low, min(end, low + _ENTRIES * page), page)
        present, swapped = entries >> np.uint64(63), entries >> np.uint64(62) & np.uint64(1)
        file = entries >> np.uint64(61) & np.uint64(1)
        category = present * np.uint64(PRESENT) + swapped * np.uint64(SWAPPED)
        category += np.where(category > 0, file * np.uint64(FILE), np.uint64(0))
        found.append(_runs(category, low, page))
    return merge(np.concatenate(found)) if found else np.zeros(0, EXTENT)


def _runs(category: npt.NDArray[np.uint64], start: int, page: int) -> Extents:
    edges = np.flatnonzero(np.diff(category)) + 1
    first = np.concatenate(([0], edges)).astype(np.uint64)
    last = np.concatenate((edges, [len(category)])).astype(np.uint64)
    extents = np.zeros(len(first), EXTENT)
    extents["start"] = np.uint64(start) + first * np.uint64(page)
    extents["end"] = np.uint64(start) + last * np.uint64(page)
    if len(category):
        extents["category"] = category[first.astype(np.int64)]
    return extents[extents["category"] > 0]


def merge(extents: Extents) -> Extents:
    """Joins neighbours of one category (a scan is cut wherever its vector was full)."""
    if len(extents) < 2:
        return extents
    touches = (extents["start"][1:] == extents["end"][:-1]) & (extents["category"][1:] == extents["category"][:-1])
    first = np.concatenate(([True], ~touches))
    merged = extents[first].copy()
    merged["end"] = extents["end"][np.concatenate((first[1:], [True]))]
    return merged


_SYS_MOVE_PAGES = {"x86_64": 279, "aarch64": 239, "riscv64": 239}
_AT_ONCE = 1 << 16


def node_count(root: Path = Path("/sys/devices/system/node")) -> int:
    """Number of memory nodes; 1 if the kernel does not report it."""
    return max(1, sum(1 for node in root.glob("node[0-9]*")))


def nodes_of_pages(pid: int, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """The memory node of the page at each address; a negative errno if there is no page.

    Raises ``OSError``: ENOSYS on architectures whose call number is unknown, EPERM without ptrace access, ESRCH.
    """
    number = _SYS_MOVE_PAGES.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, "move_pages: no system call number for this architecture")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    nodes = np.full(len(addresses), -errno.ENOENT, dtype=np.int32)
    for low in range(0, len(addresses), _AT_ONCE):
        pages = np.ascontiguousarray(addresses[low : low + _AT_ONCE], dtype=np.uint64)
        status = nodes[low : low + _AT_ONCE]
        result = libc.syscall(
            ctypes.c_long(number),
            ctypes.c_int(pid),
            ctypes.c_ulong(len(pages)),
            ctypes.c_void_p(pages.ctypes.data),
            ctypes.c_void_p(0),
            ctypes.c_void_p(status.ctypes.data),
            ctypes.c_int(0),
        )
        if result < 0:
            failed = ctypes.get_errno()
            raise OSError(failed, "move_pages")
    return nodes
