"""``--fail-if "mean>3%"``: what must not change, and whether it did."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pagelab.errors import BadInputError
from pagelab.stats.nondeterminism import Estimate, Metric, Refused

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


def judge(gate: Gate, condition: str, change: Estimate | Refused) -> Judgement:
    """Fail when the whole interval of the change is beyond the limit, pass when none of it is, else inconclusive."""
    if isinstance(change, Refused):
        return Judgement(gate, condition, "inconclusive", change.message)
    low, high = change.interval.low, change.interval.high
    if not gate.above:
        low, high = -high, -low
    limit = gate.limit_percent if gate.above else -gate.limit_percent
    if low > limit:
        return Judgement(gate, condition, "fail", "the whole interval is beyond the limit")
    if high <= limit:
        return Judgement(gate, condition, "pass", "the whole interval is within the limit")
    return Judgement(gate, condition, "inconclusive", "the limit lies inside the interval: run more executions")


def overall(judgements: tuple[Judgement, ...]) -> Outcome:
    """One failure fails; else one that is inconclusive makes all so."""
    outcomes = {one.outcome for one in judgements}
    if "fail" in outcomes:
        return "fail"
    return "inconclusive" if "inconclusive" in outcomes else "pass"
