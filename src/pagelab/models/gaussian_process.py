"""This package's model ``gp``: a shrunken cubic in H, M and C plus a Gaussian process, with prediction intervals.

R/mean(R) = β₀ + Σ βⱼ xⱼ + p(x) + f(x) + s·y·t + e.

- x: the inputs H, M and C, centred and divided by their standard deviations.
- f: a Gaussian process with a Matérn 5/2 kernel and a length for each input.
- p: all monomials of degree two and three in the inputs divided by these lengths, with normal coefficients of one size.
  An input that f hardly uses has a large length, and so a small part in p.
- s·y·t: the layout's own scatter, relative to its run time, with Student's t. Its heavy tails let a few layouts lie off
  the surface without bending it.
- e: the noise of the layout's mean over the repeats, known from their spread.

Lengths, sizes and s are averaged over their posterior by importance sampling, so that the intervals include the
uncertainty about them.

Kernel and marginal likelihood: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), equations 2.42
(explicit basis functions), 4.17 and 5.8. Student's t as a mixture of normals: Lange, Little and Taylor, JASA 84 (1989).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, gammaincinv, ndtr, ndtri

from pagelab.errors import BadInputError

from .base import given, number, sum_of
from .points import LABELS, Array, Points, enough, independent

Of = Literal["mean", "run"]
FREEDOM = 2.5
"""Degrees of freedom of a layout's scatter: few, but above 2 for a finite variance (docs/method/models.md)."""
_TAIL = 16
"""Number of equally likely scales in the mixture of normals that represents the t distribution. For levels above 0.95
the largest of them is divided into more."""
_SLOPE_SD = 10.0
"""Prior standard deviation of the slopes, in standard deviations of R per standard deviation of an input."""
_LEAST_SCATTER = 1e-6
"""Smallest relative scatter; it keeps the covariance of exact data positive definite."""
_LEAST_DIAGONAL = 1e-12
"""Least variance of a layout, over the largest of the process: below it, rounding decides (run times that span orders
of magnitude)."""
_ROUNDS = 5
"""Rounds of importance sampling."""
_ENOUGH = 50.0
"""Effective number of samples that ends the sampling: fewer make an interval's width depend on the seed."""
FEW_EFFECTIVE = 20.0
"""With a smaller effective number the intervals are said to depend on the seed."""
_SEARCHING, _FURTHER = 4, 12
"""Further rounds for posteriors that the first ones missed: to find them, and at most so many to average over them."""
_TEMPERED = 20.0
"""Effective number of samples that a further round's proposal is drawn around."""
_PROPOSAL_FREEDOM = 5.0
_REWEIGHTINGS = 20
"""Expectation-maximisation steps after each round but the last."""
_BISECTIONS = 32
"""Halvings of a quantile's bracket; they shrink it below a billionth of its width."""


@dataclass(frozen=True)
class _Prior:
    """Log-normal priors of the inputs' lengths, the sizes of f and p, and the scatter: log medians, deviations."""

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, inputs: int, spread: float) -> _Prior:
        """Returns the priors for so many inputs; ``spread`` is the standard deviation of R/mean(R).

        Medians, each with the factor of one standard deviation: lengths 2 deviations of an input (3.7); size of f that
        of R (e); coefficients of the polynomial a seventh of it (4.5); scatter 0.5% (4.5).
        """
        size = np.log(max(spread, 1e-4))
        mean = np.array([0.7] * inputs + [size, size - 2.0, np.log(0.005)])
        return cls(mean, np.array([1.3] * inputs + [1.0, 1.5, 1.5]))

    def log_density(self, theta: Array) -> Array:
        """Returns the log density up to a constant; ``theta`` has shape (samples, parameters)."""
        density: Array = -0.5 * np.sum(((theta - self.mean) / self.deviation) ** 2, axis=1)
        return density


