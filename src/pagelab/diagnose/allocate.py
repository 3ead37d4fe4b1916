"""Division of a time budget: blocks of the exploration, executions of the confirmation, and a sufficient budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, log, sqrt
from typing import TYPE_CHECKING

from pagelab.errors import BadInputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXPLORE_SHARE = 0.6
"""The exploration's share of what the pilot leaves of the budget; the confirmation gets the rest."""
FEWEST_BLOCKS = 8
MOST_BLOCKS = 100
FEWEST_CONFIRMED = 15
MOST_CONFIRMED = 2000
PILOT_RUNS = 6
PROBE_SHARE = 0.25
"""Of the budget, at most: the pilot and one execution of every condition, unless they are brief."""
_BRIEF_S = 30.0
"""So long they may take all of the budget: a refusal then knows what every condition costs."""
_PINNING_S = 0.2
"""What a pin adds to an execution, at most, as a refusal before the probe assumes: frames, dropped files, touched
memory. Only short programs have it in their estimates."""
_POWER = 0.8
_KURTOSIS = 5.0
"""Of run times, as planning assumes it: between the normal's 3 and the exponential's 9."""
_LEAST_KURTOSIS = 3.0
"""A lower estimate than the normal's kurtosis is raised to it: perhaps no slow execution was seen."""
_LEAST_KEPT = 0.5
"""Of the observed effect, planning assumes at least this share: the effect was chosen because it looked large."""
_RARE_MODE = 60
"""Executions in which a slow mode of 1 in 10 occurs about six times; fewer executions may all miss it."""


@dataclass(frozen=True)
class Allocation:
    """The plan of an exploration."""

    values: int
    """Pinned values of each drawn source."""
    blocks: int
    wanted_blocks: int
    wanted_minutes: float | None
    """A budget for ``wanted_blocks``; None where this one has them."""


def wanted_blocks(family: int, copies: int, level: float) -> int:
    """Blocks with which a source of one pinned value that halves the spread is found with a probability of 80%.

    Var(log SD ratio) = (κ - 1)/4 · (1/(n·copies) + 1/n), κ = 5 (Miller 1968, to first order), against a two-sided test
    at (1 - level) / family. Simulated at those 40 blocks of 15 tests: 85% for normal times, 45% for log-normal ones of
    σ = 0.5. Sources of several values need fewer.
    """
    from scipy.special import ndtri

    reach = float(ndtri(1 - (1 - level) / family / 2)) + float(ndtri(_POWER))
    return ceil((_KURTOSIS - 1) / 4 * (1 + 1 / copies) * (reach / log(2)) ** 2)


def allocate(
    minutes: float,
    spent_s: float,
    cost_s: Mapping[str, float],
    drawn: Sequence[Sequence[str]],
    copies: int,
    wanted: int,
) -> Allocation:
    """The largest exploration that the budget allows: first all values of the drawn sources, then fewer of them.

    ``cost_s``: of one execution of each condition, ``default`` included; ``drawn``: names of the pins of each drawn
    source. Raises BadInputError where not even two values and 8 blocks fit; it says which budget would do.
    """
    most = max((len(names) for names in drawn), default=1)
    available_s = EXPLORE_SHARE * max(0.0, 60 * minutes - spent_s)
    for values in range(most, min(2, most) - 1, -1):
        block_s = _block_s(cost_s, drawn, copies, values)
        blocks = min(int(available_s / block_s), MOST_BLOCKS)
        if blocks >= FEWEST_BLOCKS:
            enough = blocks >= wanted
            full_s = _block_s(cost_s, drawn, copies, most)
            return Allocation(values, blocks, wanted, None if enough else _minutes(spent_s, full_s * wanted))
    least = _minutes(spent_s, FEWEST_BLOCKS * _block_s(cost_s, drawn, copies, min(2, most)))
    full = _minutes(spent_s, wanted * _block_s(cost_s, drawn, copies, most))
    raise too_small(minutes, least, full)


class TooSmallError(BadInputError):
    """The budget is too small; ``minutes`` is the least that would do."""

    def __init__(self, message: str, minutes: float) -> None:
        super().__init__(message)
        self.minutes = minutes


def too_small(minutes: float, least: float, full: float) -> TooSmallError:
    """The error of a budget that is too small for any answer."""
    return TooSmallError(
        f"--minutes {minutes:g} is too little for this program: {_minutes_text(least)} may find what makes most of "
        f"the spread, {full:g} would do well",
        least,
    )


def _minutes_text(minutes: float) -> str:
    return f"{minutes:g} minute" if minutes == 1 else f"{minutes:g} minutes"


