"""The Gaussian process against plain conditioning of a joint normal distribution, and its intervals."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.special import gammaincinv
from scipy.stats import multivariate_normal, t

from models.planted import digitised, points
from pagelab.errors import BadInputError
from pagelab.models import Points
from pagelab.models.gaussian_process import (
    FREEDOM,
    GaussianProcess,
    Proposal,
    _Data,
    _half_determinants,
    _matern,
    _Posterior,
    _quantile,
    _scales,
    _shares,
    effective,
)


def monomials(x: np.ndarray) -> np.ndarray:
    """All products of two and three inputs, in every order."""
    terms = [np.prod(x[:, list(which)], axis=1) for which in product(range(x.shape[1]), repeat=3)]
    squares = [3**0.5 * np.prod(x[:, list(which)], axis=1) for which in product(range(x.shape[1]), repeat=2)]
    return np.column_stack(terms + squares)


def joint(data: _Data, x: np.ndarray, theta: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Covariances of (y, surface at x), every part of the prior added up, and that of y's own noise."""
    inputs = data.x.shape[1]
    both = np.vstack([data.x, x])
    lengths, size, curvature, scatter = (
        np.exp(theta[:inputs]), np.exp(theta[inputs]), np.exp(theta[inputs + 1]), np.exp(theta[inputs + 2])
    )  # fmt: skip
    squares = (((both[:, None] - both[None]) / lengths) ** 2).sum(axis=2)
    covariance = size**2 * _matern(squares) + curvature**2 * monomials(both / lengths) @ monomials(both / lengths).T
    basis = np.column_stack([np.ones(len(both)), both])
    covariance += basis @ np.diag(1 / data.slope_precision) @ basis.T
    return covariance, np.diag(scatter**2 * data.y**2 / weights + data.noise)


def test_posterior_and_likelihood_are_those_of_the_joint_distribution() -> None:
    random = np.random.default_rng(2)
    data = _Data(random.normal(size=(9, 2)), 1 + 0.1 * random.normal(size=9), random.uniform(0, 1e-4, 9))
    x, weights = random.normal(size=(4, 2)), random.uniform(0.3, 1.2, 9)
    thetas = random.normal(size=(3, 5)) * 0.5 + np.array([0, 0, -2, -3, -4])
    found = _Posterior.of(data, thetas, weights)
    mean, variance = found.at(data, x)
    likelihoods = []
    for i, theta in enumerate(thetas):
        covariance, noise = joint(data, x, theta, weights)
        known = covariance[:9, :9] + noise
        cross = covariance[9:, :9]
        assert mean[i] == pytest.approx(cross @ np.linalg.solve(known, data.y), rel=1e-5)
        wanted = np.diag(covariance[9:, 9:] - cross @ np.linalg.solve(known, cross.T))
        assert variance[i] == pytest.approx(wanted, rel=1e-3, abs=1e-8)
        likelihoods.append(multivariate_normal(np.zeros(9), known).logpdf(data.y))
        own = np.diag(theta.dtype.type(np.exp(theta[4])) ** 2 * data.y**2 / weights)
        of_scatter = own @ np.linalg.solve(known, data.y)
        left = np.diag(own - own @ np.linalg.solve(known, own))
        squares = (of_scatter**2 + left) / (np.exp(theta[4]) ** 2 * data.y**2)
        assert found.scatter_squares(data, weights)[i] == pytest.approx(squares, rel=1e-4)
    assert np.diff(found.log_likelihood) == pytest.approx(np.diff(likelihoods), abs=1e-4)


def test_it_passes_near_its_points_and_returns_to_the_trend() -> None:
    data = digitised("skylake")
    fitted = GaussianProcess().fit(data)
    assert np.max(np.abs(fitted.predict(None, None, data.c) / data.r - 1)) < 0.004


def test_the_interval_holds_the_prediction_and_widens_away_from_the_layouts() -> None:
    data = digitised("skylake")
    fitted = GaussianProcess().fit(data)
    inside, outside = 1.2e10, 8e10
    low, high = fitted.interval(None, None, np.array([inside, outside]))
    middle = fitted.predict(None, None, np.array([inside, outside]))
    assert np.all((low < middle) & (middle < high))
    assert high[1] - low[1] > 5 * (high[0] - low[0])


