"""The same numbers as R: base stats, boot, lme4, coin; and scipy."""

from __future__ import annotations

from functools import lru_cache
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from r_reference import Cases

from pagelab.stats import nondeterminism as nd
from pagelab.stats.interval import Interval

INSTALL = "apt-get install r-base-core r-cran-boot r-cran-lme4 r-cran-coin"
SETTINGS = nd.Resampling(seed=42)


def ragged(name: str) -> list[np.ndarray]:
    random = np.random.default_rng(sum(map(ord, name)))
    if name == "normal":
        return list(100 + random.normal(0, 3, (10, 1)) + random.normal(0, 1, (10, 20)))
    if name == "modes":
        return list(random.choice([50.0, 65.0], (12, 1)) + random.gamma(2, 0.5, (12, 8)))
    return [random.lognormal(2, 0.1) + random.lognormal(0, 0.4, count) for count in (6, 9, 7, 12, 30, 6, 8, 11)]


RAGGED = ["normal", "modes", "unequal"]
SERIES = {
    "rising": np.linspace(10, 11, 14) + np.random.default_rng(1).normal(0, 0.2, 14),
    "tied": np.random.default_rng(2).integers(3, 6, 25).astype(float),
    "plain": np.random.default_rng(3).lognormal(0, 1, 40),
}


def table_of(name: str, settings: nd.Resampling = SETTINGS) -> nd.Table:
    return nd.characterize([nd.Experiment(name, "c", nd.Executions.of(ragged(name)))], settings)


def misses(name: str) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(len(name))
    x = random.lognormal(3, 0.5, 30)
    return x, x * 1e4 + random.normal(0, {"close": 2e4, "loose": 4e5}[name], 30) + 1e6


def balanced(levels: tuple[int, ...]) -> np.ndarray:
    random = np.random.default_rng(len(levels))
    data = np.full(levels, 100.0)
    for depth in range(1, len(levels) + 1):
        data = data + random.normal(0, 4 - depth, levels[:depth] + (1,) * (len(levels) - depth))
    return data


def late_start(random: np.random.Generator) -> np.ndarray:
    data = random.integers(10, 40, (6, 15)).astype(float)
    data[:, :3] += 25
    return data


@lru_cache(maxsize=1)
def answers() -> dict[str, dict[str, np.ndarray]]:
    cases = Cases(Path(__file__).with_name("nondeterminism.R"), INSTALL)
    for name in RAGGED:
        rows = ragged(name)
        values, sizes = np.concatenate(rows), np.array([row.size for row in rows])
        cases.add("hierarchical", name, values, sizes)
        cases.add("impact", name, values, sizes)
        cases.add("errors", name, values, sizes)
    data = balanced((12, 10))
    cases.add("components", "balanced", data.ravel(), [10] * 12)
    cases.add("three_levels", "balanced", balanced((7, 6, 5)).ravel(), [7, 6, 5])
    for name in ("close", "loose"):
        cases.add("correlation", name, *misses(name))
    for name, series in SERIES.items():
        cases.add("trend", name, series)
        cases.add("serial", name, series)
    cases.add("ecdf", "tied", SERIES["tied"], nd.ecdf(SERIES["tied"]).value)
    cases.add("change", "late", late_start(np.random.default_rng(9)).ravel(), [15, 3])
    return cases.answer()


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("name", RAGGED)
def test_mean_and_coefficients_of_variation(name: str) -> None:
    expected, table = answers()[f"hierarchical:{name}"], table_of(name)
    mean = table.estimate(0, nd.Metric.MEAN)
    assert isinstance(mean, nd.Estimate)
    np.testing.assert_allclose([mean.interval.low, mean.interval.high], expected["interval"], rtol=1e-12)
    for column, key in (("within", "within"), ("pooled", "pooled"), ("between_means", "between")):
        assert table.columns[column][0] == pytest.approx(expected[key][0], rel=1e-12)


def test_components_are_lme4_s_and_those_of_analysis_of_variance() -> None:
    expected = answers()["components:balanced"]
    found = nd.variance_components(nd.Executions.of(balanced((12, 10))))
    raw = [level.raw for level in found.levels]
    np.testing.assert_allclose(raw, expected["anova"], rtol=1e-10)
    np.testing.assert_allclose(raw, expected["components"], rtol=1e-5)
    assert found.mean == pytest.approx(expected["mean"][0], rel=1e-12)
    standard_error = found.interval.half_width / float(scipy.stats.t.ppf(0.975, 11))
    assert standard_error == pytest.approx(expected["error"][0], rel=1e-5)


