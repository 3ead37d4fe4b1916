"""Errors of models: on the layouts that they were fitted to, in K-fold cross validation, and leaving one layout out.

Errors are |R − R̂|/R (MOSAIC, equations 1 and 2). A model that one or two layouts determine is judged on all layouts;
the geometric mean leaves out those of them that it passes through, because the error there is zero by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from pagelab.errors import BadInputError

from .base import Fitted, Model
from .gaussian_process import FittedProcess
from .points import LABELS, Array, Points, varies

_MEAN_LOG_NORMAL = -(np.euler_gamma + np.log(2)) / 2
"""Mean of log|Z| for a standard normal Z."""
FOLDS = 10
_EXACT = 1e-9
"""Relative errors below it are of rounding."""


@dataclass(frozen=True)
class Errors:
    """Relative errors under one way to judge."""

    relative: Array
    """R̂/R − 1 by layout, with its sign, shape (layouts,)."""
    maximum: float
    """Largest absolute error (MOSAIC, equation 1)."""
    geometric_mean: float
    """Geometric mean (MOSAIC, equation 2) without the layouts that it passes through by construction; 0 if any other
    error is exactly zero."""
    worst: str
    """The layout with the largest error."""

    @classmethod
    def of(cls, points: Points, predicted: Array, own: Sequence[str] = ()) -> Errors:
        """Returns the errors of predictions; the model passes through the layouts of the page sizes ``own``."""
        relative = predicted / points.r - 1
        size = np.abs(relative)
        rows = {points.anchor(page) for page in own}
        others = np.array([i not in rows for i in range(len(points))])
        if not others.any():
            raise BadInputError(
                f"cannot judge models of {points.workload}: it has no layout but the models' own; measure more"
            )
        with np.errstate(divide="ignore"):
            mean = float(np.exp(np.mean(np.log(size[others]))))
        return cls(relative, float(size.max()), mean, points.layouts[int(np.argmax(size))])


@dataclass(frozen=True)
class Floor:
    """The errors that a perfect model would show, caused by the noise of the repeats alone."""

    maximum: float
    """Median of the maximal error (equation 1)."""
    maximum_high: float
    """95% quantile of the maximal error."""
    geometric_mean: float
    """Geometric mean (equation 2), from the expected logarithm."""


@dataclass(frozen=True)
class Judged:
    """One model's errors on one workload. Errors of folds are None for models that one or two layouts determine; errors
    on test layouts are None without test layouts."""

    name: str
    fitted: Fitted | None
    refusal: str
    """Why there is no fit; else empty."""
    not_validated: str = ""
    """Why a model that is fitted to all layouts has no errors on layouts left out; else empty."""
    in_sample: Errors | None = None
    folds: Errors | None = None
    left_out: Errors | None = None
    test: Errors | None = None
    covered: int | None = None
    """Number of test layouts with measured R in the model's 95% interval; None without an interval or test layouts."""
    skill: float | None = None
    """1 − (squared errors, one layout left out) / (squared errors of the others' mean): 0 no skill, 1 full skill."""


@dataclass(frozen=True)
class Judgement:
    """All models of one workload."""

    models: tuple[Judged, ...]
    r_squared: dict[str, float]
    """R² of a line in one input alone, for each of C, M and H (MOSAIC, Table 8)."""
    floor: Floor | None
    """The floor of the training layouts; None if the repeats' spread is not known."""
    floor_test: Floor | None
    fold_count: int

    def named(self, name: str) -> Judged:
        """The model of this name. KeyError where it was not judged."""
        return {one.name: one for one in self.models}[name]


Report = Callable[[str], None]


def judge(
    points: Points, models: Sequence[Model], *, folds: int = FOLDS, seed: int = 1, report: Report | None = None
) -> Judgement:
    """Fits and judges every model: in-sample, ``folds`` shuffled folds, and one layout left out at a time.

    Everything that a model estimates, scales and penalties included, is estimated again without the layouts left out.
    Test layouts are used only for ``test``. A model that cannot be fitted has a ``refusal`` instead of errors.
    """
    training, testing = points.role("train"), None
    if "test" in points.roles:
        testing = points.role("test")
    if len(training) < 2:
        raise BadInputError(
            f"cannot fit {points.workload}: it has {len(training)} training layout, and models need "
            "5 or more; measure or import more layouts"
        )
    if not 2 <= folds <= len(training):
        raise BadInputError(f"--folds {folds}: not within 2 ... {len(training)}, the training layouts")
    judged = []
    for model in models:
        if report is not None:
            report(model.name)
        judged.append(_judge(points, training, testing, model, folds, seed))
    return Judgement(
        models=tuple(judged),
        r_squared={LABELS[name]: r_squared(values, training.r) for name, values in training.inputs.items()},
        floor=floor_of(training),
        floor_test=None if testing is None else floor_of(testing),
        fold_count=min(folds, int(training.places.max()) + 1),
    )


