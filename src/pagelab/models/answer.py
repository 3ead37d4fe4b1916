"""The result of a workload's models as a sentence, tables and data, for terminal, page and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pagelab.analysis import wording
from pagelab.report.tables import NONE, Table

from . import gaussian_process
from .agreement import agreements
from .catalogue import IN_CYCLES, OURS, PUBLISHED
from .contradiction import Contradiction, contradiction
from .document import ErrorsDocument, FitDocument, Fits, FloorDocument, ModelFile, Told
from .points import LABELS, Points, PointsWarning
from .reach import judged_beyond

SCHEMA: Literal["pagelab.model-report/1"] = "pagelab.model-report/1"
UNCALIBRATED = "uncalibrated"
"""Kind of the warning that simulated C may differ from the machine's cycles by a scale."""
_NO_SKILL = 0.2
"""A model that explains a smaller share of R's variance on layouts left out is said to have no skill."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Paper(_Model):
    """The model's maximal errors over all workloads and machines of MOSAIC, as fractions; null where it gives none."""

    in_sample: float | None
    cross_validated: float | None


class ContradictionDocument(_Model):
    """Two layouts of which the longer-running has inputs that are nowhere higher, and the error that this costs."""

    inputs: list[str]
    error: float
    """The least maximal error of a model that rises with these inputs; 0 where there are no such two."""
    longer: str
    shorter: str


class AgreementDocument(_Model):
    """Simulated over counted, of one input in the layouts of a counted campaign."""

    input: str
    median: float
    low: float
    lowest: str
    """The layout of ``low``."""
    high: float
    highest: str


class ReportedModel(_Model):
    """One model with the paper's figures."""

    fit: FitDocument
    paper: Paper


class ModelReport(_Model):
    """What ``pagelab model report --json`` prints."""

    schema_: Literal["pagelab.model-report/1"] = Field(default=SCHEMA, alias="schema")
    workload: str
    verdict: str
    source: str
    cycles: str
    layouts: int
    test_layouts: int
    folds: int
    models: list[ReportedModel]
    r_squared: dict[str, float]
    floor: FloorDocument | None
    floor_test: FloorDocument | None
    contradictions: list[ContradictionDocument]
    """Of all layouts: for models that rise with C, and for those that rise with H, M and C."""
    agreements: list[AgreementDocument]
    """Empty where counts are not both counted and simulated."""
    warnings: list[Told]


def report_of(file: ModelFile, fits: Fits) -> ModelReport:
    """Returns the whole report as data."""
    points = file.points()
    return ModelReport(
        workload=file.workload,
        verdict=verdict(file, fits),
        source=file.source,
        cycles=file.cycles,
        layouts=points.roles.count("train"),
        test_layouts=points.roles.count("test"),
        folds=fits.folds,
        models=[
            ReportedModel(
                fit=one,
                paper=Paper(
                    in_sample=PUBLISHED[one.model].in_sample, cross_validated=PUBLISHED[one.model].cross_validated
                ),
            )
            for one in fits.models
        ],
        r_squared=fits.r_squared,
        floor=fits.floor,
        floor_test=fits.floor_test,
        contradictions=[
            ContradictionDocument(inputs=list(one.inputs), error=one.error, longer=one.longer, shorter=one.shorter)
            for one in _contradictions(points)
        ],
        agreements=[AgreementDocument(**asdict(one)) for one in agreements(points)],
        warnings=told_of(file),
    )


def told_of(file: ModelFile) -> list[Told]:
    """Returns the warnings of the campaign that made the file, then those of its points."""
    of_campaign = uncalibrated(file) if file.campaign is None else file.campaign.told
    own = [Told(kind=one.kind, message=one.message) for one in warnings_of(file.points())]
    ours = None if file.fits is None else file.fits.named(OURS)
    effective = None if ours is None else ours.parameters.get("effective_samples")
    return [*of_campaign, *own, *few_samples(effective)]


def few_samples(effective: float | None) -> list[Told]:
    """Returns a warning if the posterior of the process is averaged over too few effective samples; None: unknown."""
    if effective is None or effective >= gaussian_process.FEW_EFFECTIVE:
        return []
    message = (
        f"{OURS}: its posterior is averaged over {effective:.1f} effective samples: the width of its intervals depends "
        "on the seed; compare other seeds: pagelab model fit --seed N"
    )
    return [Told(kind="few-samples", message=message)]