def test_the_interval_of_one_run_holds_that_of_the_mean() -> None:
    fitted = GaussianProcess().fit(points(30, noise=0.01))
    at = (1e9, 5e8, 2e10)
    low, high = fitted.interval(*at)
    low_run, high_run = fitted.interval(*at, of="run", run_sd=0.05)
    assert low_run < low < high < high_run
    assert high_run - low_run > 0.15 * fitted.predict(*at)
    low_99, high_99 = fitted.interval(*at, level=0.99)
    assert low_99 < low < high < high_99


def test_the_interval_of_a_normal_mixture_is_its_quantile() -> None:
    fitted = GaussianProcess().fit(points(30, noise=0.01))
    at = (1e9, 5e8, 2e10)
    x, _ = fitted._scaled(*at)
    mean, variance = fitted.posterior.at(fitted.data, x)
    random = np.random.default_rng(1)
    which = random.choice(len(fitted.shares), 400_000, p=fitted.shares)
    tail = random.standard_t(FREEDOM, len(which)) * fitted.posterior.scatter[which] * float(fitted.shares @ mean[:, 0])
    drawn = mean[which, 0] + np.sqrt(variance[which, 0]) * random.normal(size=len(which)) + tail
    low, high = fitted.interval(*at, level=0.9)
    assert (low / fitted.unit, high / fitted.unit) == pytest.approx(tuple(np.quantile(drawn, [0.05, 0.95])), abs=2e-3)


def test_known_noise_is_not_taken_for_the_layouts_own_scatter() -> None:
    """With 2% noise and many repeats told, the scatter that is left is far below it."""
    h = points(54, noise=0.02, seed=4)
    told = points(54, noise=0.02, seed=4, r_sd=0.04 * h.r, repeats=[4] * 54)
    silent = GaussianProcess().fit(h)
    assert 0.008 < silent.scatter < 0.03
    assert GaussianProcess().fit(told).scatter < 0.5 * silent.scatter


def test_a_layout_far_off_hardly_bends_the_surface() -> None:
    clean = points(40, noise=0.002)
    r = clean.r.copy()
    r[20] *= 1.2
    fitted = GaussianProcess().fit(replace(clean, r=r))
    off = fitted.predict(clean.h, clean.m, clean.c) / clean.r - 1
    assert np.max(np.abs(off)) < 0.02
    assert np.argmin(fitted.weights) == 20
    assert fitted.weights[20] < 0.1


def test_the_same_seed_gives_the_same_digits() -> None:
    data = points(20, noise=0.01)
    first, second = (GaussianProcess(seed=5).fit(data).predict(data.h, data.m, data.c) for _ in range(2))
    assert np.array_equal(first, second)
    other = GaussianProcess(seed=6).fit(data).predict(data.h, data.m, data.c)
    assert not np.array_equal(first, other)
    assert other == pytest.approx(first, rel=5e-3)  # the noise is 1%


@pytest.mark.parametrize("level", [0.99, 0.999, 0.9999])
def test_high_levels_have_the_tail_of_students_t(level: float) -> None:
    """Where the layouts' scatter is all there is. Regression: of 16 equal scales the interval of 99.99% ended where 24
    times as much of the distribution lies beyond it."""
    scales, likely = _scales(level)
    assert likely.sum() == pytest.approx(1)
    end = _quantile((1 + level) / 2, np.zeros((1, 1)), np.sqrt(scales)[None, :, None], likely[None])
    assert 2 * t.sf(end[0], FREEDOM) == pytest.approx(1 - level, rel=0.2)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_the_usual_levels_have_sixteen_equally_likely_scales(level: float) -> None:
    scales, likely = _scales(level)
    assert likely.tolist() == [1 / 16] * 16
    assert scales == pytest.approx(FREEDOM / (2 * gammaincinv(FREEDOM / 2, (np.arange(16) + 0.5) / 16)))


