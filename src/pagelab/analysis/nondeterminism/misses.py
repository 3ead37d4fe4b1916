"""Relates time to cache misses in each group (ALLOC 6, Figure 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pagelab import stats
from pagelab.analysis.data import StudyData
from pagelab.analysis.nondeterminism.characterized import refused
from pagelab.analysis.nondeterminism_model import Correlated, Family, Misses, MissesPart, Number
from pagelab.stats import nondeterminism as nd
from pagelab.stats.refusal import StatsRefusedError

COUNTERS = {
    "counter.cache.l3_misses": "L3 misses",
    "counter.LLC-load-misses": "last-level cache misses",
    "counter.cache-misses": "last-level cache misses",
    "counter.cache.l2_misses": "L2 misses",
    "counter.cache.l1_misses": "L1 misses",
}
"""Counters of misses, the last level first: a miss that goes to memory costs most, and page placement changes it."""
ABSENT = (
    "No cache-miss counter counted in these executions, so whether slow executions have more cache misses cannot be "
    "said. "
    'Counters are asked for in study.toml: [counters] events = ["cache"]; whether this machine has any: pagelab doctor'
)
Runs = Mapping[tuple[str, str], Sequence[int]]
"""(group, condition) → the runs to analyse."""


def misses_of(data: StudyData, runs: Runs, columns: Mapping[str, str], families: Sequence[Family], seed: int,
              level: float) -> MissesPart:  # fmt: skip
    """The comparison of times with misses, or why there is none. ``columns``: group → the analysed metric."""
    counter = next((name for name in COUNTERS if name in data.runs.columns and data.runs[name].count()), None)
    if counter is None:
        return MissesPart(None, "", (), ABSENT)
    found = []
    for family in families:
        for group in family.groups:
            one = _group(data, group, family, runs, columns[group], counter, seed, level)
            if one is not None:
                found.append(one)
    reason = "" if found else f"No program has {COUNTERS[counter]} under two conditions."
    return MissesPart(counter, COUNTERS[counter], tuple(found), reason)


def _group(
    data: StudyData, group: str, family: Family, runs: Runs, column: str, counter: str, seed: int, level: float
) -> Misses | None:
    pairs = {}
    for condition in family.conditions:
        both = _pairs(data, runs.get((group, condition), ()), column, counter)
        if both[0].size:
            pairs[condition] = both
    if len(pairs) < 2:
        return None
    time, misses = (np.array([float(both[i].mean()) for both in pairs.values()]) for i in (0, 1))
    return Misses(
        group=group,
        all_differ=_all_differ(family, group, len(pairs)),
        conditions=tuple(pairs),
        time=tuple(time.tolist()),
        misses=tuple(misses.tolist()),
        normalized_time=tuple(nd.normalized(time).tolist()),
        normalized_misses=tuple(nd.normalized(misses).tolist()),
        within=tuple(_correlated(name, *both, seed, level) for name, both in pairs.items()),
    )


def _pairs(
    data: StudyData, runs: Sequence[int], column: str, counter: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Time and misses of the executions that have both."""
    mine = data.runs.filter(pl.col("run_id").is_in(list(runs))).select("run_id", pl.col(counter).cast(pl.Float64))
    if column.startswith("measure."):
        rows = data.measurements.filter(
            (pl.col("name") == column.removeprefix("measure.")) & ~pl.col("dropped") & pl.col("value").is_finite()
        )
        rows = rows.filter(pl.col("run_id").is_in(list(runs))).sort("run_id", "idx")
        means = stats.execution_means(rows["run_id"].to_numpy(), rows["value"].to_numpy()) if rows.height else None
        values = {} if means is None else dict(zip(map(int, means.execution), map(float, means.mean), strict=True))
    else:
        values = dict(data.runs.select("run_id", pl.col(column).cast(pl.Float64)).drop_nulls().iter_rows())
    kept = [(values[run], count) for run, count in mine.drop_nulls().iter_rows() if run in values]
    both = np.array(kept, dtype=np.float64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _all_differ(family: Family, group: str, conditions: int) -> bool:
    """Whether no two conditions share a rank and none is missing: ALLOC's criterion."""
    ranking = family.ranking(nd.Metric.MEAN.value)
    ranks = ranking.ranks.get(group, {}) if ranking is not None else {}
    return len(ranks) == conditions and sorted(ranks.values()) == list(range(1, conditions + 1))


def _correlated(
    condition: str, time: NDArray[np.float64], misses: NDArray[np.float64], seed: int, level: float
) -> Correlated:
    try:
        found = nd.correlation(time, misses, seed=seed, level=level)
    except StatsRefusedError as error:
        return Correlated(condition, time.size, None, refused(error), refused(error), None, str(error))
    ends = [_ends(found.pearson, interval) for interval in (found.interval, found.fisher)]
    return Correlated(condition, found.n, found.pearson, ends[0], ends[1], found.spearman)


def _ends(value: float, interval: stats.Interval | stats.NotAchievable) -> Number:
    if isinstance(interval, stats.NotAchievable):
        return Number(value, reason=str(interval))
    return Number(value, interval.low, interval.high)
