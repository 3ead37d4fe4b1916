"""The data of one experiment: executions with one or more measurements each, checked here once."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.refusal import Refusal, StatsRefusedError, one_sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

SMALLEST, LARGEST = 1e-60, 1e60
"""Range of a time in any unit: even the square of the largest ratio of two spreads stays in the double range."""


@dataclass(frozen=True, slots=True, eq=False)
class Executions:
    """Measurements of each execution of one workload under one condition, in the order the executions ran.

    Build it with :meth:`of` or :meth:`labelled`, which check that every value is a finite, positive number.
    """

    values: NDArray[np.float64]
    """All measurements, one execution after the other."""
    ends: NDArray[np.uint64]
    """Where each execution ends in ``values``."""

    @classmethod
    def of(cls, rows: Iterable[ArrayLike], what: str = "measurements") -> Executions:
        """Builds from one row per execution. A flat row of numbers is executions with one measurement each."""
        parts = [np.atleast_1d(np.asarray(row)) for row in rows]
        if not parts:
            raise StatsRefusedError(Refusal.EMPTY, f"{what}: no executions")
        for number, part in enumerate(parts):
            if part.ndim != 1 or part.size == 0:
                refusal = Refusal.EMPTY if part.size == 0 else Refusal.NOT_ONE_DIMENSIONAL
                message = f"{what}, execution {number}: shape {part.shape}; pass its measurements, or leave it out"
                raise StatsRefusedError(refusal, message)
        ends = np.cumsum([part.size for part in parts], dtype=np.uint64)
        try:
            values = np.concatenate(parts)
        except (TypeError, ValueError) as error:
            raise StatsRefusedError(Refusal.NOT_NUMERIC, f"{what}: not numbers ({error})") from error
        return cls(_times(values, ends, what), ends)

    @classmethod
    def labelled(
        cls, execution: ArrayLike, value: ArrayLike, *, drop_first: int = 0, what: str = "measurements"
    ) -> Executions:
        """Builds from long form, a label and a value per measurement. Executions are in order of first appearance.

        ``drop_first`` leaves out that many measurements at each execution's start (warm-up). An execution with none
        left is refused, since dropping it silently would select executions.
        """
        labels, values = np.asarray(execution), one_sample(value, what)
        if labels.shape != values.shape:
            message = f"{labels.shape} execution labels for {values.shape} measurements"
            raise StatsRefusedError(Refusal.LENGTHS_DIFFER, message)
        if drop_first < 0:
            raise StatsRefusedError(Refusal.COUNT_OUT_OF_RANGE, f"drop_first = {drop_first}: not 0 or more")
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        place = np.argsort(np.argsort(first))[inverse]  # executions numbered as they appear
        order = np.argsort(place, kind="stable")
        counts = np.bincount(place)
        if int(counts.min()) <= drop_first:
            short = labels[np.sort(first)][int(counts.argmin())]
            message = f"execution {short}: {counts.min()} measurements, none left after the first {drop_first}"
            raise StatsRefusedError(Refusal.EMPTY, message)
        starts = np.cumsum(counts) - counts
        kept = np.arange(values.size) - np.repeat(starts, counts) >= drop_first
        ends = np.cumsum(counts - drop_first, dtype=np.uint64)
        return cls(_times(values[order][kept], ends, what), ends)

    def __len__(self) -> int:
        return self.ends.size

    def __iter__(self) -> Iterator[NDArray[np.float64]]:
        return iter(np.split(self.values, self.ends[:-1].astype(np.int64)))

    @property
    def counts(self) -> NDArray[np.int64]:
        """Measurements of each execution."""
        ends = self.ends.astype(np.int64)
        return ends - np.concatenate((np.zeros(1, dtype=np.int64), ends[:-1]))

    @property
    def means(self) -> NDArray[np.float64]:
        """Mean of each execution."""
        return np.array([row.mean() for row in self])


@dataclass(frozen=True, slots=True, eq=False)
class Experiment:
    """Executions of one workload and configuration (``group``) under one ``condition``.

    Experiments of one group differ in the condition only: ALLOC's triplet is a group with three conditions.
    ``factors``: the configuration, by name (platform, problem size, ...), for the balance check.
    """

    group: str
    condition: str
    executions: Executions
    factors: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> int:
        """Key of the experiment's random streams; it depends only on its names, not on the other experiments."""
        return key_of(self.group, self.condition)


def key_of(*names: str) -> int:
    """64 bits of a hash of names, with separators between names."""
    digest = blake2b(digest_size=8)
    for name in names:
        text = name.encode()
        digest.update(len(text).to_bytes(8, "little") + text)
    return int.from_bytes(digest.digest(), "little")


_POSITIVE = "spreads need positive values; if it is a time: check the clock, or measure more work at a time"


def _times(values: NDArray[np.generic], ends: NDArray[np.uint64], what: str) -> NDArray[np.float64]:
    """Finite, positive doubles, or a refusal that names the execution and the measurement."""

    def where(index: int) -> str:
        execution = int(np.searchsorted(ends, index, side="right"))
        start = int(ends[execution - 1]) if execution else 0
        return f"{what}: execution {execution}, measurement {index - start} is {values[index]}"

    if values.dtype.kind not in "fiu":
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise StatsRefusedError(Refusal.NOT_NUMERIC, f"{what}: not numbers ({error})") from error
    times = np.ascontiguousarray(values, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        for bad, refusal, advice in (
            (~np.isfinite(times), Refusal.NOT_FINITE, "leave the execution out, and say so, before calling"),
            (times <= 0, Refusal.NOT_POSITIVE, _POSITIVE),
            ((times < SMALLEST) | (times > LARGEST), Refusal.OVERFLOW, "change the unit"),
        ):
            found = np.flatnonzero(bad)
            if found.size:
                count = f" ({found.size} such values)" if found.size > 1 else ""
                raise StatsRefusedError(refusal, f"{where(int(found[0]))}{count}; {advice}")
    return times
