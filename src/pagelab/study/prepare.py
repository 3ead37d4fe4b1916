"""The steps before a study's first run: plan, capability of the machine, reachable level, schedule, directory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import whole_file
from ..errors import BadInputError, MachineError, another_would_do, quoted
from ..record import RunWarning, WarningKind
from . import programs
from .answering import answered, reachability
from .budget import with_minutes
from .errors import ImpossibleError, Problem, SpecError, StudyError
from .plan import Condition, Plan
from .planning import plan_text
from .quick import quick_text
from .schedule import schedule
from .spec import RawStudy, parse, read
from .store import NAME, Store
from .toml_text import LineIndex, Location

SPEC_COPY = "study.toml"
OUTPUT = "output"
TRIAL = "trial"
"""Folder in the study's directory of the runs that decided the size of the study."""

Check = Callable[[Condition], str | None]
"""Returns why this machine cannot do a condition, with what is missing; None where it can.

Raises :class:`pagelab.errors.BadInputError` for a policy that no machine can do.
"""


@dataclass(frozen=True)
class Prepared:
    """A study that is ready to be created."""

    plan: Plan
    text: str
    source: Path
    warnings: list[RunWarning]
    notes: tuple[str, ...] = ()
    """Messages before the first run that are not warnings."""
    is_open: bool = False
    """Whether the author left open if each program is tested by itself or all as a set."""


def prepare(
    spec: Path,
    directory: Path,
    check: Check,
    *,
    skip_impossible: bool = False,
    quick: bool = False,
    minutes: float | None = None,
    is_here: bool = False,
) -> Prepared:
    """Reads, plans and checks ``spec``, or its quick form; writes nothing. ``minutes`` override its executions.

    ``is_here``: it runs on this machine, which must have its programs.

    Raises SpecError with everything that is wrong in the files, and MachineError where this machine cannot do a
    condition (unless ``skip_impossible``: then those are left out, and a warning says so).
    """
    skip_impossible |= read(spec).skip_impossible
    text = spec.read_text(encoding="utf-8")
    text = quick_text(text, spec) if quick else text
    raw = parse(text, spec)
    plan = plan_text(text, spec, directory)
    reasons, refused = _checked(plan, check)
    whole = plan.conditions
    plan = plan.model_copy(
        update={"conditions": [one.model_copy(update={"left_out": reasons.get(one.index)}) for one in whole]}
    )
    problems = _located(refused, programs.missing(plan) if is_here else [], raw, LineIndex(text))
    if problems:
        raise SpecError(spec, problems)
    if reasons and not skip_impossible:
        raise ImpossibleError(_refusal(plan, reasons))
    if not plan.active():
        raise MachineError("this machine can do none of the conditions:\n" + _listing(plan, reasons))
    warnings = _left_out(plan)
    return _decided(Prepared(plan, text, spec.resolve(), warnings, is_open=raw.answer is None), minutes)


def _checked(plan: Plan, check: Check) -> tuple[dict[int, str], list[tuple[str, str]]]:
    """Why this machine cannot do conditions, by index; and the policies that no machine can do, each with the error."""
    reasons: dict[int, str] = {}
    refused: dict[tuple[str, str], None] = {}
    for condition in plan.conditions:
        try:
            reason = check(condition)
        except BadInputError as error:
            refused[condition.policy_name, str(error)] = None
        else:
            reasons |= {condition.index: reason} if reason else {}
    return reasons, list(refused)


def _located(
    policies: list[tuple[str, str]], absent: list[tuple[str, str]], raw: RawStudy, lines: LineIndex
) -> list[Problem]:
    """Errors of policies and of workloads' programs, by name, with the lines of study.toml; benchmarks have none."""
    at: dict[tuple[str, str], Location] = {("policy", one.name): ("policy", n) for n, one in enumerate(raw.policy)}
    at |= {("workload", one.name): ("workload", n, "command") for n, one in enumerate(raw.workload)}
    named = [*(("policy", *one) for one in policies), *(("workload", *one) for one in absent)]
    found = (Problem("", text, lines.line(at.get((table, name), ()))) for table, name, text in named)
    return list(dict.fromkeys(found))


def _decided(prepared: Prepared, minutes: float | None) -> Prepared:
    """The study with the executions of a pilot for ``minutes`` (None: its own), and with its tests decided."""
    plan, minutes = prepared.plan, prepared.plan.minutes if minutes is None else minutes
    if minutes is not None:
        plan = with_minutes(plan, minutes)
    plan, note = answered(plan, is_open=prepared.is_open)
    notes = () if note is None else (note,)
    return replace(prepared, plan=plan, warnings=prepared.warnings + reachability(plan), notes=notes)


