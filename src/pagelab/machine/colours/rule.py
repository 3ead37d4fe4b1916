"""Judges measured chains by the rule of docs/doctor.md; simulations test the rule.

For each chain length, the two kinds are measured next to each other in every round, in random order. The median of the
rounds' ratios has an exact order-statistic interval. Without an effect, both kinds are equally likely to be the slower
one in a round. So the interval misses 1 in at most 5% of all measurements, for any noise of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...stats import Interval, median_interval
from . import masks
from .model import Chase, Kind, Ratio, Verdict

LEVEL = 0.95
EFFECT = 1.10
"""The smallest ratio that counts as an effect; a smaller one would hardly slow a program."""
LOW_BITS = 0.9
"""The low bits are taken as the index if at least this share of conflicting pages has one nominal colour."""

Answer = Literal["slower", "alike", "unclear"]


@dataclass(frozen=True)
class Judged:
    """The verdict on one cache, its reason, and the masks that separate conflicting pages."""

    verdict: Verdict
    reason: str
    masks: tuple[int, ...] = ()


def ratios(chase: Chase, level: float = LEVEL) -> list[Ratio]:
    """Ratios of chains of one colour, and of conflicting pages, to the spread chain of the same length and round."""
    times: dict[tuple[int, Kind], dict[int, float]] = {}
    for one in chase.samples:
        times.setdefault((one.chain_pages, one.kind), {})[one.round] = one.ns_per_load
    found = []
    for pages, kind in sorted(times):
        spread, other = times.get((pages, "spread"), {}), times[pages, kind]
        rounds = sorted(spread.keys() & other.keys())
        if kind == "spread" or not rounds:
            continue
        found.append(_ratio(chase, kind, pages, [other[r] for r in rounds], [spread[r] for r in rounds], level))
    return found


def _ratio(
    chase: Chase, kind: Literal["same", "conflict"], pages: int, other: list[float], spread: list[float], level: float
) -> Ratio:
    location = median_interval(np.array(other) / np.array(spread), level=level)
    interval = location.interval if isinstance(location.interval, Interval) else None
    return Ratio(
        kind=kind,
        chain_pages=pages,
        fits="yes" if 2 * pages <= chase.ways else "no" if pages >= 2 * chase.ways else "just",
        median=location.estimate,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        level=level,
        rounds=len(other),
        ns_per_load=float(np.median(other)),
        spread_ns_per_load=float(np.median(spread)),
    )


def compare(found: Sequence[Ratio], kind: Literal["same", "conflict"]) -> Answer:
    """``slower``: slower at every length that does not fit, and at none that fits; ``alike``: no effect of
    :data:`EFFECT` or more at any length that does not fit; else ``unclear``.

    All lengths must agree, so more lengths do not make a false verdict more likely.
    """
    conflicting = [one for one in found if one.kind == kind and one.fits == "no"]
    fitting = [one for one in found if one.kind == kind and one.fits == "yes"]
    if not conflicting:
        return "unclear"
    if all(one.low is not None and one.low > EFFECT for one in conflicting):
        return "unclear" if any(one.low is not None and one.low > EFFECT for one in fitting) else "slower"
    if all(one.high is not None and one.high < EFFECT for one in conflicting):
        return "alike"
    return "unclear"


def judge_first(chase: Chase, found: Sequence[Ratio], *, virtual: bool) -> Judged:
    """The verdict on the cache in which conflicting pages were searched by timing."""
    same = compare(found, "same")
    if same == "slower":
        return Judged(Verdict.EFFECTIVE, "chains of one colour are slower than spread ones where they exceed the ways")
    if same == "unclear":
        return Judged(Verdict.INCONCLUSIVE, f"chains of one colour are neither clearly slower nor clearly alike{_why}")
    if not chase.classes or compare(found, "conflict") != "slower":
        return Judged(
            Verdict.INCONCLUSIVE,
            "chains of one colour are as fast as spread ones, but no pages that do conflict were found by timing, so "
            f"this measurement could not have seen an effect{_why}",
        )
    if masks.purity(chase.classes, chase.colours) >= LOW_BITS:
        return Judged(Verdict.INCONCLUSIVE, f"pages that conflict share their colour, yet no chain was slower{_why}")
    tried = "chains of one colour are as fast as spread ones; pages that do conflict exist"
    explaining = masks.explaining(chase.classes, chase.candidates)
    if explaining:
        return Judged(Verdict.HASHED, f"{tried}, and XORs of frame-number bits tell which", tuple(explaining))
    if virtual:
        return Judged(Verdict.SCATTERED, f"{tried}, and no XOR of frame-number bits tells which")
    return Judged(Verdict.HASHED, f"{tried}, but no XOR of frame-number bits that was tried tells which")


def judge_further(found: Sequence[Ratio], first: Verdict) -> Judged:
    """The verdict on a cache beyond the first; from the first one it is known whether frame numbers mean anything."""
    same = compare(found, "same")
    if same == "slower":
        return Judged(Verdict.EFFECTIVE, "chains of one colour are slower than spread ones where they exceed the ways")
    if same == "unclear":
        return Judged(Verdict.INCONCLUSIVE, f"chains of one colour are neither clearly slower nor clearly alike{_why}")
    if first is Verdict.SCATTERED:
        return Judged(first, "chains of one colour are as fast as spread ones; the cache above shows why")
    if first is Verdict.INCONCLUSIVE:
        return Judged(first, "chains of one colour are as fast as spread ones, and the cache above does not tell why")
    return Judged(
        Verdict.HASHED,
        "frame numbers reach the cache above, but here chains of one colour are as fast as spread ones: its sets are "
        "chosen by a hash of the address",
    )


def confirmed(judged: Judged, with_masks: Sequence[Ratio], *, virtual: bool) -> Judged:
    """The verdict after chains of one colour under the masks were measured; masks without an effect are dropped."""
    if compare(with_masks, "same") == "slower":
        return Judged(
            judged.verdict, f"{judged.reason}; chains of one colour under these masks are slower", judged.masks
        )
    verdict = Verdict.SCATTERED if virtual else Verdict.HASHED
    return Judged(verdict, f"{judged.reason}, but chains of one colour under these masks are no slower")


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """The machine's verdict: the best of its caches' verdicts."""
    order = (Verdict.EFFECTIVE, Verdict.HASHED, Verdict.SCATTERED)
    return next((verdict for verdict in order if verdict in verdicts), Verdict.INCONCLUSIVE)


_why = "; a quieter machine or more rounds may help: pagelab doctor --probe-colours --rounds 200"
