"""The memory node of each page, queried by ``move_pages(2)``."""

from __future__ import annotations

import ctypes
import errno
import platform
from pathlib import Path

import numpy as np
import numpy.typing as npt

_SYS_MOVE_PAGES = {"x86_64": 279, "aarch64": 239, "riscv64": 239}
_AT_ONCE = 1 << 16


def count(root: Path = Path("/sys/devices/system/node")) -> int:
    """Number of memory nodes; 1 if the kernel does not report it."""
    return max(1, sum(1 for node in root.glob("node[0-9]*")))


def of_pages(pid: int, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """The node of the page at each address; a negative errno where there is none.

    Raises ``OSError``: ENOSYS on architectures without a known number, EPERM without ptrace access, ESRCH.
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
