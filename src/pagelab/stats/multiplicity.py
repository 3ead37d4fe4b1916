"""Holm's step-down correction over a planned family of contrasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagelab.stats.refusal import Refusal, StatsRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Holm:
    """Adjusted p-values in the order of the input; None for planned contrasts that could not be tested."""

    adjusted: tuple[float | None, ...]
    family: int
    """Size of the planned family, untestable contrasts included."""
    alpha: float
    rejected: tuple[bool, ...]


def holm(p_values: Sequence[float | None], *, alpha: float = 0.05) -> Holm:
    """Adjusts p-values: p_(i) = min(1, max over j <= i of (k - j + 1) p_(j)) (Holm 1979); controls the familywise rate.

    Valid under any dependence between the tests (contrasts share their baseline). The control is strong. ``None`` marks
    a planned contrast without a p-value (a condition failed). It stays in the family as p = 1, because a family that
    shrinks with the results would be chosen by the results.
    """
    if not 0.0 < alpha < 1.0:
        raise StatsRefusedError(Refusal.LEVEL_OUT_OF_RANGE, f"alpha {alpha}: not between 0 and 1")
    if len(p_values) == 0:
        raise StatsRefusedError(Refusal.EMPTY, "no contrasts planned")
    for index, p in enumerate(p_values):
        if p is not None and not 0.0 <= p <= 1.0:
            raise StatsRefusedError(Refusal.P_OUT_OF_RANGE, f"contrast {index}: p = {p}")
    family = len(p_values)
    filled = [1.0 if p is None else float(p) for p in p_values]
    adjusted = [0.0] * family
    running = 0.0
    for step, index in enumerate(sorted(range(family), key=lambda i: filled[i])):
        running = max(running, min(1.0, (family - step) * filled[index]))
        adjusted[index] = running
    shown = tuple(None if p is None else a for p, a in zip(p_values, adjusted, strict=True))
    return Holm(shown, family, alpha, tuple(a is not None and a <= alpha for a in shown))
