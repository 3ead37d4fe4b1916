"""The interface of every model; judgement, reports and predictions use it and know no model by name."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from pagelab.errors import BadInputError

from .points import LABELS, Array, Points


class Fitted(Protocol):
    """A model with its coefficients."""

    @property
    def formula(self) -> str:
        """The formula with its coefficients, in cycles and counts."""

    @property
    def parameters(self) -> dict[str, float]:
        """The coefficients by name, for files."""

    def predict(self, h: Any, m: Any, c: Any) -> Array:
        """Returns R in cycles, for counts of one common shape; inputs that the model does not use may be None."""


class Model(Protocol):
    """A kind of model that predicts run time from H, M and C."""

    @property
    def name(self) -> str:
        """Stable, lower case."""

    @property
    def own_points(self) -> tuple[str, ...]:
        """The page sizes whose layouts alone determine the model (4K, 2M); empty if it is fitted to all layouts."""

    def fit(self, points: Points) -> Fitted:
        """Fits the model to all of ``points``. Raises `BadInputError` if they are not enough."""


def anchor_row(points: Points, size: str, model: str) -> int:
    """Returns the row of the layout that has only pages of this size; `BadInputError` if none is named."""
    row = points.anchor(size)
    if row is None:
        raise BadInputError(
            f"cannot fit {model} to {points.workload}: it passes through the layout of {size} pages alone, and none is "
            f"named; name it with --anchor-{size.lower()} LAYOUT"
        )
    return row


def needed(values: Array | None, name: str, points: Points, model: str) -> Array:
    """Returns an input that the model requires; `BadInputError` if the points do not have it."""
    if values is None:
        raise BadInputError(
            f"cannot fit {model} to {points.workload}: it needs {LABELS[name]}, and the points have none"
        )
    return values


def given(value: Any, name: str, model: str) -> Array:
    """Returns an input of a prediction as an array; `BadInputError` if it is missing or not a number."""
    if value is None:
        raise BadInputError(f"cannot predict with {model}: it needs {LABELS[name]}; add --{name} NUMBER")
    values: Array = np.asarray(value, dtype=np.float64)
    if not np.all(np.isfinite(values)):
        raise BadInputError(f"cannot predict with {model}: {LABELS[name]} is no number")
    return values


def number(value: float) -> str:
    """Returns a coefficient as text: 0.703, 1.05e10."""
    sign, size = "−" if value < 0 else "", abs(value)
    if size == 0 or 1e-3 <= size < 1e5:
        return f"{sign}{size:.4g}"
    mantissa, exponent = f"{size:.3e}".split("e")
    return f"{sign}{mantissa}e{int(exponent)}"


def plus(value: float) -> str:
    """Returns the last summand with its sign: `` + 1.05e10``."""
    return f" {'−' if value < 0 else '+'} {number(abs(value))}"


def sum_of(terms: list[tuple[float, str]], intercept: float) -> str:
    """Returns the sum as text: ``R = 0.7·C − 12·M + 1.05e10``."""
    text = ""
    for coefficient, name in terms:
        sign = ("−" if coefficient < 0 else "+") if text else ("−" if coefficient < 0 else "")
        text += (f" {sign} " if text else sign) + f"{number(abs(coefficient))}·{name}"
    return f"R = {text}{plus(intercept)}" if text else f"R = {number(intercept)}"
