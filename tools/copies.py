"""Pairs of places that share lines.

Two places are a pair when six or more consecutive lines of code are equal in both. A line is compared without its
indentation, comments and (Rust) the contents of its texts. Lines that say nothing by themselves are left out before:
those without a letter (brackets), imports, and the lines between the brackets of an import; with them, the heads of
files would be most of the pairs. A longer match is one pair; a text that stands in three places makes three pairs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WINDOW = 6
Lines = Sequence[tuple[int, str]]


@dataclass(frozen=True)
class Pair:
    """Two places that share lines; the line numbers are the first of each place."""

    first_file: str
    first_line: int
    second_file: str
    second_line: int
    lines: int


def telling(lines: Lines) -> list[tuple[int, str]]:
    """The lines that take part in a comparison."""
    kept: list[tuple[int, str]] = []
    in_import = False
    for number, text in lines:
        line = text.strip()
        if in_import or re.match(r"(pub(\([^)]*\))?\s+)?(use|mod)\s|import\s|from\s+\S+\s+import\b", line):
            opened = line.count("(") + line.count("{") - line.count(")") - line.count("}")
            in_import = (in_import and opened >= 0) or opened > 0
        elif re.search(r"[A-Za-z]", line):
            kept.append((number, line))
    return kept


def pairs(files: Mapping[str, Lines]) -> list[Pair]:
    """All pairs, the longest first."""
    kept = {file: telling(lines) for file, lines in files.items()}
    places: defaultdict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for file, lines in kept.items():
        texts = [text for _, text in lines]
        for at in range(len(texts) - WINDOW + 1):
            places[tuple(texts[at : at + WINDOW])].append((file, at))
    matches = {
        (one, other)
        for same in places.values()
        for index, one in enumerate(same)
        for other in same[index + 1 :]
        if one[0] != other[0] or other[1] - one[1] >= WINDOW  # a table's rows that go on alike are one place
    }
    found: list[Pair] = []
    for one, other in matches:
        if ((one[0], one[1] - 1), (other[0], other[1] - 1)) in matches:
            continue
        length = 0
        while ((one[0], one[1] + length), (other[0], other[1] + length)) in matches:
            length += 1
        found.append(Pair(one[0], kept[one[0]][one[1]][0], other[0], kept[other[0]][other[1]][0], length + WINDOW - 1))
    return sorted(found, key=lambda pair: (-pair.lines, pair.first_file, pair.first_line, pair.second_file))
