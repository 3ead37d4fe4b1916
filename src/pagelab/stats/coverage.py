"""Words for reports on the simulated coverage of intervals (``coverage.csv``)."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LOW = 0.9
"""Reports mention a nominal 95% interval whose coverage is below this."""
NAMES = {
    "mean": "the mean",
    "CV inside": "the spread inside",
    "CV of everything": "the spread of everything",
    "impact factor": "the impact factor",
}
"""Intervals of the report's table of non-determinism → words."""

SINGLES = {"mean of single measurements": "the mean", "CV of single measurements": "the spread of everything"}
"""As ``NAMES``, for executions with one measurement each."""
RATIOS = {
    "ratio of means (Fieller)": "mean",
    "ratio of CVs inside": "measurement",
    "ratio of CVs of everything": "unclassified",
    "ratio of impact factors": "execution",
}
"""Intervals of changes in ``pagelab compare``."""
RATIOS_OF_SINGLES = {
    "ratio of means of single measurements (Fieller)": "mean",
    "ratio of CVs of single measurements": "unclassified",
}
RATIO_OF_PAIRS = {"ratio of means of pairs (Fieller)": "mean"}
CORRELATIONS = {"correlation, bootstrap": "bootstrap", "correlation, Fisher": "Fisher"}
MEDIANS = {"median": "the median"}
SHIFTS = {
    "shift, exact order": "the shift, exact order",
    "shift, any shape": "the shift, any shape",
    "relative change, exact order": "the change, exact order",
    "relative change, any shape": "the change, any shape",
}
PAIRS = {"ratio of pairs, exact order": "the change", "ratio of pairs, any shape": "the change, any shape"}
MEANS = {"geometric mean over programs": "mean change"}
SETS = {"set of programs": "the mean over programs"}
SIMULATED = {"CV of single measurements": "the spread"}
"""As ``NAMES``, for simulated executions."""
DIAGNOSED = {
    "diagnose: variance removed": "the variance removed",
    "diagnose: mean shift": "the mean shift",
    "diagnose: share of drawn values": "the share of drawn values",
}
BY_RANKS = MEDIANS.keys() | SHIFTS.keys() | PAIRS.keys() | SETS.keys()
"""Intervals whose level follows from counting ranks or signs, at every number for which they exist."""
NOT_PRINTED = {"impact factor, geometric", "diagnose: spread of the default"}
"""Intervals that appear only in the JSON and in decisions."""
TIGHT_FROM, TIGHT_LEAST = 10, 0.88
"""If one side hardly scatters, the exact-order interval of at least this many executions each had at worst this
coverage (``python -m bench.coverage.precision``: docs/method/precision_coverage.csv)."""
GAINS_LEAST = 0.78
"""Worst coverage of the gain of a region that gains, by an interval of ``pagelab advise``
(``python -m bench.coverage.advise``: docs/advise.md)."""
GAINS = (
    f"In simulations, 95% intervals of the regions that gain held the truth in {100 * GAINS_LEAST:.0f}% of cases at "
    "worst: the check is what counts."
)
SKEWED_SETS_LEAST = 0.88
"""Worst coverage of a set's interval of time if the policy halves a one-sided spread
(``python -m bench.coverage.sets``: docs/method/nondeterminism.md)."""


class Cell(NamedTuple):
    interval: str
    shape: str
    differ: bool
    n: int


@cache
def covered() -> Mapping[Cell, float]:
    """Share of simulated experiments whose 95% interval contained the truth, from ``python -m bench.coverage``."""
    text = files("pagelab.stats").joinpath("coverage.csv").read_text(encoding="utf-8")
    return {
        Cell(row["interval"], row["shape"], row["differ"] == "1", int(row["n"])): float(row["coverage"])
        for row in csv.DictReader(text.splitlines())
    }


