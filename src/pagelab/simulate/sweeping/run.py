"""Runs a sweep from its file to its dataset."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from ...distribute.model import Executor, Lost, Outcomes, ThisProcess
from ...errors import BadInputError, MachineError
from . import spec
from .dataset import Dataset
from .operations import Failed, Outcome, Task, Unfit, perform
from .plan import Plan, plan

if TYPE_CHECKING:
    import polars as pl

    from ..spread import Spread

Spec = str | PathLike[str] | Mapping[str, Any]
"""The path of a sweep's file, or what would be in it."""


@dataclass(frozen=True)
class Sweep:
    """State of a sweep."""

    directory: Path
    plan: Plan
    done_before: int
    """Tasks whose parts were there already."""
    failed: tuple[tuple[Task, Failed], ...] = ()

    def frame(self) -> pl.DataFrame:
        """All rows, in the order of the plan (docs/simulate-sweep has the columns)."""
        return Dataset(self.directory).frame(self.plan)

    def spread(self) -> list[Spread]:
        """The spread between executions of a trace in a configuration: memory cycles of caches, walk cycles of TLBs.
        The statistics are those for real runs; configurations with one seed or none are left out.
        """
        return spread_of(self.frame())


def spread_of(frame: pl.DataFrame) -> list[Spread]:
    """See :meth:`Sweep.spread`; ``placement`` is the trace and the configuration's name."""
    import polars as pl

    from ..spread import spread

    executions = frame.filter(pl.col("level").is_null() & pl.col("seed").is_not_null())
    labelled = executions.with_columns(placement=pl.concat_str("trace", "configuration", separator=", "))
    several = labelled.filter(pl.col("seed").n_unique().over("simulator", "placement") > 1)
    found: list[Spread] = []
    for simulator, quantity in (("cache", "cycles"), ("tlb", "c")):
        own = several.filter(simulator=simulator).sort("placement", "seed", maintain_order=True)
        found += spread(own, [quantity]) if len(own) else []
    return found


Progress = Callable[[int, int, int], None]
"""Told how many tasks are done (those before among them), how many there are, how many have failed."""


def planned(sweep_spec: Spec, out: str | PathLike[str]) -> tuple[Plan, list[Task]]:
    """The tasks of a sweep, and the missing ones. Writes nothing."""
    dataset = Dataset(Path(out))
    dataset.check()
    made = _plan(sweep_spec, dataset)
    return made, dataset.missing(made)


def sweep(
    sweep_spec: Spec,
    out: str | PathLike[str],
    *,
    cluster: str | None = None,
    processes: int | None = None,
    attempts: int = 3,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Sweep:
    """Does the missing tasks of a sweep, in local ``processes`` (None: as many as processors; 0: in this one) or on the
    Dask ``cluster`` whose scheduler has that address. ``attempts``: how many local processes may die of one task.

    Failed tasks are in the result; the others are done. ``say`` receives what a cluster waits for.

    Raises :class:`BadInputError` (a file, a trace or the directory), :class:`MachineError` (no cluster, a worker that
    does not fit); whatever is raised, Ctrl-C too, what is finished is in its place.
    """
    executor = _executor(cluster, processes, attempts, say)
    dataset = Dataset(Path(out))
    dataset.check()
    made = _plan(sweep_spec, dataset)
    with dataset.opened():
        missing = dataset.begin(made)
        before = len(made.tasks) - len(missing)
        failed: list[tuple[Task, Failed]] = []
        if progress is not None:
            progress(before, len(made.tasks), 0)
        # With nothing to do, no cluster need be there.
        with closing(executor.execute(perform, missing) if missing else _none()) as outcomes:
            for at, (task, outcome) in enumerate(outcomes, start=1):
                problem = _take(dataset, task, outcome, on_cluster=cluster is not None)
                if problem is not None:
                    failed.append((task, problem))
                if progress is not None:
                    progress(before + at - len(failed), len(made.tasks), len(failed))
    return Sweep(dataset.directory, made, before, tuple(failed))


def _none() -> Outcomes[Task, Outcome]:
    yield from ()


def _executor(cluster: str | None, processes: int | None, attempts: int, say: Callable[[str], None] | None) -> Executor:
    if cluster is None:
        from ...distribute.processes import LocalProcesses

        if processes == 0:
            return ThisProcess()
        return LocalProcesses(processes, attempts=attempts)
    if processes is not None:
        raise BadInputError("processes are local: give either them or a cluster")
    from ...distribute.cluster import DaskCluster

    return DaskCluster(cluster, say=say or (lambda _: None))


def _plan(sweep_spec: Spec, dataset: Dataset) -> Plan:
    known = dataset.known_traces()
    if isinstance(sweep_spec, Mapping):
        raw = spec.of_mapping(sweep_spec)
        return plan(raw, json.dumps(sweep_spec, default=str), Path.cwd() / "sweep", known)
    path = Path(sweep_spec)
    raw, text = spec.read(path)
    return plan(raw, text, path, known)


def _take(dataset: Dataset, task: Task, outcome: Outcome | Lost, *, on_cluster: bool) -> Failed | None:
    """Stores a part, or its error."""
    if isinstance(outcome, Unfit):
        if on_cluster:
            raise MachineError(
                f"host {outcome.host} does not fit: {outcome.message}; workers need the same pagelab, and the traces "
                "under the same path; what is finished is kept: mend it and call it again"
            )
        outcome = Failed(outcome.message, outcome.host)
    if isinstance(outcome, Lost):
        outcome = Failed(outcome.message, "")
    if isinstance(outcome, Failed):
        dataset.fail(task, outcome)
        return outcome
    dataset.add(task, outcome.content)
    return None


def cycles_figure(frame: pl.DataFrame, baseline: str | None = None) -> dict[str, Any]:
    """The Vega-Lite specification: each execution's memory cycles, divided by the median under ``baseline`` (None: the
    kernel's placement, or the first one if that is not simulated).

    One row a placement, the baseline first, grouped by trace and hardware; configurations that differ in anything else
    need a frame each. Raises :class:`BadInputError` where there are no executions of caches under the baseline.
    """
    from ...charts.marks import executions_by_row

    executions = frame.filter(pl.col("level").is_null(), simulator="cache")
    if baseline is None:
        placements = executions["placement"].unique(maintain_order=True).to_list()
        baseline = placements[0] if placements and "kernel" not in placements else "kernel"
    group = ["trace", "hardware"]
    base = executions.filter(placement=baseline).group_by(group).agg(base=pl.col("cycles").median())
    relative = executions.join(base, on=group).with_columns(
        value=pl.col("cycles") / pl.col("base"), other=pl.col("placement") != baseline
    )
    if relative.is_empty():
        raise BadInputError(f"the sweep has no executions of caches under {baseline} to show")
    rows: dict[tuple[str, str], list[float]] = {}
    ordered = relative.sort(*group, "other", "placement", "seed")
    for part in ordered.partition_by(*group, "placement", maintain_order=True):
        rows[f"{part['trace'][0]}, {part['hardware'][0]}", part["placement"][0]] = part["value"].to_list()
    return executions_by_row(rows, "cycles of memory of each execution", f"relative to the median of {baseline}")
