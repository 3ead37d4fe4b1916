"""Predicts R for given H, M and C, with an interval if the model has one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from scipy.special import ndtri, stdtrit

from pagelab.analysis import wording
from pagelab.errors import BadInputError

from .answer import few_samples, uncalibrated
from .base import Fitted, number
from .catalogue import IN_CYCLES, chosen
from .document import ModelFile, Told
from .gaussian_process import FittedProcess, Of, effective
from .points import LABELS, LARGEST, Points, PointsWarning, independent
from .reach import beyond, unlike

_NEAREST = 8
"""Degrees of freedom of the layouts that the spread of single runs at a place is taken from."""
SCHEMA: Literal["pagelab.prediction/1"] = "pagelab.prediction/1"


class Prediction(BaseModel):
    """A predicted run time, in cycles."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_: Literal["pagelab.prediction/1"] = Field(default=SCHEMA, alias="schema")
    workload: str
    model: str
    formula: str
    h: float | None
    m: float | None
    c: float | None
    r: float
    """Cycles."""
    low: float | None
    """Ends of the interval, cut at 0 if the prediction is above 0; null for models that have none."""
    high: float | None
    level: float
    of: Of
    """What the interval is for: a layout's mean over many runs, or one run."""
    warnings: list[Told]
    processor: str | None = None
    """Whose TLB was simulated; null where counts were given."""
    pages: str | None = None
    """What it was simulated with."""
    measured_4k: float | None = None
    """R as measured in 4K pages, cycles; null where counts were given."""
    estimator: str | None = None
    """Of a layout's R over its runs; null where it is not known."""

    def text(self) -> str:
        """The prediction as printed text."""
        lines = [f"R = {number(self.r)} cycles ({self.model}, {self.workload})"]
        if self.processor is not None and self.measured_4k is not None:
            change = wording.percent(self.r / self.measured_4k - 1)
            counts = ", ".join(
                f"{name} = {number(value or 0.0)}" for name, value in zip("HMC", (self.h, self.m, self.c), strict=True)
            )
            lines = [
                f"{self.workload} with the TLB of {self.processor} in {self.pages} pages: {lines[0]}",
                f"{change} against what was measured in 4K pages; simulated {counts}",
            ]
        if self.low is not None and self.high is not None:
            what = (
                f"a layout's {self.estimator or 'mean'}" if self.of == "mean" else "one run, if runs scatter normally"
            )
            width = wording.percent((self.high - self.low) / 2 / abs(self.r), signed=False)
            around = f" (± {width})" if self.low > 0 else ""
            ends = f"{number(self.low)} to {number(self.high)}{around}"
            lines.append(f"{wording.level(self.level)} interval for {what}: {ends}")
        lines += [f"warning: {one.message}" for one in self.warnings]
        return "\n".join([*lines, self.formula])


def predict(
    file: ModelFile,
    h: float | None,
    m: float | None,
    c: float | None,
    *,
    model: str = "gp",
    of: Of = "mean",
    level: float = 0.95,
) -> Prediction:
    """Predicts R with a model fitted to the file's training layouts. Raises `BadInputError` for missing counts."""
    for name, value in (("h", h), ("m", m), ("c", c)):
        if value is not None and not 0 <= value <= LARGEST:
            raise BadInputError(f"--{name} {value:g}: not within 0 ... {LARGEST:g}")
    if not 0.5 <= level <= 0.9999:
        raise BadInputError(f"--level {level}: not within 0.5 ... 0.9999")
    points, (chosen_model,) = file.points(), chosen([model], 1 if file.fits is None else file.fits.seed)
    fitted = chosen_model.fit(points if chosen_model.own_points else points.role("train"))
    if of == "run" and not isinstance(fitted, FittedProcess):
        raise BadInputError(f"--run: {model} has no interval, and only gp has one; leave --run or --model out")
    value = float(fitted.predict(h, m, c))
    warnings = uncalibrated(file) if model in IN_CYCLES else []
    counts = {"h": h, "m": m, "c": c}
    ignored = unused(fitted, counts)
    # The process leaves out inputs that never varied; another value of such a one may matter all the same.
    varying = independent(points.role("train")) if isinstance(fitted, FittedProcess) else counts
    told = beyond(points, **{name: None if name in ignored and name in varying else counts[name] for name in counts})
    told = told or _unlike(points.role("train"), fitted, counts, value)
    warnings += [Told(kind=one.kind, message=one.message) for one in told]
    warnings += _unused_told(ignored, model)
    low = high = None
    if isinstance(fitted, FittedProcess):
        warnings += few_samples(effective(fitted.shares))
        spread = run_spread(points, fitted, counts, level) if of == "run" else 0.0
        ends = fitted.interval(h, m, c, level=level, of=of, run_sd=spread)
        low, high = (float(end) for end in ends)
        # No run time is below 0; where even the prediction is, a warning says so.
        low = max(low, 0.0) if value > 0 else low
    if value <= 0:
        message = f"{model} predicts a run time below zero: it does not hold here"
        warnings.append(Told(kind="impossible", message=message))
    return Prediction(
        workload=file.workload,
        model=model,
        formula=fitted.formula,
        h=h,
        m=m,
        c=c,
        r=value,
        low=low,
        high=high,
        level=level,
        of=of,
        warnings=warnings,
        estimator=None if file.campaign is None else file.campaign.estimator,
    )