def uncalibrated(file: ModelFile) -> list[Told]:
    """Returns a warning if C is simulated and its cycles were never compared with the machine's."""
    if file.campaign is not None:
        return [one for one in file.campaign.told if one.kind == UNCALIBRATED]
    if file.source == "counted":
        return []
    message = f"C is simulated: models whose slopes are cycles ({', '.join(IN_CYCLES)}) may be off by its scale"
    return [Told(kind=UNCALIBRATED, message=message)]


def warnings_of(points: Points) -> list[PointsWarning]:
    """Returns the warnings about the points that a reader of the models needs."""
    return [*points.warnings(), *judged_beyond(points)]


def _contradictions(points: Points) -> list[Contradiction]:
    found = [contradiction(points, ("c",))]
    if len(points.inputs) > 1:
        found.append(contradiction(points, tuple(points.inputs)))
    return found


def contradictions_told(points: Points) -> list[str]:
    """Returns a sentence for each set of inputs with which every model that rises in them has an error."""
    sentences = []
    for one in _contradictions(points):
        names = wording.listing([LABELS[name] for name in one.inputs])
        if one.error > 0:
            sentences.append(
                f"no model that rises with {names} is nearer than {_percent(one.error)}: {one.longer} runs longer than "
                f"{one.shorter}, and has no more of {'it' if len(one.inputs) == 1 else 'them'}"
            )
    return sentences


def not_validated_told(fits: Fits) -> list[str]:
    """Returns a sentence for each model that could be fitted to all layouts, but not with some of them left out."""
    return [
        f"{one.model} is not judged on layouts left out: {one.not_validated}"
        for one in fits.models
        if one.not_validated
    ]


def coverage_told(fits: Fits) -> list[str]:
    """Returns a sentence for each model that gives intervals and was tested on test layouts."""
    return [
        f"{one.model}: {one.covered} of {len(one.test.relative)} test layouts lie within their 95% intervals"
        for one in fits.models
        if one.test is not None and one.covered is not None
    ]


def agreements_told(points: Points) -> list[str]:
    """Returns a sentence for each input that was both counted and simulated."""
    return [
        f"simulated {one.input} over the counted one: {one.median:.2f} in the median layout, {one.low:.2f} "
        f"({one.lowest}) to {one.high:.2f} ({one.highest})"
        for one in agreements(points)
    ]


def headline(fits: Fits) -> FitDocument | None:
    """Returns the model for the verdict: this package's, chosen before any error was seen, else the best fitted one."""
    ours = fits.named(OURS)
    if ours is not None and ours.left_out is not None:
        return ours
    able = [one for one in fits.models if judged(one) is not None]
    return min(able, key=lambda one: _maximum(one), default=None)


def judged(one: FitDocument) -> ErrorsDocument | None:
    """Returns the errors on test layouts, else on layouts left out, else on all layouts."""
    return one.test or one.left_out or one.in_sample


def relative_errors(one: FitDocument) -> dict[str, float]:
    """Returns predicted R over measured R, minus 1, by layout; from fits without that layout where there are any."""
    found: dict[str, float] = {}
    for errors in (one.in_sample, one.left_out, one.test):
        found |= {} if errors is None else errors.relative
    return found


def _maximum(one: FitDocument) -> float:
    errors = judged(one)
    return float("inf") if errors is None else errors.maximum


