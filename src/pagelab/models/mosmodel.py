"""Mosmodel: a polynomial of degree three in H, M and C whose terms the Lasso chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pagelab.errors import BadInputError

from .base import given, needed, sum_of
from .points import LABELS, Array, Points, enough, independent

DEGREE = 3
INNER_FOLDS = 5
PENALTIES = 60
"""Values of λ that are tried, in equal ratios from the one that leaves no term."""
LEAST_PENALTY = 1e-6
"""The least λ tried, over the one that leaves no term."""
_POWERS = ("", "", "²", "³")


@dataclass(frozen=True)
class _Design:
    """From inputs to columns of mean 0 and variance 1: inputs over their maximum, all monomials, standardised.

    Inputs are scaled before the expansion, so that monomials are of one size, and columns after it, so that the penalty
    weighs all alike.
    """

    names: tuple[str, ...]
    largest: Array
    """Shape (inputs,)."""
    powers: Array
    """Shape (monomials, inputs): the exponents, without the constant."""
    mean: Array
    deviation: Array

    @classmethod
    def of(cls, names: tuple[str, ...], inputs: Array) -> _Design:
        from sklearn.preprocessing import PolynomialFeatures

        largest = np.max(np.abs(inputs), axis=0)
        largest = np.where(largest > 0, largest, 1.0)
        expansion = PolynomialFeatures(DEGREE, include_bias=False).fit(inputs)
        powers = np.asarray(expansion.powers_, dtype=np.float64)
        columns = _monomials(inputs / largest, powers)
        deviation = columns.std(axis=0)
        return cls(names, largest, powers, columns.mean(axis=0), np.where(deviation > 1e-12, deviation, np.inf))

    def columns(self, inputs: Array) -> Array:
        """Shape (layouts, monomials)."""
        scaled: Array = (_monomials(inputs / self.largest, self.powers) - self.mean) / self.deviation
        return scaled


def _monomials(scaled: Array, powers: Array) -> Array:
    found: Array = np.prod(scaled[..., None, :] ** powers, axis=-1)
    return found


@dataclass(frozen=True)
class FittedMosmodel:
    """``coefficients``: by monomial, of the standardised columns; ``intercept``: mean of R, in cycles."""

    design: _Design
    coefficients: Array
    intercept: float
    penalty: float
    """λ, over the one that leaves no term."""

    @property
    def nonzero(self) -> int:
        """Coefficients that the Lasso left, without the constant."""
        return int(np.count_nonzero(self.coefficients))

    @property
    def parameters(self) -> dict[str, float]:
        kept = {name: value for value, name in self._terms()}
        return {**kept, "intercept": self._constant(), "nonzero": float(self.nonzero), "penalty": self.penalty}

    @property
    def formula(self) -> str:
        return sum_of(self._terms(), self._constant())

    def predict(self, h: Any, m: Any, c: Any) -> Array:
        inputs = {"h": h, "m": m, "c": c}
        values = np.stack(np.broadcast_arrays(*(given(inputs[name], name, "mosmodel") for name in self.design.names)))
        flat = values.reshape(len(self.design.names), -1).T
        found: Array = self.design.columns(flat) @ self.coefficients + self.intercept
        return found.reshape(values.shape[1:])

    def _unscaled(self) -> Array:
        sizes: Array = np.prod(self.design.largest**self.design.powers, axis=1)
        return self.coefficients / self.design.deviation / sizes

    def _terms(self) -> list[tuple[float, str]]:
        values = self._unscaled()
        return [
            (float(values[i]), "·".join(
                f"{LABELS[name]}{_POWERS[int(power)]}"
                for name, power in zip(self.design.names, self.design.powers[i], strict=True) if power
            ))
            for i in np.flatnonzero(self.coefficients)
        ]  # fmt: skip

    def _constant(self) -> float:
        return float(self.intercept - np.sum(self.coefficients * self.design.mean / self.design.deviation))


@dataclass(frozen=True)
class Mosmodel:
    """R = β + Σ α·HⁱMʲCᵏ over 1 ≤ i + j + k ≤ 3, with Σ|α| penalised (MOSAIC, section VII-C and equation 3).

    λ is the one of least squared error in five shuffled folds; scaling and expansion are made anew in each of them.
    """

    name: str = "mosmodel"
    own_points: tuple[str, ...] = ()
    seed: int = 1
    """Of the shuffle."""

    def fit(self, points: Points) -> FittedMosmodel:
        """Needs H, M and C. Inputs that are constant or follow from others stay: the Lasso takes one of them."""
        enough(points, 2 * INNER_FOLDS, self.name)
        hits, misses = needed(points.h, "h", points, self.name), needed(points.m, "m", points, self.name)
        if not independent(points):
            raise BadInputError(f"cannot fit {self.name} to {points.workload}: H, M and C are the same in every layout")
        names = ("h", "m", "c")
        inputs = np.column_stack([hits, misses, points.c])
        penalty = _chosen_penalty(names, inputs, points.r, self.seed)
        design = _Design.of(names, inputs)
        centred = points.r - points.r.mean()
        coefficients = _path(design.columns(inputs), centred, np.array([penalty]))[0]
        return FittedMosmodel(design, coefficients, float(points.r.mean()), penalty)


def _chosen_penalty(names: tuple[str, ...], inputs: Array, r: Array, seed: int) -> float:
    """λ over the one that leaves no term, of the least squared error over the inner folds."""
    penalties = np.geomspace(1.0, LEAST_PENALTY, PENALTIES)
    error = np.zeros(PENALTIES)
    # Rows may be sorted by R or by the heuristic that made them: folds of neighbours would ask for extrapolation.
    order = np.random.default_rng(seed).permutation(len(r))
    for fold in np.array_split(order, INNER_FOLDS):
        kept = np.setdiff1d(order, fold)
        design = _Design.of(names, inputs[kept])
        mean = r[kept].mean()
        path = _path(design.columns(inputs[kept]), r[kept] - mean, penalties)
        error += np.sum((path @ design.columns(inputs[fold]).T + mean - r[fold]) ** 2, axis=1)
    return float(penalties[int(np.argmin(error))])


def _path(columns: Array, centred: Array, penalties: Array) -> Array:
    """Coefficients for each of the relative ``penalties``, shape (penalties, monomials); the path is linear between its
    corners (least angle regression)."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import lars_path

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # ends early where columns are alike: the path up to there
        scaled = centred / np.std(centred)
        first = float(np.max(np.abs(columns.T @ scaled))) / len(scaled)
        least = float(np.min(penalties)) * first
        alphas, _, path = lars_path(columns, scaled, method="lasso", alpha_min=least)
    ends = np.asarray(alphas) / first
    found: Array = np.array([np.interp(penalties, ends[::-1], row[::-1]) for row in path]).T
    return found * np.std(centred)
