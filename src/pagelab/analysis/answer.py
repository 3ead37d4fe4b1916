"""What is said of one comparison of pairs: lower, higher, the same; or that it cannot be told, and what would do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, expm1, log1p
from statistics import NormalDist
from typing import Literal

from pagelab.analysis import wording
from pagelab.analysis.model import Interval, Metric
from pagelab.stats.paired import FEWEST_PAIRS

NEGLIGIBLE = 0.03
"""Changes within this are called the same: what a page size, a flag or a patch is seldom chosen for."""
POWER = 0.8
"""Chance with which a change "would be seen"."""
Said = Literal["lower", "higher", "same", "cannot-tell"]
"""One rule: ``lower`` and ``higher`` where the test rejects after Holm; ``same`` where it does not and the whole
interval is within ``NEGLIGIBLE``; else ``cannot-tell``."""


@dataclass(frozen=True)
class Answer:
    said: Said
    change: float | None
    """Ratio of pairs less 1."""
    interval: Interval | None
    p: float | None
    """After Holm over the family."""
    pairs: int
    seen: float | None
    """The smallest change that so many pairs would show in four of five studies."""
    needed: int | None
    """Executions of each condition for an interval of ± ``NEGLIGIBLE``."""


def answer_of(
    change: float | None,
    interval: Interval | None,
    p: float | None,
    pairs: int,
    *,
    level: float,
    family: int = 1,
) -> Answer:
    """``change`` and ``interval`` are fractions; ``p`` is Holm's, over ``family`` comparisons."""
    if change is None or interval is None or p is None or pairs < FEWEST_PAIRS:
        return Answer("cannot-tell", change, interval, p, pairs, None, None)
    width = (log1p(interval.high) - log1p(interval.low)) / 2
    normal = NormalDist()
    alpha = 1 - level
    reach = (normal.inv_cdf(1 - alpha / family / 2) + normal.inv_cdf(POWER)) / normal.inv_cdf(1 - alpha / 2)
    seen = expm1(width * reach)
    needed = max(FEWEST_PAIRS, ceil(pairs * (width / log1p(NEGLIGIBLE)) ** 2))
    if p <= alpha * (1 + 1e-12) and change != 0:
        said: Said = "lower" if change < 0 else "higher"
    else:
        said = "same" if max(abs(interval.low), abs(interval.high)) <= NEGLIGIBLE else "cannot-tell"
    return Answer(said, change, interval, p, pairs, seen, needed)


def words(found: Answer, metric: Metric) -> str:
    """``45.6% slower``, ``same within ±1.2%``, ``cannot tell: under 12% would not be seen``."""
    if found.said in ("lower", "higher") and found.change is not None:
        names = ("faster", "slower") if metric.kind == "time" else ("lower", "higher")
        if found.change >= 2:
            return f"{wording.digits(1 + found.change)} times as {'long' if metric.kind == 'time' else 'high'}"
        size = "under 0.01%" if abs(found.change) < 5e-5 else wording.percent(abs(found.change), signed=False)
        return f"{size} {names[found.said == 'higher']}"
    if found.said == "same" and found.interval is not None:
        return f"same within ±{_about(max(abs(found.interval.low), abs(found.interval.high)))}"
    if found.seen is None:
        return f"cannot tell: {wording.count(found.pairs, 'pair')}, {FEWEST_PAIRS} are the fewest"
    return f"cannot tell: under {_about(found.seen)} would not be seen"


def _about(fraction: float) -> str:
    """Two digits."""
    return f"{wording.digits(100 * fraction, 2)}%"


def span(interval: Interval) -> str:
    """``44.2–47.1%`` of sizes on one side, else with signs."""
    if interval.low > 0 and interval.high < 10:
        low = wording.percent(interval.low, signed=False).rstrip("%")
        return f"{low}–{wording.percent(interval.high, signed=False)}"
    if interval.high < 0:
        low, high = (wording.percent(abs(end), signed=False) for end in (interval.high, interval.low))
        return f"{low.rstrip('%')}–{high}"
    return wording.interval_percent(interval)


def sentence(found: Answer, metric: Metric, treatment: str, baseline: str) -> str:
    """``B is 45.6% slower than A``; ``B against A: same within ±1.2%``."""
    said = words(found, metric)
    lead = "" if metric.kind == "time" else f"{metric.label}: "
    if found.said not in ("lower", "higher"):
        return f"{lead}{treatment} against {baseline}: {said}"
    than = "as" if " times as " in said else "than"
    return f"{lead}{treatment} {'takes' if said.endswith('as long') else 'is'} {said} {than} {baseline}"


def facts(found: Answer) -> list[str]:
    """The interval, the number of pairs and p, each where it exists."""
    shown = [f"{wording.level(found.interval.level)} interval {span(found.interval)}"] if found.interval else []
    shown.append(wording.count(found.pairs, "pair"))
    return shown + ([wording.p_value(found.p)] if found.p is not None else [])


def more(found: Answer, seconds_a_block: float | None, command: Callable[[int], str]) -> str | None:
    """``±3% needs 155 executions (11 min): COMMAND``; None where nothing is missing."""
    if found.said != "cannot-tell":
        return None
    needed = found.needed or 2 * FEWEST_PAIRS
    from pagelab.study.progress import shown_duration

    long = f" ({shown_duration(needed * seconds_a_block)})" if seconds_a_block is not None else ""
    aim = f"±{100 * NEGLIGIBLE:g}% needs" if found.needed else "an answer needs at least"
    return f"{aim} {wording.count(needed, 'execution')} of each{long}: {command(needed)}"
