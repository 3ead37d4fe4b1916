"""Comparisons by disjoint intervals, ranks within groups, shares of groups (ALLOC 4.2, 4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.refusal import Refusal, StatsRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pagelab.stats.nondeterminism.estimate import Metric
    from pagelab.stats.nondeterminism.table import Table

THRESHOLDS = (0.0, 1.0, 3.0, 10.0, 50.0, 100.0, 500.0, 800.0)
"""Least differences, in percent of the smaller, that ALLOC regards (Figures 6 and 8)."""


FEWEST = 6
"""Executions of each condition below which no two are told apart: so few look alike, or tied, by chance too often."""


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """One metric of all groups that have it for every condition: arrays of shape groups × conditions."""

    metric: Metric
    names: tuple[str, ...]
    conditions: tuple[str, ...]
    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    left_out: Mapping[str, str]
    """Groups that are not compared, with the reason: a condition is missing, or its metric was refused."""

    def __len__(self) -> int:
        return len(self.names)


def groups_of(table: Table, metric: Metric, conditions: Sequence[str] | None = None) -> Groups:
    """The groups of ``table`` that can be compared in ``metric`` over ``conditions`` (default: all, as they appear).

    With two conditions, groups count that have both, whatever else they lack: ALLOC's pair comparisons rest on other
    groups than its triplets. Groups in which a condition has fewer than ``FEWEST`` executions are left out: nothing can
    be told from so few. No group at all is refused.
    """
    names = (
        tuple(dict.fromkeys(one.condition for one in table.experiments)) if conditions is None else tuple(conditions)
    )
    if len(names) < 2 or len(set(names)) < len(names):
        raise StatsRefusedError(Refusal.NOTHING_TO_COMPARE, f"conditions {names}: at least two different ones")
    grid = table.grid(metric)
    places: dict[str, dict[str, int]] = {}
    for i, one in enumerate(table.experiments):
        places.setdefault(one.group, {})[one.condition] = i
    rows, kept, left_out = [], [], {}
    for group, found in places.items():
        missing = [name for name in names if name not in found]
        refused = [name for name in names if name in found and found[name] in grid.refused]
        few = [name for name in names if name in found and table.executions[found[name]] < FEWEST]
        if missing:
            left_out[group] = f"no {', '.join(missing)}"
        elif few:
            count = int(table.executions[found[few[0]]])
            left_out[group] = f"cannot tell from {count} executions of {few[0]}: run at least {FEWEST}"
        elif refused:
            left_out[group] = f"{refused[0]}: {grid.refused[found[refused[0]]]}"
        else:
            kept.append(group)
            rows.append([found[name] for name in names])
    if not rows:
        example = next(iter(left_out.items()), ("-", "no experiments"))
        message = (
            f"{metric}: no group has it for all of {', '.join(names)}; first left out: {example[0]} ({example[1]})"
        )
        raise StatsRefusedError(Refusal.NOTHING_TO_COMPARE, message)
    at = np.array(rows)
    return Groups(metric, tuple(kept), names, grid.value[at], grid.low[at], grid.high[at], left_out)


def beats(groups: Groups, threshold_percent: float = 0.0) -> NDArray[np.bool_]:
    """Shape groups × a × b: a's interval is wholly below b's, and b's estimate exceeds a's by more than the threshold.

    The difference is in percent of a's, the smaller: differences above 100% exist only so (ALLOC's 800%). Intervals
    that touch overlap. An a of 0 is beaten by every threshold's difference but 0 itself.
    """
    if not threshold_percent >= 0:
        raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, f"threshold {threshold_percent}%: not 0 or more")
    apart = groups.high[:, :, None] < groups.low[:, None, :]
    smaller, larger = groups.value[:, :, None], groups.value[:, None, :]
    return np.asarray(apart & (larger - smaller > smaller * (threshold_percent / 100)))


def ranks(groups: Groups, threshold_percent: float = 0.0) -> NDArray[np.int64]:
    """Shape groups × conditions: 1 + the number of conditions that beat it; several may be best."""
    return np.asarray(1 + beats(groups, threshold_percent).sum(axis=1, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class RankShares:
    """Percentages of groups by condition and rank, at one threshold (ALLOC's Figures 4, 5 and 7)."""

    threshold_percent: float
    groups: int
    percent: Mapping[str, tuple[float, ...]]
    """Condition to percentages of rank 1, 2, ..., k. They add up to 100 for a condition, not for a rank."""

    def best(self, condition: str) -> float:
        """Percentage of groups in which no other condition beats it (ALLOC's Figures 6 and 8)."""
        return self.percent[condition][0]


def rank_shares(groups: Groups, thresholds: Sequence[float] = THRESHOLDS) -> tuple[RankShares, ...]:
    """Rank percentages over all groups, for each threshold."""
    shares = []
    for threshold in thresholds:
        found = ranks(groups, threshold)
        percent = {
            name: tuple(
                100 * int((found[:, i] == rank).sum()) / len(groups) for rank in range(1, len(groups.conditions) + 1)
            )
            for i, name in enumerate(groups.conditions)
        }
        shares.append(RankShares(threshold, len(groups), percent))
    return tuple(shares)


@dataclass(frozen=True, slots=True)
class PairShares:
    """Percentages of groups in which ``first`` beats ``second``, is beaten, and neither."""

    first: str
    second: str
    threshold_percent: float
    groups: int
    better: float
    worse: float

    @property
    def undecided(self) -> float:
        return 100 - self.better - self.worse


def pair_shares(
    table: Table, metric: Metric, first: str, second: str, thresholds: Sequence[float] = THRESHOLDS
) -> tuple[PairShares, ...]:
    """Two conditions alone, over the groups that have both (ALLOC 5.1 to 5.4)."""
    groups = groups_of(table, metric, (first, second))
    shares = []
    for threshold in thresholds:
        won = beats(groups, threshold)
        better, worse = (100 * int(won[:, a, b].sum()) / len(groups) for a, b in ((0, 1), (1, 0)))
        shares.append(PairShares(first, second, threshold, len(groups), better, worse))
    return tuple(shares)