@dataclass(frozen=True)
class Proposal:
    """A normal distribution from which parameters are drawn; it only has to cover the posterior."""

    mean: Array
    factor: Array
    """Cholesky factor of the covariance."""

    def drawn(self, z: Array) -> Array:
        """Parameters with Student's t of :data:`_PROPOSAL_FREEDOM`; the last column of ``z`` is that of the scale."""
        squares = chdtri(_PROPOSAL_FREEDOM, ndtr(-z[:, -1:])) / _PROPOSAL_FREEDOM
        drawn: Array = self.mean + z[:, :-1] / np.sqrt(squares) @ self.factor.T
        return drawn

    def log_density(self, theta: Array) -> Array:
        """Log density of :meth:`drawn`, up to a constant that is the same for all proposals."""
        size = len(self.mean)
        squares = np.sum(np.linalg.solve(self.factor, (theta - self.mean).T) ** 2, axis=0)
        half = -0.5 * (_PROPOSAL_FREEDOM + size) * np.log1p(squares / _PROPOSAL_FREEDOM)
        density: Array = half - np.log(np.diag(self.factor)).sum()
        return density


@dataclass(frozen=True)
class _Data:
    """The scaled data of a fit. ``x`` has shape (layouts, inputs), the others (layouts,)."""

    x: Array
    y: Array
    noise: Array
    """Known variance of each y."""

    @cached_property
    def basis(self) -> Array:
        return _basis(self.x)

    @cached_property
    def squares(self) -> Array:
        """Squared differences, shape (layouts, layouts, inputs)."""
        found: Array = (self.x[:, None, :] - self.x[None, :, :]) ** 2
        return found

    @cached_property
    def slope_precision(self) -> Array:
        """Prior precision of (β₀, β); that of β₀ is nearly 0."""
        spread = max(float(self.y.std()), 1e-4)
        return np.array([1e-4] + [1 / (_SLOPE_SD * spread) ** 2] * self.x.shape[1])


def _curves(one: Array, other: Array, lengths: Array) -> Array:
    """Covariance of all monomials of degree two and three in x/lengths, shape (samples, places, places).

    It is 3d² + d³ of the inner product d: the cubic kernel without its constant and linear parts.
    """
    products = np.einsum("id,jd,sd->sij", one, other, lengths**-2)
    found: Array = 3 * products**2 + products**3
    return found


