"""Reads limits (``--fail-if "mean>3%"``) and judges them."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, sqrt
from statistics import NormalDist
from typing import Literal

from pagelab.analysis import wording
from pagelab.analysis.answer import Answer, fewest_of
from pagelab.analysis.limits import Limit
from pagelab.errors import BadInputError
from pagelab.stats import Interval as Ends
from pagelab.stats import NotAchievable, PairedRatio, Pairs, signed_rank
from pagelab.stats.nondeterminism import Changes, Metric, Refused
from pagelab.stats.nondeterminism.exchange import Exchanged
from pagelab.stats.paired_mean import Flipped, MeanRatio, flipped

Outcome = Literal["pass", "fail", "inconclusive"]

METRICS: dict[str, Metric | Literal["ratio"]] = {
    "ratio": "ratio",
    "mean": Metric.MEAN,
    "measurement": Metric.MEASUREMENT,
    "unclassified": Metric.UNCLASSIFIED,
    "execution": Metric.EXECUTION,
}
"""Names of the metrics in expressions."""
_EXPRESSION = re.compile(r"\s*([a-z]+)\s*([<>])\s*([+-]?\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True)
class Gate:
    """One limit, as an expression gives it."""

    text: str
    metric: Metric | Literal["ratio"]
    """``ratio``: the ratio within pairs, where two commands were interleaved."""
    above: bool
    """True: the gate fails above the limit (``>``); False: below it."""
    limit_percent: float


@dataclass(frozen=True)
class Lost:
    """Executions without a value for one reason, and all executions, of each side."""

    why: Literal["timed out", "failed"]
    a: tuple[int, int] = (0, 1)
    b: tuple[int, int] = (0, 1)

    @property
    def any(self) -> bool:
        return self.a[0] > 0 or self.b[0] > 0

    def more(self, side: Literal["A", "B"]) -> bool:
        """Whether a greater share of this side's executions is lost."""
        mine, other = (self.a, self.b) if side == "A" else (self.b, self.a)
        return mine[0] * other[1] > other[0] * mine[1]

    def __str__(self) -> str:
        """``11 of 24 executions of B timed out, and none of A``."""
        (first, second), (one, other) = ("B", "A"), (self.b, self.a)
        if self.more("A"):
            (first, second), (one, other) = ("A", "B"), (self.a, self.b)
        rest = f"{other[0]} of {other[1]}" if other[0] else "none"
        return f"{one[0]} of {one[1]} executions of {first} {self.why}, and {rest} of {second}"


@dataclass(frozen=True)
class InPairs:
    """B against A within blocks of one execution of each command."""

    pairs: Pairs
    """All pairs; those with a time-out are in the test, and in no size."""
    answer: Answer
    """The answer on the ratio within pairs, at the level of the comparison."""
    ratio: PairedRatio | None
    """None where no pair finished, or a value is zero or negative."""
    mean: MeanRatio | str
    """The change of the mean, or why there is none. It and the attribute before it are at the level of the gates."""
    any_shape: bool
    """Whether the interval is the any-shape one, as in every study with a precision stop: its looks judged that one."""
    narrower: float | None
    """Spread of the differences within pairs, divided by that between executions of different blocks: below 1 where
    blocks help."""
    seconds_a_block: float | None
    late: tuple[int, int] = (0, 0)
    """Executions of A and of B in these pairs that timed out, where the test counts them as slowest."""
    failed: Lost = Lost("failed")
    """Of all executions: they are in no pair."""

    @property
    def ends(self) -> Ends | NotAchievable | None:
        """The interval of the ratio that is compared with limits, in percent; None where there is no ratio."""
        if self.ratio is None:
            return None
        return self.ratio.any_shape if self.any_shape else self.ratio.interval


@dataclass(frozen=True)
class Judgement:
    """The judgement of a gate on one condition."""

    gate: Gate
    condition: str
    outcome: Outcome
    reason: str
    needed: int | None = None
    """Executions of each command that would decide an inconclusive gate if the change stays the same."""

    def as_limit(self) -> Limit:
        """The judgement as a :class:`Limit`, to be stored with the study."""
        ratio = self.gate.limit_percent / 100 if self.gate.metric == "ratio" else None
        return Limit(self.gate.text, self.outcome, ratio, self.needed)