def _judge(points: Points, training: Points, testing: Points | None, model: Model, folds: int, seed: int) -> Judged:
    try:
        if model.own_points:
            fitted = model.fit(points)
            return Judged(
                model.name,
                fitted,
                "",
                in_sample=Errors.of(points, predicted(fitted, points), _passed(fitted, points, model.own_points)),
                test=None if testing is None else Errors.of(testing, predicted(fitted, testing)),
            )
        fitted = model.fit(training)
    except BadInputError as error:
        return Judged(model.name, None, str(error))
    in_folds: Errors | None = None
    left_out: Errors | None = None
    skill: float | None = None
    why_not = ""
    try:
        each = cross_validated(model, training, len(training), seed)
        in_folds = Errors.of(training, cross_validated(model, training, folds, seed))
        left_out, skill = Errors.of(training, each), skill_of(training, each)
    except BadInputError as error:  # too few layouts once some are left out
        in_folds, left_out, skill, why_not = None, None, None, str(error)
    return Judged(
        model.name,
        fitted,
        "",
        not_validated=why_not,
        in_sample=Errors.of(training, predicted(fitted, training)),
        folds=in_folds,
        left_out=left_out,
        test=None if testing is None else Errors.of(testing, predicted(fitted, testing)),
        covered=None if testing is None else covered(fitted, testing),
        skill=skill,
    )


def _passed(fitted: Fitted, points: Points, own: Sequence[str]) -> list[str]:
    """Those of a model's own page sizes whose layout it passes through; Gandhi's line does so in neither of its two."""
    error = np.abs(predicted(fitted, points) / points.r - 1)
    return [page for page in own if (row := points.anchor(page)) is not None and error[row] < _EXACT]


def predicted(fitted: Fitted, points: Points) -> Array:
    """R̂ of every layout, in cycles."""
    return fitted.predict(points.h, points.m, points.c)


def covered(fitted: Fitted, testing: Points) -> int | None:
    """Number of layouts with measured R in the model's 95% interval, widened by the measured mean's noise if known."""
    if not isinstance(fitted, FittedProcess):
        return None
    noise = 0.0 if testing.r_se is None else testing.r_se / testing.r
    low, high = fitted.interval(testing.h, testing.m, testing.c, of="run", run_sd=noise)
    return int(np.count_nonzero((low <= testing.r) & (testing.r <= high)))


def cross_validated(model: Model, points: Points, folds: int, seed: int = 1) -> Array:
    """R̂ of every layout from a fit without its fold, in cycles; as many folds as layouts: leave-one-out."""
    found = np.empty(len(points))
    for fold in folds_of(points, folds, seed):
        fitted = model.fit(points.take(np.setdiff1d(np.arange(len(points)), fold)))
        found[fold] = predicted(fitted, points.take(fold))
    return found


def folds_of(points: Points, folds: int, seed: int) -> list[NDArray[np.int64]]:
    """The rows of each shuffled fold; fewer folds where layouts have equal counts.

    Those are in one fold, because a model that was fitted to one of them has seen the others.
    """
    places = points.places
    count = int(places.max()) + 1
    if count < 2:
        raise BadInputError(f"cannot leave layouts of {points.workload} out: all have the same counts")
    order = np.random.default_rng(seed).permutation(count)
    return [np.flatnonzero(np.isin(places, fold)) for fold in np.array_split(order, min(folds, count))]


def skill_of(points: Points, left_out: Array) -> float:
    """1 − Σ(R − R̂)²/Σ(R − mean of the others)²; negative for models that are worse than that mean.

    The others are those of other counts, as in the folds.
    """
    places = points.places
    alike = np.bincount(places)[places]
    sums = np.bincount(places, weights=points.r)[places]
    others = (points.r.sum() - sums) / (len(points) - alike)
    return float(1 - np.sum((points.r - left_out) ** 2) / np.sum((points.r - others) ** 2))


def r_squared(values: Array, r: Array) -> float:
    """R² of a line for R in one input: their squared correlation; 0 if one of them is constant."""
    if not varies(values) or not varies(r):
        return 0.0
    return float(np.corrcoef(values, r)[0, 1] ** 2)


def floor_of(points: Points) -> Floor | None:
    """The values of equations 1 and 2 if a model predicts the true means and the measured means have normal errors.

    sᵢ is a mean's standard error over the mean. The distribution function of the maximum is the product of those of
    |Zᵢ|·sᵢ. The expected logarithm of the geometric mean is the mean of log sᵢ plus that of log|Z|, −(γ + log 2)/2.
    """
    if points.r_se is None:
        return None
    relative = points.r_se / points.r
    return Floor(
        maximum=_quantile_of_maximum(relative, 0.5),
        maximum_high=_quantile_of_maximum(relative, 0.95),
        geometric_mean=0.0 if np.any(relative == 0) else float(np.exp(np.mean(np.log(relative)) + _MEAN_LOG_NORMAL)),
    )


def _quantile_of_maximum(deviations: Array, p: float) -> float:
    low, high = 0.0, 12 * float(deviations.max())
    spread = deviations[deviations > 0]
    for _ in range(80):
        middle = (low + high) / 2
        if np.prod(2 * ndtr(middle / spread) - 1) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2
