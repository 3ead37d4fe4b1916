"""Reads ``/proc/PID/smaps`` text: the kernel's report on the pages of each mapping."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_HEADER = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+\s*(.*)$")


@dataclass
class Mapping:
    start: int
    end: int
    permissions: str
    path: str
    values: dict[str, int] = field(default_factory=dict)
    """Bytes by field name (``Rss``, ``AnonHugePages`` …)."""
    flags: set[str] = field(default_factory=set)


def parse(text: str) -> list[Mapping]:
    mappings: list[Mapping] = []
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header:
            start, end, permissions, path = header.groups()
            mappings.append(Mapping(int(start, 16), int(end, 16), permissions, path))
        elif mappings and line.startswith("VmFlags:"):
            mappings[-1].flags = set(line.split()[1:])
        elif mappings and line.endswith(" kB"):
            name, number, _ = line.split()
            mappings[-1].values[name.rstrip(":")] = int(number) * 1024
    return mappings


def inside(mappings: list[Mapping], start: int, end: int) -> list[Mapping]:
    return [mapping for mapping in mappings if start <= mapping.start and mapping.end <= end]


def total(mappings: list[Mapping], name: str) -> int:
    return sum(mapping.values.get(name, 0) for mapping in mappings)