def parse_gate(text: str) -> Gate:
    """Reads ``METRIC>LIMIT%`` or ``METRIC<LIMIT%``; anything else is bad input."""
    found = _EXPRESSION.fullmatch(text)
    if found is None or found[1] not in METRICS:
        raise BadInputError(
            f'--fail-if "{text}": not understood; write METRIC>LIMIT%, METRIC one of {", ".join(METRICS)}; '
            'for example: --fail-if "mean>3%"'
        )
    if float(found[3]) <= -100 and found[1] == "ratio":
        raise BadInputError(f'--fail-if "{text}": nothing falls by 100% or more')
    return Gate(text.strip(), METRICS[found[1]], found[2] == ">", float(found[3]))


_MORE_TIME = "give them more time (--timeout; of a study: timeout in its study.toml)"


def judge(
    gate: Gate,
    condition: str,
    found: Changes | str,
    level: float,
    in_pairs: InPairs | None = None,
    seed: int = 1,
    late: Lost | None = None,
    failed: Lost | None = None,
) -> Judgement:
    """Judges a gate. ``found`` is a text where the data were refused; ``late``: the executions that timed out.

    Time-outs count as slowest in the ratio of pairs. They are in no other number, so an outcome that they may hide is
    inconclusive: a pass where more of the slower side timed out, which includes the ratio, and a failure where more of
    the other side did. Nothing passes where more of B failed than of A: it works less well, however fast it is.
    """
    late, failed = late or Lost("timed out"), failed or Lost("failed")
    made = _judge(gate, condition, found, level, in_pairs, seed)
    slow: Literal["A", "B"] = "B" if gate.above else "A"
    fast: Literal["A", "B"] = "A" if gate.above else "B"
    hidden = made.outcome == "pass" and late.more(slow)
    hidden |= made.outcome == "fail" and gate.metric != "ratio" and late.more(fast)
    if hidden:
        reason = f"{late}, and what finished does not show how slow {slow if late.more(slow) else fast} is"
        return Judgement(gate, condition, "inconclusive", f"{reason}; {_MORE_TIME}")
    if made.outcome == "pass" and failed.more("B"):
        return Judgement(gate, condition, "inconclusive", f"{failed}, and only those that ended well are compared")
    return made


def _judge(
    gate: Gate, condition: str, found: Changes | str, level: float, in_pairs: InPairs | None, seed: int
) -> Judgement:
    """Judges a gate: it fails where the whole interval of the change is beyond the limit *and* the permutation test at
    the limit rejects.

    It passes where none of the interval is beyond the limit and the test rejects the other way; else it is
    inconclusive. The interval shows the size. The test keeps the level where the interval is only approximate (rare
    modes, unequal numbers). With pairs, both are computed within them.
    """
    if in_pairs is not None and gate.metric == "ratio" and any(in_pairs.late):
        return _with_time_outs(gate, condition, in_pairs, (1 - level) / 2)
    ends = _interval(gate, found, in_pairs)
    if isinstance(ends, str):
        few = in_pairs is not None and gate.metric == "ratio" and isinstance(in_pairs.ends, NotAchievable)
        enough = _of_all(gate, in_pairs, fewest_of("pairs", 1 - level)) if few else None
        return Judgement(gate, condition, "inconclusive", ends, enough)
    limit = gate.limit_percent
    low, middle, high = (limit if abs(end - limit) <= _ROUNDING * (100 + abs(limit)) else end for end in ends)
    if low == limit == high:
        return Judgement(gate, condition, "inconclusive", f"the whole interval is at the limit: {_ANOTHER}")
    executions, tail = _executions(found, in_pairs), (1 - level) / 2
    if not gate.above:
        low, middle, high, limit = -high, -middle, -low, -limit
    if low <= limit < high:
        half = high - middle if middle < limit else middle - low
        paired = in_pairs is not None and gate.metric in ("ratio", Metric.MEAN)
        needed = max(
            executions,
            fewest_of("pairs" if paired else "rank-sum", 2 * tail),
            _narrow_enough(executions, half, abs(middle - limit), tail, paired=paired),
        )
        needed = _of_all(gate, in_pairs, needed)
        return _undecided(gate, condition, "the limit lies inside the interval", needed)
    if gate.limit_percent > -100:
        test = _exchanged(gate, found, in_pairs, tail, seed)
        p = test.higher if (low > limit) == gate.above else test.lower
        if p > tail:
            tied = None if in_pairs is None or gate.metric != "ratio" else _at_limit(in_pairs, test, tail)
            if tied is not None:
                return Judgement(gate, condition, "inconclusive", f"{tied}: {_ANOTHER}")
            return _not_told(gate, condition, executions, p, tail, test, in_pairs)
    if low > limit:
        return Judgement(gate, condition, "fail", "the whole interval is beyond the limit")
    return Judgement(
        gate, condition, "pass", f"the whole interval is within the limit{_modes_not_excluded(executions)}"
    )


