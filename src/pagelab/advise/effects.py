"""What each region gains, from the times of mosaics: differences, shrunk by how many regions matter at all.

In a design of :mod:`pagelab.advise.design` the ordinary estimate of a region's effect is the mean time with it in huge
pages minus the mean time without, within blocks; all regions' estimates are independent and have one standard error.
Most regions matter little and a few much, so the estimates are shrunk by an empirical Bayes rule: a region has no
effect with probability ``null``, else one from a normal distribution; both are fitted to all estimates by maximum
likelihood (adaptive shrinkage; Stephens, Biostatistics 18, 2017, with one normal component). What is chosen for being
large is so not promised for more than it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

_DRAWS = 4000
_LEAST_ERROR = 1e-9


@dataclass(frozen=True)
class Effects:
    """Gains by region, as fractions of the time in base pages; positive is faster."""

    raw: NDArray[np.float64]
    """Shape (regions,): the ordinary estimates."""
    error: float
    """Standard error of each."""
    freedom: int
    """Degrees of freedom of ``error``."""
    null: float
    """Fitted probability that a region has no effect."""
    spread: float
    """Fitted standard deviation of those that have one."""
    mean: NDArray[np.float64]
    """Shape (regions,): posterior means."""
    sure: NDArray[np.float64]
    """Shape (regions,): posterior probabilities of a gain above nothing."""
    draws: NDArray[np.float64]
    """Shape (draws, regions): draws of the posterior."""

    def gain(self, chosen: NDArray[np.bool_], level: float = 0.95) -> tuple[float, float, float]:
        """Posterior mean, low and high end of the gain of all ``chosen`` regions together."""
        sums = self.draws[:, chosen].sum(axis=1)
        low, high = np.quantile(sums, [(1 - level) / 2, (1 + level) / 2])
        return float(self.mean[chosen].sum()), float(low), float(high)


def effects(
    included: NDArray[np.bool_], times: NDArray[np.float64], *, base: float, rng: np.random.Generator
) -> Effects:
    """From ``included``, shape (mosaics, regions), and ``times``, shape (blocks, mosaics).

    ``base`` is what gains are fractions of: the time in base pages, in the same unit. Each block has a level of its
    own. Raises ValueError where a time is missing, or with fewer than two blocks: nothing tells noise from effects.
    """
    blocks, mosaics = times.shape
    if blocks < 2:
        raise ValueError("effects need at least two blocks: one does not tell noise from effects")
    if included.shape[0] != mosaics or not np.isfinite(times).all():
        raise ValueError("every mosaic needs a time in every block")
    signs = np.where(included, 1.0, -1.0)
    centred = times - times.mean(axis=1, keepdims=True)
    by_block = -2 * centred @ signs / mosaics / base
    raw = by_block.mean(axis=0)
    # What is left when each mosaic has its own mean and each block its own level is noise, whatever the effects do.
    left = centred - centred.mean(axis=0)
    freedom = (blocks - 1) * (mosaics - 1)
    noise = float(np.sqrt((left**2).sum() / freedom))
    # Where times are counted, or planted, there may be no noise at all: what follows divides by it.
    error = max(2 * noise / base / np.sqrt(blocks * mosaics), _LEAST_ERROR)
    null, spread = _fitted(raw, error)
    mean, sure, draws = _posterior(raw, error, null, spread, rng)
    return Effects(raw, error, freedom, null, spread, mean, sure, draws)


def _fitted(raw: NDArray[np.float64], error: float) -> tuple[float, float]:
    """The share without an effect and the spread of the others under which ``raw`` is likeliest.

    One pseudo-observation on either side keeps the share away from none and all.
    """
    shares = np.linspace(0.02, 0.98, 49)
    largest = max(float(np.abs(raw).max()), error)
    spreads = error * np.geomspace(0.5, max(2.0, 4 * largest / max(error, 1e-12)), 60)
    without = stats.norm.pdf(raw, scale=error)
    with_one = stats.norm.pdf(raw[None, :], scale=np.hypot(spreads, error)[:, None])
    mixed = shares[:, None, None] * without + (1 - shares)[:, None, None] * with_one
    likelihood = np.log(np.maximum(mixed, 1e-300)).sum(axis=2) + np.log(shares * (1 - shares))[:, None]
    share, spread = np.unravel_index(int(likelihood.argmax()), likelihood.shape)
    return float(shares[share]), float(spreads[spread])


def _posterior(
    raw: NDArray[np.float64], error: float, null: float, spread: float, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    without = null * stats.norm.pdf(raw, scale=error)
    with_one = (1 - null) * stats.norm.pdf(raw, scale=np.hypot(spread, error))
    has = with_one / np.maximum(without + with_one, 1e-300)
    shrink = spread**2 / (spread**2 + error**2)
    centre, width = shrink * raw, float(np.sqrt(shrink)) * error
    draws = rng.normal(centre, width, (_DRAWS, raw.size)) * (rng.random((_DRAWS, raw.size)) < has)
    return has * centre, has * stats.norm.cdf(centre / max(width, 1e-300)), draws