def _block_s(cost_s: Mapping[str, float], drawn: Sequence[Sequence[str]], copies: int, values: int) -> float:
    left_out = {name for names in drawn for name in names[values:]}
    others = sum(cost for name, cost in cost_s.items() if name not in left_out and name != "default")
    return copies * cost_s["default"] + others


def _minutes(spent_s: float, exploration_s: float) -> float:
    """A budget, in whole minutes, that leaves this much for the exploration; a fifth more, since costs vary."""
    return float(ceil((spent_s + exploration_s / EXPLORE_SHARE) / 60 * 1.2))


def before_probing(minutes: float, run_s: float, conditions: int, wanted: int) -> None:
    """Raises TooSmallError where the pilot and one execution of every condition exceed their share of the budget.

    Otherwise the probe shows what each condition costs, and :func:`allocate` judges the budget by that.
    """
    if (PILOT_RUNS + conditions) * run_s <= max(PROBE_SHARE * 60 * minutes, min(60 * minutes, _BRIEF_S)):
        return
    each_s = run_s + _PINNING_S
    spent_s = (PILOT_RUNS + conditions) * each_s
    least, full = (_minutes(spent_s, blocks * conditions * each_s) for blocks in (FEWEST_BLOCKS, wanted))
    raise too_small(minutes, least, full)


@dataclass(frozen=True)
class Effect:
    """A difference of spreads as the exploration saw it, from which the confirmation is sized."""

    log_ratio: float
    """Log of the ratio of standard deviations, pinned over control."""
    error: float
    """Of ``log_ratio`` in the exploration."""
    per_execution: float
    """Variance of the log ratio of one execution of each; of n: this over n (Miller 1968)."""
    alpha: float

    @classmethod
    def of(cls, control: NDArray[np.float64], pinned: NDArray[np.float64], alpha: float) -> Effect:
        """Both arrays hold log times, conditions × blocks."""
        spreads, variances, kurtoses = [], [], []
        for rows in (control, pinned):
            centred = rows - rows.mean(axis=1, keepdims=True)
            variance = max(float((centred**2).sum()) / (rows.shape[0] * (rows.shape[1] - 1)), 1e-18)
            kurtosis = max(float((centred**4).mean()) / variance**2, _LEAST_KURTOSIS)
            spreads.append(log(variance) / 2)
            kurtoses.append((kurtosis - 1) / 4)
            variances.append(kurtoses[-1] / rows.size)
        return cls(spreads[1] - spreads[0], sqrt(sum(variances)), sum(kurtoses), alpha)

    @property
    def removed(self) -> float:
        """Share of the variance that pinning removes."""
        return 1 - exp(2 * self.log_ratio)

    def executions(self) -> int:
        """How many of each find the effect with a probability of 80%, two-sided, at α/2: two statistics are tested.

        The effect was chosen because it looked large and probably is smaller, so the lower end of its one-sided 95%
        interval is planned for, but no less than half of it.
        """
        from scipy.special import ndtri

        size = abs(self.log_ratio)
        size = max(_LEAST_KEPT * size, size - float(ndtri(0.95)) * self.error)
        if size == 0:
            return MOST_CONFIRMED
        reach = float(ndtri(1 - self.alpha / 4)) + float(ndtri(_POWER))
        return max(_RARE_MODE, min(10**9, ceil(self.per_execution * (reach / size) ** 2)))

    def power(self, executions: int) -> float:
        """Probability that this number of each confirms an effect as large as the observed one."""
        from scipy.special import ndtr, ndtri

        error = sqrt(self.per_execution / executions)
        return float(ndtr(abs(self.log_ratio) / error - float(ndtri(1 - self.alpha / 4))))

    def of_half(self) -> Effect:
        """The effect that removes half as much of the variance."""
        return replace(self, log_ratio=log(1 - self.removed / 2) / 2, error=0.0)


def confirmation_runs(left_s: float, block_s: float, needed: int) -> int:
    """Number of confirming executions: ``needed``, within the remaining budget and the limits above."""
    affordable = int(left_s / block_s) if block_s > 0 else MOST_CONFIRMED
    return max(FEWEST_CONFIRMED, min(needed, affordable, MOST_CONFIRMED))


def for_mean(sds: tuple[float, float], mean: float, unchanged: float, level: float) -> int:
    """Executions of each that show a mean to be unchanged.

    ``unchanged``: the largest shift, as a share of the mean, that counts as none. The interval's half-width is 0.6 of
    it, which leaves 0.4 for the shift itself.
    """
    from scipy.special import ndtri

    half = 0.6 * unchanged * mean
    reach = float(ndtri((1 + level) / 2)) * sqrt(sds[0] ** 2 + sds[1] ** 2)
    return max(FEWEST_CONFIRMED, ceil((reach / half) ** 2)) if half > 0 else MOST_CONFIRMED