def test_three_levels_are_lme4_s() -> None:
    names = ("measurement", "execution", "compilation")
    found = nd.nested_components(balanced((7, 6, 5)).tolist(), names)
    raw = [level.raw for level in found.levels]
    np.testing.assert_allclose(raw, answers()["three_levels:balanced"]["components"], rtol=1e-4)


@pytest.mark.parametrize("name", RAGGED)
def test_standard_errors_of_the_spreads(name: str) -> None:
    """boot's empirical influence values, and its jackknife of executions, put together as documented."""
    expected, columns = answers()[f"errors:{name}"], table_of(name).columns
    for key in ("pooled", "impact"):
        found = [columns[f"{key}_shift"][0], columns[f"{key}_error"][0]]
        np.testing.assert_allclose(found, expected[key], rtol=1e-5)


@pytest.mark.parametrize("name", RAGGED)
def test_impact_factor_and_its_null_value(name: str) -> None:
    """Against 5,000 draws of ALLOC's description written in R: within 5 standard errors of both."""
    expected = answers()[f"impact:{name}"]
    found = table_of(name, nd.Resampling(seed=42, estimate_draws=100_000)).impact(0)
    assert isinstance(found, nd.ImpactFactor)
    for key, value, log in (
        ("impact", found.estimate.value, found.log_mean.value),
        ("null", found.null, found.null_log_mean),
    ):
        mean, error, log_mean = expected[key]
        assert value == pytest.approx(mean, abs=5 * sqrt(error**2 + found.draw_error**2))
        assert log == pytest.approx(log_mean, rel=0.05)


@pytest.mark.parametrize("name", ["close", "loose"])
def test_correlations(name: str) -> None:
    expected, found = answers()[f"correlation:{name}"], nd.correlation(*misses(name), seed=1)
    assert isinstance(found.fisher, Interval)
    assert isinstance(found.interval, Interval)
    np.testing.assert_allclose(
        [found.pearson, found.fisher.low, found.fisher.high], expected["pearson"], rtol=1e-10, atol=1e-12
    )
    assert found.spearman == pytest.approx(expected["spearman"][0], rel=1e-12)
    np.testing.assert_allclose(
        [found.interval.low, found.interval.high], expected["boot"], atol={"close": 0.005, "loose": 0.03}[name]
    )


@pytest.mark.parametrize("name", list(SERIES))
def test_trend_and_serial_correlation(name: str) -> None:
    executions = nd.Executions.of(SERIES[name])
    table = nd.characterize([nd.Experiment(name, "c", executions)], SETTINGS)
    dependence = table.dependence(0)
    assert dependence.trend is not None
    expected = answers()[f"trend:{name}"]["kendall"]
    np.testing.assert_allclose([dependence.trend.tau, dependence.trend.p_value], expected, rtol=1e-10)
    tau = scipy.stats.kendalltau(np.arange(len(SERIES[name])), SERIES[name]).statistic
    assert dependence.trend.tau == pytest.approx(tau, rel=1e-12)
    expected_serial = answers()[f"serial:{name}"]
    assert dependence.between is not None
    assert dependence.between.correlation == pytest.approx(expected_serial["acf"][0], rel=1e-10)
    z = float(table.columns["means_lag_one_z"][0])
    assert z == pytest.approx(expected_serial["z"][0], rel=0.06, abs=0.06)
    inside = nd.characterize([nd.Experiment("g", "c", nd.Executions.of([SERIES[name]] * 2))], SETTINGS).dependence(0)
    assert inside.inside is not None
    assert inside.inside.correlation == pytest.approx(expected_serial["acf"][0], rel=1e-10)


def test_a_change_at_a_known_place_is_coin_s_stratified_rank_test() -> None:
    executions = nd.Executions.of(late_start(np.random.default_rng(9)))
    table = nd.characterize([nd.Experiment("g", "c", executions)], SETTINGS)
    assert table.columns["change_after"][0] == 3
    assert abs(table.columns["change_z"][0]) == pytest.approx(abs(answers()["change:late"]["z"][0]), rel=1e-10)


def test_the_distribution() -> None:
    np.testing.assert_allclose(nd.ecdf(SERIES["tied"]).fraction, answers()["ecdf:tied"]["ecdf"], rtol=1e-15)


def test_geometric_mean_is_scipy_s() -> None:
    ratios = SERIES["plain"]
    found = nd.geometric_mean(ratios)
    assert found.value == pytest.approx(scipy.stats.gmean(ratios), rel=1e-12)
    expected = scipy.stats.ttest_1samp(np.log(ratios), 0).confidence_interval(0.95)
    np.testing.assert_allclose(np.log([found.interval.low, found.interval.high]), [expected.low, expected.high])
