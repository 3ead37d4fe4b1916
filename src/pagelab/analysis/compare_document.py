"""The JSON of ``pagelab compare --json``: plain frozen data, published as ``docs/schema/compare-1.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from pagelab.analysis import gates
from pagelab.analysis.answer import Said
from pagelab.analysis.compare import BASE, NEW, Compared, Comparison
from pagelab.analysis.gates import Outcome
from pagelab.contract.rows import said_type
from pagelab.stats import NotAchievable, coverage
from pagelab.stats.nondeterminism import Estimate, Refused
from pagelab.stats.nondeterminism.pair import Verdict
from pagelab.stats.refusal import Refusal
from pagelab.study.plan import Condition as Ran
from pagelab.study.sides import COMPARED

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


class IntervalWarning(_Model):
    """Why an interval may not have its level."""

    side: Literal["A", "B"]
    doubt: str
    message: str


class Executions(_Model):
    """Numbers of executions of each side."""

    a: int
    b: int


class InPairs(_Model):
    """B against A within the blocks in which one of each ran: the headline where two commands were compared."""

    pairs: int
    left_out: int
    """Executions whose block lacks the other side."""
    timed_out: Executions
    """Executions with a partner that the time limit ended and the test counts as slowest; they are in no size."""
    failed: Executions = Executions(a=0, b=0)
    """Executions that failed otherwise, of all: they are in no pair."""
    ratio: Number
    """100 (B / A - 1), the Hodges-Lehmann estimate of the pairs' ratios, in percent, with its interval at ``level``."""
    p: float
    """Of the test of signed ranks, two-sided."""
    said: Said
    """``lower``, ``higher``: the test rejects; ``same``: the interval is within 3%; else ``cannot-tell``."""
    seen_percent: float | None
    """The smallest change that so many pairs would show in four of five comparisons."""
    needed: int | None
    """Executions of each for an interval of ±3%."""
    mean: Number
    """100 (mean of B / mean of A - 1), in percent, over the pairs, with Fieller's interval at ``change_level``."""
    narrower: float | None
    """Spread of the pairs' differences over that of two executions of different blocks: below 1 where blocks pay."""


class Condition(_Model):
    """One condition that both sides have."""

    condition: str
    executions: Executions
    changes: dict[str, Change]
    """By metric: mean-response-time, nondeterminism-in-measurement, ..."""
    cautions: list[IntervalWarning]
    coverage: str
    """Which of these intervals held the truth in less than 90% of simulations with so few executions; else empty."""
    left_out: list[str]
    """Executions and measurements that are in no number, with the reason."""
    in_pairs: InPairs | None = None
    """Null for two studies: nothing was interleaved."""


class RefusedCondition(_Model):
    """A condition whose data could not be used."""

    condition: str
    reason: str
    in_pairs: InPairs | None = None
    """The answer for two commands: also where executions of one of them never finished."""


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


class Unfinished(_Model):
    """A side of which planned executions are missing."""

    side: Literal["A", "B"]
    done: int
    planned: int


class Commands(_Model):
    """The two commands, where commands were compared."""

    a: str
    b: str


class _Named(_Model):
    policy: str
    """In TOML, as it was resolved on that machine."""
    env: dict[str, str]


if TYPE_CHECKING:

    class _Setting(_Named): ...
else:
    _Setting = create_model(
        "_Setting", __base__=_Named, **{one.field: (said_type(one) | None, ...) for one in COMPARED}
    )


class Setting(_Setting):
    """The settings of one of the two commands; a setting that is null was left as the machine has it."""


class Settings(_Model):
    """The settings of the two commands; equal if only the commands differ."""

    a: Setting
    b: Setting


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
    unfinished: list[Unfinished] = Field(default_factory=list)
    """Sides of which planned executions are missing: every limit is inconclusive then."""
    caveats: list[str] = Field(default_factory=list)
    """Why the two sides of one study, such as imported ones, are not compared in pairs, and what that may hide."""
    commands: Commands | None = None
    settings: Settings | None = None
    """Null for two studies."""
    metric_why: str = ""
    """Why something else than wall time is compared, where nobody named it."""


