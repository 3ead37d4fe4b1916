"""Compares models over several workloads: the largest and the typical error of each (MOSAIC, Figures 5 and 6)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pagelab.analysis import wording
from pagelab.errors import BadInputError, quoted
from pagelab.report.tables import NONE, Table

from .answer import ModelReport, judged, report_of
from .catalogue import OURS, PUBLISHED
from .document import ErrorsDocument, FitDocument, Fits, ModelFile

SCHEMA: Literal["pagelab.model-set/1"] = "pagelab.model-set/1"


@dataclass(frozen=True)
class Fitted:
    """One file that has fits, with its name in the tables."""

    name: str
    file: ModelFile
    fits: Fits


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelOverWorkloads(_Model):
    """One model over the workloads that it could be fitted to; errors are fractions."""

    model: str
    workloads: int
    maximum: float
    """The largest error in any layout of any workload."""
    worst: str
    """The workload where that is."""
    geometric_mean: float
    """The geometric mean of the workloads' geometric means; workloads without any error are left out."""
    paper: float | None
    """The largest in-sample error over all workloads and machines of MOSAIC; null where it gives none."""


class SetReport(_Model):
    """What ``pagelab model report --json`` prints for several files."""

    schema_: Literal["pagelab.model-set/1"] = Field(default=SCHEMA, alias="schema")
    verdict: str
    judged_on: str
    models: list[ModelOverWorkloads]
    workloads: dict[str, ModelReport]


def named(files: Sequence[tuple[Path, ModelFile]]) -> list[Fitted]:
    """Names the files by workload, or by path if two files have the same workload.

    Raises `BadInputError` if a file has no fits yet.
    """
    times = Counter(file.workload for _, file in files)
    found = []
    for path, file in files:
        if file.fits is None:
            raise BadInputError(f"cannot report {path}: nothing was fitted yet; run: pagelab model fit {quoted(path)}")
        found.append(
            Fitted(file.workload if times[file.workload] == 1 else f"{file.workload} ({path})", file, file.fits)
        )
    if len({one.name for one in found}) < len(found):
        raise BadInputError("cannot report a file beside itself; name each once")
    return found


def errors_of(one: Fitted, model: str) -> ErrorsDocument | None:
    """The errors by which ``model`` is judged on this workload (`judged`); None if it was not fitted."""
    fit: FitDocument | None = one.fits.named(model)
    return None if fit is None else judged(fit)


def models_of(found: Sequence[Fitted]) -> list[str]:
    """Names of the models that were fitted to at least one workload, in the order of the files."""
    names = dict.fromkeys(fit.model for one in found for fit in one.fits.models)
    return [name for name in names if any(errors_of(one, name) is not None for one in found)]


def over_workloads(found: Sequence[Fitted], model: str) -> ModelOverWorkloads:
    """Summary of one model, which must have been fitted to at least one workload."""
    errors = {one.name: each for one in found if (each := errors_of(one, model)) is not None}
    worst = max(errors, key=lambda name: errors[name].maximum)
    means = [math.log(each.geometric_mean) for each in errors.values() if each.geometric_mean > 0]
    return ModelOverWorkloads(
        model=model,
        workloads=len(errors),
        maximum=errors[worst].maximum,
        worst=worst,
        geometric_mean=math.exp(sum(means) / len(means)) if means else 0.0,
        paper=PUBLISHED[model].in_sample,
    )


def judged_on(found: Sequence[Fitted]) -> str:
    """Words for the layouts on which the errors were found."""
    fits = [fit for one in found for fit in one.fits.models if fit.in_sample is not None]
    if all(fit.test is not None for fit in fits):
        return "on test layouts"
    if all(fit.test is None for fit in fits):
        return "on layouts left out one at a time where a model can be fitted without one, else on all layouts"
    return "on test layouts where there are any, else on layouts left out one at a time"


def verdict(found: Sequence[Fitted]) -> str:
    """One sentence: the errors of the main model over all workloads, and those of the others."""
    names = models_of(found)
    if not names:
        return f"no model could be fitted to any of {len(found)} workloads"
    all_of = [over_workloads(found, name) for name in names]
    everywhere = [one for one in all_of if one.workloads == len(found)] or all_of
    best = next((one for one in everywhere if one.model == OURS), None) or min(everywhere, key=lambda one: one.maximum)
    others = [
        f"{one.model} {_percent(one.maximum)}"
        for name in ("mosmodel", "poly3", "yaniv", "basu")
        for one in everywhere
        if one.model == name != best.model
    ]
    against = f"; {', '.join(others)}" if others else ""
    floors = [floor.maximum for one in found if (floor := one.fits.floor_test or one.fits.floor) is not None]
    noise = f"; the noise of the repeats alone would show up to {_percent(max(floors))}" if floors else ""
    within = f"are predicted within {_percent(best.maximum)} by {best.model}"
    return (
        f"the run times of {wording.count(best.workloads, 'workload')} {within} (worst: {best.worst}{against}){noise}"
    )


def report_over(found: Sequence[Fitted]) -> SetReport:
    """The whole report over several workloads, as data."""
    return SetReport(
        verdict=verdict(found),
        judged_on=judged_on(found),
        models=[over_workloads(found, name) for name in models_of(found)],
        workloads={one.name: report_of(one.file, one.fits) for one in found},
    )


def tables(found: Sequence[Fitted]) -> tuple[Table, Table]:
    """Two tables, of maximal errors and of geometric means: one row per model, one column per workload."""
    names = models_of(found)
    columns = tuple(one.name for one in found)
    over = {name: over_workloads(found, name) for name in names}
    maximal = Table(
        columns=("model", *columns, "largest", "paper"),
        rows=tuple(
            (
                name,
                *(_percent(None if (each := errors_of(one, name)) is None else each.maximum) for one in found),
                _percent(over[name].maximum),
                _percent(over[name].paper),
            )
            for name in names
        ),
        caption="Maximal relative errors by workload",
        note=f"Errors {judged_on(found)}. Paper: the largest of all its workloads and machines, in-sample.",
    )
    typical = Table(
        columns=("model", *columns, "all"),
        rows=tuple(
            (
                name,
                *(_percent(None if (each := errors_of(one, name)) is None else each.geometric_mean) for one in found),
                _percent(over[name].geometric_mean),
            )
            for name in names
        ),
        caption="Geometric means of the relative errors by workload",
        note="All: the geometric mean of the workloads’.",
    )
    return maximal, typical


def _percent(fraction: float | None) -> str:
    return NONE if fraction is None else wording.percent(fraction, signed=False)
