"""Makes points from executions: R by the estimator, counts from one source, and the reasons for excluded executions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pagelab.errors import BadInputError, MachineError, quoted
from pagelab.layouts import Layout
from pagelab.model_run import executions
from pagelab.model_run.document import Campaign, EstimatorName, Excluded
from pagelab.model_run.estimate import Noise, Own, estimate
from pagelab.model_run.executions import Execution
from pagelab.model_run.simulation import Counts, Simulator, processor_of
from pagelab.models import Points
from pagelab.models.agreement import SIMULATED
from pagelab.models.document import CampaignSummary, SimulatedBy, Told
from pagelab.models.points import Role
from pagelab.simulate import hardware
from pagelab.simulate.calibration import this_machine

FEWEST_EXECUTIONS = 2
"""Least number of executions of a layout; with fewer its noise is unknown."""
_CLOCK_MOVES = 0.02
_MEMORY_MOVES = 0.25
"""Limit on the relative change of a load's time, which scatters more than that of an addition."""
_ROUNDS_MOVE = 3.0
"""Limit on the difference of an anchor's time between rounds, in standard errors."""


@dataclass(frozen=True)
class Gathered:
    """The points of a campaign so far."""

    points: Points
    excluded: list[Excluded]
    told: list[Told]
    summary: CampaignSummary


def gathered(directory: Path, campaign: Campaign, simulator: Simulator | None) -> Gathered:
    """The points of all rounds that ran. Raises `BadInputError` if too few executions are usable."""
    trial, asked = campaign.trial, campaign.asked
    assert trial is not None
    counted = trial.counts == "counted"
    by_round = [executions.read(directory / one.directory, trial.window) for one in campaign.rounds]
    rows = {row.name: row for one in campaign.rounds for row in one.layouts}
    cycle_ns = 0.0 if counted else _cycle_ns([run for one in by_round for run in one])
    kept: dict[str, list[float]] = {}
    counts: dict[str, list[dict[str, float]]] = {}
    excluded: list[Excluded] = []
    for name in rows:
        own = [run for one in by_round for run in one if run.layout == name]
        good, left_out = usable(own, counted=counted)
        whole = len(good) < FEWEST_EXECUTIONS
        excluded += [
            Excluded(layout=name, executions=count, why=why, whole=whole) for why, count in left_out.items() if count
        ]
        if whole:
            if not left_out:
                excluded.append(Excluded(layout=name, executions=0, why="too few executions", whole=True))
            continue
        kept[name] = [r_cycles(run, counted=counted, cycle_ns=cycle_ns) for run in good]
        counts[name] = [run.counts for run in good]
    for size in ("4K", "2M"):
        if size not in kept:
            why = next((one.why for one in excluded if one.layout == size), "it did not run")
            raise BadInputError(
                f"the layout of {size} pages alone is left out ({why}), and no model can be judged without it; see "
                f"every execution: pagelab study status {quoted(directory / campaign.rounds[0].directory)}"
            )
    names = list(kept)
    noise, errors = noise_of(kept, {name: rows[name].role for name in names}, asked.estimator)
    r = np.array([estimate(np.array(kept[name]), asked.estimator) for name in names])
    repeats = np.array([len(kept[name]) for name in names])
    roles: list[Role] = [rows[name].role for name in names]
    inputs: dict[str, list[float]]
    extra: dict[str, list[float]] = {"huge_bytes": [float(rows[name].layout().huge_bytes) for name in names]}
    if counted:
        inputs = {key: [float(np.mean([one[key] for one in counts[name]])) for name in names] for key in "hmc"}
        if trial.active and all("active" in one for own in counts.values() for one in own):
            extra["active_cycles"] = [float(np.mean([one["active"] for one in counts[name]])) for name in names]
        if simulator is not None:
            beside = _columns(simulator.counts([rows[name].layout() for name in names]))
            extra |= {f"{SIMULATED}{key}": values for key, values in beside.items()}
    else:
        assert simulator is not None
        simulated = simulator.counts([rows[name].layout() for name in names])
        inputs = _columns(simulated)
        extra |= {
            "active_cycles": [one.active for one in simulated],
            "table_reads": [one.table_reads for one in simulated],
        }
    points = Points.of(
        campaign.workload,
        r=r,
        layouts=names,
        roles=roles,
        anchors={"4K": "4K", "2M": "2M"},
        r_sd=r * np.array([Own.of(kept[name], asked.estimator).sd for name in names]),
        repeats=repeats,
        r_error=r * np.array([errors[name] for name in names]),
        source=trial.counts,
        walkers=_walkers(campaign, directory),
        extra=extra,
        **inputs,
    )
    told = [*machine_moved(by_round, counted=counted), *_rounds_apart(by_round)]
    return Gathered(points, excluded, told, _summary(campaign, noise, cycle_ns, by_round))