def _half_determinants(covariance: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Half the logarithm of each determinant, shape (samples,), and which matrices are not positive definite."""
    failed = np.zeros(len(covariance), dtype=bool)
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        factor = np.tile(np.eye(covariance.shape[1]), (len(covariance), 1, 1))
        for i, one in enumerate(covariance):
            try:
                factor[i] = np.linalg.cholesky(one)
            except np.linalg.LinAlgError:
                failed[i] = True
    return np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1), failed


def _basis(x: Array) -> Array:
    return np.column_stack([np.ones(len(x)), x])


def _matern(squares: Array) -> Array:
    """The Matérn 5/2 kernel of squared scaled distances."""
    distance = np.sqrt(5.0 * squares)
    found: Array = (1 + distance + 5.0 * squares / 3.0) * np.exp(-distance)
    return found


@dataclass(frozen=True)
class _Posterior:
    """Quantities that follow from the data and the parameters of each sample; the first axis is the samples."""

    lengths: Array
    size: Array
    curvature: Array
    scatter: Array
    log_likelihood: Array
    solved: Array
    """K⁻¹(y − Bβ), shape (samples, layouts)."""
    slopes: Array
    inverse: Array
    """K⁻¹, shape (samples, layouts, layouts)."""
    slope_factor: Array
    """(BᵀK⁻¹B + Λ)⁻¹."""

    @classmethod
    def of(cls, data: _Data, theta: Array, weights: Array) -> _Posterior:
        inputs = data.x.shape[1]
        lengths, size = np.exp(theta[:, :inputs]), np.exp(theta[:, inputs])
        curvature = np.exp(theta[:, inputs + 1])
        scatter = np.maximum(np.exp(theta[:, inputs + 2]), _LEAST_SCATTER)
        scaled = np.einsum("ijd,sd->sij", data.squares, lengths**-2)
        covariance = size[:, None, None] ** 2 * _matern(scaled)
        covariance += curvature[:, None, None] ** 2 * _curves(data.x, data.x, lengths)
        rows = np.arange(len(data.y))
        largest = covariance[:, rows, rows].max(axis=1, keepdims=True)
        own = scatter[:, None] ** 2 * data.y**2 / weights + data.noise
        covariance[:, rows, rows] += np.maximum(own, _LEAST_DIAGONAL * largest)
        half_determinant, failed = _half_determinants(covariance)
        covariance[failed] = np.eye(len(rows))  # any that has an inverse: its sample's share is zero
        inverse = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        solved_basis = inverse @ data.basis
        information = data.basis.T @ solved_basis + np.diag(data.slope_precision)
        slope_factor = np.asarray(np.linalg.inv(information), dtype=np.float64)
        right = np.einsum("snk,n->sk", solved_basis, data.y)
        slopes: Array = np.einsum("skl,sl->sk", slope_factor, right)
        solved_y = inverse @ data.y
        fit = np.einsum("n,sn->s", data.y, solved_y) - np.einsum("sk,sk->s", right, slopes)
        log_likelihood = -0.5 * fit - half_determinant - 0.5 * np.linalg.slogdet(information)[1]
        log_likelihood[failed] = -np.inf
        solved = solved_y - np.einsum("snk,sk->sn", solved_basis, slopes)
        return cls(lengths, size, curvature, scatter, log_likelihood, solved, slopes, inverse, slope_factor)

    def at(self, data: _Data, x: Array) -> tuple[Array, Array]:
        """Returns mean and variance of the surface at ``x``, each of shape (samples, places)."""
        squares = (x[:, None, :] - data.x[None, :, :]) ** 2
        cross = self.size[:, None, None] ** 2 * _matern(np.einsum("pnd,sd->spn", squares, self.lengths**-2))
        cross = cross + self.curvature[:, None, None] ** 2 * _curves(x, data.x, self.lengths)
        basis = _basis(x)
        mean = np.einsum("pk,sk->sp", basis, self.slopes) + np.einsum("spn,sn->sp", cross, self.solved)
        weighed = np.einsum("spn,snm->spm", cross, self.inverse)
        rest = basis - np.einsum("spn,nk->spk", weighed, data.basis)
        square = np.einsum("pd,sd->sp", x**2, self.lengths**-2)
        own = self.size[:, None] ** 2 + self.curvature[:, None] ** 2 * (3 * square**2 + square**3)
        variance = own - np.einsum("spn,spn->sp", weighed, cross)
        variance = variance + np.einsum("spk,skl,spl->sp", rest, self.slope_factor, rest)
        return mean, np.maximum(variance, 0.0)

    def scatter_squares(self, data: _Data, weights: Array) -> Array:
        """Expected square of each layout's own scatter over its scale, for each sample: shape (samples, layouts)."""
        own = self.scatter[:, None] ** 2 * data.y**2 / weights
        solved_basis = self.inverse @ data.basis
        shrunk = np.einsum("snk,skl,snl->sn", solved_basis, self.slope_factor, solved_basis)
        diagonal = np.diagonal(self.inverse, axis1=1, axis2=2) - shrunk
        expected = (own * self.solved) ** 2 + own - own**2 * diagonal
        found: Array = expected / (self.scatter[:, None] ** 2 * data.y**2)
        return found


@dataclass(frozen=True)
class FittedProcess:
    """The fitted model: the posterior as weighted samples of the parameters."""

    names: tuple[str, ...]
    """The inputs that the model uses."""
    centre: Array
    scale: Array
    unit: float
    """Mean of R, in cycles; y is R divided by it."""
    data: _Data
    posterior: _Posterior
    shares: Array
    """Weight of each sample; the weights sum to 1."""
    weights: Array
    """Weight of each layout: near 1, or far below 1 for a layout that lies off the surface."""
    proposal: Proposal

    @property
    def scatter(self) -> float:
        """Posterior mean of the layouts' own scatter, relative to R."""
        return float(self.shares @ self.posterior.scatter)

    @property
    def parameters(self) -> dict[str, float]:
        """Posterior means: slopes of the line, lengths in the inputs' units, sizes in cycles, relative scatter; and
        the effective number of samples that they and all predictions are averaged over."""
        slopes, intercept = self._line()
        lengths = self.shares @ self.posterior.lengths * self.scale
        return {
            **{f"slope_{name}": float(slope) for name, slope in zip(self.names, slopes, strict=True)},
            "intercept": float(intercept),
            **{f"length_{name}": float(length) for name, length in zip(self.names, lengths, strict=True)},
            "size": float(self.shares @ self.posterior.size) * self.unit,
            "curvature": float(self.shares @ self.posterior.curvature) * self.unit,
            "scatter": self.scatter,
            "effective_samples": effective(self.shares),
        }

    @property
    def formula(self) -> str:
        slopes, intercept = self._line()
        terms = [(float(slope), LABELS[name]) for name, slope in zip(self.names, slopes, strict=True)]
        size = number(float(self.shares @ self.posterior.size) * self.unit)
        inputs = ", ".join(LABELS[name] for name in self.names)
        return f"{sum_of(terms, float(intercept))} + p({inputs}) + f({inputs}), f a Matérn 5/2 process of size {size}"

    def _line(self) -> tuple[Array, float]:
        slopes = self.shares @ self.posterior.slopes * self.unit
        plain: Array = slopes[1:] / self.scale
        return plain, float(slopes[0] - plain @ self.centre)

    def predict(self, h: Any, m: Any, c: Any) -> Array:
        x, shape = self._scaled(h, m, c)
        mean, _ = self.posterior.at(self.data, x)
        found: Array = (self.shares @ mean * self.unit).reshape(shape)
        return found

    def interval(
        self, h: Any, m: Any, c: Any, *, level: float = 0.95, of: Of = "mean", run_sd: float | Array = 0.0
    ) -> tuple[Array, Array]:
        """Returns the interval's ends in cycles, for a new layout's mean (``of="mean"``) or one run of it.

        ``run_sd``: relative standard deviation of single runs around their layout's mean, one value or one for each
        place. If the spread of the repeats was unknown, the layouts' own scatter includes their noise.
        """
        if not 0.5 <= level < 1:
            raise BadInputError(f"cannot give an interval of level {level}: not within 0.5 ... 1")
        x, shape = self._scaled(h, m, c)
        mean, variance = self.posterior.at(self.data, x)
        scales, likely = _scales(level)
        centre = self.shares @ mean
        own = self.posterior.scatter[:, None] ** 2 * centre**2
        noise = (run_sd * centre) ** 2 if of == "run" else 0.0
        spread = np.sqrt(variance[:, None, :] + own[:, None, :] * scales[None, :, None] + noise)
        shares = self.shares[:, None] * likely
        ends = [_quantile(p, mean, spread, shares) * self.unit for p in ((1 - level) / 2, (1 + level) / 2)]
        return ends[0].reshape(shape), ends[1].reshape(shape)

    def uncertainty(self, h: Any, m: Any, c: Any) -> Array:
        """Standard deviation of the surface over its mean, without the layouts' scatter; more layouts lower it."""
        x, shape = self._scaled(h, m, c)
        mean, variance = self.posterior.at(self.data, x)
        centre = self.shares @ mean
        found: Array = np.sqrt(self.shares @ (variance + (mean - centre) ** 2)) / np.abs(centre)
        return found.reshape(shape)

    def distances(self, h: Any, m: Any, c: Any) -> Array:
        """Distance of each fitted layout from one place, in standard deviations of the inputs: shape (layouts,)."""
        x, _ = self._scaled(h, m, c)
        found: Array = np.sqrt(np.sum((self.data.x - x) ** 2, axis=1))
        return found

    def believing(self, h: Any, m: Any, c: Any) -> FittedProcess:
        """Returns the process as if layouts with these counts had been measured exactly as it predicts them.

        The parameters and their shares stay the same, and the variances under each of them are exact. It serves to
        choose several layouts before any is measured (Ginsbourger et al. 2010, "kriging believer").
        """
        x, _ = self._scaled(h, m, c)
        believed = self.shares @ self.posterior.at(self.data, x)[0]
        known = self.data.noise
        data = _Data(
            np.vstack([self.data.x, x]),
            np.concatenate([self.data.y, believed]),
            np.concatenate([known, np.full(len(x), np.median(known))]),
        )
        weights = np.concatenate([self.weights, np.ones(len(x))])
        theta = np.log(
            np.column_stack(
                [self.posterior.lengths, self.posterior.size, self.posterior.curvature, self.posterior.scatter]
            )
        )
        return replace(self, data=data, posterior=_Posterior.of(data, theta, weights), weights=weights)

    def _scaled(self, h: Any, m: Any, c: Any) -> tuple[Array, tuple[int, ...]]:
        inputs = {"h": h, "m": m, "c": c}
        values = np.stack(np.broadcast_arrays(*(given(inputs[name], name, "gp") for name in self.names)))
        flat = values.reshape(len(self.names), -1).T
        return (flat - self.centre) / self.scale, values.shape[1:]


def _scales(level: float) -> tuple[Array, Array]:
    """Scales of a t distribution's variance, and their probabilities: enough in the tail for an interval of ``level``.

    Bins of the scale's distribution, each represented by its middle. The one with the largest scales has the tail; it
    is halved as often as 1 - level is halved from 0.05.
    """
    halvings = max(0, int(np.ceil(np.log2(0.05 / (1 - level)))))
    edges = np.concatenate([[0.0], 0.5 ** np.arange(halvings, 0, -1) / _TAIL, np.arange(1, _TAIL + 1) / _TAIL])
    scales: Array = FREEDOM / (2 * gammaincinv(FREEDOM / 2, (edges[:-1] + edges[1:]) / 2))
    shares: Array = np.diff(edges)
    return scales, shares


def _quantile(p: float, mean: Array, spread: Array, shares: Array) -> Array:
    """Quantile of a mixture of normals; ``mean`` (samples, places), ``spread`` (samples, scales, places), ``shares``
    (samples, scales)."""
    reach = float(ndtri(1 - 1e-9))
    low, high = (mean[:, None] - reach * spread).min(axis=(0, 1)), (mean[:, None] + reach * spread).max(axis=(0, 1))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        below = np.einsum("sk,skp->p", shares, ndtr((middle - mean[:, None, :]) / spread)) < p
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    found: Array = (low + high) / 2
    return found


@dataclass(frozen=True)
class GaussianProcess:
    """R as a shrunken cubic plus a Gaussian process (see the module). Constant or dependent inputs are left out."""

    name: str = "gp"
    own_points: tuple[str, ...] = ()
    samples: int = 128
    """Samples of the parameters in the last round; earlier rounds use half as many."""
    seed: int = 1

    def fit(self, points: Points) -> FittedProcess:
        """Fits the model. It needs five layouts and an input that varies; it uses H and M where they are known."""
        enough(points, 5, self.name)
        inputs = independent(points)
        if not inputs:
            raise BadInputError(f"cannot fit gp to {points.workload}: no input varies; measure layouts that differ")
        raw = np.column_stack(list(inputs.values()))
        centre, scale, unit = raw.mean(axis=0), raw.std(axis=0), float(points.r.mean())
        error = points.r_se
        noise = np.zeros(len(points)) if error is None else (error / unit) ** 2
        data = _Data((raw - centre) / scale, points.r / unit, noise)
        theta, shares, proposal, weights = self._sampled(data)
        if not shares.any():
            raise BadInputError(
                f"cannot fit gp to {points.workload}: its run times span {points.r.max() / points.r.min():.2g} to 1, "
                "too much to compute with; is one in another unit?"
            )
        kept = shares > 1e-4 / len(shares)
        posterior = _Posterior.of(data, theta[kept], weights)
        return FittedProcess(
            tuple(inputs), centre, scale, unit, data, posterior, shares[kept] / shares[kept].sum(), weights, proposal
        )

    def _sampled(self, data: _Data) -> tuple[Array, Array, Proposal, Array]:
        """Returns parameters, their shares, the last proposal and the layouts' weights."""
        prior = _Prior.of(data.x.shape[1], float(data.y.std()))
        proposal = Proposal(prior.mean, np.diag(prior.deviation))
        weights = np.ones(len(data.y))
        draws = _draws(len(prior.mean), self.samples, _ROUNDS, self.seed)
        for i in range(_ROUNDS):
            last = i == _ROUNDS - 1
            z = draws[i] if last else draws[i][: self.samples // 2]
            theta = proposal.mean + z @ proposal.factor.T
            shares = _shares(_target(data, theta, weights, prior) + 0.5 * np.sum(z**2, axis=1))
            if not last:
                proposal = _around(theta, shares, prior)
                weights = _reweighted(data, proposal.mean, weights)
        if effective(shares) >= _ENOUGH:
            return theta, shares, proposal, weights
        return self._further(data, prior, _around(theta, _tempered(shares), prior), weights)

    def _further(
        self, data: _Data, prior: _Prior, proposal: Proposal, weights: Array
    ) -> tuple[Array, Array, Proposal, Array]:
        """More rounds, for posteriors that the first ones missed: all draws count, under the mixture of all proposals.

        Adaptive multiple importance sampling (Cornuet, Marin, Mira and Robert, Scandinavian Journal of Statistics 39,
        2012) with proposals of Student's t, each around tempered shares of the draws before it (Koblents and Miguez,
        Statistics and Computing 25, 2015). The first :data:`_SEARCHING` rounds search: they move the layouts' weights,
        and their draws are left out.
        """
        draws = _draws(len(prior.mean) + 1, self.samples, _SEARCHING + _FURTHER, self.seed + 1_000_003)
        for z in draws[:_SEARCHING, : self.samples // 2]:
            theta = proposal.drawn(z)
            shares = _shares(_target(data, theta, weights, prior) - proposal.log_density(theta))
            proposal = _around(theta, _tempered(shares), prior)
            weights = _reweighted(data, proposal.mean, weights)
        proposals, thetas, targets = [proposal], [], []
        for z in draws[_SEARCHING:]:
            thetas.append(proposals[-1].drawn(z))
            targets.append(_target(data, thetas[-1], weights, prior))
            theta = np.concatenate(thetas)
            mixed = np.logaddexp.reduce([one.log_density(theta) for one in proposals], axis=0)
            shares = _shares(np.concatenate(targets) - mixed)
            if effective(shares) >= _ENOUGH:
                break
            proposals.append(_around(theta, _tempered(shares), prior))
        return theta, shares, proposals[-1], weights


def _target(data: _Data, theta: Array, weights: Array, prior: _Prior) -> Array:
    return _Posterior.of(data, theta, weights).log_likelihood + prior.log_density(theta)


def _shares(log_share: Array) -> Array:
    """Shares of samples from their logarithms; all zero if none is finite."""
    shares: Array = np.exp(log_share - max(float(log_share.max()), -1e300))
    return shares / max(float(shares.sum()), 1e-300)


def effective(shares: Array) -> float:
    """Effective number of samples (Kong, Liu and Wong 1994): that of equal shares with the same sum of squares; 0 if
    all are zero."""
    squares = float(np.sum(shares**2))
    return 1 / squares if squares > 0 else 0.0


def _tempered(shares: Array) -> Array:
    """The shares to a power of at most 1 that leaves an effective number of :data:`_TEMPERED`."""
    logs = np.log(np.maximum(shares, 1e-300))
    low, high = 0.0, 1.0
    if effective(shares) >= _TEMPERED:
        return shares
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(_shares(middle * logs)) >= _TEMPERED else (low, middle)
    return _shares(low * logs)


def _draws(parameters: int, samples: int, rounds: int, seed: int) -> Array:
    """Standard normal draws of low discrepancy, shape (rounds, samples, parameters)."""
    from scipy.stats import qmc

    found = []
    for i in range(rounds):
        uniform = qmc.Sobol(parameters, rng=np.random.default_rng([seed, i])).random(samples)
        found.append(ndtri(np.clip(uniform, 1e-9, 1 - 1e-9)))
    return np.array(found)


def _around(theta: Array, shares: Array, prior: _Prior) -> Proposal:
    """A proposal with 1.5 times the samples' covariance, and never narrower than a tenth of the prior."""
    mean = shares @ theta
    centred = theta - mean
    covariance = 1.5 * centred.T @ (shares[:, None] * centred) + np.diag((0.1 * prior.deviation) ** 2)
    return Proposal(mean, np.asarray(np.linalg.cholesky(covariance), dtype=np.float64))


def _reweighted(data: _Data, theta: Array, weights: Array) -> Array:
    """Weights of the layouts under Student's t, by expectation-maximisation with the parameters fixed."""
    for _ in range(_REWEIGHTINGS):
        found = _Posterior.of(data, theta[None], weights)
        if not np.isfinite(found.log_likelihood[0]):
            break
        weights = (FREEDOM + 1) / (FREEDOM + found.scatter_squares(data, weights)[0])
    return weights
