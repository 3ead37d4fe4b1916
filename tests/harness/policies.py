"""The policies that every guest and every real program must survive, with their requirements."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

THP = Path("/sys/kernel/mm/transparent_hugepage")
POOL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")

MOSAIC_TOML = """
pages = "4K"
[[rule]]
memory = ["heap"]
pages = { mosaic = [["0", "2M", "2M"], ["4M", "10M", "2M"], ["16M", "64M", "2M"]], otherwise = "4K" }
[[rule]]
memory = ["anon", "arenas"]
pages = { mosaic = [["2M", "4M", "2M"], ["6M", "32M", "2M"], ["64M", "1G", "2M"]], otherwise = "4K" }
"""
HUGETLB_TOML = """
via = "hugetlb"
pages = "4K"
[[rule]]
memory = ["heap"]
pages = { mosaic = [["0", "16M", "2M"]], otherwise = "4K" }
[[rule]]
memory = ["anon", "arenas"]
pages = { mosaic = [["0", "16M", "2M"], ["32M", "48M", "2M"]], otherwise = "4K" }
"""


@dataclass(frozen=True)
class Policy:
    """``huge_pages``: 2 MiB pages the kernel's pool must hold free."""

    name: str
    toml: str
    root: bool = False
    thp: bool = False
    huge_pages: int = 0

    def __str__(self) -> str:
        return self.name

    @property
    def is_kernel(self) -> bool:
        return self.name == "kernel"

    def environment(self) -> dict[str, object]:
        """The request's field ``env`` for guests.

        Parts of reserved pages cannot be unmapped: guests then accept that a freed part stays.
        """
        return {"clear": False, "set": {"GUEST_RESERVED_PAGES": "1"} if self.huge_pages else {}, "unset": []}

    def missing(self) -> str | None:
        """Why it cannot run here, with the command that would enable it; the huge-page pool is a fixture's job."""
        if self.root and os.geteuid() != 0:
            return f"policy {self.name} switches system-wide settings; run as root: sudo make test"
        if self.thp and not (THP / "enabled").exists():
            return f"policy {self.name}: this kernel has no transparent huge pages; boot one built with THP"
        return None


POLICIES = [
    Policy("kernel", 'pages = "kernel"\n'),
    Policy("all-4K", 'pages = "4K"\n'),
    Policy("all-2M", 'pages = "2M"\n', thp=True),
    Policy("mosaic", MOSAIC_TOML, thp=True),
    Policy("hugetlb", HUGETLB_TOML, huge_pages=256),
    Policy("mthp-64K", 'pages = "64K"\n', root=True, thp=True),
    Policy("demand", 'fetch = "demand"\n'),
    Policy("prefault", 'pages = "2M"\nfetch = "prefault"\n', thp=True),
    Policy("willneed", 'pages = "4K"\nfetch = "willneed"\n'),
]
BY_NAME = {policy.name: policy for policy in POLICIES}
