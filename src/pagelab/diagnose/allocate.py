"""How a time budget is divided: blocks of the exploration, executions of the confirmation, and what would be enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log, sqrt

from pagelab.errors import BadInputError

EXPLORE_SHARE = 0.6
"""Of what is left of the budget after the pilot; the rest confirms."""
FEWEST_BLOCKS = 8
MOST_BLOCKS = 100
FEWEST_CONFIRMED = 15
MOST_CONFIRMED = 2000
PILOT_RUNS = 6
PROBE_SHARE = 0.25
_POWER = 0.8
_KURTOSIS = 5.0
"""Assumed of run times when planning: between the normal's 3 and the exponential's 9."""


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
        if blocks >= FEWEST_BLOCKS or (values == min(2, most) and blocks >= FEWEST_BLOCKS):
            enough = blocks >= wanted
            full_s = _block_s(cost_s, drawn, copies, most)
            return Allocation(values, blocks, wanted, None if enough else _minutes(spent_s, full_s * wanted))
    least = _minutes(spent_s, FEWEST_BLOCKS * _block_s(cost_s, drawn, copies, min(2, most)))
    full = _minutes(spent_s, wanted * _block_s(cost_s, drawn, copies, most))
    raise too_small(minutes, least, full)


def too_small(minutes: float, least: float, full: float) -> BadInputError:
    """The budget is too small for any answer."""
    return BadInputError(
        f"--minutes {minutes:g} is too little for this program: {_minutes_text(least)} would find what makes most of "
        f"the spread, {full:g} would do well; run: pagelab diagnose --minutes {full:g} -- CMD"
    )


def _minutes_text(minutes: float) -> str:
    return f"{minutes:g} minute" if minutes == 1 else f"{minutes:g} minutes"


def _block_s(cost_s: Mapping[str, float], drawn: Sequence[Sequence[str]], copies: int, values: int) -> float:
    left_out = {name for names in drawn for name in names[values:]}
    others = sum(cost for name, cost in cost_s.items() if name not in left_out and name != "default")
    return copies * cost_s["default"] + others


def _minutes(spent_s: float, exploration_s: float) -> float:
    """A budget, in whole minutes, that leaves so much for the exploration."""
    return float(ceil((spent_s + exploration_s / EXPLORE_SHARE) / 60 * 1.05))


def before_probing(minutes: float, run_s: float, conditions: int, wanted: int) -> None:
    """Raises BadInputError where starting every condition once would take more than its share of the budget."""
    if (PILOT_RUNS + conditions) * run_s <= PROBE_SHARE * 60 * minutes:
        return
    spent_s = (PILOT_RUNS + conditions) * run_s
    least = max(spent_s / 60 / PROBE_SHARE, (spent_s + FEWEST_BLOCKS * conditions * run_s / EXPLORE_SHARE) / 60)
    full = max(spent_s / 60 / PROBE_SHARE, (spent_s + wanted * conditions * run_s / EXPLORE_SHARE) / 60)
    raise too_small(minutes, float(ceil(least * 1.05)), float(ceil(full * 1.05)))


def confirmation_runs(left_s: float, pair_s: float, sds: tuple[float, float], mean: float, unchanged: float) -> int:
    """Executions of each of the two: as many as tell an unchanged mean, within what is left of the budget."""
    affordable = int(left_s / pair_s) if pair_s > 0 else MOST_CONFIRMED
    needed = for_mean(sds, mean, unchanged)
    return max(FEWEST_CONFIRMED, min(needed, affordable, MOST_CONFIRMED))


def for_mean(sds: tuple[float, float], mean: float, unchanged: float, level: float = 0.95) -> int:
    """Executions of each for an interval of the shift of half-width 0.6 · unchanged: 0.4 is left for a shift."""
    from scipy.special import ndtri

    half = 0.6 * unchanged * mean
    reach = float(ndtri((1 + level) / 2)) * sqrt(sds[0] ** 2 + sds[1] ** 2)
    return max(FEWEST_CONFIRMED, ceil((reach / half) ** 2)) if half > 0 else MOST_CONFIRMED
