"""Checks a campaign's models: measures pages that none of its layouts had and compares with every prediction.

The paper's case study (section VII-D) is of this kind: models of layouts in 4K and 2M pages, and the run time in 1G
pages. The pages run interleaved with the anchors. R is scaled by the anchors' time in the campaign over their time now,
so that a machine that became faster or slower meanwhile does not count as an error of a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pagelab.analysis import wording
from pagelab.errors import BadInputError, MachineError, quoted
from pagelab.layouts import Layout
from pagelab.model_run import document, executions
from pagelab.model_run.document import Campaign, EstimatorName
from pagelab.model_run.estimate import Own, combined, estimate, times
from pagelab.model_run.points import loss, r_cycles, usable
from pagelab.model_run.predicting import known_trace, of_program, simulated_counts, wanted_pages
from pagelab.models.base import number
from pagelab.models.catalogue import chosen
from pagelab.models.document import MOVED, Fits, ModelFile, fits_of, read, write
from pagelab.models.document import Layout as Row
from pagelab.models.judgement import judge
from pagelab.models.reach import beyond
from pagelab.simulate.placements import Placement, placement
from pagelab.study.lock import DirectoryLock
from pagelab.study.progress import Progress, Silent, Titled, shown_duration
from pagelab.study.setting import Setting, named
from pagelab.study.tools import Tools

ANCHORS = ("4K", "2M")
LEAST_EXECUTIONS, MOST_EXECUTIONS = 3, 50


def checked(
    directory: Path,
    pages: str | None,
    policy: Path | None,
    minutes: float,
    tools: Tools,
    progress: Progress | None = None,
    seed: int = 1,
) -> tuple[ModelFile, Path]:
    """Runs the pages in ``DIR/check-NAME``, or the rest of them, and judges the campaign's models by them alone.

    Returns the model's file with these pages as its only test layout, and the path where it is kept. Policies from
    files may have the same name; their directories also have a digest of what is in them.

    Raises `BadInputError` for directories without a finished campaign, for 4K and 2M (every campaign has them), and if
    the minutes are too few for :data:`LEAST_EXECUTIONS` of each; `MachineError` if memory does not get the pages.
    """
    file = read(directory)
    campaign = document.read(directory)
    if campaign is None or campaign.trial is None or campaign.plan is None:
        raise BadInputError(
            f"{directory}: it has no campaign; make it with: pagelab model run --into {quoted(directory)} -- CMD"
        )
    wanted = placement(policy) if policy is not None else wanted_pages(pages or "1G")
    name = named(wanted.name, "pages")
    if name in {row.layout for row in file.layouts}:
        raise BadInputError(f"{wanted.name} pages are a layout of {directory} already; check others: --pages 1G")
    wanted = of_program(wanted, campaign, directory)
    own = directory / f"check-{name}{f'-{digest_of(wanted)}' if policy is not None else ''}"
    count = min(MOST_EXECUTIONS, int(60 * minutes / ((1 + len(ANCHORS)) * campaign.plan.run_s)))
    if count < LEAST_EXECUTIONS:
        least = LEAST_EXECUTIONS * (1 + len(ANCHORS)) * campaign.plan.run_s
        raise BadInputError(
            f"{LEAST_EXECUTIONS} executions in {wanted.name}, 4K and 2M pages take {shown_duration(least)}; give it "
            f"--minutes {np.ceil(least / 6) / 10:g}"
        )
    executions.refuse_other_machine(directory, campaign, tools)
    with DirectoryLock(directory, lambda who: f"{directory} is in use by {who}; wait for it"):
        # Before the executions: what cannot be simulated is refused before they take their time.
        simulated = None if campaign.trial.counts == "counted" else _simulated(file, directory, wanted)
        spec = own / "study.toml"
        if not (own / "study.db").exists():
            settings: list[Layout | Setting] = [*_anchors(campaign), Setting(name, wanted.policy.toml)]
            counting = campaign.trial.counts == "counted"
            spec = executions.study(campaign.asked, own, settings, count, counting=counting, seed=seed)
        executions.run(spec, own, tools, Titled(progress or Silent(), own.name, notes=False), at_least=count)
        row = _row(file, campaign, own, name, simulated, progress or Silent())
        found = _judged(file, row)
        kept = directory / f"{own.name}.json"
        write(kept, found)
    return found, kept


def _anchors(campaign: Campaign) -> list[Layout]:
    """The 4K and 2M layouts of the campaign's first round."""
    rows = {row.name: row for row in campaign.rounds[0].layouts} if campaign.rounds else {}
    if not rows.keys() >= set(ANCHORS):
        raise BadInputError("the campaign has not run its 4K and 2M pages yet; it goes on with: pagelab model run")
    return [rows[name].layout() for name in ANCHORS]


def digest_of(wanted: Placement) -> str:
    """Eight digits that tell policies of one name apart."""
    return hashlib.sha256(wanted.policy.toml.encode()).hexdigest()[:8]


