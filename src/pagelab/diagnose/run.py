"""Runs a diagnosis: makes a :class:`Diagnosis` and its files from settings."""

from __future__ import annotations

from math import sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagelab import whole_file
from pagelab.diagnose import allocate, answer, judge, specs, words
from pagelab.diagnose.campaign import Campaign, State, new_directory
from pagelab.diagnose.model import Caveat, Confirmation, Diagnosis, Finding, Interval, Outcome, Pin, Settings
from pagelab.diagnose.sources import COMBINED
from pagelab.diagnose.spread import Range
from pagelab.errors import BadInputError, MachineError, PagelabError, quoted
from pagelab.stats.refusal import Refusal, StatsRefusedError
from pagelab.study.claim import Claimed
from pagelab.study.errors import FullDiskError, StudyInterruptedError
from pagelab.study.progress import Progress, Silent
from pagelab.study.tools import Tools

RESULT = "diagnosis.json"


def begin(
    settings: Settings,
    directory: Path,
    tools: Tools,
    progress: Progress | None = None,
    *,
    claimed: Claimed | None = None,
) -> Diagnosis:
    """Makes a new diagnosis in ``directory``, which the user named; or in ``claimed``, which was chosen for it.

    Raises BadInputError, RunFailedError, and the errors of studies.
    """
    into = directory if claimed is None else None
    existed = (claimed or new_directory(directory)).existed
    directory = directory.resolve()
    state = State(settings)
    state.save(directory)
    campaign = Campaign(directory, state, tools, progress or Silent())
    try:
        return _work(campaign, keep=existed, into=into)
    except PagelabError:
        campaign.clear_unless_run(keep=existed)
        raise


def resume(directory: Path, tools: Tools, progress: Progress | None = None) -> Diagnosis:
    """Continues an interrupted diagnosis at the execution that was in progress; judges a finished one again."""
    directory = directory.resolve()
    return _work(Campaign(directory, State.load(directory), tools, progress or Silent()))


def _work(campaign: Campaign, *, keep: bool = False, into: Path | None = None) -> Diagnosis:
    """``into``: the directory as the user named it."""
    try:
        return _phases(campaign)
    except allocate.TooSmallError as error:
        # Another budget needs another diagnosis, and what is left of this one would only be in its way.
        campaign.clear(keep=keep)
        again = answer.again(campaign.state.settings, minutes=error.minutes, into=into)
        raise BadInputError(f"{error}; run: {again}") from None
    except StudyInterruptedError as error:
        raise StudyInterruptedError(
            f"{error.stopped}; the finished executions are kept; continue with: "
            f"pagelab diagnose --resume {quoted(campaign.directory)}",
            error.stopped,
        ) from None
    except FullDiskError as error:
        place = quoted(campaign.directory)
        raise MachineError(
            f"{error.reason}; the finished executions are kept; make room (see: df -h {place}), then continue with: "
            f"pagelab diagnose --resume {place}"
        ) from None


def _phases(campaign: Campaign) -> Diagnosis:
    campaign.pilot()
    campaign.plan()
    try:
        diagnosis = _diagnose(campaign)
    except StatsRefusedError as error:
        if error.refusal is not Refusal.NO_SPREAD:
            raise BadInputError(f"cannot diagnose: {error}; the executions are in {campaign.directory}") from None
        raise BadInputError(
            f"cannot diagnose: {error}; choose a metric that varies with --metric, such as wall_s"
        ) from None
    whole_file.put(campaign.directory / RESULT, diagnosis.model_dump_json(by_alias=True, indent=1) + "\n")
    return diagnosis


def _diagnose(campaign: Campaign) -> Diagnosis:
    settings, state = campaign.state.settings, campaign.state
    times, late = campaign.explore(), campaign.late("")
    copies = specs.default_names(specs.COPIES)
    default = judge.default_rows(times, copies, late, settings.timeout_s)
    spread = Interval.of(judge.default_spread(default, settings.level))
    findings = judge.findings(times, copies, state.sources, settings, late)
    confirmation: Confirmation | None = None
    trouble: list[str] = []
    if spread.high >= settings.negligible:
        confirmation, trouble = _confirm(campaign, findings, times, default)
    outcome = words.outcome_of(spread, confirmation, settings.negligible)
    if trouble:
        outcome = "undecided"
    interactions = judge.interactions(findings, times, copies, state.sources, settings.level)
    machine = judge.machines_share(times, copies, settings.level)
    fresh = campaign.times("confirmation").get(specs.DEFAULT) if confirmation is not None else None
    caveat, notes = _caveat_and_notes(campaign, findings, default.shape[1], late, machine, outcome)
    found = Diagnosis(
        schema="pagelab.diagnosis/2",
        settings=settings,
        outcome=outcome,
        headline="",
        sentences=words.sentences(outcome, findings, confirmation, settings),
        metric=settings.metric,
        blocks=default.shape[1],
        executions=campaign.executions(),
        default_mean=float(default.mean()),
        default_spread=spread,
        typical=judge.typical(default if fresh is None else fresh[np.isfinite(fresh)]),
        machine=None if machine is None else Interval.of(machine),
        findings=findings,
        interactions=interactions,
        notes=notes,
        caveat=caveat,
        confirmation=confirmation,
        spent_minutes=campaign.spent_s() / 60,
        wanted_minutes=state.wanted_minutes,
        waited=campaign.waited(),
    )
    return found.model_copy(update={"headline": answer.headline(found, trouble[0] if trouble else None)})


