"""The boots of ``kernel/paths``: rows of ``pagelab-workload kernel-paths`` as a table, before and after.

``python3 -m kernel.paths_table DIRECTORY``, where each boot has a console (``stock-fresh.log`` …) and the windows of
its caches; exit code 1 if a boot went wrong.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kernel.check import kernel_troubles
from tests.harness.emulated import parts

KERNELS = ("stock", "patched", "colored")
MEMORIES = ("fresh", "fragmented")


@dataclass
class Row:
    """Measurements of a row in one boot, in their order."""

    unit: str
    instructions: list[float] = field(default_factory=list)
    misses: list[int] = field(default_factory=list)
    """Lines read from memory in a round."""


class BootError(Exception):
    """A boot whose numbers are invalid; the message gives the reason."""


def placed(statistics: str) -> int:
    """Pages that all strategies together placed, from ``/proc/page_color``."""
    return sum(int(count) for count in re.findall(r"\bplaced (\d+)", statistics))


def rows_of(console: str, lines: str, kernel: str) -> dict[str, Row]:
    """Rows of a boot of one of :data:`KERNELS` by their names; raises :class:`BootError`."""
    found, codes = parts(console)
    if troubles := kernel_troubles(console):
        raise BootError(f"the kernel says: {troubles[0]}")
    if codes.get("paths") != 0 or "end" not in found:
        raise BootError(found.get("said", "").strip() or "the machine did not come to the end")
    if (placed(found.get("statistics", "")) > 0) != (kernel == "colored"):
        raise BootError(f"{placed(found.get('statistics', ''))} pages were placed")
    measured = [json.loads(line) for line in found.get("measured", "").splitlines() if line.startswith("{")]
    windows = [json.loads(line) for line in lines.splitlines()]
    if not measured or len(measured) != len(windows):
        raise BootError(f"{len(measured)} measurements and {len(windows)} windows")
    rows: dict[str, Row] = {}
    for one, window in zip(measured, windows, strict=True):
        row = rows.setdefault(one["name"].removeprefix("kernel-paths."), Row(one["unit"]))
        row.instructions.append(one["value"])
        row.misses.append(window["memory_reads"])
    return rows


def left_out(console: str) -> list[str]:
    """The program's lines on rows that the machine cannot have."""
    said = parts(console)[0].get("said", "")
    return [line.partition("left out: ")[2] for line in said.splitlines() if "left out: " in line]


def table(boots: dict[str, dict[str, Row]]) -> Iterator[str]:
    """Lines of a Markdown table of one kind of memory: medians over the measurements. ``boots``: kernel → rows."""
    yield "| | instructions: stock | patched | `page_color=` | misses: stock | patched | `page_color=` |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for name, row in boots["stock"].items():
        each = [boots[kernel][name] for kernel in KERNELS]
        stock, patched, colored = (statistics.median(one.instructions) for one in each)
        label = f"{name}, a KiB" if row.unit.endswith("/KiB") else name
        cells = [
            label,
            _count(stock),
            f"{(patched / stock - 1) * 100:+.2f}%",
            f"{colored / stock:.3f}×",
            *(_count(statistics.median(one.misses)) for one in each),
        ]
        yield f"| {' | '.join(cells)} |"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def main() -> int:
    directory = Path(sys.argv[1])
    for memory in MEMORIES:
        boots = {}
        for kernel in KERNELS:
            log, windows = directory / f"{kernel}-{memory}.log", directory / f"{kernel}-{memory}.windows"
            console = log.read_text(errors="replace").replace("\r", "")
            try:
                boots[kernel] = rows_of(console, windows.read_text() if windows.exists() else "", kernel)
            except BootError as error:
                print(f"kernel/paths: {error}; see {log}", file=sys.stderr)
                return 1
        print(f"{memory} memory", "", *table(boots), "", sep="\n")
        print(*(f"left out: {line}" for line in left_out(console)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
