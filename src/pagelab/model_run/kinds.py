"""Measures which kind of memory decides the run time: heap, anonymous mappings, arenas, each in 4K or in 2M pages.

All combinations of the kinds that the program uses run interleaved (a 2^k design), each once in every block, so that
effects are found within blocks. Directory: ``campaign.json`` (command and trial), ``kinds.json`` (the result), and one
study each for ``trial`` and ``runs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagelab import layouts as making
from pagelab.errors import BadInputError, quoted
from pagelab.layouts import Footprint, Layout, footprint
from pagelab.layouts.layout import POOLS, TILE
from pagelab.model_run import document, executions
from pagelab.model_run.document import Asked, Campaign
from pagelab.model_run.estimate import estimate
from pagelab.model_run.executions import TRIAL, Execution, trial_records
from pagelab.model_run.kinds_answer import following, verdict
from pagelab.model_run.kinds_document import LEVEL, NAME, Combination, Effect, Kind, KindsDocument
from pagelab.model_run.points import machine_moved, r_of, usable
from pagelab.model_run.run import (
    Session,
    locked,
    refuse_other_input,
    refuse_other_machine,
    session_of,
    stoppable,
    try_it,
)
from pagelab.model_run.simulation import Counts, Simulator, needed, processor_of
from pagelab.models.document import Told, put
from pagelab.record import Record
from pagelab.stats import FactorialEffect, Interval, factorial_effects
from pagelab.stats.paired import FEWEST_PAIRS
from pagelab.study.budget import MOST_BLOCKS, fewest_of, rounded_up
from pagelab.study.progress import Progress, Silent, shown_duration
from pagelab.study.store import NAME as STORE
from pagelab.study.tools import Tools

RUNS = "runs"
LEAST_BYTES = TILE
"""A kind of which the program touches less is left out: it would not fill one large page."""
_FEWEST_RUNS = 2 + 2 * fewest_of(1, LEVEL)
_MARGIN = 0.95


def kinds(asked: Asked, directory: Path, tools: Tools, progress: Progress | None = None) -> KindsDocument:
    """Runs the design in ``directory``, or the rest of it, and returns the effects.

    Raises `BadInputError` if the program fails, uses none of these kinds, or takes too long for the minutes, and
    whatever :func:`pagelab.model_run.run.try_it` raises.
    """
    with locked(directory):
        session = session_of(asked, directory, tools, progress or Silent(), _FEWEST_RUNS)
        with stoppable(session):
            try_it(session)
            records = trial_records(directory / TRIAL)
            known = kinds_of(records)
            native = footprint.of_record(records["2M"])
            factors = [one.kind for one in known if one.left_out is None]
            combinations = making.kinds(Footprint(tuple(tile for tile in native.tiles if tile[0] in factors)))
            _refuse_few_minutes(session, len(combinations))
            # Before the executions, since what remains of the minutes then is theirs.
            counts = _simulated(session, records, combinations)
            session.study(RUNS, combinations, _blocks(session, len(combinations)))
            refuse_other_machine(session)
            found = _found(session, known, combinations, counts)
        put(directory / NAME, found.model_dump_json(by_alias=True, indent=1) + "\n")
        return found


def kinds_of(records: dict[str, Record]) -> list[Kind]:
    """Every kind, from the trial's records of ``4K`` and ``2M``. Raises `BadInputError` if none can be a factor."""
    touched, huge = dict.fromkeys(POOLS, 0), dict.fromkeys(POOLS, 0)
    for size, sums in (("4K", touched), ("2M", huge)):
        for process in records[size].processes or []:
            for row in process.placement or []:
                if row.region in sums:
                    sums[row.region] += sum(s.bytes for s in row.by_size if size == "4K" or s.page_bytes >= TILE)
    found = [Kind(kind=one, touched_bytes=touched[one], left_out=_why_not(touched[one], huge[one])) for one in POOLS]
    if all(one.left_out is not None for one in found):
        each = ", ".join(f"{one.kind} {one.touched_bytes >> 10} KiB" for one in found)
        raise BadInputError(
            f"the program uses less than one 2M page of each kind of memory ({each}), so no page size of theirs "
            "matters; take a larger input; what it has instead: pagelab map -- CMD"
        )
    return found