def _of_all(gate: Gate, in_pairs: InPairs | None, needed: int) -> int:
    """Executions of each for so many pairs, where some of those that were made have no partner."""
    if in_pairs is None or gate.metric not in ("ratio", Metric.MEAN):
        return needed
    pairs, made = len(in_pairs.pairs), max(in_pairs.failed.a[1], in_pairs.failed.b[1])
    return needed if made <= pairs else max(made + 1, ceil(min(_MOST, needed * made / pairs)))


def _executions(found: Changes | str, in_pairs: InPairs | None) -> int:
    """Executions of each side; the pairs, where the spreads were refused."""
    if isinstance(found, str):
        assert in_pairs is not None
        return len(in_pairs.pairs.finished)
    return int(found.table.executions.min())


def _interval(gate: Gate, found: Changes | str, in_pairs: InPairs | None) -> tuple[float, float, float] | str:
    """Low end, estimate and high end in percent, or why there is none. The two of pairs need no spreads."""
    if in_pairs is not None and gate.metric == "ratio":
        ends = in_pairs.ends
        if in_pairs.ratio is None or ends is None:
            return "a value is zero or negative: no ratio of it exists; judge the mean"
        return str(ends) if isinstance(ends, NotAchievable) else (ends.low, in_pairs.ratio.percent, ends.high)
    if in_pairs is not None and gate.metric is Metric.MEAN:
        mean = in_pairs.mean
        return mean if isinstance(mean, str) else (mean.interval.low, mean.percent, mean.interval.high)
    if isinstance(found, str):
        return found
    if gate.metric == "ratio":
        return "there are no pairs: executions of one of the two failed in every block"
    change = next(change.percent for change in found.changes if change.metric is gate.metric)
    return change.message if isinstance(change, Refused) else (change.interval.low, change.value, change.interval.high)


_ANOTHER = "choose another limit"
_ROUNDING = 1e-9
"""An end of an interval is at the limit where it differs from it by this share of the ratio: by rounding only."""
_MOST = 100_000
"""Most executions of each command that a comparison may have."""


def _undecided(gate: Gate, condition: str, why: str, needed: int) -> Judgement:
    """An inconclusive judgement, with the executions of each command that would decide it."""
    if needed >= _MOST:
        return Judgement(gate, condition, "inconclusive", f"{why}: the change is at the limit; {_ANOTHER}")
    reason = f"{why}: if the change stays what it is, about {needed:,} executions of each decide"
    return Judgement(gate, condition, "inconclusive", reason, needed)


def _narrow_enough(executions: int, half: float, wanted: float, tail: float, *, paired: bool) -> int:
    """Executions of each, more than now, whose interval has a half-width of ``wanted`` where it is ``half`` now.

    It shrinks as Student's quantile over the square root of their number: of few executions faster than the root alone.
    """
    from scipy.special import stdtrit  # heavy: only where it is needed

    def width(number: int) -> float:
        return -float(stdtrit(max(1, number - 1) * (1 if paired else 2), tail)) / sqrt(number)

    more = range(executions + 1, _MOST)
    if half <= 0 or wanted <= 0 or not more:
        return _MOST
    target = width(executions) * wanted / half
    return executions + 1 + bisect_left(more, True, key=lambda number: width(number) <= target)