def _listing(plan: Plan, reasons: dict[int, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for condition in plan.conditions:
        if condition.index in reasons:
            by_reason.setdefault(reasons[condition.index], []).append(condition.name)
    return "\n".join(f"  {', '.join(names)}: {reason}" for reason, names in by_reason.items())


def _refusal(plan: Plan, reasons: dict[int, str]) -> str:
    return (
        f"this machine cannot do {len(reasons)} of {len(plan.conditions)} conditions:\n{_listing(plan, reasons)}\n"
        "see the requirements with: pagelab doctor"
    )


def _left_out(plan: Plan) -> list[RunWarning]:
    """Warnings of conditions that are left out: one per reason, for any number of conditions."""
    by_reason: dict[str, list[Condition]] = {}
    for condition in plan.conditions:
        if condition.left_out:
            by_reason.setdefault(condition.left_out, []).append(condition)
    return [
        RunWarning(
            kind=WarningKind.LEFT_OUT,
            severity="serious" if _loses_a_baseline(plan, lost) else "warning",
            message=f"{_some(_names(plan, lost))} left out: {reason}",
            data={"conditions": [condition.name for condition in lost], "reason": reason},
        )
        for reason, lost in by_reason.items()
    ]


def _loses_a_baseline(plan: Plan, lost: list[Condition]) -> bool:
    """Whether a running condition has lost its baseline."""
    run = {condition.workload for condition in plan.active()}
    return any(condition.baseline and condition.workload in run for condition in lost)


def _names(plan: Plan, lost: list[Condition]) -> list[str]:
    """Names of the lost conditions: a workload or policy that is lost whole is named once, other conditions singly."""
    workloads = {condition.workload_name for condition in plan.active()}
    policies = {condition.policy_name for condition in plan.active()}

    def name(one: Condition) -> str:
        if one.workload_name not in workloads:
            return one.workload_name
        return one.name if one.policy_name in policies else f"policy {one.policy_name}"

    return list(dict.fromkeys(map(name, lost)))


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    if len(names) > 3:
        return f"{shown} and {len(names) - 3} more are"
    return f"{shown} {'is' if len(names) == 1 else 'are'}"


def create(prepared: Prepared, directory: Path, extra: dict[str, Any]) -> Store:
    """Makes the study in ``directory``, which the caller has locked and which holds no study.

    Raises StudyError where it cannot be written, before the first run.
    """
    plan = prepared.plan
    check_destination(directory, prepared.text)
    active = plan.active()
    slots = [
        # The schedule numbers only the conditions that run; the plan numbers all.
        type(slot)(slot.position, slot.block, active[slot.condition].index, slot.execution)
        for slot in schedule(len(active), plan.executions, plan.warmups, plan.seed, plan.together, plan.each_boot)
    ]
    (directory / OUTPUT).mkdir(exist_ok=True)
    copy = directory / SPEC_COPY
    is_new = not copy.exists()
    if is_new:
        whole_file.put(copy, prepared.text)
    try:
        store = Store.create(directory, plan, slots, prepared.text, {"source": str(prepared.source), **extra})
    except BaseException:
        # A copy without a study would be taken for a file of the user's.
        if is_new:
            copy.unlink(missing_ok=True)
        raise
    for warning in prepared.warnings:
        store.put_event("warning", warning.model_dump(mode="json"))
    return store


def _was_imported(directory: Path) -> bool:
    with Store.open(directory, write=False) as store:
        return "origin" in store.meta()


def check_destination(directory: Path, text: str | None = None, *, imported: bool = False) -> None:
    """Checks that a study can be written into the directory, and replaces no study.toml with another ``text``.

    ``imported``: it is a study of imported executions, which nothing continues.

    Raises StudyError.
    """
    if (directory / NAME).exists():
        further = f"see it with: pagelab report {quoted(directory)}"
        if not imported and not _was_imported(directory):
            further = f"continue it with: pagelab study resume {quoted(directory)}"
        raise another_would_do(StudyError(f"{directory} already holds a study; {further}"))
    if text is not None and _is_another_file(directory / SPEC_COPY, text):
        raise another_would_do(
            StudyError(f"{directory / SPEC_COPY} is not the file of this study, and would be overwritten by it")
        )
    if not os.access(directory, os.W_OK | os.X_OK):
        raise another_would_do(StudyError(f"cannot write to {directory}; run: ls -ld {quoted(directory)}"))
    free = shutil.disk_usage(directory).free
    if free < 64 << 20:
        raise another_would_do(
            StudyError(f"only {free >> 20} MiB are free in {directory}; run: df -h {quoted(directory)}")
        )


def _is_another_file(path: Path, text: str) -> bool:
    """Whether there is something at ``path`` that is not a file with ``text``."""
    try:
        return path.read_text(encoding="utf-8") != text
    except FileNotFoundError:
        return path.is_symlink()
    except (OSError, UnicodeDecodeError):
        return True
