"""A model's file: the points of one workload, their origin, and the fit and errors of every model.

One JSON document, ``pagelab.model/1``, published as docs/schema/model-1.json.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pagelab import whole_file
from pagelab.errors import BadInputError, cannot_write, quoted
from pagelab.machine.provenance import pagelab_version

from .catalogue import models
from .judgement import Errors, Floor, Judged, Judgement
from .points import CyclesKind, Points, PointsWarning, Role, Source

SCHEMA: Literal["pagelab.model/1"] = "pagelab.model/1"
FILE = "model.json"
"""Name of the model's file in a campaign's directory; users may name the directory instead of the file."""

MOVED = {"4K": "4K_moved", "2M": "2M_moved"}
"""Anchor → the extra column of a checked layout that has its time beside it over its time in the campaign."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Layout(_Model):
    """One layout: run time and counts of its measured phase, means over the repeats."""

    layout: str
    role: Role
    r: float
    """Cycles."""
    c: float
    """Walk cycles."""
    h: float | None = None
    """Hits in the second-level TLB; null where they were not counted."""
    m: float | None = None
    """Misses of the second-level TLB."""
    r_sd: float | None = None
    """Standard deviation of R over the repeats, in cycles; null where it is unknown."""
    repeats: int | None = Field(default=None, ge=1)
    r_se: float | None = None
    """Standard error of ``r``, in cycles, where it is no mean of the repeats; null: from ``r_sd`` and ``repeats``."""
    r_freedom: float | None = None
    """Degrees of freedom of ``r_se``, if it rests on few runs alone; null: many, or unknown."""
    extra: dict[str, float | None] = Field(default_factory=dict)


class Told(_Model):
    """Something that a reader of the model has to know; ``kind`` is a stable name."""

    kind: str
    message: str


class Origin(_Model):
    """Where the points are from."""

    file: str
    sha256: str
    provenance: dict[str, Any]
    """Of the import, not of the measurement: machine and software (pagelab.provenance/1)."""
    told: list[Told] = Field(default_factory=list)
    """What the import found wrong with single rows, or decided about them."""


class ErrorsDocument(_Model):
    """Relative errors of one way to judge, as fractions."""

    maximum: float
    geometric_mean: float
    worst: str
    relative: dict[str, float]
    """Predicted over measured, minus 1, by layout."""


class FitDocument(_Model):
    """One model; errors are null where they cannot be had."""

    model: str
    formula: str | None
    parameters: dict[str, float]
    refusal: str
    """Why there is no fit; else empty."""
    not_validated: str = ""
    """Why a model that is fitted to all layouts has no errors on layouts left out; else empty."""
    in_sample: ErrorsDocument | None
    folds: ErrorsDocument | None
    left_out: ErrorsDocument | None
    test: ErrorsDocument | None
    covered: int | None = None
    """Test layouts whose measured R lies in the model's 95% interval; null where the model has none."""
    skill: float | None


class FloorDocument(_Model):
    """What a model without any error would show under the noise of the repeats."""

    maximum: float
    maximum_high: float
    geometric_mean: float


class Fits(_Model):
    """What ``pagelab model fit`` found."""

    seed: int
    folds: int
    fitted_by: str
    models: list[FitDocument]
    r_squared: dict[str, float]
    """Of a line in H, M and C alone."""
    floor: FloorDocument | None
    floor_test: FloorDocument | None

    def named(self, name: str) -> FitDocument | None:
        """The model of this name, if it was asked for."""
        return next((one for one in self.models if one.model == name), None)


class SimulatedBy(_Model):
    """The simulation of the counts; predictions for other processors simulate the same trace."""

    processor: str
    """A preset's name, or a description's path."""
    description: str
    """SHA-256 of what it describes."""
    caches: bool
    trace: str
    """Path; a relative one is in the model's directory."""
    trace_digest: str | None = None
    """SHA-256 of the trace's header and number of references; null in models before it was kept."""
    references: int | None = None
    """Of the trace; null in models before it was kept."""