def document(
    found: Comparison,
    commands: tuple[str, str] | None = None,
    ran: tuple[Ran, Ran] | None = None,
    metric_why: str = "",
) -> CompareDocument:
    """``found`` as data for JSON; dump it with ``by_alias=True``. ``ran``: the two as their study planned them."""
    machine = None
    if found.machine is not None:
        machine = [MachineDifference(key=one.key, a=one.base, b=one.new) for one in found.machine]
    in_pairs = None if found.in_pairs is None else _in_pairs(found.in_pairs)
    return CompareDocument(
        outcome=found.outcome,
        metric=found.metric.name,
        unit=found.metric.unit,
        level=found.level,
        change_level=found.gate_level,
        conditions=[_condition(one) for one in found.compared],
        only_a=list(found.only_base),
        only_b=list(found.only_new),
        refused=[RefusedCondition(condition=name, reason=reason, in_pairs=in_pairs) for name, reason in found.refused],
        gates=[
            GateResult(fail_if=one.gate.text, condition=one.condition, outcome=one.outcome, reason=one.reason)
            for one in found.judgements
        ],
        machine_differences=machine,
        same_plan=found.same_plan,
        unfinished=[Unfinished(side=one.side, done=one.done, planned=one.planned) for one in found.unfinished],
        caveats=list(found.caveats),
        commands=None if commands is None else Commands(a=commands[0], b=commands[1]),
        settings=None if ran is None else Settings(a=_setting(ran[0]), b=_setting(ran[1])),
        metric_why=metric_why,
    )


def _setting(ran: Ran) -> Setting:
    request = ran.request
    asked = {one.field: one.said(getattr(request, one.field)) for one in COMPARED}
    return Setting(policy=request.policy_toml, env=request.env.set, **asked)


def _condition(one: Compared) -> Condition:
    table = one.found.table
    changes = {
        change.metric.value: Change(
            a=_number(change.base), b=_number(change.new), percent=_number(change.percent), verdict=change.verdict
        )
        for change in one.found.changes
    }
    cautions = [
        IntervalWarning(side=side, doubt=caution.kind.value, message=caution.message)
        for i, side in enumerate(_SIDES)
        for caution in table.interval_warnings(i)
    ]
    return Condition(
        condition=one.condition,
        executions=Executions(a=int(table.executions[0]), b=int(table.executions[1])),
        changes=changes,
        cautions=cautions,
        coverage=coverage.sentence_on_changes(
            table.executions.tolist(), single=bool(table.is_single.all()), in_pairs=one.in_pairs is not None
        ),
        left_out=list(one.left_out),
        in_pairs=None if one.in_pairs is None else _in_pairs(one.in_pairs),
    )


def _in_pairs(found: gates.InPairs) -> InPairs:
    answer = found.answer
    assert answer.p is not None
    return InPairs(
        pairs=answer.pairs,
        left_out=found.pairs.left_out,
        timed_out=Executions(a=found.late[0], b=found.late[1]),
        failed=Executions(a=found.failed.a[0], b=found.failed.b[0]),
        ratio=_ratio(found),
        p=answer.p,
        said=answer.said,
        seen_percent=None if answer.seen is None else 100 * answer.seen,
        needed=answer.needed,
        mean=Number(value=None, low=None, high=None, refusal=Refusal.OUT_OF_REACH.value, reason=found.mean)
        if isinstance(found.mean, str)
        else Number(value=found.mean.percent, low=found.mean.interval.low, high=found.mean.interval.high),
        narrower=found.narrower,
    )


def _ratio(found: gates.InPairs) -> Number:
    answer, interval = found.answer, found.answer.interval
    if answer.change is not None and interval is not None:
        return Number(value=100 * answer.change, low=100 * interval.low, high=100 * interval.high)
    if any(found.late):
        told = Refusal.INCOMPLETE_BLOCKS, "executions timed out, and those that finished do not show the size"
    elif found.ratio is None:
        told = Refusal.NOT_POSITIVE, "a value is zero or negative: no percentage of it exists"
    elif isinstance(found.ends, NotAchievable):
        told = Refusal.COUNT_OUT_OF_RANGE, str(found.ends)
    else:
        told = Refusal.OUT_OF_REACH, "the test and the estimate point in different directions"
    return Number(value=None, low=None, high=None, refusal=told[0].value, reason=told[1])


def _number(found: Estimate | Refused) -> Number:
    if isinstance(found, Refused):
        return Number(value=None, low=None, high=None, refusal=found.refusal.value, reason=found.message)
    return Number(value=found.value, low=found.interval.low, high=found.interval.high)