def sentence(executions: Iterable[int], names: Mapping[str, str] = NAMES, units: str = "executions") -> str:
    """A sentence on the intervals whose coverage is below ``LOW`` at the smallest of these numbers; empty if none is.

    A number between simulated ones takes the figures of the next lower one. Of fewer than any simulated one only the
    levels of ``BY_RANKS`` are known, which hold for every number that has such an interval: that is said before.
    """
    fewest = min((n for n in executions if n > 1), default=None)
    sizes = sorted({cell.n for cell in covered()})
    if fewest is None:
        return ""
    size = max((n for n in sizes if n <= fewest), default=sizes[0])
    unknown = [name for interval, name in names.items() if interval not in BY_RANKS and fewest < size]
    lead = _of_too_few(fewest, size, unknown, units) if unknown else ""
    low: dict[str, list[tuple[str, float]]] = {}
    for cell, share in covered().items():
        if cell.interval in names and cell.n == size and share < LOW:
            where = f"{cell.shape} {'between executions' if cell.differ else 'inside executions'}"
            low.setdefault(where, []).append((names[cell.interval], share))
    if not low:
        return lead
    parts = [
        f"{', '.join(f'{name} {100 * share:.0f}%' for name, share in found)} ({where})" for where, found in low.items()
    ]
    return f"{lead} " * bool(lead) + (
        f"In simulations with {size} {units}, 95% intervals held the truth less often: {'; '.join(parts)}. "
        "A rare mode is 1 in 10, slower by 10%: only more executions can show it."
    )


def _of_too_few(fewest: int, simulated: int, unknown: Sequence[str], units: str) -> str:
    """Of two equal modes, 1 in 2^(n-1) samples of n shows only one, and no interval made of it holds the truth."""
    return (
        f"With as few as {fewest} {units} it is not known how often 95% intervals hold the truth "
        f"({', '.join(unknown)}): simulations begin at {simulated}. Where half of them are slow, {fewest} show only "
        f"one of the two times in {100 * 2.0 ** (1 - fewest):.0f}% of cases."
    )


def least_of_shifts(n: int, m: int, level: float = 0.95) -> float:
    """Coverage of the exact-order interval if one side scatters, and the larger one does not at all.

    The number of pairs above the shift then varies √(3 max(n, m) / (n + m + 1)) times as much as with equal shapes.
    """
    from statistics import NormalDist

    normal = NormalDist()
    return 2 * normal.cdf(normal.inv_cdf((1 + level) / 2) / max(1.0, 3 * max(n, m) / (n + m + 1)) ** 0.5) - 1


def sentence_on_shifts(executions: Iterable[tuple[int, int]]) -> str:
    """As :func:`sentence`, for intervals of a shift, with the coverage of the exact-order one if shapes differ.

    ``executions``: numbers of both sides of each comparison.
    """
    counts = [(n, m) for n, m in executions if min(n, m) > 1]
    sentences = [sentence((n for pair in counts for n in pair), SHIFTS)]
    unequal = min((each for each in counts if max(each) >= TIGHT_FROM), key=lambda e: least_of_shifts(*e), default=None)
    if unequal is not None:
        least = min(TIGHT_LEAST, least_of_shifts(*unequal))
        alike = unequal[0] == unequal[1]
        where = f"with {TIGHT_FROM} executions or more" if alike else f"with {unequal[0]} and {unequal[1]} executions"
        sentences.append(
            "Where one side scatters much and the other hardly, the exact-order interval holds the truth in as few "
            f"as {100 * least:.0f}% of studies {where}: read “any shape”."
        )
    return " ".join(one for one in sentences if one)


def sentence_on_sets(programs: Iterable[int]) -> str:
    """As :func:`sentence`, for a set, with the coverage of the interval of time if a policy changes shapes."""
    skewed = (
        "Where a policy changes the shape of the programs’ times, and not their middle, 95% intervals of time held the "
        f"truth in as few as {100 * SKEWED_SETS_LEAST:.0f}% of simulated sets."
    )
    return " ".join(one for one in (sentence(programs, SETS, "programs"), skewed) if one)


def sentence_on_changes(executions: Sequence[int], *, single: bool, in_pairs: bool) -> str:
    """As :func:`sentence`, for the changes that ``pagelab compare`` shows.

    ``single``: one measurement per execution; ``in_pairs``: the mean's interval is that of pairs.
    """
    names = RATIOS_OF_SINGLES if single else RATIOS
    if in_pairs:
        names = RATIO_OF_PAIRS | {key: name for key, name in names.items() if name != "mean"}
    return sentence(executions, names)