def _exchanged(
    gate: Gate, found: Changes | str, in_pairs: InPairs | None, tail: float, seed: int
) -> Exchanged | Flipped:
    ratio = 1 + gate.limit_percent / 100
    if gate.metric == "ratio":
        assert in_pairs is not None
        return _of_ratio(in_pairs, ratio)
    if in_pairs is not None and gate.metric is Metric.MEAN:
        return flipped(in_pairs.pairs.finished, ratio, seed=seed, tail=tail)
    assert not isinstance(found, str)
    return found.exchanged(gate.metric, ratio, tail)


def _with_time_outs(gate: Gate, condition: str, found: InPairs, tail: float) -> Judgement:
    """Judges the ratio by the test alone, in which time-outs are slower than all that finished: no interval has them.

    With values of zero or less there is no ratio, but where one of each pair timed out, there is a direction.
    """
    finished, n = found.pairs.finished, len(found.pairs)
    told = wording.listing(
        [f"{late} of {n} executions of {side}" for side, late in zip("AB", found.late, strict=True) if late]
    )
    if len(finished) and finished.scale != "ratio":
        reason = "a value is zero or negative: no ratio of it exists"
        return Judgement(gate, condition, "inconclusive", f"{reason}, and {told} timed out; {_MORE_TIME}")
    test = _of_ratio(found, 1 + gate.limit_percent / 100)
    beyond, within = (test.higher, test.lower) if gate.above else (test.lower, test.higher)
    counted = f"with time-outs counted as slowest ({told})"
    if beyond <= tail:
        return Judgement(gate, condition, "fail", f"the change is beyond the limit, {counted}")
    if within <= tail:
        return Judgement(gate, condition, "pass", f"the change is within the limit, {counted}")
    return Judgement(gate, condition, "inconclusive", f"{told} timed out, so the size is not known; {_MORE_TIME}")


def _of_ratio(found: InPairs, ratio: float) -> Flipped:
    """The test of the limit; the interval of the ratio is the inversion of this test. Two time-outs tell nothing."""
    apart = found.pairs.apart("ratio", ratio)
    lower, higher = (signed_rank(apart, alternative=side) for side in ("less", "greater"))
    return Flipped(lower.p, higher.p, lower.total, lower.count is not None)


def _at_limit(found: InPairs, test: Exchanged | Flipped, tail: float) -> str | None:
    """``8 of 12 pairs are at the limit``, where the test could reject without these ties; else None."""
    n = len(found.pairs)
    if not test.exact or test.choices * tail >= 1 or 2**n * tail < 1:
        return None
    return f"{n + 1 - test.choices.bit_length()} of {n} pairs are at the limit"


def _not_told(
    gate: Gate,
    condition: str,
    executions: int,
    p: float,
    tail: float,
    test: Exchanged | Flipped,
    in_pairs: InPairs | None,
) -> Judgement:
    if test.exact and test.choices * tail < 1:
        needed = _of_all(gate, in_pairs, fewest_of("pairs" if isinstance(test, Flipped) else "rank-sum", 2 * tail))
        few = f"so few executions cannot differ at this level (least p {1 / test.choices:.2g}): run {needed} of each"
        return Judgement(gate, condition, "inconclusive", few, needed)
    normal = NormalDist()
    have, want = (-normal.inv_cdf(min(one, 0.499)) for one in (tail, p))
    told = f"the interval does not hold the limit, but exchanged executions do as well (p = {p:.2g})"
    times = (have / want) ** 2 if want > 0 else _MOST
    needed = _of_all(gate, in_pairs, max(executions + 1, ceil(min(_MOST, executions * times))))
    return _undecided(gate, condition, told, needed)


def _modes_not_excluded(executions: int) -> str:
    """A sentence on slow modes that a pass does not exclude: n executions all miss a mode of share s with probability
    (1 - s)^n.
    """
    share = 1 - 0.05 ** (1 / executions)
    return f"; a slow mode of fewer than 1 in {max(2, int(1 / share))} executions may not have shown"


def overall(judgements: tuple[Judgement, ...]) -> Outcome:
    """The outcome of several judgements: one failure fails all; else one inconclusive judgement makes all so."""
    outcomes = {one.outcome for one in judgements}
    if "fail" in outcomes:
        return "fail"
    return "inconclusive" if "inconclusive" in outcomes else "pass"