def test_intervals_of_higher_levels_hold_those_of_lower_ones() -> None:
    fitted = GaussianProcess().fit(points(30, noise=0.01))
    ends = [fitted.interval(1e9, 5e8, 2e10, level=level) for level in (0.5, 0.9, 0.95, 0.951, 0.99, 0.999, 0.9999)]
    lows, highs = ([float(end) for end in side] for side in zip(*ends, strict=True))
    assert lows == sorted(lows, reverse=True)
    assert highs == sorted(highs)


@pytest.mark.parametrize("decades", [4, 6, 10])
def test_run_times_that_span_orders_of_magnitude_are_fitted(decades: int) -> None:
    """Regression: the covariance was not positive definite after rounding, and all of model fit ended with it."""
    c = np.geomspace(2e9 / 10**decades, 2e9, 30)
    r = (1.3 * c + 1e9 / 10**decades) * (1 + 1e-3 * np.random.default_rng(0).normal(size=30))
    for told in ({}, {"r_sd": np.zeros(30), "repeats": [3] * 30}):
        fitted = GaussianProcess().fit(Points.of("w", r=r, c=c, source="simulated", **told))
        largest = np.argsort(r)[-3:]
        assert fitted.predict(None, None, c[largest]) == pytest.approx(r[largest], rel=0.02)


def test_samples_whose_covariance_has_no_factor_have_no_share() -> None:
    good = np.array([[2.0, 1.0], [1.0, 2.0]])
    half, failed = _half_determinants(np.array([good, [[1.0, 2.0], [2.0, 1.0]], 3 * good]))
    assert failed.tolist() == [False, True, False]
    assert half[[0, 2]] == pytest.approx([np.log(3) / 2, np.log(27) / 2])
    assert _shares(np.array([0.0, -np.inf, np.log(3)])) == pytest.approx([0.25, 0, 0.75])
    assert not _shares(np.array([-np.inf, -np.inf])).any()


def test_a_process_that_no_sample_fits_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the other models are still fitted."""

    factor = np.linalg.cholesky

    def never(matrix: np.ndarray) -> np.ndarray:
        if matrix.shape[-1] == 12:
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        return factor(matrix)

    monkeypatch.setattr("pagelab.models.gaussian_process.np.linalg.cholesky", never)
    with pytest.raises(BadInputError, match=r"cannot fit gp to cubic: its run times span .* to 1"):
        GaussianProcess().fit(points(12))


@pytest.mark.parametrize(("layouts", "rule"), [(8, "cubic"), (20, "kink")])
def test_the_interval_of_precise_data_is_not_that_of_a_chance_sample(layouts: int, rule: str) -> None:
    """Regression: with noise of 0.05%, one to eight of 128 samples had all the weight, and the half width changed with
    the seed by factors of two to six."""
    data = points(layouts, noise=3e-4, rule=rule, seed=3)
    data = replace(data, r_sd=5e-4 * data.r, repeats=np.full(layouts, 5))
    widths = []
    for seed in (1, 2, 3):
        fitted = GaussianProcess(seed=seed).fit(data)
        assert effective(fitted.shares) >= 50
        assert fitted.parameters["effective_samples"] == effective(fitted.shares)
        low, high = fitted.interval(np.array([1e9, 6e8]), np.array([5e8, 2e8]), np.array([2.5e10, 8e9]))
        widths.append(high - low)
    assert np.max(np.max(widths, axis=0) / np.min(widths, axis=0)) < 1.4


def test_the_proposals_density_is_that_of_its_draws() -> None:
    """Up to the constant: importance weights of one proposal's draws under another have the mean 1."""
    first = Proposal(np.zeros(2), np.eye(2))
    second = Proposal(np.array([0.3, -0.2]), np.array([[0.8, 0.0], [0.2, 0.7]]))
    drawn = first.drawn(np.random.default_rng(3).normal(size=(100_000, 3)))
    weights = np.exp(second.log_density(drawn) - first.log_density(drawn))
    assert weights.mean() == pytest.approx(1, abs=0.01)
    assert weights @ drawn / weights.sum() == pytest.approx(second.mean, abs=0.02)
    assert np.mean(np.abs(drawn[:, 0]) < t.ppf(0.975, 5)) == pytest.approx(0.95, abs=0.003)
