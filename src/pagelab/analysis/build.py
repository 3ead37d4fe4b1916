"""Builds the `Analysis` of a study's data, as a pure and deterministic function; the analysis lists every omission."""

from __future__ import annotations

from pagelab.analysis import set_words, verdict
from pagelab.analysis.caveats import caveats_of
from pagelab.analysis.contrasts import contrasts_of, spreads_of
from pagelab.analysis.data import StudyData
from pagelab.analysis.design import design_of
from pagelab.analysis.frames import frames_of
from pagelab.analysis.limits import with_limits
from pagelab.analysis.machine import drift_of, machine_of, unbacked_of, waiting_of
from pagelab.analysis.metrics import executions_of, metric_named, metrics_of
from pagelab.analysis.model import SCHEMA, Analysis, Contrast, Design, Execution, SetPart, Summary
from pagelab.analysis.nondeterminism.build import nondeterminism_of
from pagelab.analysis.nondeterminism.interval_warnings import interval_warnings
from pagelab.analysis.over_set import over_set_of
from pagelab.analysis.placement import placements_of
from pagelab.analysis.study_warnings import failures_of, warnings_of
from pagelab.analysis.summaries import measurements_of, summaries_of


class NothingToAnalyseError(ValueError):
    """The store holds no run; the message contains the next command."""


def analyse(data: StudyData) -> Analysis:
    """The analysis of *data*, with all values of the report. Raises `NothingToAnalyseError` where there is no run."""
    if data.runs.height == 0:
        raise NothingToAnalyseError(f"study {data.plan.name} has no finished run yet")
    metrics = metrics_of(data)
    for wanted in (data.plan.metric, *(c.metric for c in data.plan.conditions)):
        if wanted not in {m.name for m in metrics}:
            metrics += (metric_named(wanted),)
    executions = executions_of(data, metrics)
    design = design_of(data, executions, metrics)
    summaries = summaries_of(design.conditions, executions, metrics, design.interval_level)
    contrasts = contrasts_of(design, executions, metrics)
    primary = tuple(c for c in contrasts if c.metric == design.primaries.get(c.workload, design.primary))
    compared = primary if design.answer == "each" else ()
    over = over_set_of(data, design, primary, executions, metrics) if design.answer == "set" else None
    failures = failures_of(data, executions)
    nondeterminism = nondeterminism_of(data, {m.name: m for m in metrics}, design.interval_level)
    doubts = () if nondeterminism is None else interval_warnings(nondeterminism.experiments, nondeterminism.refused)
    warnings = warnings_of(data, design.conditions, executions, doubts)
    machine = machine_of(data)
    return verdict.ShownAnalysis(
        schema=SCHEMA,
        created_by=_version(),
        design=design,
        headline=with_limits(verdict.headline(verdict.judged_of(compared, design, metrics), design), data.limits)
        if over is None
        else set_words.headline(over, design),
        answers=tuple(c.sentence for c in compared) if over is None else set_words.sentences(over, design),
        caveats=caveats_of(design, failures, warnings, machine, primary, unbacked_of(data), waiting_of(data)),
        metrics=metrics,
        executions=executions,
        summaries=summaries,
        contrasts=contrasts,
        spreads=spreads_of(design, summaries, contrasts),
        placements=placements_of(data, design.conditions, executions),
        measurements=measurements_of(data, design.conditions, executions, design.interval_level),
        failures=failures,
        warnings=warnings,
        drift=drift_of(_ratios(design, executions, summaries), randomised=data.origin is None),
        machine=machine,
        frames=frames_of(data, _analysed(design, executions), _differing(design, compared, over)),
        nondeterminism=nondeterminism,
        over_set=over,
        limits=data.limits,
    )


def _analysed(design: Design, executions: tuple[Execution, ...]) -> dict[str, list[int]]:
    """Condition → its runs to analyse, in the order of the design."""
    found: dict[str, list[int]] = {condition.id: [] for condition in design.conditions}
    for execution in executions:
        if execution.analysed and execution.condition in found:
            found[execution.condition].append(execution.run_id)
    return found


def _differing(design: Design, compared: tuple[Contrast, ...], over: SetPart | None) -> set[str]:
    """Conditions for which a difference was found; for a set, all conditions under the policy."""
    found = {(c.workload, c.policy) for c in compared if c.verdict in ("lower", "higher")}
    of_set = {c.policy for c in (over.contrasts if over else ()) if c.verdict in ("lower", "higher")}
    return {c.id for c in design.conditions if (c.workload, c.policy) in found or c.policy in of_set}


def _ratios(
    design: Design, executions: tuple[Execution, ...], summaries: tuple[Summary, ...]
) -> list[tuple[int, float]]:
    medians = {(s.condition, s.metric): s.median for s in summaries}
    found = []
    for e in executions:
        metric = design.primaries.get(e.workload, design.primary)
        median = medians.get((e.condition, metric), 0.0)
        if e.analysed and median > 0 and metric in e.values:
            found.append((e.position, e.values[metric] / median))
    return found


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"pagelab {version('pagelab')}"
    except PackageNotFoundError:
        return "pagelab"
