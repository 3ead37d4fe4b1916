"""The effect of wrong counts on predictions: one input of the layouts left out is scaled and the error found again.

The fits keep the original counts. This models a simulator that disagrees with the one used for training: in its walk
costs (C), or in its TLB's entries or ways (M, H). A scale that both share cancels in fitted models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from pagelab.errors import BadInputError

from .base import Fitted, Model
from .judgement import FOLDS, Errors, folds_of, predicted
from .points import LABELS, Array, Points

SCHEMA: Literal["pagelab.model-sensitivity/1"] = "pagelab.model-sensitivity/1"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSensitivity(_Model):
    """Maximal relative errors of one model, as fractions."""

    model: str
    unchanged: float | None
    """Null where the model could not be fitted."""
    lower: dict[str, float]
    """With this input (H, M or C) of the layouts left out lowered."""
    higher: dict[str, float]
    refusal: str = ""


class Sensitivity(_Model):
    """What ``pagelab model sensitivity --json`` prints."""

    schema_: Literal["pagelab.model-sensitivity/1"] = Field(default=SCHEMA, alias="schema")
    workload: str
    by: float
    """The change, as a fraction."""
    folds: int
    """Models that one or two layouts determine are judged on all layouts."""
    models: list[ModelSensitivity]


def sensitivity(
    points: Points, models: Sequence[Model], *, by: float = 0.1, folds: int = FOLDS, seed: int = 1
) -> Sensitivity:
    """Errors over ``folds`` shuffled folds of the training layouts, each input scaled by 1 − ``by`` and 1 + ``by``."""
    training = points.role("train")
    if not 0 < by < 1:
        raise BadInputError(f"--by {100 * by:g}: not above 0 and below 100 percent")
    if not 2 <= folds <= len(training):
        raise BadInputError(f"--folds {folds}: not within 2 ... {len(training)}, the training layouts")
    found = [_of_model(points if model.own_points else training, model, by, folds, seed) for model in models]
    folds = min(folds, int(training.places.max()) + 1)
    return Sensitivity(workload=points.workload, by=by, folds=folds, models=found)


def _of_model(points: Points, model: Model, by: float, folds: int, seed: int) -> ModelSensitivity:
    names = list(points.inputs)
    factors = [dict.fromkeys(names, 1.0)]
    factors += [{**factors[0], name: 1 + sign * by} for sign in (-1, 1) for name in names]
    every = np.arange(len(points))
    values = np.empty((len(factors), len(points)))
    try:
        for fold in [every] if model.own_points else folds_of(points, folds, seed):
            fitted = model.fit(points if model.own_points else points.take(np.setdiff1d(every, fold)))
            for i, each in enumerate(factors):
                values[i, fold] = _scaled(fitted, points.take(fold), each)
    except BadInputError as error:
        return ModelSensitivity(model=model.name, unchanged=None, lower={}, higher={}, refusal=str(error))
    unchanged, *others = (Errors.of(points, row).maximum for row in values)
    labels = [LABELS[name] for name in names]
    return ModelSensitivity(
        model=model.name,
        unchanged=unchanged,
        lower=dict(zip(labels, others[: len(names)], strict=True)),
        higher=dict(zip(labels, others[len(names) :], strict=True)),
    )


def _scaled(fitted: Fitted, points: Points, factors: dict[str, float]) -> Array:
    changed = {name: values * factors[name] for name, values in points.inputs.items()}
    return predicted(fitted, replace(points, h=changed.get("h"), m=changed.get("m"), c=changed["c"]))
