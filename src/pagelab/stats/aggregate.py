"""Computes means of executions from measurements: the input of every test and interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pagelab.stats.refusal import Refusal, StatsRefusedError, one_sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True, eq=False)
class ExecutionMeans:
    """One row per execution, in order of first appearance."""

    execution: NDArray[Any]
    mean: NDArray[np.float64]
    measurements: NDArray[np.int64]
    """Number of measurements in each mean."""


def execution_means(execution: ArrayLike, value: ArrayLike, *, drop_first: int = 0) -> ExecutionMeans:
    """Mean of ``value`` within each execution.

    ``execution`` (any labels) and ``value`` have equal length; rows of one execution are in the order of measurement,
    but need not be neighbours. ``drop_first`` leaves out that many measurements at each execution's start (warm-up
    inside the process). An execution with none left is refused, since dropping it silently would select executions.

    All executions have equal weight, however many measurements they have: the execution is the randomised unit.
    """
    labels = np.asarray(execution)
    values = one_sample(value, "measurements")
    if labels.shape != values.shape:
        raise StatsRefusedError(
            Refusal.LENGTHS_DIFFER, f"{labels.shape} execution labels for {values.shape} measurements"
        )
    if drop_first < 0:
        raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, f"drop_first = {drop_first}: not 0 or more")
    _, first, inverse, counts = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    if int(counts.min()) <= drop_first:
        short = labels[first[int(counts.argmin())]]
        raise StatsRefusedError(
            Refusal.EMPTY,
            f"execution {short}: {counts.min()} measurements, none left after dropping the first {drop_first}",
        )
    grouped = values[np.argsort(inverse, kind="stable")]
    ends = np.cumsum(counts)
    starts = ends - counts + drop_first
    with np.errstate(over="ignore"):
        means = np.array([grouped[a:b].mean() for a, b in zip(starts, ends, strict=True)])
    if not np.isfinite(means).all():
        raise StatsRefusedError(Refusal.OVERFLOW, "the sum of an execution exceeds the double range; rescale the unit")
    order = np.argsort(first, kind="stable")
    return ExecutionMeans(labels[np.sort(first)], means[order], counts[order] - drop_first)
