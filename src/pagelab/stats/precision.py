"""The precision stop ends a study when its intervals are narrow enough, never because of a p-value or an effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from math import log1p
from typing import TYPE_CHECKING

import numpy as np

from pagelab.stats.interval import NotAchievable
from pagelab.stats.paired import paired_ratio, pairs_of
from pagelab.stats.refusal import Refusal, StatsRefusedError, error_rate, one_sample
from pagelab.stats.shift import hodges_lehmann

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

SMALLEST_LOOK = 20
"""Least number of executions of each condition at the first look."""


def looked_level(level: float, factor: int) -> float:
    """The level of an interval whose error, 1 - ``level``, is divided by ``factor`` because of looks."""
    return float(1 - error_rate(level) / factor)


class StopReason(StrEnum):
    """Reason for the decision of a look."""

    GO_ON = "go-on"
    TARGET_MET = "target-met"
    MAXIMUM_REACHED = "maximum-reached"


@dataclass(frozen=True, slots=True)
class Contrast:
    """A planned comparison, by the names of its conditions."""

    treatment: str
    baseline: str


@dataclass(frozen=True, slots=True)
class PrecisionPlan:
    """The plan, fixed before the first run: when to look, and the target width.

    ``looks`` are rising numbers of whole blocks (one execution of every condition each), the first at least 20; the
    last is the maximum. ``target_relative_half_width`` is half the shift interval's width over the baseline's median
    (0.02 = 2%); for pairs, half the width of the log ratio's interval. ``level`` is the confidence of each contrast's
    interval over all looks together.

    The interval of every look is at ``level_at``: the error 1 - level is divided by the number of looks, so that the
    union bound holds for every stopping rule. The interval is ``Shift.any_shape``, which is also the one to report.
    Without these two rules, coverage on bimodal data falls below 80% (docs/method.md).
    """

    looks: tuple[int, ...]
    target_relative_half_width: float
    level: float = 0.95

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.looks, self.looks[1:], strict=False))
        if not self.looks or not rising or self.looks[0] < SMALLEST_LOOK:
            raise StatsRefusedError(
                Refusal.BAD_PLAN, f"looks {list(self.looks)}: not rising numbers of blocks from {SMALLEST_LOOK} up"
            )
        if not 0 < self.target_relative_half_width < float("inf"):
            raise StatsRefusedError(
                Refusal.BAD_PLAN, f"target relative half-width {self.target_relative_half_width}: not above 0"
            )
        error_rate(self.level)

    @property
    def maximum(self) -> int:
        """Number of executions of each condition at which the study ends in any case."""
        return self.looks[-1]

    def level_at(self, look: int) -> float:
        """Level of every interval that is shown if the study stops at this look; tests use alpha = 1 - level_at."""
        self._index(look)
        return looked_level(self.level, len(self.looks))

    def adjusted_p(self, p: float, look: int) -> float:
        """p times the number of looks, at most 1, to be compared with 1 - ``level`` after a stop at any look."""
        self._index(look)
        return min(1.0, float(Fraction(p) * len(self.looks)))

    def _index(self, look: int) -> int:
        if look not in self.looks:
            raise StatsRefusedError(
                Refusal.NOT_A_PLANNED_LOOK, f"{look} blocks: looks are planned at {list(self.looks)} only"
            )
        return self.looks.index(look)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a look, and the widths that it is based on."""

    stop: bool
    reason: StopReason
    look: int
    level: float
    """Level of the intervals that were judged; also of those to report if this look stops the study."""
    relative_half_width: Mapping[Contrast, float | None] = field(default_factory=dict)
    """Contrast → relative half-width; None if no interval of this level exists (too many failed executions)."""


def decide(
    plan: PrecisionPlan,
    look: int,
    executions: Mapping[str, ArrayLike],
    contrasts: Sequence[Contrast],
    blocks: Mapping[str, ArrayLike] | None = None,
) -> Decision:
    """Decides to stop if every contrast's interval meets the target, or at the plan's maximum.

    ``executions`` contains, for each condition, the execution means of the first ``look`` whole blocks, without failed
    executions. Fewer values than ``look`` are accepted; more are refused, since they cannot be of whole blocks. Only
    widths matter, so the decision does not change if a constant is added to a treatment.

    ``blocks``: the block of each of these executions. The interval is then that of the pairs' ratios. Its half-width on
    the scale of logarithms (0.02 is 2%) does not change if a treatment is multiplied by a constant.
    """
    level = plan.level_at(look)
    if not contrasts:
        raise StatsRefusedError(Refusal.EMPTY, "no contrasts planned")
    widths = {contrast: _relative_half_width(plan, look, executions, contrast, blocks) for contrast in contrasts}
    if all(width is not None and width <= plan.target_relative_half_width for width in widths.values()):
        reason = StopReason.TARGET_MET
    elif look == plan.maximum:
        reason = StopReason.MAXIMUM_REACHED
    else:
        reason = StopReason.GO_ON
    return Decision(reason is not StopReason.GO_ON, reason, look, level, widths)


def _relative_half_width(
    plan: PrecisionPlan,
    look: int,
    executions: Mapping[str, ArrayLike],
    contrast: Contrast,
    blocks: Mapping[str, ArrayLike] | None,
) -> float | None:
    samples = []
    for name in (contrast.treatment, contrast.baseline):
        if name not in executions:
            raise StatsRefusedError(Refusal.INCOMPLETE_BLOCKS, f"no executions of condition {name!r}")
        sample = np.asarray(executions[name], dtype=np.float64)
        if sample.size > look:
            raise StatsRefusedError(
                Refusal.INCOMPLETE_BLOCKS,
                f"condition {name!r} has {sample.size} executions at the look after {look} whole blocks",
            )
        if sample.size < SMALLEST_LOOK:
            return None
        samples.append(one_sample(sample, name))
    treatment, baseline = samples
    reference = float(np.median(baseline))
    if reference <= 0:
        raise StatsRefusedError(
            Refusal.BASELINE_NOT_POSITIVE, f"median of {contrast.baseline!r} is {reference:g}: no relative width exists"
        )
    if blocks is not None:
        labels = [np.asarray(blocks[name]) for name in (contrast.treatment, contrast.baseline)]
        pairs = pairs_of(treatment, baseline, treatment_blocks=labels[0], baseline_blocks=labels[1])
        ratio = paired_ratio(pairs, level=plan.level_at(look)).any_shape
        return None if isinstance(ratio, NotAchievable) else (log1p(ratio.high / 100) - log1p(ratio.low / 100)) / 2
    interval = hodges_lehmann(treatment, baseline, level=plan.level_at(look)).any_shape
    return None if isinstance(interval, NotAchievable) else interval.half_width / reference
