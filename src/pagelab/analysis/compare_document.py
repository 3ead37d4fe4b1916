"""What ``pagelab compare --json`` prints: plain frozen data, published as ``docs/schema/compare-1.json``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pagelab.analysis.compare import BASE, NEW, Compared, Comparison
from pagelab.analysis.gates import Outcome
from pagelab.stats import coverage
from pagelab.stats.nondeterminism import Estimate, Refused
from pagelab.stats.nondeterminism.pair import Verdict

SCHEMA: Literal["pagelab.compare/1"] = "pagelab.compare/1"
_SIDES: tuple[Literal["A", "B"], ...] = (BASE, NEW)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Number(_Model):
    """An estimate with its interval, in the metric's unit; all null where it was refused, with the reason."""

    value: float | None
    low: float | None
    high: float | None
    refusal: str | None = None
    """Stable name of what was wrong with the data."""
    reason: str | None = None


class Change(_Model):
    """One metric of ALLOC's, before and after."""

    a: Number
    b: Number
    percent: Number
    """100 (b / a - 1); its interval has the level ``change_level``."""
    verdict: Verdict
    """By non-overlap of the intervals of ``a`` and ``b``."""


class Caution(_Model):
    """Why an interval may not have its level."""

    side: Literal["A", "B"]
    doubt: str
    message: str


class Executions(_Model):
    """How many executions each side has."""

    a: int
    b: int


class Condition(_Model):
    """One condition that both sides have."""

    condition: str
    executions: Executions
    changes: dict[str, Change]
    """By metric: mean-response-time, nondeterminism-in-measurement, ..."""
    cautions: list[Caution]
    coverage: str
    """Which of these intervals held the truth in less than 90% of simulations with so few executions; else empty."""
    left_out: list[str]
    """Executions and measurements that are in no number, with the reason."""


class RefusedCondition(_Model):
    """A condition whose data could not be used."""

    condition: str
    reason: str


class GateResult(_Model):
    """A ``--fail-if``, judged for one condition."""

    fail_if: str
    condition: str
    outcome: Outcome
    reason: str


class MachineDifference(_Model):
    """One fact that the two sides' records disagree about."""

    key: str
    a: str
    b: str


class Commands(_Model):
    """The two commands, where commands were compared."""

    a: str
    b: str


class CompareDocument(_Model):
    """A comparison of two studies or of two commands."""

    schema_: Literal["pagelab.compare/1"] = Field(default=SCHEMA, alias="schema")
    outcome: Outcome
    metric: str
    unit: str
    level: float
    """Of the intervals of ``a`` and ``b``."""
    change_level: float
    """Of the changes' intervals: the level, divided over all judgements when there are several (Bonferroni)."""
    conditions: list[Condition]
    only_a: list[str]
    only_b: list[str]
    refused: list[RefusedCondition]
    gates: list[GateResult]
    machine_differences: list[MachineDifference] | None
    """Null where a side has no record of its machine."""
    same_plan: bool
    commands: Commands | None = None


def document(found: Comparison, commands: tuple[str, str] | None = None) -> CompareDocument:
    """``found`` as data for JSON; dump it with ``by_alias=True``."""
    machine = None
    if found.machine is not None:
        machine = [MachineDifference(key=one.key, a=one.base, b=one.new) for one in found.machine]
    return CompareDocument(
        outcome=found.outcome,
        metric=found.metric.name,
        unit=found.metric.unit,
        level=found.level,
        change_level=found.gate_level,
        conditions=[_condition(one) for one in found.compared],
        only_a=list(found.only_base),
        only_b=list(found.only_new),
        refused=[RefusedCondition(condition=name, reason=reason) for name, reason in found.refused],
        gates=[
            GateResult(fail_if=one.gate.text, condition=one.condition, outcome=one.outcome, reason=one.reason)
            for one in found.judgements
        ],
        machine_differences=machine,
        same_plan=found.same_plan,
        commands=None if commands is None else Commands(a=commands[0], b=commands[1]),
    )


def _condition(one: Compared) -> Condition:
    table = one.found.table
    changes = {
        change.metric.value: Change(
            a=_number(change.base), b=_number(change.new), percent=_number(change.percent), verdict=change.verdict
        )
        for change in one.found.changes
    }
    cautions = [
        Caution(side=side, doubt=caution.doubt.value, message=caution.message)
        for i, side in enumerate(_SIDES)
        for caution in table.cautions(i)
    ]
    return Condition(
        condition=one.condition,
        executions=Executions(a=int(table.executions[0]), b=int(table.executions[1])),
        changes=changes,
        cautions=cautions,
        coverage=coverage.told((int(count) for count in table.executions), coverage.RATIOS),
        left_out=list(one.left_out),
    )


def _number(found: Estimate | Refused) -> Number:
    if isinstance(found, Refused):
        return Number(value=None, low=None, high=None, refusal=found.refusal.value, reason=found.message)
    return Number(value=found.value, low=found.interval.low, high=found.interval.high)
