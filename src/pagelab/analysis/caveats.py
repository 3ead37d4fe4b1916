"""Makes the caveats of an answer, one sentence each; none for a clean study."""

from __future__ import annotations

from statistics import median

from pagelab.analysis import wording
from pagelab.analysis.model import Condition, Contrast, Design, Failure, Machine, WarningGroup
from pagelab.record import WarningKind

_COLOURS = (WarningKind.COLOURS_NOT_PROBED, WarningKind.COLOURS_WITHOUT_EFFECT)
"""Warnings about colours: where these have no effect, a policy of frames changes times only by the cost of placing."""


def caveats_of(
    design: Design,
    failures: tuple[Failure, ...],
    warnings: tuple[WarningGroup, ...],
    machine: Machine,
    primary: tuple[Contrast, ...] = (),
    unbacked: str | None = None,
    waiting: str | None = None,
) -> tuple[str, ...]:
    """The caveats in order of weight: incomplete, failed, colours, left out, short-placed, unknown machine, unbacked
    memory, waiting, changes of the machine, method, others.
    """
    found = list(design.notes)
    if not design.complete:
        found.append(
            "The study is not finished: this is its state so far, and p-values hold only when all planned "
            "executions are done. Stopping now because of these results would make them wrong."
        )
    found += _timed_out(design, primary)
    found += _failed(design, failures, primary)
    found += about_colours(warnings)
    found += _left_out(design)
    found += _short(design)
    if not machine.known:
        found.append("Nothing is known of the machine: the runs carry no description of it.")
    found += [told for told in (unbacked, waiting) if told]
    if machine.differences:
        keys = wording.listing([d.key.split(".", 1)[-1] for d in machine.differences[:3]])
        more = len(machine.differences) - 3
        rest = f" and {wording.count(more, 'more fact')}" if more > 0 else ""
        found.append(f"The machine was not the same throughout: {keys}{rest} changed (see Machine).")
    if design.precision_stop:
        found.append(
            "The number of executions was decided by a precision stop: see Method for the coverage of its intervals."
        )
    if design.precision_missed:
        found.append(
            "The precision asked for was not reached: the study ended at its maximum of executions, and its intervals "
            "are wider than planned."
        )
    found += _blocks(primary)
    found += [f"{w.message[:1].upper()}{w.message[1:]}." for w in warnings if w.kind == "noisy-machine"]
    found += _serious(warnings)
    return (*found, *design.remarks)


def about_colours(warnings: tuple[WarningGroup, ...]) -> list[str]:
    """Sentences that colours have no effect on this machine, or that their effect is not known."""
    return [f"{w.message[:1].upper()}{w.message[1:]}." for w in warnings if w.kind in _COLOURS]


def _serious(warnings: tuple[WarningGroup, ...]) -> list[str]:
    """A sentence that counts serious warnings, one per condition for any number of executions.

    A shortfall of pages has a sentence of its own.
    """
    serious = [w for w in warnings if w.severity == "serious" and w.kind != WarningKind.PLACEMENT_SHORTFALL]
    if not serious:
        return []
    count = sum(max(1, len(w.conditions)) for w in serious)
    kinds = _some(sorted({w.kind for w in serious}))
    return [f"{wording.count(count, 'serious warning')} ({kinds}): see Warnings."]


def _blocks(primary: tuple[Contrast, ...]) -> list[str]:
    """A sentence where executions of one block were no more alike than others.

    The test within pairs stays: choosing between two tests after a look at the data would be choosing a result.
    """
    found = [c.narrower for c in primary if c.narrower is not None]
    if not found or median(found) < 1.0:
        return []
    return [
        "Blocks did not pay here: executions of one block differ as much as any two "
        f"(spread {wording.digits(median(found), 2)} times as large), so pairs make the intervals no narrower."
    ]


def _counted_late(design: Design, primary: tuple[Contrast, ...]) -> dict[str, int]:
    """Condition → its executions that timed out and that a test counts as slowest."""
    ids = {(c.workload, c.policy): c.id for c in design.conditions}
    found: dict[str, int] = {}
    for c in primary:
        for policy, late in ((c.policy, c.timed_out), (c.baseline, c.timed_out_baseline)):
            if c.p is not None and late:
                found[ids[c.workload, policy]] = late
    return found


def _timed_out(design: Design, primary: tuple[Contrast, ...]) -> list[str]:
    """A sentence on time-outs that are in a test."""
    late = _counted_late(design, primary)
    counted = [(c, late[c.id]) for c in design.conditions if c.id in late]
    if not counted:
        return []
    return [
        f"{wording.count(sum(late.values()), 'execution')} timed out ({_where(counted)}): the tests count them as "
        "slower than all that finished, and the sizes are those of executions that finished."
    ]


def _failed(design: Design, failures: tuple[Failure, ...], primary: tuple[Contrast, ...]) -> list[str]:
    """A sentence on executions that are in no test."""
    late = _counted_late(design, primary)
    every = [(c, sum(c.failures.values()) - late.get(c.id, 0)) for c in design.conditions]
    counted = [(c, n) for c, n in every if n > 0]
    if not counted or not failures:
        return []
    total = wording.count(sum(n for _, n in counted), "execution")
    return [
        f"{total} ended without a time to analyse ({_where(counted)}): the conclusions are about executions that "
        "finish."
    ]


def _where(counted: list[tuple[Condition, int]]) -> str:
    return _some([f"{n} of {c.finished} in {c.id}" for c, n in counted])


def _left_out(design: Design) -> list[str]:
    """One sentence per reason for conditions that were left out; a workload that is lost whole is named once."""
    run = {c.workload for c in design.conditions if not c.left_out}
    by_reason: dict[str, list[str]] = {}
    for one in design.conditions:
        if one.left_out:
            by_reason.setdefault(one.left_out, []).append(one.id if one.workload in run else one.workload)
    lost = {reason: list(dict.fromkeys(names)) for reason, names in by_reason.items()}
    return [
        f"{_some(names)} {'was' if len(names) == 1 else 'were'} left out: {reason}" for reason, names in lost.items()
    ]


def _short(design: Design) -> list[str]:
    """One sentence on all executions with a warning ``placement-shortfall``."""
    short = [c for c in design.conditions if c.short_placed]
    if not short:
        return []
    if all(c.short_placed == c.analysed for c in short):
        where = f"{_some([c.id for c in short])}, in all executions"
    else:
        where = _some([f"{c.id}, in {c.short_placed} of {wording.count(c.analysed, 'execution')}" for c in short])
    return [
        f"{wording.count(len(short), 'condition')} got fewer pages of the asked size than the policy names ({where}): "
        "these executions stay in the analysis, and the effect shown is that of the actual placement."
    ]


def _some(items: list[str]) -> str:
    """The first four items, and how many more there are."""
    return wording.listing([*items[:4], f"{len(items) - 4} more"] if len(items) > 4 else items)
