"""``--fail-if "mean>3%"``: what must not change, and whether it did."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pagelab.errors import BadInputError
from pagelab.stats.nondeterminism import Changes, Metric, Refused
from pagelab.stats.nondeterminism.exchange import Exchanged

Outcome = Literal["pass", "fail", "inconclusive"]

METRICS = {
    "mean": Metric.MEAN,
    "measurement": Metric.MEASUREMENT,
    "unclassified": Metric.UNCLASSIFIED,
    "execution": Metric.EXECUTION,
}
"""Names in expressions."""
_EXPRESSION = re.compile(r"\s*([a-z]+)\s*([<>])\s*([+-]?\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True)
class Gate:
    """One expression."""

    text: str
    metric: Metric
    above: bool
    """Fails above the limit (``>``); else below it."""
    limit_percent: float


@dataclass(frozen=True)
class Judgement:
    """What a gate says of one condition."""

    gate: Gate
    condition: str
    outcome: Outcome
    reason: str


def parse_gate(text: str) -> Gate:
    """``METRIC>LIMIT%`` or ``METRIC<LIMIT%``; anything else is bad input."""
    found = _EXPRESSION.fullmatch(text)
    if found is None or found[1] not in METRICS:
        raise BadInputError(
            f'--fail-if "{text}": not understood; write METRIC>LIMIT%, METRIC one of {", ".join(METRICS)}; '
            'for example: --fail-if "mean>3%"'
        )
    return Gate(text.strip(), METRICS[found[1]], found[2] == ">", float(found[3]))


def judge(gate: Gate, condition: str, found: Changes, level: float) -> Judgement:
    """Fail when the whole interval of the change is beyond the limit *and* the permutation test at the limit rejects.

    Pass when none of the interval is beyond it and the test rejects the other way; else inconclusive. The interval
    shows the size; the test holds the level where the interval is only approximate: rare modes, unequal numbers.
    """
    change = next(one.percent for one in found.changes if one.metric is gate.metric)
    if isinstance(change, Refused):
        return Judgement(gate, condition, "inconclusive", change.message)
    low, high = change.interval.low, change.interval.high
    limit = gate.limit_percent
    if not gate.above:
        low, high, limit = -high, -low, -limit
    if low <= limit < high:
        return Judgement(gate, condition, "inconclusive", "the limit lies inside the interval: run more executions")
    tail = (1 - level) / 2
    if gate.limit_percent > -100:
        test = found.exchanged(gate.metric, 1 + gate.limit_percent / 100, tail)
        p = test.higher if (low > limit) == gate.above else test.lower
        if p > tail:
            return Judgement(gate, condition, "inconclusive", _not_told(p, tail, test))
    if low > limit:
        return Judgement(gate, condition, "fail", "the whole interval is beyond the limit")
    executions = int(found.table.executions.min())
    return Judgement(gate, condition, "pass", f"the whole interval is within the limit{_unseen(executions)}")


def _not_told(p: float, tail: float, test: Exchanged) -> str:
    if test.exact and test.choices * tail < 1:
        return f"so few executions cannot be told apart at this level (least p {1 / test.choices:.2g}): run more"
    return f"the interval does not hold the limit, but exchanged executions do as well (p = {p:.2g}): run more"


def _unseen(executions: int) -> str:
    """What a pass cannot speak of: a mode with share s is in none of n executions with probability (1 - s)^n."""
    share = 1 - 0.05 ** (1 / executions)
    return f"; a slow mode of fewer than 1 in {max(2, int(1 / share))} executions may not have shown"


def overall(judgements: tuple[Judgement, ...]) -> Outcome:
    """One failure fails; else one that is inconclusive makes all so."""
    outcomes = {one.outcome for one in judgements}
    if "fail" in outcomes:
        return "fail"
    return "inconclusive" if "inconclusive" in outcomes else "pass"
