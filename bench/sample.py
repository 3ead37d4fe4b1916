"""Interleaved samples and their statistics."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pagelab.stats import median_interval
from pagelab.stats.interval import Interval

Kind = Literal["ratio", "difference", "value"]


@dataclass(frozen=True)
class Result:
    """One line of the table: a comparison with its goal, or a figure by itself (``kind`` "value", no baseline).

    ``goal`` is the most that the median may be, or with ``at_least`` the least.
    ``low`` and ``high`` bound the median of the paired comparisons (exact order-statistic interval, 95%); None where
    there are too few pairs for one. ``met`` compares the median with the goal; ``clear``: the whole interval
    lies on that side of it.
    """

    name: str
    unit: str
    baseline: float | None
    treatment: float
    kind: Kind
    median: float
    low: float | None
    high: float | None
    goal: float | None
    pairs: int
    samples: dict[str, list[float]]
    note: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        return None if self.goal is None else self._meets(self.median, self.goal)

    @property
    def clear(self) -> bool | None:
        if self.goal is None or self.low is None or self.high is None:
            return None
        return self._meets(self.low, self.goal) == self._meets(self.high, self.goal)

    def _meets(self, value: float, goal: float) -> bool:
        return value >= goal if self.at_least else value <= goal

    def noted(self, note: str) -> Result:
        return replace(self, note=note)

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met, "clear": self.clear}


def interleave(sides: Mapping[str, Callable[[], float]], rounds: int, seed: int = 1) -> dict[str, list[float]]:
    """Runs every side once per round, in a seeded random order, after one discarded round."""
    order = random.Random(seed)
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        names = list(sides)
        order.shuffle(names)
        for name in names:
            value = sides[name]()
            if turn > 0:
                samples[name].append(value)
    return samples


def compare(
    name: str,
    unit: str,
    baseline: list[float],
    treatment: list[float],
    *,
    kind: Kind = "ratio",
    goal: float | None = None,
    note: str = "",
    at_least: bool = False,
) -> Result:
    """The median of the paired ratios (or differences); a pair runs at one time, so slow drift cancels."""
    pairs = [t / b if kind == "ratio" else t - b for b, t in zip(baseline, treatment, strict=True)]
    located = median_interval(pairs)
    interval = located.interval if isinstance(located.interval, Interval) else None
    return Result(
        name=name,
        unit=unit,
        baseline=median_interval(baseline).estimate,
        treatment=median_interval(treatment).estimate,
        kind=kind,
        median=located.estimate,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        goal=goal,
        pairs=len(pairs),
        samples={"baseline": baseline, "treatment": treatment},
        note=note,
        at_least=at_least,
    )


def absolute(
    name: str,
    unit: str,
    samples: list[float],
    *,
    goal: float | None = None,
    note: str = "",
    at_least: bool = False,
) -> Result:
    """The median of a figure without a baseline."""
    located = median_interval(samples)
    interval = located.interval if isinstance(located.interval, Interval) else None
    return Result(
        name=name,
        unit=unit,
        baseline=None,
        treatment=located.estimate,
        kind="value",
        median=located.estimate,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        goal=goal,
        pairs=len(samples),
        samples={"treatment": samples},
        note=note,
        at_least=at_least,
    )
