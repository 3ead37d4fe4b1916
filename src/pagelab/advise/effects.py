"""Estimates the gain of each region from pairs of a mosaic and its complement that ran next to each other.

Let γᵢ be the gain of region i as a fraction of a pair's mean time, and xᵢ the share of the region in huge pages in the
first execution, from -1 (none) to 1 (all; the second has the rest). The relative difference of a pair is

    r = (t₂ - t₁) / ((t₁ + t₂) / 2) = Σ xᵢ γᵢ + noise.

This is exact if gains add up: the times of a mosaic and its complement then have the same sum for every mosaic.

- A disturbance that slows both executions by one factor (a neighbour, the clock frequency, drift) cancels.
- One that slows a single execution leaves |r| below 2; it is noise with heavy tails: Student's t. Its scale and degrees
  of freedom are estimated with the gains, so that one slow execution hardly counts (Lange, Little, Taylor, JASA 84,
  1989).
- Most regions gain nothing and a few gain much. So a region has no gain with a probability that is also estimated, else
  a gain from a normal distribution around zero (spike and slab; George and McCulloch, JASA 88, 1993). Gains that are
  chosen because they look large are thereby not overstated, and the few that matter leave enough pairs for the noise.

Gibbs sampling draws from the posterior, with two regions in one step: a gain can then move from a region to the next,
although few pairs distinguish them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Array = NDArray[np.float64]

_CHAINS, _WARM, _KEPT = 16, 60, 120
_FREEDOMS = np.array([1.0, 2.0, 4.0, 8.0, 30.0])
"""Possible degrees of freedom of the noise, equally likely a priori."""
_SPREADS = np.geomspace(0.005, 1.0, 24)
"""Possible standard deviations of the gains, as fractions of the time."""
_HAVE, _HAVE_NOT = 1.0, 1.5
"""Parameters of the Beta prior of the share of regions that gain or lose something."""
_LEAST_NOISE = 1e-9
"""Smallest scale of the noise: exact data may have none, and later steps divide by it."""


@dataclass(frozen=True)
class Effects:
    """Gains by region, as fractions of the time in base pages; positive is faster."""

    mean: Array
    """Posterior means, shape (regions,)."""
    sure: Array
    """Posterior probabilities of a gain above 0, shape (regions,)."""
    draws: Array
    """Draws from the posterior, shape (draws, regions)."""
    noise: float
    """Posterior median of the scale of a pair's noise, as a fraction of the time."""

    def gain(self, chosen: NDArray[np.bool_], level: float = 0.95) -> tuple[float, float, float]:
        """Posterior mean and interval's ends of the total gain of the ``chosen`` regions, as fractions of the time."""
        sums = self.draws[:, chosen].sum(axis=1)
        low, high = np.quantile(sums, [(1 - level) / 2, (1 + level) / 2])
        return float(self.mean[chosen].sum()), float(low), float(high)


def differences(first: Array, second: Array) -> Array:
    """Relative differences of pairs, ``(second - first)`` over their mean; times must be positive."""
    return np.asarray(2 * (second - first) / (first + second))


def effects(shares: Array, found: Array, rng: np.random.Generator) -> Effects:
    """Estimates gains from ``shares`` (pairs, regions), each x in -1 … 1, and ``found`` (pairs,): their differences.

    Raises ValueError if a difference is missing, or with fewer than two pairs, which cannot separate noise and effects.
    """
    pairs, regions = shares.shape
    if pairs < 2:
        raise ValueError("effects need at least two pairs: with one, noise and effects cannot be distinguished")
    if found.shape != (pairs,) or not np.isfinite(found).all():
        raise ValueError("every pair needs a difference")
    chains = _Chains(shares, found, rng)
    draws = np.empty((_KEPT, _CHAINS, regions))
    noise = np.empty((_KEPT, _CHAINS))
    for step in range(-_WARM, _KEPT):
        chains.step()
        if step >= 0:
            draws[step], noise[step] = chains.gains, np.sqrt(chains.variance)
    gains = draws.reshape(-1, regions)
    # The mean time of a pair includes half of all gains; the time in base pages includes none.
    of_base = gains / np.maximum(0.1, 1 + gains.sum(axis=1, keepdims=True) / 2)
    return Effects(of_base.mean(axis=0), (of_base > 0).mean(axis=0), of_base, float(np.median(noise)))


