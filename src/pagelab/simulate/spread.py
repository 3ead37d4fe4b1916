"""Spread of simulated executions, by ALLOC's statistics, as for real runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from ..stats.nondeterminism import Estimate, Refused
    from .cache_runs import CacheRuns


@dataclass(frozen=True)
class Spread:
    """One quantity under one placement: mean, and the coefficient of variation between executions (ALLOC, section 4.2,
    unclassified non-determinism), each with its interval or the reason there is none."""

    placement: str
    quantity: str
    executions: int
    minimum: float
    maximum: float
    mean: Estimate | Refused
    variation: Estimate | Refused


def spread(executions: pl.DataFrame, quantities: Sequence[str], *, level: float = 0.95) -> list[Spread]:
    """The spread of each quantity (a column) under each placement. Quantities with a zero are left out: they have no
    ratio."""
    from ..stats.nondeterminism import Executions, Experiment, Resampling, characterize
    from ..stats.nondeterminism.estimate import Metric

    keys = [
        (quantity, name)
        for quantity in quantities
        for name in executions["placement"].unique(maintain_order=True)
        if float(executions.filter(pl.col("placement") == name)[quantity].min() or 0) > 0  # type: ignore[arg-type] # numbers
    ]
    values = [executions.filter(pl.col("placement") == name)[quantity].to_numpy() for quantity, name in keys]
    experiments = [
        Experiment(quantity, name, Executions.of(of.astype(float)))
        for (quantity, name), of in zip(keys, values, strict=True)
    ]
    if not experiments:
        return []
    found = characterize(experiments, Resampling(level=level, seed=1))
    return [
        Spread(
            name,
            quantity,
            of.size,
            float(of.min()),
            float(of.max()),
            found.estimate(at, Metric.MEAN),
            found.estimate(at, Metric.UNCLASSIFIED),
        )
        for at, ((quantity, name), of) in enumerate(zip(keys, values, strict=True))
    ]


def spread_table(runs: CacheRuns) -> list[str]:
    """Lines for a terminal: misses of every level below the first, reads and cycles, by placement."""
    levels = list(runs.levels["level"].unique(maintain_order=True))
    quantities = [f"misses.{level}" for level in levels] + ["memory_writes", "cycles"]
    return table(spread(runs.executions, quantities), "placement")


def table(found: Sequence[Spread], heading: str) -> list[str]:
    """Lines for a terminal: each quantity with its placements; ``heading`` is the title of the placements' column."""
    from ..stats import coverage

    width = max([len(heading), *(len(one.placement) for one in found)])
    lines = []
    for quantity in dict.fromkeys(one.quantity for one in found):
        title = f"{quantity.removeprefix('misses.')} misses" if quantity.startswith("misses.") else _PLAIN[quantity]
        lines += [
            title,
            f"  {heading:<{width}} {'mean':>15} {'least':>15} {'most':>15} {'spread (CV)':>12}  95% interval",
        ]
        for one in (each for each in found if each.quantity == quantity):
            lines.append(
                f"  {one.placement:<{width}} {_mean(one.mean):>15} {one.minimum:>15,.0f} {one.maximum:>15,.0f} "
                f"{_variation(one.variation)}"
            )
        lines.append("")
    said = coverage.sentence((one.executions for one in found), coverage.SIMULATED)
    return [*lines, said] if said else lines[:-1]


_PLAIN = {
    "memory_writes": "lines written to memory",
    "cycles": "cycles of memory (each access waits for the one before)",
    "c": "C: cycles of page walks",
}


def _mean(found: Estimate | Refused) -> str:
    return f"{found.value:,.0f}" if hasattr(found, "value") else "-"


def _variation(found: Estimate | Refused) -> str:
    from ..stats.nondeterminism import Refused as No

    if isinstance(found, No):
        return f"{'-':>12}  {found}"
    return f"{found.value:>12.3%}  {found.interval.low:.3%} to {found.interval.high:.3%}"
