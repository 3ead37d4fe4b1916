"""Builds the analysis of non-determinism from a study's data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from pagelab.analysis.data import StudyData
from pagelab.analysis.metrics import ANALYSED, samples_of
from pagelab.analysis.model import Metric as Column
from pagelab.analysis.nondeterminism import words
from pagelab.analysis.nondeterminism.characterized import Sample, experiment_of, shared_size
from pagelab.analysis.nondeterminism.families import distribution_of, family_of
from pagelab.analysis.nondeterminism.misses import misses_of
from pagelab.analysis.nondeterminism.traces import traces_of
from pagelab.analysis.nondeterminism_model import Distribution, Experiment, Family, NondeterminismPart
from pagelab.stats import nondeterminism as nd
from pagelab.stats.nondeterminism.dependence import ALARM
from pagelab.stats.refusal import StatsRefusedError
from pagelab.study.plan import Condition

SEED = 1
"""Seed of every resample, so that the same study gives the same digits."""
NO_LEVEL = "none"
"""Level of a factor that a workload does not have."""


def nondeterminism_of(data: StudyData, columns: Mapping[str, Column], level: float) -> NondeterminismPart | None:
    """The part of the analysis on non-determinism; None where no condition has a value to analyse.

    ``columns``: every metric by name.
    """
    samples, refused = _samples(data, columns)
    if not samples:
        return None
    settings = nd.Resampling(seed=SEED, level=level)
    experiments: dict[tuple[str, str], Experiment] = {}
    families: list[Family] = []
    distribution: Distribution | None = None
    for conditions, repeated, groups in _families(data.plan.active(), samples):
        mine = {key: one for key, one in samples.items() if key[0] in groups}
        own = [one.experiment for one in mine.values()]
        table = nd.characterize(own, settings)
        for i, (key, sample) in enumerate(mine.items()):
            experiments[key] = experiment_of(table, i, sample, level)
        if len(conditions) > 1:
            families.append(family_of(table, conditions, _baseline(data, groups), repeated=repeated))
        if repeated and distribution is None:
            size = shared_size(table)
            same = table if size is None else nd.characterize(_large(table), settings, group_size=size)
            distribution = distribution_of(same)
    ordered = tuple(experiments[key] for key in samples)
    traces, untraced = traces_of({key: one.experiment.executions for key, one in samples.items()}, ordered)
    return NondeterminismPart(
        level=level,
        draws=settings.estimate_draws,
        seed=SEED,
        speed=words.speed(families),
        steadiness=words.steadiness(families),
        experiments=ordered,
        families=tuple(families),
        distribution=distribution,
        misses=misses_of(
            data, _runs(data), {g: one.column.name for (g, _), one in samples.items()}, families, SEED, level
        ),
        traces=traces,
        untraced=untraced,
        false_alarms=ALARM * sum(_looks(one) for one in ordered),
        refused=refused,
    )


def _samples(data: StudyData, columns: Mapping[str, Column]) -> tuple[dict[tuple[str, str], Sample], dict[str, str]]:
    """(group, condition) → its data, in the order of the plan; and the conditions whose data cannot be used."""
    factors = _factors(data.plan.active())
    found: dict[tuple[str, str], Sample] = {}
    refused: dict[str, str] = {}
    for one in data.plan.active():
        column = columns.get(one.metric)
        runs = data.runs.filter((pl.col("condition") == one.name) & ~pl.col("warmup"))
        if column is None or runs.height == 0:
            continue
        try:
            executions, notes = samples_of(data, one.name, column, column.label)
        except StatsRefusedError as error:
            refused[one.name] = str(error)
            continue
        wall = runs.filter(pl.col("status").is_in(ANALYSED))["wall_s"].drop_nulls()
        mean = float(wall.to_numpy().mean()) if wall.len() else None
        experiment = nd.Experiment(one.workload, one.policy, executions, factors[one.workload])
        found[one.workload, one.policy] = Sample(experiment, column, mean, tuple(notes))
    return found, refused


def _factors(conditions: Sequence[Condition]) -> dict[str, dict[str, str]]:
    """Workload → its factors; every workload has a level of every factor."""
    own = {one.workload: one.factors for one in conditions}
    names = list(dict.fromkeys(name for levels in own.values() for name in levels))
    return {workload: {name: levels.get(name, NO_LEVEL) for name in names} for workload, levels in own.items()}


def _families(
    planned: Sequence[Condition], samples: Mapping[tuple[str, str], Sample]
) -> list[tuple[tuple[str, ...], bool, list[str]]]:
    """Families of workloads that can be counted together: (conditions, repeated or not, workloads)."""
    found: dict[tuple[tuple[str, ...], bool], list[str]] = {}
    for workload in dict.fromkeys(group for group, _ in samples):
        conditions = tuple(one.policy for one in planned if one.workload == workload)
        mine = [one.experiment.executions for (group, _), one in samples.items() if group == workload]
        repeated = any(int(each.counts.max()) > 1 for each in mine)
        found.setdefault((conditions, repeated), []).append(workload)
    ordered = sorted(found, key=lambda key: (not key[1], -len(found[key])))
    return [(*key, found[key]) for key in ordered]


def _baseline(data: StudyData, groups: Sequence[str]) -> str | None:
    return next((one.policy for one in data.plan.active() if one.baseline and one.workload in groups), None)


def _large(table: nd.Table) -> list[nd.Experiment]:
    return [one for one, size in zip(table.experiments, table.group_sizes, strict=True) if size]


def _runs(data: StudyData) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    rows = data.runs.filter(~pl.col("warmup") & pl.col("status").is_in(ANALYSED)).select("workload", "policy", "run_id")
    for workload, policy, run in rows.iter_rows():
        found.setdefault((workload, policy), []).append(run)
    return found


def _looks(one: Experiment) -> int:
    """Number of diagnostics that an experiment has."""
    found = one.dependence
    if found is None:
        return 0
    return sum(p is not None for p in (found.inside_p, found.between_p, found.change_p, found.trend_p))
