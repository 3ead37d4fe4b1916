"""System calls that Python lacks, for the probes: scratch memory, madvise, userfaultfd, PAGEMAP_SCAN.

All functions work on memory and descriptors of their own and release them. Failures raise ``OSError``.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MADV_HUGEPAGE = 14
MADV_POPULATE_READ = 22
MADV_POPULATE_WRITE = 23
MADV_COLLAPSE = 25
UFFD_USER_MODE_ONLY = 1
UFFD_FEATURE_MOVE = 1 << 16
_UFFD_API = 0xAA
# _IOWR numbers of the generic ioctl encoding (x86, arm64, riscv).
_UFFDIO_API = 0xC018AA3F
_UFFDIO_REGISTER = 0xC020AA00
_UFFDIO_MOVE = 0xC028AA05
_USERFAULTFD_IOC_NEW = 0xAA00
_PAGEMAP_SCAN = 0xC0606610
_PAGE_IS_PRESENT = 1 << 3
_SYS_USERFAULTFD = {"x86_64": 323, "aarch64": 282, "riscv64": 282}
_SYS_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
_PERF_ATTR_BYTES = 64
"""PERF_ATTR_SIZE_VER0: the fields of the first version, which every kernel accepts."""
PAGE = mmap.PAGESIZE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.syscall.restype = ctypes.c_long


def _failed(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


class Scratch:
    """Private anonymous memory, aligned to ``align_bytes`` and untouched."""

    def __init__(self, size_bytes: int, align_bytes: int = PAGE) -> None:
        self.size_bytes = size_bytes
        self._map = mmap.mmap(-1, size_bytes + align_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._anchor: ctypes.c_char | None = ctypes.c_char.from_buffer(self._map)
        base = ctypes.addressof(self._anchor)
        self.address = (base + align_bytes - 1) // align_bytes * align_bytes
        self._offset = self.address - base

    def touch(self) -> None:
        """Write a byte to each page."""
        for offset in range(self._offset, self._offset + self.size_bytes, PAGE):
            self._map[offset] = 1

    def write(self, text: bytes) -> None:
        """Put bytes at the start."""
        self._map[self._offset : self._offset + len(text)] = text

    def read(self, count: int) -> bytes:
        """The first ``count`` bytes; touches them."""
        return self._map[self._offset : self._offset + count]

    def advise(self, advice: int) -> None:
        """Calls ``madvise(2)`` on all of it."""
        if _libc.madvise(self.address, self.size_bytes, advice):
            raise _failed("madvise")

    def huge_bytes(self) -> int:
        """AnonHugePages, in bytes, of the mapping that contains this memory."""
        inside = False
        with Path("/proc/self/smaps").open() as smaps:
            for line in smaps:
                first, _, rest = line.partition("-")
                if rest and first and all(digit in "0123456789abcdef" for digit in first):
                    inside = int(first, 16) <= self.address < int(rest.split(" ", 1)[0], 16)
                elif inside and line.startswith("AnonHugePages:"):
                    return int(line.split()[1]) * 1024
        return 0

    def close(self) -> None:
        """Unmap it."""
        self._anchor = None
        self._map.close()


@contextmanager
def scratch(size_bytes: int, align_bytes: int = PAGE) -> Iterator[Scratch]:
    """Scratch memory that is unmapped at the end."""
    memory = Scratch(size_bytes, align_bytes)
    try:
        yield memory
    finally:
        memory.close()


def userfaultfd(*, user_mode_only: bool) -> int:
    """A userfaultfd from the system call; the caller closes it."""
    number = _SYS_USERFAULTFD.get(os.uname().machine)
    if number is None:
        raise OSError(38, "userfaultfd: no system call number for this architecture")
    flags = os.O_CLOEXEC | os.O_NONBLOCK | (UFFD_USER_MODE_ONLY if user_mode_only else 0)
    descriptor: int = _libc.syscall(ctypes.c_long(number), ctypes.c_int(flags))
    if descriptor < 0:
        raise _failed("userfaultfd")
    return descriptor


def userfaultfd_from_device() -> int:
    """A full userfaultfd from ``/dev/userfaultfd``, for which file permissions decide, not a capability."""
    device = os.open("/dev/userfaultfd", os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(device, _USERFAULTFD_IOC_NEW, os.O_CLOEXEC | os.O_NONBLOCK)
    finally:
        os.close(device)


def userfaultfd_features(descriptor: int) -> int:
    """Makes the handshake UFFDIO_API without requests; returns the kernel's features, one bit each."""
    answer = fcntl.ioctl(descriptor, _UFFDIO_API, struct.pack("QQQ", _UFFD_API, 0, 0))
    features: int = struct.unpack("QQQ", answer)[1]
    return features


def move_one_page(descriptor: int) -> bool:
    """Moves one page with UFFDIO_MOVE; returns whether its bytes arrived. Needs the handshake on ``descriptor``."""
    with scratch(PAGE) as source, scratch(PAGE) as target:
        source.write(b"moved")
        fcntl.ioctl(descriptor, _UFFDIO_REGISTER, struct.pack("QQQQ", target.address, PAGE, 1, 0))
        request = struct.pack("QQQQq", target.address, source.address, PAGE, 0, 0)
        answer = fcntl.ioctl(descriptor, _UFFDIO_MOVE, request)
        # The target may be touched only now: before, the fault would wait forever for a handler.
        return struct.unpack("QQQQq", answer)[4] == PAGE and target.read(5) == b"moved"


def count_task_clock(*, with_kernel: bool) -> None:
    """Opens a software event on this process by perf_event_open, which needs the rights of hardware events."""
    number = _SYS_PERF_EVENT_OPEN.get(os.uname().machine)
    if number is None:
        raise OSError(38, "perf_event_open: no system call number for this architecture")
    attributes = ctypes.create_string_buffer(_PERF_ATTR_BYTES)
    # type = software, size, config = task-clock; bits 5 and 6 of the flags exclude kernel and hypervisor.
    flags = 1 | (0 if with_kernel else 1 << 5 | 1 << 6)
    struct.pack_into("IIQ", attributes, 0, 1, _PERF_ATTR_BYTES, 1)
    struct.pack_into("Q", attributes, 40, flags)
    descriptor = _libc.syscall(
        ctypes.c_long(number), attributes, ctypes.c_int(0), ctypes.c_int(-1), ctypes.c_int(-1), ctypes.c_ulong(8)
    )
    if descriptor < 0:
        raise _failed("perf_event_open")
    os.close(descriptor)


def pagemap_scan() -> int:
    """Number of pages that the ioctl PAGEMAP_SCAN reports present in two touched pages (2 if it works)."""
    with scratch(2 * PAGE) as memory, Path("/proc/self/pagemap").open("rb") as pagemap:
        memory.touch()
        regions = ctypes.create_string_buffer(24)
        end = memory.address + memory.size_bytes
        request = struct.pack(
            "12Q", 96, 0, memory.address, end, 0, ctypes.addressof(regions), 1, 0, 0,
            _PAGE_IS_PRESENT, 0, _PAGE_IS_PRESENT,
        )  # fmt: skip
        fcntl.ioctl(pagemap, _PAGEMAP_SCAN, request)
        start, stop, _categories = struct.unpack("3Q", regions.raw)
        return int(stop - start) // PAGE


def own_frame_number() -> int:
    """The frame number that the kernel shows for a touched page of our own; 0 if it hides frame numbers."""
    with scratch(PAGE) as memory, Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        memory.touch()
        pagemap.seek(memory.address // PAGE * 8)
        (entry,) = struct.unpack("Q", pagemap.read(8))
        return int(entry) & ((1 << 55) - 1)