def _unlike(training: Points, fitted: Fitted, counts: Mapping[str, float | None], value: float) -> list[PointsWarning]:
    """Whether R or its interval, that of a layout's mean, is unlike those of the fitted layouts."""
    if not isinstance(fitted, FittedProcess):
        return unlike(training, value)
    low, high = fitted.interval(counts["h"], counts["m"], counts["c"])
    lows, highs = fitted.interval(training.h, training.m, training.c)
    return unlike(training, value, float(high - low) / 2, highs - lows)


UNUSED = "unused-count"


def unused(fitted: Fitted, counts: dict[str, float | None]) -> list[str]:
    """The given counts that change nothing: the model predicts without them."""
    found = []
    for name in (name for name, value in counts.items() if value is not None):
        try:
            fitted.predict(**{**counts, name: None})
        except BadInputError:
            continue
        found.append(name)
    return found


def _unused_told(found: list[str], model: str) -> list[Told]:
    if not found:
        return []
    options, labels = (" and ".join(words) for words in ([f"--{name}" for name in found], [LABELS[n] for n in found]))
    verb = "changes" if len(found) == 1 else "change"
    message = f"{options} {verb} nothing: {model}, as fitted to this file, does not use {labels}"
    return [Told(kind=UNUSED, message=message)]


def run_spread(points: Points, fitted: FittedProcess, counts: Mapping[str, float | None], level: float = 0.95) -> float:
    """Relative standard deviation of a normal distribution whose interval holds single runs around their mean here.

    It is that of the nearest layouts with :data:`_NEAREST` degrees of freedom between them, at least two: of their
    own variances or of those moderated towards all layouts', whichever is wider with Student's t. Raises
    `BadInputError` if the spread of the repeats is unknown.
    """
    training = points.role("train")
    if training.r_se is None or training.r_sd is None or not training.spread_known.any():
        raise BadInputError(
            f"cannot give the interval of one run of {points.workload}: the spread over repeats is not known; import a "
            "row for every run, or both columns r_sd and repeats"
        )
    assert training.repeats is not None
    variance, shared = training.run_variances
    freedom = np.where(training.spread_known, training.repeats - 1, 0)
    order = np.argsort(fitted.distances(**counts))
    enough = int(np.searchsorted(np.cumsum(freedom[order]), _NEAREST)) + 1
    near = order[: max(2, enough)]
    weights = freedom[near].astype(np.float64)
    own = np.where(freedom[near] > 0, (training.r_sd[near] / training.r[near]) ** 2, 0.0)
    found = [
        (variance[near] @ weights / weights.sum(), float(shared[near].max())),
        (own @ weights / weights.sum(), 0.0),
    ]
    sizes = [np.sqrt(one) * stdtrit(max(less, weights.sum()), (1 + level) / 2) for one, less in found]
    return float(max(sizes) / ndtri((1 + level) / 2))
