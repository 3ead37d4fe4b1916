"""Collects all failed executions and all typed warnings of a study."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pagelab.analysis.data import StudyData
from pagelab.analysis.metrics import ANALYSED
from pagelab.analysis.model import Condition, Execution, Failure, WarningGroup
from pagelab.record import RunWarning, about_the_machine

_SEVERITIES = ("serious", "warning", "info")
_MOST_OBJECTS = 20


def failures_of(data: StudyData, executions: tuple[Execution, ...]) -> tuple[Failure, ...]:
    """Executions that have no time to analyse, including failed warm-ups, in schedule order."""
    columns = ("run_id", "message", "exit_code", "signal")
    facts = {row["run_id"]: row for row in data.runs.select(columns).iter_rows(named=True)}
    return tuple(
        Failure(e.run_id, e.position, e.condition, e.execution, e.warmup, e.status, _message(facts[e.run_id], e.status))
        for e in executions
        if e.status not in ANALYSED
    )


def _message(facts: dict[str, object], status: str) -> str:
    if facts["message"]:
        return str(facts["message"])
    if facts["signal"] is not None:
        return f"ended by signal {facts['signal']}"
    return f"exit code {facts['exit_code']}" if facts["exit_code"] is not None else status


@dataclass(frozen=True)
class _Item:
    warning: RunWarning
    run_id: int | None
    condition: str | None


def warnings_of(
    data: StudyData,
    conditions: tuple[Condition, ...],
    executions: tuple[Execution, ...],
    found: Iterable[tuple[str, RunWarning]] = (),
) -> tuple[WarningGroup, ...]:
    """Warnings of the study, of all records, and those that analysis ``found`` for conditions, grouped by kind and
    severity; the most serious first, then by kind.

    A warning about the machine, which is in every record, is reported once and counted once.
    """
    of_run = {e.run_id: e.condition for e in executions}
    items = [_Item(w, None, None) for w in data.study_warnings]
    of_machine: dict[tuple[str, str], RunWarning] = {}
    for run, record in data.records:
        for warning in record.warnings:
            if about_the_machine(warning.data):
                of_machine.setdefault((warning.kind.value, warning.message), warning)
            else:
                items.append(_Item(warning, run, of_run.get(run)))
    items += [_Item(w, None, None) for w in of_machine.values()]
    items += [_Item(w, None, condition) for condition, w in found]
    groups: dict[tuple[str, str], list[_Item]] = {}
    for item in items:
        groups.setdefault((item.warning.severity, item.warning.kind.value), []).append(item)
    keys = sorted(groups, key=lambda key: (_SEVERITIES.index(key[0]), key[1]))
    return tuple(_group(key, groups[key], [c.id for c in conditions]) for key in keys)


def _group(key: tuple[str, str], items: list[_Item], order: list[str]) -> WarningGroup:
    distinct: dict[str, RunWarning] = {}
    for item in items:
        distinct.setdefault(item.warning.model_dump_json(), item.warning)
    touched = {item.condition for item in items}
    run_ids = tuple(dict.fromkeys(item.run_id for item in items if item.run_id is not None))
    return WarningGroup(
        kind=key[1],
        severity=key[0],
        message=items[0].warning.message,
        count=len(items),
        executions=len(run_ids),
        conditions=tuple(c for c in order if c in touched),
        different_messages=len({item.warning.message for item in items}),
        run_ids=run_ids,
        objects=tuple(w.model_dump(mode="json") for w in list(distinct.values())[:_MOST_OBJECTS]),
    )