def verdict(file: ModelFile, fits: Fits) -> str:
    """One sentence: the errors of the main model and of the others, and the error that noise alone would cause."""
    best = headline(fits)
    errors = None if best is None else judged(best)
    if best is None or errors is None:
        ours = fits.named(OURS) or next(iter(fits.models), None)
        return f"no model could be fitted to {file.workload}: {'none asked' if ours is None else ours.refusal}"
    if best.skill is not None and best.skill < _NO_SKILL:
        return (
            f"no skill: on layouts left out, {best.model} predicts the run time of {file.workload} hardly better than "
            "its mean does"
        )
    where = "on test layouts" if best.test is not None else "on layouts left out one at a time"
    if best.test is None and best.left_out is None:
        where = "on the layouts it was fitted to"
    others = [
        f"{name} {_percent(_maximum(one))}{_basis(one, best)}"
        for name in ("mosmodel", "poly3", "yaniv", "basu")
        if name != best.model and (one := fits.named(name)) is not None and judged(one) is not None
    ]
    floor = fits.floor_test if best.test is not None else fits.floor
    noise = "" if floor is None else f"; the noise of the repeats alone would show {_percent(floor.maximum)}"
    against = f" ({', '.join(others)})" if others else ""
    within = f"the run time of {file.workload} is predicted within {_percent(errors.maximum)} by {best.model}"
    return f"{within} {where}{against}{noise}"


def _basis(one: FitDocument, best: FitDocument) -> str:
    """`` in-sample`` for a model's error without layouts left out, if the error of ``best`` has them; else empty."""
    return " in-sample" if best.left_out is not None and one.test is None and one.left_out is None else ""


def _percent(fraction: float | None) -> str:
    return NONE if fraction is None else wording.percent(fraction, signed=False)


def _cell(errors: ErrorsDocument | None) -> str:
    return NONE if errors is None else _percent(errors.maximum)


def table(fits: Fits) -> Table:
    """Table of the models' errors beside the paper's; the last row is a perfect model under the repeats' noise."""
    rows = [_row(one) for one in fits.models if one.in_sample is not None]
    if fits.floor is not None or fits.floor_test is not None:
        of_test = NONE if fits.floor_test is None else _percent(fits.floor_test.maximum)
        here = NONE if fits.floor is None else _percent(fits.floor.maximum)
        mean = NONE if fits.floor is None else _percent(fits.floor.geometric_mean)
        rows.append(("perfect, under this noise", here, here, here, of_test, mean, NONE, NONE, NONE))
    return Table(
        columns=(
            "model",
            "in-sample",
            f"{fits.folds} folds",
            "one left out",
            "test layouts",
            "geometric mean",
            "terms",
            "paper",
            "paper, folds",
        ),
        rows=tuple(rows),
        caption="Maximal relative errors of the models",
        note="Maximal |R − R̂|/R, and its geometric mean in-sample without the layouts that a model passes through by "
        "construction (MOSAIC, equations 1 and 2). Paper: the largest of all its workloads and machines. Models that "
        "one or two layouts determine cannot be cross-validated.",
    )


def _row(one: FitDocument) -> tuple[str, ...]:
    paper = PUBLISHED[one.model]
    terms = one.parameters.get("nonzero")
    return (
        one.model,
        _cell(one.in_sample),
        _cell(one.folds),
        _cell(one.left_out),
        _cell(one.test),
        NONE if one.in_sample is None else _percent(one.in_sample.geometric_mean),
        NONE if terms is None else f"{terms:.0f}",
        _percent(paper.in_sample),
        _percent(paper.cross_validated),
    )


def formulas(fits: Fits) -> Table:
    """Table of the fitted formulas, and of the reasons why other models have none."""
    return Table(
        columns=("model", "formula"),
        rows=tuple((one.model, one.formula or f"not fitted: {one.refusal}") for one in fits.models),
        caption="Formulas, in cycles and counts",
        words=2,
    )


def r_squared(fits: Fits) -> Table:
    """Table of R²: the share of R's variance that a line in one input alone explains."""
    names = tuple(sorted(fits.r_squared))
    return Table(
        columns=("", *names),
        rows=(("R²", *(f"{fits.r_squared[name]:.2f}" for name in names)),),
        caption="Coefficient of determination of a line in one input (MOSAIC, Table 8)",
    )


def shown(fits: Fits, most: int = 6) -> Sequence[FitDocument]:
    """Models to draw, this package's first; at most ``most``, so that they can be told apart."""
    order = (OURS, "mosmodel", "poly3", "poly1", "yaniv", "basu", "gandhi", "pham", "alam", "poly2")
    found = [one for name in order if (one := fits.named(name)) is not None and one.in_sample is not None]
    return found[:most]