def _row(
    file: ModelFile, campaign: Campaign, own: Path, name: str, simulated: dict[str, float] | None, progress: Progress
) -> Row:
    """The measured layout as a row of the model's file, scaled to the campaign's speed of the machine.

    Its error has three parts: of its own runs, of the anchors' beside them, and of the anchors' in the campaign.
    """
    trial = campaign.trial
    assert trial is not None
    counted = trial.counts == "counted"
    cycle_ns = 1.0 if file.campaign is None else file.campaign.cycle_ns or 1.0
    r: dict[str, list[float]] = {}
    counts: dict[str, list[Mapping[str, float]]] = {}
    for each in (*ANCHORS, name):
        runs = [run for run in executions.read(own, trial.window) if run.layout == each]
        good, left_out = usable(runs, counted=counted)
        if len(good) < 2:
            why = ", ".join(f"{count} times {reason}" for reason, count in left_out.items()) or "they did not run"
            raise MachineError(
                f"{each} pages: {len(good)} of {len(runs)} executions count ({why}); what is in the way: pagelab "
                f"doctor; every execution: pagelab study status {quoted(own)}"
            )
        lost = loss(each, len(runs), left_out)
        if lost:
            progress.note(lost)
        r[each] = [r_cycles(run, counted=counted, cycle_ns=cycle_ns) for run in good]
        counts[each] = [run.counts for run in good]
    how = campaign.asked.estimator
    noise = {each: Own.of(values, how) for each, values in r.items()}
    here = {each: estimate(np.array(values), campaign.asked.estimator) for each, values in r.items()}
    moved = {each: here[each] / _of(file, each).r for each in ANCHORS}
    value = here[name] / float(np.exp(np.mean(np.log(list(moved.values())))))
    error, freedom = combined(_parts(noise, file, name, how))
    own_counts = simulated or {key: float(np.mean([one[key] for one in counts[name]])) for key in ("h", "m", "c")}
    return Row(
        layout=name,
        role="test",
        r=value,
        h=own_counts["h"],
        m=own_counts["m"],
        c=own_counts["c"],
        r_sd=value * noise[name].sd,
        repeats=len(r[name]),
        r_se=value * error if np.isfinite(error) else None,
        r_freedom=freedom if np.isfinite(freedom) else None,
        extra={
            **dict.fromkeys(file.layouts[0].extra),
            **{column: moved.get(anchor) for anchor, column in MOVED.items()},
        },
    )


def _of(file: ModelFile, anchor: str) -> Row:
    return next(row for row in file.layouts if row.layout == file.anchors[anchor])


def _parts(noise: Mapping[str, Own], file: ModelFile, name: str, how: EstimatorName) -> list[tuple[float, float]]:
    """Errors and degrees of freedom of the row's runs, and of the anchors' runs now and in the campaign, by half."""
    parts: list[tuple[float, float]] = [(noise[name].error, noise[name].repeats - 1)]
    for each in ANCHORS:
        row = _of(file, each)
        before = Own.told((row.r_sd or 0.0) / row.r, row.repeats or 2, how)
        parts += [(one.error / len(ANCHORS), one.repeats - 1) for one in (noise[each], before)]
    return parts


def _simulated(file: ModelFile, directory: Path, wanted: Placement) -> dict[str, float]:
    trace, simulated = known_trace(file, directory)
    return simulated_counts(trace, simulated.processor, wanted, caches=simulated.caches)


def _judged(file: ModelFile, row: Row) -> ModelFile:
    """The model's file with the campaign's training layouts and this one as test, and the models judged by it."""
    seed = 1 if file.fits is None else file.fits.seed
    names = None if file.fits is None else [one.model for one in file.fits.models]
    kept = [one for one in file.layouts if one.role == "train"]
    training = [one.model_copy(update={"extra": {**one.extra, **dict.fromkeys(MOVED.values())}}) for one in kept]
    found = file.model_copy(update={"layouts": [*training, row]})
    points = found.points()
    folds = min(10 if file.fits is None else file.fits.folds, len(training))
    judgement = judge(points, chosen(names, seed), folds=folds, seed=seed)
    return found.model_copy(update={"fits": fits_of(points, judgement, seed)})


def text(found: ModelFile, kept: Path) -> str:
    """The printed result of a check."""
    row, fits = found.layouts[-1], found.fits
    assert fits is not None
    gain = wording.percent(row.r / _of(found, "4K").r - 1)
    half = None if row.r_se is None else times(row.r_freedom) * row.r_se / row.r
    error = "" if half is None else f" ± {wording.percent(half, signed=False)}"
    how = "" if found.campaign is None else f", the {found.campaign.estimator} of {row.repeats} executions"
    counts = ", ".join(
        f"{key} = {number(value or 0.0)}" for key, value in zip("HMC", (row.h, row.m, row.c), strict=True)
    )
    training = found.points().role("train")
    lines = [
        f"{found.workload} in {row.layout} pages: R = {number(row.r)} cycles{error}{how}; {gain} against 4K",
        f"{found.source} {counts}",
        _moved(row),
        "",
        f"{'model':<12} {'predicted':>12} {'off by':>8}",
        *_off(fits, row),
        "",
        *(f"warning: {one.message}" for one in beyond(training, row.h, row.m, row.c)),
        f"next: pagelab model report {quoted(kept)} --out DIR\n      (the same as a page, with the models' curves)",
    ]
    return "\n".join(lines)


def _moved(row: Row) -> str:
    told = [f"{wording.percent((row.extra.get(MOVED[size]) or 1.0) - 1)} in {size} pages" for size in ANCHORS]
    return f"against the campaign, executions took {' and '.join(told)}; R is scaled by that"


def _off(fits: Fits, row: Row) -> Sequence[str]:
    """One line of text for each model."""
    lines = []
    for one in fits.models:
        if one.test is None:
            lines.append(f"{one.model:<12} {'–':>12} {one.refusal or 'no prediction'}")
            continue
        relative = one.test.relative[row.layout]
        lines.append(f"{one.model:<12} {number(row.r * (1 + relative)):>12} {wording.percent(relative):>8}")
    return lines
