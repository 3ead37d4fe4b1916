"""Simulated coverage of the intervals (``coverage.csv``), in words for reports."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LOW = 0.9
"""Coverage of a nominal 95% below which a reader is told."""
NAMES = {
    "mean": "the mean",
    "CV inside": "the spread inside",
    "CV of everything": "the spread of everything",
    "impact factor": "the impact factor",
}
"""Intervals of the report's table of non-determinism."""

RATIOS = {
    "ratio of means (Fieller)": "mean",
    "ratio of CVs inside": "measurement",
    "ratio of CVs of everything": "unclassified",
    "ratio of impact factors": "execution",
}
"""Intervals of changes in ``pagelab compare``."""
CORRELATIONS = {"correlation, bootstrap": "bootstrap", "correlation, Fisher": "Fisher"}
MEDIANS = {"median": "the median"}
SHIFTS = {"shift, exact order": "the shift, exact order", "shift, any shape": "the shift, any shape"}
TIGHT_FROM, TIGHT_LEAST = 10, 0.88
"""From so many executions on, and as rarely, the exact-order interval held the truth where one side hardly scatters
(``python -m bench.coverage.precision``: docs/method/precision_coverage.csv)."""
MEANS = {"geometric mean over programs": "mean change"}


class Cell(NamedTuple):
    interval: str
    shape: str
    differ: bool
    n: int


@cache
def covered() -> Mapping[Cell, float]:
    """Share of simulated experiments whose 95% interval held the truth, by ``python -m bench.coverage``."""
    text = files("pagelab.stats").joinpath("coverage.csv").read_text(encoding="utf-8")
    return {
        Cell(row["interval"], row["shape"], row["differ"] == "1", int(row["n"])): float(row["coverage"])
        for row in csv.DictReader(text.splitlines())
    }


def sentence(executions: Iterable[int], names: Mapping[str, str] = NAMES, units: str = "executions") -> str:
    """A sentence on the intervals that hold too little at the fewest of these numbers; empty where none does.

    Numbers between the simulated ones take the next lower one's figures.
    """
    fewest = min((n for n in executions if n > 1), default=None)
    sizes = sorted({cell.n for cell in covered()})
    if fewest is None:
        return ""
    size = max((n for n in sizes if n <= fewest), default=sizes[0])
    low: dict[str, list[tuple[str, float]]] = {}
    for cell, share in covered().items():
        if cell.interval in names and cell.n == size and share < LOW:
            where = f"{cell.shape} {'between executions' if cell.differ else 'inside executions'}"
            low.setdefault(where, []).append((names[cell.interval], share))
    if not low:
        return ""
    parts = [
        f"{', '.join(f'{name} {100 * share:.0f}%' for name, share in found)} ({where})" for where, found in low.items()
    ]
    return (
        f"In simulations with {size} {units}, 95% intervals held the truth less often: {'; '.join(parts)}. "
        "A rare mode is 1 in 10, slower by 10%: only more executions can show it."
    )


def sentence_on_shifts(executions: Iterable[int]) -> str:
    """As :func:`sentence`, of intervals of a shift; and what becomes of the exact-order one where shapes differ."""
    counts = [n for n in executions if n > 1]
    sentences = [sentence(counts, SHIFTS)]
    if any(n >= TIGHT_FROM for n in counts):
        sentences.append(
            "Where one side scatters much and the other hardly, the exact-order interval held the truth in as few "
            f"as {100 * TIGHT_LEAST:.0f}% of simulated studies with {TIGHT_FROM} executions or more: read “any shape”."
        )
    return " ".join(one for one in sentences if one)