class _Chains:
    """States of all chains: gains, and the parameters of their distribution and of the noise's."""

    def __init__(self, shares: Array, found: Array, rng: np.random.Generator) -> None:
        pairs, regions = shares.shape
        self._x, self._r, self._rng = shares, found, rng
        self.gains = np.zeros((_CHAINS, regions))
        deviation = max(1.4826 * float(np.median(np.abs(found))), _LEAST_NOISE)
        self.variance = np.full(_CHAINS, deviation**2)
        self._spread = np.full(_CHAINS, 0.1)
        self._share = rng.beta(_HAVE, _HAVE_NOT, _CHAINS)
        self._products = (shares[:, :, None] * shares[:, None, :]).reshape(pairs, -1)

    def step(self) -> None:
        """One Gibbs sweep over all parameters."""
        weights = self._weighed()
        self._gained(weights)
        has = self.gains != 0
        count = has.sum(axis=1)
        squares = (self.gains**2).sum(axis=1)
        log_likelihood = -count[:, None] * np.log(_SPREADS) - squares[:, None] / (2 * _SPREADS**2)
        self._spread = _SPREADS[_drawn(log_likelihood, self._rng)]
        self._share = self._rng.beta(_HAVE + count, _HAVE_NOT + has.shape[1] - count)

    def _weighed(self) -> Array:
        """Draws scale and tails of the noise; returns the pairs' weights over the variance, shape (chains, pairs)."""
        left2 = (self._r - self.gains @ self._x.T) ** 2
        scaled = left2 / self.variance[:, None]
        density = np.stack([_log_student(scaled, freedom).sum(axis=1) for freedom in _FREEDOMS], axis=1)
        freedom = _FREEDOMS[_drawn(density, self._rng)][:, None]
        weights = self._rng.gamma((freedom + 1) / 2, size=scaled.shape) * 2 / (freedom + scaled)
        rest = (weights * left2).sum(axis=1)
        self.variance = np.maximum(rest / self._rng.chisquare(left2.shape[1], _CHAINS), _LEAST_NOISE**2)
        return np.asarray(weights / self.variance[:, None])

    def _gained(self, weights: Array) -> None:
        """Draws the gains, two regions at a time: neither, one of them, or both have a gain."""
        count = self.gains.shape[1]
        precision = (weights @ self._products).reshape(_CHAINS, count, count)
        along = (weights * self._r) @ self._x
        for one in range(count):
            if count == 1:
                self._single(precision, along)
                continue
            # Neighbours are most alike, so their gains should change places most often.
            apart = 1 if self._rng.random() < 0.5 else int(self._rng.integers(1, count))
            self._two(one, (one + apart) % count, precision, along)

    def _single(self, precision: Array, along: Array) -> None:
        slab = 1 / self._spread**2
        a, b = precision[:, 0, 0] + slab, along[:, 0]
        odds = np.log(self._share / (1 - self._share)) + 0.5 * (np.log(slab / a) + b**2 / a)
        has = _drawn(np.stack([np.zeros(_CHAINS), odds], axis=1), self._rng) == 1
        self.gains[:, 0] = np.where(has, b / a + self._rng.normal(size=_CHAINS) / np.sqrt(a), 0.0)

    def _two(self, i: int, j: int, precision: Array, along: Array) -> None:
        self.gains[:, [i, j]] = 0.0
        slab = 1 / self._spread**2
        b_i = along[:, i] - (precision[:, i] * self.gains).sum(axis=1)
        b_j = along[:, j] - (precision[:, j] * self.gains).sum(axis=1)
        a_i, a_j, both = precision[:, i, i] + slab, precision[:, j, j] + slab, precision[:, i, j]
        determinant = a_i * a_j - both**2
        odds = np.log(self._share / (1 - self._share)) + 0.5 * np.log(slab)
        with_both = (a_j * b_i**2 - 2 * both * b_i * b_j + a_i * b_j**2) / determinant
        states = np.stack(
            [
                np.zeros(_CHAINS),
                odds + 0.5 * (b_i**2 / a_i - np.log(a_i)),
                odds + 0.5 * (b_j**2 / a_j - np.log(a_j)),
                2 * odds + 0.5 * (with_both - np.log(determinant)),
            ],
            axis=1,
        )
        state = _drawn(states, self._rng)
        normal = self._rng.normal(size=(2, _CHAINS))
        # First j, alone or (if both have a gain) with i integrated out; then i given j.
        centre_j = np.where(state == 3, (a_i * b_j - both * b_i) / determinant, b_j / a_j)
        width_j = np.sqrt(np.where(state == 3, a_i / determinant, 1 / a_j))
        self.gains[:, j] = np.where(state >= 2, centre_j + width_j * normal[0], 0.0)
        centre_i = (b_i - both * self.gains[:, j]) / a_i
        self.gains[:, i] = np.where(state % 2 == 1, centre_i + normal[1] / np.sqrt(a_i), 0.0)


def _log_student(scaled: Array, freedom: float) -> Array:
    """Log of Student's density at squares over the variance, up to a term common to all degrees of freedom."""
    constant = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * np.log(freedom)
    return np.asarray(constant - (freedom + 1) / 2 * np.log1p(scaled / freedom))


def _drawn(logarithms: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draws one column for each row, with probabilities proportional to the exponentials."""
    shares = np.exp(logarithms - logarithms.max(axis=1, keepdims=True))
    sums = shares.cumsum(axis=1)
    return np.asarray((sums < rng.random((len(sums), 1)) * sums[:, -1:]).sum(axis=1))
