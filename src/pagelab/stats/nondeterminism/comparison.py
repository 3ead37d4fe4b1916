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
"""ALLOC's thresholds for a difference, in percent of the smaller value (Figures 6 and 8)."""


FEWEST = 6
"""With fewer executions of a condition no two are compared: too often they differ, or tie, by chance."""


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
    """Groups that are not compared → the reason: a condition is missing, or its metric was refused."""

    def __len__(self) -> int:
        return len(self.names)


def groups_of(table: Table, metric: Metric, conditions: Sequence[str] | None = None) -> Groups:
    """The groups of ``table`` that can be compared in ``metric`` over ``conditions`` (default: all, as they appear).

    Only the given conditions have to be present: with two, ALLOC's pair comparisons use other groups than its triplets.
    Groups in which a condition has fewer than ``FEWEST`` executions are left out. It is refused if no group remains.
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
    """Whether a beats b, shape groups × a × b: a's interval is below b's, and b's estimate is above a's by more than
    the threshold.

    The difference is in percent of a's estimate, the smaller, so that it can exceed 100% (ALLOC's 800%). Intervals that
    touch overlap. If a's estimate is 0, every difference but 0 exceeds any threshold.
    """
    if not threshold_percent >= 0:
        raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, f"threshold {threshold_percent}%: not 0 or more")
    apart = groups.high[:, :, None] < groups.low[:, None, :]
    smaller, larger = groups.value[:, :, None], groups.value[:, None, :]
    return np.asarray(apart & (larger - smaller > smaller * (threshold_percent / 100)))


def ranks(groups: Groups, threshold_percent: float = 0.0) -> NDArray[np.int64]:
    """Ranks, shape groups × conditions: 1 + the number of conditions that beat this one; several may be best."""
    return np.asarray(1 + beats(groups, threshold_percent).sum(axis=1, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class RankShares:
    """Percentages of groups by condition and rank, at one threshold (ALLOC's Figures 4, 5 and 7)."""

    threshold_percent: float
    groups: int
    percent: Mapping[str, tuple[float, ...]]
    """Condition → percentages of ranks 1, 2, ..., k. They sum to 100 for a condition, not for a rank."""

    def best(self, condition: str) -> float:
        """Percentage of groups in which no other condition beats this one (ALLOC's Figures 6 and 8)."""
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
    """Percentages of groups in which ``first`` beats ``second``, is beaten by it, or neither."""

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
