"""The kernel's pool of reserved 2 MiB pages, for the tests of hugetlb policies."""

from __future__ import annotations

import os

import pytest

from .policies import POOL


class HugePages:
    """The kernel's pool of 2 MiB pages: root fills it as far as a test needs."""

    def __init__(self) -> None:
        self.size, self.free, self.reserved = (POOL / f"{name}_hugepages" for name in ("nr", "free", "resv"))
        self.added = 0

    def available(self) -> int:
        return int(self.free.read_text()) - int(self.reserved.read_text()) if self.free.exists() else 0

    def need(self, pages: int) -> None:
        """Skips the test, with the command that enables it, where that many free pages cannot be had."""
        missing = pages - self.available()
        if missing > 0 and os.geteuid() == 0 and self.size.exists():
            before = int(self.size.read_text())
            self.size.write_text(str(before + missing))
            self.added += int(self.size.read_text()) - before
        if self.available() < pages:
            pytest.skip(
                f"{self.available()} of {pages} huge pages of 2 MiB can be had; "
                f"run: sudo sysctl vm.nr_hugepages={pages}"
            )

    def restore(self) -> None:
        """Takes away what was added here: what others added meanwhile stays."""
        if self.added:
            self.size.write_text(str(max(0, int(self.size.read_text()) - self.added)))
            self.added = 0
