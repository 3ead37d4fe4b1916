"""Polynomials of degree 1 to 3 in the walk cycles, by least squares: poly1, poly2, poly3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial, chebyshev

from pagelab.errors import BadInputError

from .base import given, number, sum_of
from .points import Array, Points, enough, varies

_POWERS = ("", "", "²", "³")
_MOST_AMPLIFIED = 1000.0
"""No polynomial is fitted that would be worse determined between its layouts: errors of 0.1% would count 100%."""
_PLACES = 201


@dataclass(frozen=True)
class FittedPoly:
    """A fitted polynomial: ``polynomial`` maps C to R; it keeps its scaled domain, which is well conditioned."""

    model: str
    polynomial: Polynomial

    @property
    def formula(self) -> str:
        plain = self.polynomial.convert().coef
        terms = [(float(plain[k]), f"C{_POWERS[k]}") for k in range(1, len(plain))]
        return sum_of(terms, float(plain[0]))

    @property
    def parameters(self) -> dict[str, float]:
        return {f"c{power}": float(value) for power, value in enumerate(self.polynomial.convert().coef)}

    def predict(self, h: Any, m: Any, c: Any) -> Array:
        values: Array = np.asarray(self.polynomial(given(c, "c", self.model)))
        return values


@dataclass(frozen=True)
class Poly:
    """R = β + α₁·C + … + α_d·C^d, by least squares over all layouts (MOSAIC, sections VII-A and VII-B)."""

    degree: int
    own_points: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"poly{self.degree}"

    def fit(self, points: Points) -> FittedPoly:
        """Fits the polynomial. It needs five layouts and at least as many values of C, well apart, as coefficients."""
        enough(points, self.degree + 2, self.name)
        different = len(np.unique(points.c))
        if not varies(points.c) or different < self.degree + 1:
            raise BadInputError(
                f"cannot fit {self.name} to {points.workload}: {different} different values of C, and it needs "
                f"{self.degree + 1}; measure layouts that differ more"
            )
        times = amplification(points.c, self.degree)
        if times > _MOST_AMPLIFIED:
            raise BadInputError(
                f"cannot fit {self.name} to {points.workload}: the values of C form too few groups, and between them "
                f"an error of R would count {number(times)} times; measure layouts that differ more"
            )
        return FittedPoly(self.name, Polynomial.fit(points.c, points.r, self.degree))


def amplification(c: Array, degree: int) -> float:
    """Largest standard error of a fitted polynomial within the range of ``c``, over that of one layout's R.

    It is the norm of v(x)·X⁺ for a design X, which Chebyshev polynomials of the scaled range keep well conditioned.
    """
    low, high = float(c.min()), float(c.max())
    design = chebyshev.chebvander((2 * c - low - high) / (high - low), degree)
    between = chebyshev.chebvander(np.linspace(-1, 1, _PLACES), degree)
    return float(np.linalg.norm(between @ np.linalg.pinv(design, rcond=0), axis=1).max())
