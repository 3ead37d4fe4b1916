"""What a prediction says of the counts that it is given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from models.planted import DIGITISED, points
from pagelab.errors import BadInputError
from pagelab.models import Points
from pagelab.models.base import number
from pagelab.models.document import file_of
from pagelab.models.gaussian_process import GaussianProcess
from pagelab.models.prediction import predict, run_spread


def told(data: Points, h: float, m: float, c: float, model: str) -> dict[str, str]:
    """The warnings, by kind."""
    return {one.kind: one.message for one in predict(file_of(data, DIGITISED), h, m, c, model=model).warnings}


@pytest.mark.parametrize("model", ["yaniv", "poly1", "poly3"])
def test_counts_that_a_model_does_not_use_are_never_told_to_extrapolate(model: str) -> None:
    """Regression: H and M far from every layout, which change nothing in a model of C."""
    data = points(30)
    c = float(np.median(data.c))
    assert set(told(data, 1.0, 1.0, c, model)) == {"unused-count"}
    beyond = told(data, 1.0, 1.0, 2 * float(data.c.max()), model)
    assert set(beyond) == {"unused-count", "extrapolation"}
    assert beyond["extrapolation"].startswith("C = ")


def test_gp_extrapolates_in_an_input_that_never_varied() -> None:
    """It leaves H out because it was the same in every layout: another H may matter, and nobody knows how."""
    data = replace(points(30), h=np.full(30, 5e8))
    assert data.m is not None
    m, c = float(data.m[10]), float(data.c[10])
    assert set(told(data, 5e8, m, c, "gp")) == {"unused-count"}
    other = told(data, 9e8, m, c, "gp")
    assert set(other) == {"unused-count", "extrapolation"}
    assert other["extrapolation"].startswith("H = ")
    assert set(told(data, 9e8, m, c, "poly1")) == {"unused-count"}


@pytest.mark.parametrize("value", [1e300, 1e60, -1.0, float("nan"), float("inf")])
def test_counts_that_cannot_be_are_refused(value: float) -> None:
    """Regression: R = −8.7e156, or an error of NumPy."""
    data = points(12)
    file = file_of(data, DIGITISED)
    for name in ("h", "m", "c"):
        with pytest.raises(BadInputError, match=rf"--{name} .*: not within 0 \.\.\. 1e\+30"):
            predict(file, **{"h": 1e9, "m": 1e8, "c": 1e9, name: value})
    assert "extrapolation" in told(data, 1e30, 1e30, 1e30, "gp")


def test_one_run_is_refused_of_models_without_an_interval() -> None:
    """Regression: --run was ignored."""
    file = file_of(points(12), DIGITISED)
    with pytest.raises(BadInputError, match="--run: poly1 has no interval, and only gp has one"):
        predict(file, 1e9, 1e8, 1e9, model="poly1", of="run")
    with pytest.raises(BadInputError, match="or both columns r_sd and repeats"):
        predict(file, 1e9, 1e8, 1e9, of="run")


def test_no_interval_of_a_run_time_begins_below_zero() -> None:
    """Regression: "-1.406e14 to 1.950e14" cycles, with a minus unlike all others."""
    data = points(30, noise=0.02)
    far = predict(file_of(data, DIGITISED), 1e9, 5e8, 10 * float(data.c.max()))
    assert far.r > 0
    assert far.low == 0.0
    assert far.high is not None
    assert far.high > far.r
    assert f"interval for a layout's mean: 0 to {number(far.high)}\n" in far.text()
    assert number(-1.406e14) == "−1.406e14"


def test_intervals_that_rest_on_few_samples_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    data = points(12)
    at = (float(data.h[5]), float(data.m[5]), float(data.c[5]))  # type: ignore[index]
    assert "few-samples" not in told(data, *at, "gp")
    monkeypatch.setattr("pagelab.models.gaussian_process.FEW_EFFECTIVE", 1e9)
    assert "depends on the seed" in told(data, *at, "gp")["few-samples"]
    assert "few-samples" not in told(data, *at, "poly1")


def test_the_interval_of_one_run_follows_the_noise_of_its_place() -> None:
    """Regression: one spread for all places held 51 to 70% of runs at the 4K end where noise grows with walks."""
    random = np.random.default_rng(7)
    c = np.linspace(1e8, 1e10, 20)
    held = []
    for _ in range(12):
        sd = 0.002 + 0.03 * (c / c.max()) ** 3
        runs = (1e11 + 0.6 * c)[:, None] * (1 + sd[:, None] * random.normal(size=(20, 5)))
        data = Points.of("w", r=runs.mean(axis=1), c=c, r_sd=runs.std(axis=1, ddof=1), repeats=[5] * 20)
        fitted = GaussianProcess().fit(data)
        for row in (0, 10, 19):
            new = (1e11 + 0.6 * c[row]) * (1 + sd[row] * random.normal(size=500))
            counts = {"h": None, "m": None, "c": float(c[row])}
            low, high = fitted.interval(**counts, of="run", run_sd=run_spread(data, fitted, counts))
            held.append(np.mean((low <= new) & (new <= high)))
    shares = np.array(held).reshape(-1, 3)
    assert shares[:, 2].mean() > 0.9
    assert shares[:, :2].mean() > 0.95


def test_the_interval_of_one_run_shares_the_noise_that_is_alike() -> None:
    random = np.random.default_rng(6)
    spreads = []
    for _ in range(3):
        runs = random.normal(size=(40, 3))
        data = points(40, seed=3)
        data = replace(data, r_sd=0.01 * data.r * runs.std(axis=1, ddof=1), repeats=np.full(40, 3))
        fitted = GaussianProcess().fit(data)
        for row in (0, 20, 39):
            at = {name: float(values[row]) for name, values in data.inputs.items()}
            spreads.append(run_spread(data, fitted, at))
    assert 0.0095 < np.mean(spreads) < 0.0135
    assert min(spreads) > 0.0065
    assert max(spreads) < 0.02
