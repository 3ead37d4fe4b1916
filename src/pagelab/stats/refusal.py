"""Refusals: the typed reason why a statistic was not computed, never a silent NaN."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class Refusal(StrEnum):
    """Faults of the input; stable names for reports and JSON."""

    EMPTY = "empty"
    NOT_ONE_DIMENSIONAL = "not-one-dimensional"
    NOT_NUMERIC = "not-numeric"
    NOT_FINITE = "not-finite"
    OVERFLOW = "overflow"
    LENGTHS_DIFFER = "lengths-differ"
    LEVEL_OUT_OF_RANGE = "level-out-of-range"
    P_OUT_OF_RANGE = "p-out-of-range"
    COUNT_OUT_OF_RANGE = "count-out-of-range"
    BASELINE_NOT_POSITIVE = "baseline-not-positive"
    TREATMENT_NEGATIVE = "treatment-negative"
    TOO_LARGE_FOR_EXACT = "too-large-for-exact"
    BAD_PLAN = "bad-plan"
    NOT_A_PLANNED_LOOK = "not-a-planned-look"
    INCOMPLETE_BLOCKS = "incomplete-blocks"
    ONE_EXECUTION = "one-execution"
    ONE_MEASUREMENT = "one-measurement"
    NOT_POSITIVE = "not-positive"
    NO_SPREAD = "no-spread"
    NO_SPREAD_WITHIN = "no-spread-within"
    GROUP_SIZE = "group-size"
    DUPLICATE = "duplicate"
    NOTHING_TO_COMPARE = "nothing-to-compare"
    OUT_OF_REACH = "out-of-reach"


class StatsRefusedError(ValueError):
    """A statistic cannot be computed from this input; ``refusal`` is the reason, the message has the remedy."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


def one_sample(values: ArrayLike, what: str = "values") -> NDArray[np.float64]:
    """``values`` as a one-dimensional finite float array, or a refusal that names the first bad value."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StatsRefusedError(Refusal.NOT_NUMERIC, f"{what}: not numbers ({error})") from error
    if array.ndim != 1:
        raise StatsRefusedError(
            Refusal.NOT_ONE_DIMENSIONAL, f"{what}: shape {array.shape}; pass one value an execution"
        )
    if array.size == 0:
        raise StatsRefusedError(Refusal.EMPTY, f"{what}: no executions")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise StatsRefusedError(
            Refusal.NOT_FINITE,
            f"{what}: {bad.size} of {array.size} not finite, first at index {bad[0]} ({array[bad[0]]}); "
            "decide what a failed execution means before calling",
        )
    return array


def error_rate(level: float) -> Fraction:
    """1 - level as the exact decimal the caller wrote (0.95 gives 1/20), so that comparisons are exact."""
    if not 0.0 < float(level) < 1.0:
        raise StatsRefusedError(Refusal.LEVEL_OUT_OF_RANGE, f"confidence level {level}: not between 0 and 1")
    return 1 - Fraction(str(float(level)))


def unit_range(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """``values`` divided by the power of two next to the largest, for results that do not depend on the unit. Exact but
    for values 10³⁰⁰ times smaller; sums and squares stay in range."""
    largest = float(np.abs(values).max())
    return np.asarray(np.ldexp(values, -int(np.frexp(largest)[1])))


def baseline_near_zero(enough: int | None) -> str:
    """The reason for no ratio of means; ``enough``: the sufficient number of executions, None if none suffices."""
    if enough is None:
        return "no interval: A's mean is 0"
    return f"no interval: A's executions differ so much that their mean could be 0; about {enough:,} of each would do"
