"""An invented machine below a directory: setting files that behave as the kernel's do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from pagelab.machine.sysfs import Tree

THP = "/sys/kernel/mm/transparent_hugepage/enabled"
POOL = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
SURPLUS = "/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages"
READAHEAD = "/sys/class/bdi/253:0/read_ahead_kb"
READAHEAD_2 = "/sys/class/bdi/7:0/read_ahead_kb"
ASLR = "/proc/sys/kernel/randomize_va_space"
FILES = {
    THP: "always [madvise] never\n",
    "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled": "always inherit madvise [never]\n",
    "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size": "2097152\n",
    POOL: "0\n",
    SURPLUS: "0\n",
    "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "0\n",
    "/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages": "0\n",
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages": "0\n",
    READAHEAD: "128\n",
    READAHEAD_2: "8192\n",
    "/sys/block/vda/dev": "253:0\n",
    ASLR: "2\n",
    "/proc/sys/kernel/random/boot_id": "11111111-2222-3333-4444-555555555555\n",
}


class FakeTree(Tree):
    """Bracketed words move their bracket; the huge-page pool gives at most ``pool_limit`` pages."""

    def __init__(self, root: str | Path, pool_limit: int = 437) -> None:
        super().__init__(root)
        self.pool_limit = pool_limit
        self.refuse: dict[str, int] = {}

    def write(self, name: str, value: str) -> None:
        if name in self.refuse:
            raise OSError(self.refuse[name], os.strerror(self.refuse[name]), name)
        present = self.text(name)
        if "[" in present:
            words = present.replace("[", "").replace("]", "").split()
            if value not in words:
                raise OSError(errno.EINVAL, "Invalid argument", name)
            value = " ".join(f"[{word}]" if word == value else word for word in words)
        elif name == POOL:
            value = str(min(int(value), self.pool_limit))
        super().write(name, value)


def build(root: Path) -> FakeTree:
    """Make the invented machine below ``root``."""
    for name, text in FILES.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return FakeTree(root)


def state(tree: Tree) -> dict[str, str]:
    """All setting files as they read now."""
    return {name: tree.text(name) for name in FILES}