def _confirm(
    campaign: Campaign, findings: list[Finding], times: judge.Times, default: NDArray[np.float64]
) -> tuple[Confirmation | None, list[str]]:
    """Runs fresh executions of the recommendation; returns the confirmation, or the reason why there is none."""
    state, settings = campaign.state, campaign.state.settings
    sd_default = sqrt(float(np.log(default).var(axis=1, ddof=1).mean()))
    best = judge.recommended(findings, state.sources, sd_default)
    if state.recommended is not None:
        best = _decided(findings, state)
    if best is None:
        return None, []
    finding, explored = best
    pin = explored
    if finding.key == COMBINED and state.recommended != (COMBINED, explored.name):
        pin = judge.without_cleared(explored, findings, state.sources)
    source = next(each for each in state.sources if each.key == finding.key)
    controls = source.controls_of(explored)[:1]
    seen = judge.plan_confirmation(times, specs.default_names(specs.COPIES), source, explored, settings)
    block_s = campaign.block_s([explored, *controls])
    executions = state.confirmed_runs
    if state.recommended is None:
        value = next(one for one in finding.values if one.name == explored.name)
        mean = float(default.mean())
        sds = float(default.std(axis=1, ddof=1).mean()), value.cv * value.mean
        of_mean = allocate.for_mean(sds, mean, settings.unchanged, settings.level)
        enough = max(of_mean, *(effect.executions() for effect in seen))
        left_s = 60 * settings.minutes - campaign.spent_s()
        executions = allocate.confirmation_runs(left_s, block_s, enough)
    fresh = campaign.confirm(finding.key, pin, controls, executions)
    late = campaign.late("confirmation")
    control = (controls[0].name, source.against) if controls else None
    try:
        most = max(late.values(), default=0)
        if most > judge.MOST_LATE * executions:
            ended = f"{most} of {executions} executions did not end within --timeout"
            raise StatsRefusedError(Refusal.INCOMPLETE_BLOCKS, ended)
        found = judge.confirm(fresh, finding, pin, control, seen, settings)
    except StatsRefusedError as error:
        return None, [words.no_confirmation(finding, pin, str(error))]

    def minutes_for(needed: int) -> float:
        extra_s = max(0, needed - executions) * block_s / (1 - allocate.EXPLORE_SHARE)
        return float(np.ceil(settings.minutes + extra_s / 60))

    updates: dict[str, float] = {}
    if found.mean == "undecided":
        updates["minutes_for_mean"] = minutes_for(found.enough)
    if found.result == "undecided":
        updates["minutes_for_spread"] = minutes_for(found.needed_for_half or found.needed)
    return found.model_copy(update=updates), []


def _decided(findings: list[Finding], state: State) -> tuple[Finding, Pin]:
    """The recommendation that an earlier session chose, whose executions already exist."""
    assert state.recommended is not None
    key, name = state.recommended
    pins = next(source.pins for source in state.sources if source.key == key)
    # Only the part of a combination that may be a cause was confirmed, under a name of its own.
    pin = pins[0] if key == COMBINED else next(pin for pin in pins if pin.name == name)
    return next(one for one in findings if one.key == key), pin


def _caveat_and_notes(
    campaign: Campaign,
    findings: list[Finding],
    blocks: int,
    late: judge.Late,
    machine: Range | None,
    outcome: Outcome,
) -> tuple[Caveat | None, list[str]]:
    """The most serious warning, for the first screen; and all other notes, in order of severity."""
    lost = words.lost(campaign.state.settings, findings, campaign.state.blocks, blocks, late)
    share = None if machine is None else Interval.of(machine)
    block_effects = words.machines_share(share)
    found = [Caveat(severity="serious", text=text) for text in lost]
    # Where no source is the cause and the machine is, the headline already states that.
    much = answer.mostly_the_machines(share)
    if not much or outcome != "unexplained":
        found += [Caveat(severity="serious" if much else "warning", text=text) for text in block_effects]
        block_effects = []
    found += [Caveat(severity="warning", text=text) for text in words.one_layout(findings, outcome)]
    few: list[str] = []
    if campaign.state.wanted_minutes is not None:
        few.append(
            f"{blocks} executions of each condition may miss a source that only halves the spread; "
            f"--minutes {campaign.state.wanted_minutes:g} would find it in four of five diagnoses "
            f"({words.FEWER})"
        )
    rest = [one.text for one in found[1:]] + block_effects + words.value_sentences(findings) + words.extremes(findings)
    rest += few + words.left_out(findings) + words.colour_note(findings, campaign.colour_verdict)
    return (found[0] if found else None), rest


__all__ = ["RESULT", "Outcome", "begin", "resume"]