def _why_not(touched: int, huge: int) -> str | None:
    if touched < LEAST_BYTES:
        return "hardly used"
    return None if huge else "the kernel gave it no 2M page"


def _simulated(session: Session, records: dict[str, Record], combinations: Sequence[Layout]) -> list[Counts] | None:
    """Simulated H, M and C of the combinations; None if they are counted or not requested."""
    asked, trial = session.asked, session.campaign.trial
    assert trial is not None
    if trial.counts == "counted" or not _simulates(asked):
        return None
    how, traced = needed(asked, session.directory, trial, session.progress.note)
    refuse_other_input(session, traced, records)
    session.keep(simulated=how)
    # Memory that the trace does not touch has no misses, and a layout with none of the traced pages would be refused.
    own = [traced.at(one.name, traced.positions(one)) for one in combinations]
    simulator = Simulator(session.directory, how, session.progress.note)
    simulator.expected = lambda what: _refuse_few_minutes(session, len(combinations), what.pass_s)
    return simulator.counts(own)


def _simulates(asked: Asked) -> bool:
    """Whether the request names simulated counts or a trace; otherwise none is captured, since that takes long."""
    return asked.counts == "simulated" or asked.trace is not None or asked.processor is not None


def _refuse_few_minutes(session: Session, combinations: int, simulating_s: float = 0.0) -> None:
    """Raises `BadInputError` if the fewest blocks that can find an effect, and the simulation, exceed the minutes."""
    if (session.directory / RUNS / STORE).exists():
        return  # the study already has its number of blocks
    trial = session.campaign.trial
    assert trial is not None
    fewest = fewest_of(combinations - 1, LEVEL)
    lacks_s = fewest * _block_s(session, combinations) / _MARGIN + simulating_s - session.left_s
    if lacks_s > 0:
        minutes = session.asked.minutes + lacks_s / 60
        simulating = f", and simulating their counts takes about {shown_duration(simulating_s)}" if simulating_s else ""
        raise BadInputError(
            f"one execution takes {shown_duration(max(1, trial.run_s))}, and {fewest} of each of {combinations} "
            f"combinations are the fewest that can find an effect{simulating}: give it --minutes "
            f"{rounded_up(1.1 * minutes)}, or a smaller input"
        )


def _block_s(session: Session, combinations: int) -> float:
    """Seconds of a block, by the trial."""
    assert session.campaign.trial is not None
    return combinations * max(session.campaign.trial.run_s, 1e-3)


def _blocks(session: Session, combinations: int) -> int:
    """Number of blocks that fit the minutes. Raises `BadInputError` if it is too small to find any effect."""
    if (session.directory / RUNS / STORE).exists():
        return 0  # the study already has its number of blocks
    _refuse_few_minutes(session, combinations)
    block_s = _block_s(session, combinations)
    # At least the fewest: the division may round down what has just been found to fit.
    blocks = min(MOST_BLOCKS, max(fewest_of(combinations - 1, LEVEL), int(_MARGIN * session.left_s / block_s)))
    session.progress.note(
        f"{combinations} combinations, {blocks} executions of each: {shown_duration(blocks * block_s)}"
    )
    return blocks


