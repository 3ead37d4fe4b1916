"""``diagnose``: from settings to a :class:`Diagnosis`, and the files it leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pagelab.diagnose import allocate, judge, specs, words
from pagelab.diagnose.campaign import Campaign, State, new_directory
from pagelab.diagnose.model import Confirmation, Diagnosis, Finding, Interval, Outcome, Pin, Settings
from pagelab.errors import BadInputError, PagelabError
from pagelab.stats.refusal import Refusal, StatsRefusedError
from pagelab.study.control import Tools
from pagelab.study.progress import Progress, Silent

RESULT = "diagnosis.json"


def begin(settings: Settings, directory: Path, tools: Tools, progress: Progress | None = None) -> Diagnosis:
    """A new diagnosis in ``directory``. Raises BadInputError, RunFailedError, and the study's own errors."""
    directory = directory.resolve()
    existed = directory.exists()
    new_directory(directory)
    state = State(settings)
    state.save(directory)
    campaign = Campaign(directory, state, tools, progress or Silent())
    try:
        return _work(campaign)
    except PagelabError:
        campaign.clear_unless_run(keep=existed)
        raise


def resume(directory: Path, tools: Tools, progress: Progress | None = None) -> Diagnosis:
    """Continues one that was interrupted, at the execution that was in progress; a finished one is judged again."""
    directory = directory.resolve()
    return _work(Campaign(directory, State.load(directory), tools, progress or Silent()))


def _work(campaign: Campaign) -> Diagnosis:
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
    temporary = campaign.directory / f".{RESULT}.tmp"
    temporary.write_text(diagnosis.model_dump_json(by_alias=True, indent=1) + "\n", encoding="utf-8")
    temporary.replace(campaign.directory / RESULT)
    return diagnosis


def _diagnose(campaign: Campaign) -> Diagnosis:
    settings, state = campaign.state.settings, campaign.state
    times = campaign.explore()
    copies = specs.default_names(specs.COPIES)
    default = np.stack([times[name] for name in copies])
    spread = Interval.of(judge.default_spread(default, settings.level))
    findings = judge.findings(times, copies, state.sources, settings)
    confirmation = None
    if spread.high >= settings.negligible:
        confirmation = _confirm(campaign, findings, float(default.mean()), spread)
    outcome = words.outcome_of(spread, confirmation, settings.negligible)
    interactions = judge.interactions(findings)
    return Diagnosis(
        schema="pagelab.diagnosis/1",
        settings=settings,
        outcome=outcome,
        headline=words.headline(outcome, spread, confirmation, settings),
        sentences=words.sentences(outcome, findings, confirmation, settings),
        metric=settings.metric,
        blocks=default.shape[1],
        executions=campaign.executions(),
        default_mean=float(default.mean()),
        default_spread=spread,
        findings=findings,
        interactions=interactions,
        notes=_notes(campaign, findings, default.shape[1]),
        confirmation=confirmation,
        spent_minutes=campaign.spent_s() / 60,
        wanted_minutes=state.wanted_minutes,
    )


def _confirm(campaign: Campaign, findings: list[Finding], mean: float, spread: Interval) -> Confirmation | None:
    state, settings = campaign.state, campaign.state.settings
    best = judge.recommended(findings, state.sources, spread.estimate * mean)
    if state.recommended is not None:
        best = _decided(findings, state)
    if best is None:
        return None
    finding, pin = best
    pair_s = campaign.pair_s(pin)
    value = next(one for one in finding.values if one.name == pin.name)
    sds = (spread.estimate * mean, value.cv * value.mean)
    executions = state.confirmed_runs
    if state.recommended is None:
        left_s = 60 * settings.minutes - campaign.spent_s()
        executions = allocate.confirmation_runs(left_s, pair_s, sds, mean, settings.unchanged)
    fresh = campaign.confirm(finding.key, pin, executions)
    found = judge.confirm(fresh[specs.DEFAULT], fresh[pin.name], finding, pin, settings)
    if found.mean != "undecided":
        return found
    rows = fresh[specs.DEFAULT], fresh[pin.name]
    seen = float(rows[0].std(ddof=1)), float(rows[1].std(ddof=1))
    needed = allocate.for_mean(seen, float(rows[0].mean()), settings.unchanged, settings.level)
    extra_s = max(0, needed - executions) * pair_s / (1 - allocate.EXPLORE_SHARE)
    return found.model_copy(update={"minutes_for_mean": float(np.ceil(settings.minutes + extra_s / 60))})


def _decided(findings: list[Finding], state: State) -> tuple[Finding, Pin]:
    """What an earlier session chose to confirm: its executions exist."""
    assert state.recommended is not None
    key, name = state.recommended
    pins = next(source.pins for source in state.sources if source.key == key)
    return next(one for one in findings if one.key == key), next(pin for pin in pins if pin.name == name)


def _notes(campaign: Campaign, findings: list[Finding], blocks: int) -> list[str]:
    told = words.value_sentences(findings) + words.extremes(findings) + words.left_out(findings)
    told += words.colour_note(findings, campaign.colour_verdict)
    if campaign.state.wanted_minutes is not None:
        told.append(
            f"{blocks} executions of each condition may miss a source that only halves the spread; "
            f"--minutes {campaign.state.wanted_minutes:g} would find it in four of five diagnoses "
            "(fewer where times have a long tail)"
        )
    lost = campaign.state.blocks - blocks
    if lost:
        told.append(f"{lost} of {campaign.state.blocks} blocks are left out, because an execution in them failed")
    return told


__all__ = ["RESULT", "Outcome", "begin", "resume"]
