"""The error of an estimate from its repeats: that of the noise that was planted."""

from __future__ import annotations

import numpy as np
import pytest

from pagelab.model_run.document import EstimatorName
from pagelab.model_run.estimate import Noise, Own, combined, estimate, times
from pagelab.model_run.points import noise_of
from pagelab.models.points import Role


@pytest.mark.parametrize("how", ["median", "mean", "low-quantile"])
@pytest.mark.parametrize("repeats", [2, 3, 5, 8])
def test_the_error_is_that_of_planted_noise(how: EstimatorName, repeats: int) -> None:
    """Regression: a run that is the median itself deviates by nothing, so odd repeats told a tenth too little."""
    random = np.random.default_rng(4)
    runs = 1 + 0.03 * random.normal(size=(400, repeats))
    noise = Noise.of({str(i): own.tolist() for i, own in enumerate(runs)}, how)
    truth = np.std([estimate(one, how) for one in 1 + 0.03 * random.normal(size=(4000, repeats))])
    assert noise.error(repeats) == pytest.approx(truth, rel=0.08)
    assert noise.run_sd == pytest.approx(0.03, rel=0.06 if how != "low-quantile" else 0.3)


def test_layouts_of_unlike_repeats_are_pooled() -> None:
    random = np.random.default_rng(1)
    runs = {str(i): (1 + 0.03 * random.normal(size=3 + 4 * (i % 2))).tolist() for i in range(300)}
    noise = Noise.of({**runs, "one": [9.0]}, "median")
    assert len(noise.deviations) == 150 * (3 + 7)
    assert noise.run_sd == pytest.approx(0.03, rel=0.06)


def test_runs_without_noise_have_no_error() -> None:
    assert Noise.of({"4K": [2.0, 2.0, 2.0], "2M": [1.0, 1.0]}, "median").error(3) == 0.0
    with pytest.raises(ValueError, match="a layout with two runs"):
        Noise.of({"4K": [2.0]}, "median")


@pytest.mark.parametrize("how", ["median", "mean", "low-quantile"])
@pytest.mark.parametrize("repeats", [2, 3, 5])
@pytest.mark.parametrize("noisier", [1, 5])
def test_an_interval_of_two_layouts_holds_if_one_is_noisier(how: EstimatorName, repeats: int, noisier: int) -> None:
    """Regression: twice the error of noise that all layouts share held about half the time."""
    random = np.random.default_rng(5)
    held = []
    low = np.mean([estimate(one, how) for one in random.normal(size=(4000, repeats))])  # what it estimates, in sd
    for _ in range(250):
        pair = [1 + sd * random.normal(size=repeats) for sd in (0.01 * noisier, 0.01)]
        off = np.log(estimate(pair[0], how) / estimate(pair[1], how))
        off -= low * 0.01 * (noisier - 1)
        error, freedom = combined([(Own.of(one.tolist(), how).error, repeats - 1) for one in pair])
        held.append(abs(off) <= times(freedom) * error)
    assert np.mean(held) > 0.93


def test_the_errors_of_a_campaign_follow_its_layouts() -> None:
    random = np.random.default_rng(6)
    runs = {str(i): (1 + (0.05 if i == 0 else 0.01) * random.normal(size=6)).tolist() for i in range(22)}
    noise = Noise.of(runs, "mean")
    errors = {name: error for name, (error, _) in noise.errors().items()}
    assert errors["0"] == pytest.approx(noise.own["0"].error, rel=0.1)
    assert np.median(list(errors.values())) == pytest.approx(0.01 / 6**0.5, rel=0.2)
    assert errors["0"] > 3 * np.median(list(errors.values()))
    alike = Noise.of({str(i): (1 + 0.01 * random.normal(size=6)).tolist() for i in range(40)}, "median")
    assert [one for one, _ in alike.errors().values()] == pytest.approx([alike.error(6)] * 40, rel=0.35)


def test_runs_of_test_layouts_have_no_part_in_the_errors_of_training_layouts() -> None:
    """Regression: a campaign whose test layouts were noisy weighed its training layouts by their noise, and so chose
    and stopped by it."""
    random = np.random.default_rng(1)
    training = {f"t{i}": (1 + 0.01 * random.normal(size=3)).tolist() for i in range(10)}
    found = []
    for sd in (0.01, 0.1):
        tests = {f"x{i}": (1 + sd * random.normal(size=3)).tolist() for i in range(12)}
        roles: dict[str, Role] = {**dict.fromkeys(training, "train"), **dict.fromkeys(tests, "test")}
        found.append(noise_of({**training, **tests}, roles, "median"))
    (quiet, few), (noisy, many) = found
    assert quiet.run_sd == noisy.run_sd
    assert [few[name] for name in training] == [many[name] for name in training]
    assert np.median([many[name] for name in many if name not in training]) > 0.03


def test_the_errors_of_runs_without_noise_are_zero() -> None:
    assert set(Noise.of({"4K": [2.0, 2.0, 2.0], "2M": [1.0, 1.0]}, "median").errors().values()) == {(0.0, 3.0)}
    assert combined([(0.0, 1), (0.0, 2)]) == (0.0, np.inf)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("part", [(0.1, 0), (np.nan, 0), (np.nan, 3)])
def test_with_one_run_the_error_is_not_known(part: tuple[float, float]) -> None:
    """Regression: warnings of NumPy, and 1.96 standard errors."""
    error, freedom = combined([(0.1, 3), part])
    assert np.isnan(error)
    assert np.isnan(times(freedom))
    assert times(np.inf) == pytest.approx(1.96, abs=1e-3)
    assert times(2) == pytest.approx(4.303, abs=1e-3)
