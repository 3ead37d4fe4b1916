"""Functions shared by the tests of ``pagelab map``."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pagelab.placement.model import AddressMap, Region

from .policies import THP

NEEDS_THP = pytest.mark.skipif(
    not (THP / "enabled").exists() or "[never]" in (THP / "enabled").read_text(),
    reason="needs transparent huge pages; run: sudo pagelab doctor --fix thp=madvise",
)


def sizes(found: AddressMap | Region) -> dict[int, int]:
    """Bytes by page size."""
    return {entry.page_bytes: entry.bytes for entry in found.by_size}


def pagelab_map(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    command = [sys.executable, "-m", "pagelab", "map", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