def _found(
    session: Session, known: list[Kind], combinations: Sequence[Layout], simulated: Sequence[Counts] | None
) -> KindsDocument:
    """The document of a design whose runs are done."""
    campaign, trial = session.campaign, session.campaign.trial
    assert trial is not None
    counted = trial.counts == "counted"
    runs = executions.read(session.directory / RUNS, trial.window)
    good, lost = usable(runs, counted=counted)
    table = by_block(good, [one.name for one in combinations], counted=counted)
    factors = [one.kind for one in known if one.left_out is None]
    if len(table) < FEWEST_PAIRS:
        why = ", ".join(f"{count} times {reason}" for reason, count in lost.items()) or "it was stopped"
        raise BadInputError(
            f"{len(table)} blocks are whole, too few to tell anything ({why}); every execution: pagelab study status "
            f"{quoted(session.directory / RUNS)}; what is in the way of 2M pages: pagelab doctor"
        )
    effects = [_effect(one, factors) for one in factorial_effects(table, level=LEVEL)]
    rows = [
        _combination(one, good, campaign, None if simulated is None else simulated[at])
        for at, one in enumerate(combinations)
    ]
    following_, why = following(campaign, effects, session.directory)
    return KindsDocument(
        workload=campaign.workload,
        command=campaign.asked.argv,
        minutes=campaign.asked.minutes,
        verdict=verdict(known, effects, len(table), fewest_of(len(combinations) - 1, LEVEL)),
        window=trial.window,
        unit="cycles" if counted else "s",
        estimator=campaign.asked.estimator,
        counts="counted" if counted else "simulated" if simulated is not None else None,
        counts_why=trial.counts_why,
        kinds=known,
        blocks=len(table),
        combinations=rows,
        effects=effects,
        told=[*campaign.told, *_lost(lost), *machine_moved([runs], counted=counted, in_cycles=False)],
        directory=str(session.directory),
        next=following_,
        why=why,
    )


def by_block(runs: Sequence[Execution], names: Sequence[str], *, counted: bool) -> NDArray[np.float64]:
    """R of every block in which all combinations have a usable execution, shape (blocks, combinations)."""
    blocks: dict[int, dict[str, float]] = {}
    for run in runs:
        blocks.setdefault(run.block, {})[run.layout] = r_of(run, counted=counted)
    whole = [[own[name] for name in names] for _, own in sorted(blocks.items()) if len(own) == len(names)]
    return np.array(whole).reshape(-1, len(names))


def _effect(one: FactorialEffect, factors: list[str]) -> Effect:
    ends = (one.interval.low, one.interval.high) if isinstance(one.interval, Interval) else (None, None)
    return Effect(
        kinds=[factors[at] for at in one.factors],
        percent=one.percent,
        low_percent=ends[0],
        high_percent=ends[1],
        p=one.p,
        p_holm=one.p_holm,
    )


def _combination(
    layout: Layout, good: Sequence[Execution], campaign: Campaign, simulated: Counts | None
) -> Combination:
    assert campaign.trial is not None
    counted = campaign.trial.counts == "counted"
    own = [run for run in good if run.layout == layout.name]
    counts: dict[str, float | None] = dict.fromkeys("hmc")
    if counted:
        counts = {key: float(np.mean([run.counts[key] for run in own])) for key in "hmc"}
    elif simulated is not None:
        counts = {"h": simulated.h, "m": simulated.m, "c": simulated.c}
    return Combination(
        name=layout.name,
        large=[] if layout.name == "4K" else layout.name.split("+"),
        r=estimate(np.array([r_of(run, counted=counted) for run in own]), campaign.asked.estimator),
        runs=len(own),
        **counts,
    )


def _lost(reasons: dict[str, int]) -> list[Told]:
    return [
        Told(kind="left-out", message=f"left out: {count} executions, and the blocks that they are of: {why}")
        for why, count in reasons.items()
    ]


def of_model(directory: Path, minutes: float, seed: int) -> Asked:
    """The command, window and source of counts of a model's campaign. Raises `BadInputError` if it has no trial."""
    campaign = document.read(directory)
    if campaign is None or campaign.trial is None:
        raise BadInputError(
            f"{directory}: it has no campaign with a finished trial; make it with: pagelab model run --into "
            f"{quoted(directory)} -- CMD"
        )
    asked, simulated = campaign.asked, campaign.simulated
    counted = campaign.trial.counts == "counted"
    changes = {"minutes": minutes, "seed": seed, "window": campaign.trial.window, "select": "random"}
    if counted or simulated is None:
        return asked.model_copy(update={**changes, "counts": "measured" if counted else asked.counts})
    trace = str((directory / simulated.trace).resolve())
    processor = processor_of(directory, simulated.processor)
    return asked.model_copy(update={**changes, "counts": "simulated", "trace": trace, "processor": processor})
