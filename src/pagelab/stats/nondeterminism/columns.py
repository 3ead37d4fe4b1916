"""The native loops: many experiments as input, one array a column as output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pagelab import _native

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pagelab.stats.nondeterminism.data import Executions
    from pagelab.stats.nondeterminism.settings import Resampling


def columns(
    experiments: Sequence[Executions], groups: NDArray[np.uint64], keys: Sequence[int], settings: Resampling
) -> Mapping[str, NDArray[np.float64]]:
    """One value an experiment and column (crates/stats, ``report.rs``, names and defines them); NaN: does not exist.

    ``groups``: group sizes of the impact factor, 0 leaves it out. ``keys``: addresses of the random streams.
    """
    names = _native.stats_columns()
    if not experiments:
        return {name: np.empty(0) for name in names}
    values = np.concatenate([one.values for one in experiments])
    sizes = np.array([one.values.size for one in experiments], dtype=np.uint64)
    counts = np.array([len(one) for one in experiments], dtype=np.uint64)
    starts = np.cumsum(sizes) - sizes
    ends = np.concatenate([one.ends for one in experiments]) + np.repeat(starts, counts.astype(np.int64))
    rows = _native.stats_reports(
        values,
        ends,
        np.cumsum(counts),
        np.ascontiguousarray(groups, dtype=np.uint64),
        np.array(keys, dtype=np.uint64),
        seed=settings.seed,
        estimate_draws=settings.estimate_draws,
        null_draws=settings.estimate_draws,
        threads=settings.threads,
    )
    table = np.frombuffer(rows).reshape(len(experiments), len(names))
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(names)}