class CampaignSummary(_Model):
    """How ``pagelab model run`` made the points."""

    command: list[str]
    cwd: str
    window: str | None
    """The program's window that R is of; null: user time of whole executions."""
    estimator: str
    select: str
    run_sd: float
    """Relative standard deviation of single runs."""
    cycle_ns: float | None
    """Of a cycle in R; null where cycles were counted."""
    memory_ns: float | None = None
    """Of a load from memory, the median beside all executions; null in campaigns before it was timed."""
    simulated: SimulatedBy | None
    """Null where no trace was needed; where counts are the hardware's, of what layouts were chosen by."""
    told: list[Told] = Field(default_factory=list)
    """What the campaign found wrong with itself: executions that were left out, a clock or machine that changed."""


class ModelFile(_Model):
    """The points of one workload and its models."""

    schema_: Literal["pagelab.model/1"] = Field(default=SCHEMA, alias="schema")
    workload: str
    source: Source
    cycles: CyclesKind
    walkers: int
    anchors: dict[str, str]
    """Page size → the layout with this size alone."""
    layouts: list[Layout]
    origin: Origin
    fits: Fits | None = None
    campaign: CampaignSummary | None = None
    """Null where the points were imported."""

    def points(self) -> Points:
        """The points, checked again: a file may have been edited."""
        rows = self.layouts
        return Points.of(
            self.workload,
            r=[row.r for row in rows],
            c=[row.c for row in rows],
            layouts=[row.layout for row in rows],
            h=_column([row.h for row in rows]),
            m=_column([row.m for row in rows]),
            r_sd=_column([row.r_sd for row in rows], absent=np.nan),
            repeats=_column([row.repeats for row in rows], absent=1),
            r_error=_column([row.r_se for row in rows], absent=np.nan),
            roles=[row.role for row in rows],
            anchors=self.anchors,
            source=self.source,
            cycles=self.cycles,
            walkers=self.walkers,
            extra={name: [row.extra.get(name) for row in rows] for name in (rows[0].extra if rows else {})},
            told=tuple(PointsWarning(one.kind, one.message) for one in self.origin.told),
        )


def _column(values: list[Any], absent: float | None = None) -> list[Any] | None:
    """Returns None if no row has a value; ``absent`` replaces single missing values."""
    if all(value is None for value in values):
        return None
    return [absent if value is None else value for value in values]


def file_of(points: Points, source: Path) -> ModelFile:
    """Returns the document of points that were read from ``source``."""
    from pagelab.machine.provenance import provenance

    def at(values: Any, row: int) -> Any:
        if values is None or not np.isfinite(values[row]):
            return None
        return values[row].item()

    return ModelFile(
        workload=points.workload,
        source=points.source,
        cycles=points.cycles,
        walkers=points.walkers,
        anchors=dict(points.anchors),
        layouts=[
            Layout(
                layout=name,
                role=points.roles[i],
                r=at(points.r, i),
                c=at(points.c, i),
                h=at(points.h, i),
                m=at(points.m, i),
                r_sd=at(points.r_sd, i),
                repeats=at(points.repeats, i),
                r_se=at(points.r_error, i),
                extra={key: at(values, i) for key, values in points.extra.items()},
            )
            for i, name in enumerate(points.layouts)
        ],
        origin=Origin(
            file=str(source),
            sha256=hashlib.sha256(source.read_bytes()).hexdigest(),
            provenance=provenance(),
            told=[Told(kind=one.kind, message=one.message) for one in points.told],
        ),
    )


def fits_of(points: Points, judgement: Judgement, seed: int) -> Fits:
    """Returns a judgement in the form of the file."""
    training = points.role("train")
    testing = points.role("test") if "test" in points.roles else None
    return Fits(
        seed=seed,
        folds=judgement.fold_count,
        fitted_by=f"pagelab {pagelab_version()}",
        models=[_fit(one, points, training, testing) for one in judgement.models],
        r_squared=judgement.r_squared,
        floor=_floor(judgement.floor),
        floor_test=_floor(judgement.floor_test),
    )


