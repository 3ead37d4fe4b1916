"""Mosmodel: a polynomial of degree three in H, M and C; the Lasso chooses its terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pagelab.errors import BadInputError

from .base import given, needed, sum_of
from .points import LABELS, Array, Points, enough, independent, numbered

DEGREE = 3
INNER_FOLDS = 5
PENALTIES = 60
"""Number of values of λ that are tried, in equal ratios, down from the λ that leaves no term."""
LEAST_PENALTY = 1e-6
"""The smallest λ that is tried, relative to the λ that leaves no term."""
_FEWEST_PLACES = 6
"""Distinct counts from which on a fold has all layouts of its counts."""
_POWERS = ("", "", "²", "³")


@dataclass(frozen=True)
class _Design:
    """Turns inputs into columns of mean 0 and variance 1: divides by the maximum, expands to monomials, standardises.

    Inputs are scaled before the expansion, so that all monomials have one size. Columns are scaled after it, so that
    the penalty weighs them equally.
    """

    names: tuple[str, ...]
    largest: Array
    """Maximum of each input, shape (inputs,)."""
    powers: Array
    """Exponents of each monomial, without the constant: shape (monomials, inputs)."""
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
        """Returns the standardised columns of these inputs, shape (layouts, monomials)."""
        scaled: Array = (_monomials(inputs / self.largest, self.powers) - self.mean) / self.deviation
        return scaled


def _monomials(scaled: Array, powers: Array) -> Array:
    found: Array = np.prod(scaled[..., None, :] ** powers, axis=-1)
    return found


@dataclass(frozen=True)
class FittedMosmodel:
    """The fitted polynomial: ``coefficients`` of the standardised columns; ``intercept`` is the mean of R in cycles."""

    design: _Design
    coefficients: Array
    intercept: float
    penalty: float
    """λ, relative to the λ that leaves no term."""

    @property
    def nonzero(self) -> int:
        """Number of coefficients that the Lasso kept, without the constant."""
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

    λ has the least squared error in five shuffled folds; scaling and expansion are repeated in each fold.
    """

    name: str = "mosmodel"
    own_points: tuple[str, ...] = ()
    seed: int = 1
    """Seed of the shuffle."""

    def fit(self, points: Points) -> FittedMosmodel:
        """Fits the polynomial. It needs H, M and C, and leaves out those that are constant or linear in the others."""
        enough(points, 2 * INNER_FOLDS, self.name)
        needed(points.h, "h", points, self.name)
        needed(points.m, "m", points, self.name)
        kept = independent(points)
        if not kept:
            raise BadInputError(f"cannot fit {self.name} to {points.workload}: H, M and C are the same in every layout")
        names = tuple(kept)
        inputs = np.column_stack(list(kept.values()))
        penalty = _chosen_penalty(names, inputs, points.r, self.seed)
        design = _Design.of(names, inputs)
        centred = points.r - points.r.mean()
        coefficients = _path(design.columns(inputs), centred, np.array([penalty]))[0]
        return FittedMosmodel(design, coefficients, float(points.r.mean()), penalty)


def _chosen_penalty(names: tuple[str, ...], inputs: Array, r: Array, seed: int) -> float:
    """Returns the λ with the least squared error over the inner folds, relative to the λ that leaves no term."""
    penalties = np.geomspace(1.0, LEAST_PENALTY, PENALTIES)
    error = np.zeros(PENALTIES)
    # Rows may be sorted by R or by the heuristic that made them; folds of neighbours would then need extrapolation.
    # Layouts of equal counts are in one fold, as in the outer ones, unless too few others would be left to fit.
    places = numbered(inputs)
    if places.max() + 1 < _FEWEST_PLACES:
        places = np.arange(len(r))
    for part in np.array_split(np.random.default_rng(seed).permutation(int(places.max()) + 1), INNER_FOLDS):
        fold, kept = np.flatnonzero(np.isin(places, part)), np.flatnonzero(~np.isin(places, part))
        design = _Design.of(names, inputs[kept])
        mean = r[kept].mean()
        path = _path(design.columns(inputs[kept]), r[kept] - mean, penalties)
        error += np.sum((path @ design.columns(inputs[fold]).T + mean - r[fold]) ** 2, axis=1)
    return float(penalties[int(np.argmin(error))])


def _path(columns: Array, centred: Array, penalties: Array) -> Array:
    """Coefficients for each of the relative ``penalties``, shape (penalties, monomials).

    Least angle regression gives the path: it is exact, and linear between its corners. With nearly equal columns it
    may end early; then coordinate descent is used, which is slower and, at small λ, only near the minimum.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import lars_path, lasso_path

    alive = np.any(columns != 0, axis=0)
    if not alive.any() or np.std(centred) == 0:  # in a fold without the one layout that differs
        return np.zeros((len(penalties), len(alive)))
    columns, scaled = columns[:, alive], centred / np.std(centred)
    first = float(np.max(np.abs(columns.T @ scaled))) / len(scaled)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        alphas, _, path = lars_path(columns, scaled, method="lasso", alpha_min=float(np.min(penalties)) * first)
        ends = np.asarray(alphas) / first
        found = np.array([np.interp(penalties, ends[::-1], row[::-1]) for row in path])
        if not _solves(columns, scaled, found, penalties * first):
            _, found, _ = lasso_path(columns, scaled, alphas=penalties * first, max_iter=3000)
    every = np.zeros((len(penalties), len(alive)))
    every[:, alive] = found.T * np.std(centred)
    return every


def _solves(columns: Array, target: Array, found: Array, penalties: Array) -> bool:
    """Whether the Lasso's condition holds: no column's correlation with the residual is over 1.1 times the penalty."""
    rest = target[:, None] - columns @ found
    return bool(np.all(np.abs(columns.T @ rest) / len(target) <= 1.1 * penalties + 1e-12))