def noise_of(
    runs: Mapping[str, Sequence[float]], roles: Mapping[str, Role], how: EstimatorName
) -> tuple[Noise, dict[str, float]]:
    """The noise of the training layouts, and the relative standard error of each layout's R.

    Runs of test layouts have no part in the training layouts' errors, which weigh the layouts in fits and so decide
    what is chosen next and when a campaign ends. The errors of test layouts are moderated towards those of all.
    """
    training = Noise.of({name: own for name, own in runs.items() if roles[name] == "train"}, how)
    errors = {**Noise.of(runs, how).errors(), **training.errors()}
    return training, {name: error for name, (error, _) in errors.items()}


def left_out(one: Excluded) -> Told:
    """The warning about executions that are in no estimate."""
    rest = "the layout is left out" if one.whole else "the others count"
    return Told(kind="left-out", message=f"left out: {one.executions} of {one.layout}: {one.why}; {rest}")


def simulated_by(points: Points, layouts: Sequence[Layout], simulator: Simulator) -> Points:
    """The same points with simulated H, M and C, matched by name; for choices among layouts that did not run."""
    own = {one.name: one for one in layouts}
    found = _columns(simulator.counts([own[name] for name in points.layouts]))
    changed = {key: np.array(values) for key, values in found.items()}
    return replace(points, source="simulated", h=changed["h"], m=changed["m"], c=changed["c"])


def _columns(counts: Sequence[Counts]) -> dict[str, list[float]]:
    return {key: [getattr(one, key) for one in counts] for key in ("h", "m", "c")}


def usable(runs: Sequence[Execution], *, counted: bool) -> tuple[list[Execution], dict[str, int]]:
    """The usable executions, and the number of others by reason."""
    good: list[Execution] = []
    reasons: dict[str, int] = {}
    for run in runs:
        why = _why_not(run, counted=counted)
        if why is None:
            good.append(run)
        else:
            reasons[why] = reasons.get(why, 0) + 1
    return good, reasons


def loss(name: str, executions_: int, left_out: Mapping[str, int]) -> str:
    """Which executions of a layout do not count, and why; empty if all do."""
    why = ", ".join(f"{count} times {reason}" for reason, count in left_out.items())
    lost = sum(left_out.values())
    return f"warning: {name}: {lost} of {executions_} executions are left out ({why})" if lost else ""


def _why_not(run: Execution, *, counted: bool) -> str | None:
    if run.status != "ok":
        return f"{run.status}: {run.message}".rstrip(": ")
    if run.short:
        return "memory did not get the pages of the layout"
    if counted and any(key not in run.counts for key in executions.COUNTED):
        return "counters did not count"
    if not counted and (run.r_s is None or run.r_s <= 0):
        return "no time was measured"
    return None


def r_cycles(run: Execution, *, counted: bool, cycle_ns: float) -> float:
    """R in cycles: counted, or processor time over the time of a cycle."""
    return r_of(run, counted=counted) * (1.0 if counted else 1e9 / cycle_ns)


def r_of(run: Execution, *, counted: bool) -> float:
    """R as it was measured: counted cycles, or seconds of processor time."""
    if counted:
        return run.counts["r"]
    assert run.r_s is not None
    return run.r_s