def _fit(one: Judged, points: Points, training: Points, testing: Points | None) -> FitDocument:
    judged_on = {len(points): points.layouts, len(training): training.layouts}
    return FitDocument(
        model=one.name,
        formula=None if one.fitted is None else one.fitted.formula,
        parameters={} if one.fitted is None else one.fitted.parameters,
        refusal=one.refusal,
        not_validated=one.not_validated,
        in_sample=_errors(one.in_sample, () if one.in_sample is None else judged_on[len(one.in_sample.relative)]),
        folds=_errors(one.folds, training.layouts),
        left_out=_errors(one.left_out, training.layouts),
        test=_errors(one.test, () if testing is None else testing.layouts),
        covered=one.covered,
        skill=one.skill,
    )


def _errors(found: Errors | None, layouts: tuple[str, ...]) -> ErrorsDocument | None:
    if found is None:
        return None
    return ErrorsDocument(
        maximum=found.maximum,
        geometric_mean=found.geometric_mean,
        worst=found.worst,
        relative=dict(zip(layouts, found.relative.tolist(), strict=True)),
    )


def _floor(found: Floor | None) -> FloorDocument | None:
    if found is None:
        return None
    return FloorDocument(maximum=found.maximum, maximum_high=found.maximum_high, geometric_mean=found.geometric_mean)


def read(path: Path, *, refit: bool = False) -> ModelFile:
    """Reads a model's file, or the one in a campaign's directory; with ``refit``, its fits may be of anything.

    Raises `BadInputError` for any other file, and for a newer version.
    """
    path = inside(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInputError(
            f"cannot read {path}: it does not exist; make it with: pagelab model run --into {quoted(path)} -- CMD; "
            f"or from measured times: pagelab model import FILE.csv --into {quoted(path)}"
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise BadInputError(f"cannot read {path}: it is no model's file ({error})") from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        newer = isinstance(schema, str) and schema.startswith("pagelab.model/")
        why = f"it has {schema}, and this pagelab reads {SCHEMA}" if newer else f"it is no model's file ({SCHEMA})"
        raise BadInputError(f"cannot read {path}: {why}; make one with: pagelab model run -- CMD")
    try:
        found = ModelFile.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInputError(f"cannot read {path}: {where}: {first['msg']}") from None
    if found.fits is not None and not refit:
        _check_fits(path, found, found.fits)
    return found


def _check_fits(path: Path, file: ModelFile, fits: Fits) -> None:
    """Refuses fits of models or layouts that there are not: reports look both up by their names."""
    known, layouts = models(), {row.layout for row in file.layouts}
    for one in fits.models:
        errors = [each for each in (one.in_sample, one.folds, one.left_out, one.test) if each is not None]
        other = next((name for each in errors for name in each.relative if name not in layouts), None)
        if one.model in known and other is None:
            continue
        why = f"model {one.model}, which this pagelab does not know" if other is None else f"layout {other}, not listed"
        raise BadInputError(
            f"cannot read {path}: its fits have {why}; remove the entry fits, and fit again: "
            f"pagelab model fit {quoted(path)}"
        )


def inside(path: Path) -> Path:
    """Returns the model's file of a campaign's directory, or ``path`` itself; `BadInputError` if there is none yet."""
    if not path.is_dir():
        return path
    if not (path / FILE).exists():
        raise BadInputError(
            f"cannot read {path}: it has no {FILE}; a campaign that was stopped goes on with: pagelab model run"
        )
    return path / FILE


def write(path: Path, file: ModelFile) -> None:
    """Writes the file whole or not at all; if ``path`` is a campaign's directory, as its ``model.json``."""
    put(inside(path), file.model_dump_json(by_alias=True, indent=1) + "\n")


def put(path: Path, text: str) -> None:
    """Writes a file whole or not at all: a temporary file beside it, synced, then renamed. Raises `PagelabError`."""
    try:
        whole_file.put(path, text)
    except OSError as error:
        raise cannot_write(path, error) from error