def _cycle_ns(runs: Sequence[Execution]) -> float:
    """Median time of a cycle over the campaign; 1 ns if no clock was timed."""
    return _median([run.cycle_ns for run in runs]) or 1.0


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _walkers(campaign: Campaign, directory: Path) -> int:
    """Number of page walkers: of the description, or of this machine's preset if nothing is simulated; 2 if unknown."""
    if campaign.simulated is not None:
        processor = processor_of(directory, campaign.simulated.processor)
    else:
        try:
            processor = this_machine()
        except MachineError:
            return 2
    return int(hardware.load(processor).needed("tlb").get("walkers", 1))


def machine_moved(by_round: Sequence[Sequence[Execution]], *, counted: bool, in_cycles: bool = True) -> list[Told]:
    """Warnings if the chains beside the executions show that the clock or the memory speed changed.

    Counted cycles do not depend on the clock. ``in_cycles``: R was converted from seconds to cycles.
    """
    runs = [run for one in by_round for run in one]
    found = []
    clock = None if counted else _moved([run.cycle_ns for run in runs], _CLOCK_MOVES)
    if clock is not None:
        low, middle, high = clock
        of_r = f"R is in cycles of {middle:.3f} ns" if in_cycles else "R is in seconds and follows it"
        found.append(
            Told(
                kind="clock-changed",
                message=f"the clock changed during the campaign: a cycle took {low:.3f} to {high:.3f} ns (the middle "
                f"80% of executions); {of_r}; its cause: pagelab doctor --why",
            )
        )
    memory = _moved([run.memory_ns for run in runs], _MEMORY_MOVES)
    if memory is not None:
        low, _, high = memory
        found.append(
            Told(
                kind="memory-changed",
                message=f"memory was not equally fast during the campaign: a load took {low:.3g} to {high:.3g} ns (the "
                "middle 80% of executions); other programs, or the host's, used it; see: pagelab doctor --why",
            )
        )
    return found


def _moved(values: Sequence[float | None], limit: float) -> tuple[float, float, float] | None:
    """The 10%, 50% and 90% quantiles if the outer ones are further apart than the limit, else None."""
    known = [value for value in values if value is not None]
    if len(known) < FEWEST_EXECUTIONS:
        return None
    low, middle, high = map(float, np.quantile(known, [0.1, 0.5, 0.9]))
    return (low, middle, high) if high / low - 1 > limit else None


def _rounds_apart(by_round: Sequence[Sequence[Execution]]) -> list[Told]:
    """Warnings about anchors whose mean in a later round is far from that in the first round."""
    found = []
    for size in ("4K", "2M"):
        groups = [
            np.array([run.r_s for run in one if run.layout == size and run.status == "ok" and run.r_s])
            for one in by_round
        ]
        groups = [one for one in groups if one.size >= FEWEST_EXECUTIONS]
        if len(groups) < 2:
            continue
        pooled = np.sqrt(np.mean([one.var(ddof=1) for one in groups]))
        means = np.array([one.mean() for one in groups])
        limit = _ROUNDS_MOVE * pooled * np.sqrt(2 / min(one.size for one in groups))
        if np.ptp(means) > max(limit, 0.02 * means.mean()):
            found.append(
                Told(
                    kind="rounds-apart",
                    message=f"executions in {size} pages took {means.min():.3g} to {means.max():.3g} s in different "
                    "rounds, more than their scatter: the machine changed meanwhile",
                )
            )
    return found


def _summary(
    campaign: Campaign, noise: Noise, cycle_ns: float, by_round: Sequence[Sequence[Execution]]
) -> CampaignSummary:
    trial, simulated = campaign.trial, campaign.simulated
    assert trial is not None
    return CampaignSummary(
        command=campaign.asked.argv,
        cwd=campaign.asked.cwd,
        window=trial.window,
        estimator=campaign.asked.estimator,
        select=campaign.asked.select,
        run_sd=noise.run_sd,
        cycle_ns=cycle_ns or None,
        memory_ns=_median([run.memory_ns for one in by_round for run in one]),
        simulated=None
        if simulated is None
        else SimulatedBy(
            processor=simulated.processor,
            description=simulated.description,
            caches=simulated.caches,
            trace=simulated.trace,
            trace_digest=simulated.trace_digest,
            references=simulated.references,
        ),
    )
