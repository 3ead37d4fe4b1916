"""Intervals hold the truth, and gates their level, with the shipped settings: faults of the percentile bootstrap.

``python -m bench.coverage`` measures all of it; here are the cells that were worst before.
"""

from __future__ import annotations

from itertools import combinations
from math import gamma

import numpy as np
import pytest

from pagelab.analysis.gates import Judgement, judge, parse_gate
from pagelab.stats import nondeterminism as nd
from pagelab.stats.nondeterminism.exchange import exchange
from pagelab.stats.refusal import StatsRefusedError

SETTINGS = nd.Resampling(seed=1)


def covered(times: np.ndarray, metric: nd.Metric, truth: float) -> float:
    """Share of experiments (experiments × executions × measurements) whose interval holds the truth."""
    experiments = [nd.Experiment(str(i), "c", nd.Executions.of(rows)) for i, rows in enumerate(times)]
    grid = nd.characterize(experiments, SETTINGS).grid(metric)
    return float(((grid.low <= truth) & (truth <= grid.high)).mean())


@pytest.mark.parametrize("measurements", [5, 10, 20])
def test_the_impact_factor_of_nothing_is_in_its_interval(measurements: int) -> None:
    """40 executions that do not differ: 2, 16 and 72% before, all too high."""
    random = np.random.default_rng(measurements)
    times = random.normal(100, 1, (60, 40, measurements))
    k = min(40, measurements) - 1
    truth = gamma((k + 1) / 2) * gamma((k - 1) / 2) / gamma(k / 2) ** 2
    assert covered(times, nd.Metric.EXECUTION, truth) >= 0.93


def test_the_impact_factor_of_much_is_in_its_interval() -> None:
    random = np.random.default_rng(3)
    times = random.normal(100, 5, (200, 10, 1)) + random.normal(0, 1, (200, 10, 20))
    between = random.normal(0, 26**0.5, (200_000, 10)).std(axis=1, ddof=1).mean()
    truth = between * (1 / random.normal(0, 1, (200_000, 10)).std(axis=1, ddof=1)).mean()
    assert covered(times, nd.Metric.EXECUTION, truth) >= 0.92


@pytest.mark.parametrize("executions", [6, 10, 20])
@pytest.mark.parametrize("shape", ["normal", "lognormal", "modes"])
def test_the_spread_of_everything_is_in_its_interval(shape: str, executions: int) -> None:
    """57 to 84% before."""
    random = np.random.default_rng(executions)
    size = (300, executions, 1)
    levels, truth = {
        "normal": (random.normal(100, 5, size), 26**0.5 / 100),
        "lognormal": (100 * random.lognormal(0, 0.1, size), None),
        "modes": (random.choice([95.0, 105.0], size), 26**0.5 / 100),
    }[shape]
    if truth is None:
        many = 100 * random.lognormal(0, 0.1, 2_000_000)
        truth = float((many.var() + 1) ** 0.5 / many.mean())
    times = levels + random.normal(0, 1, (300, executions, 20))
    assert covered(times, nd.Metric.UNCLASSIFIED, truth) >= 0.91


@pytest.mark.parametrize("executions", [6, 10, 20])
def test_the_spread_inside_is_in_its_interval(executions: int) -> None:
    """83 to 91% before."""
    random = np.random.default_rng(executions)
    truth = float((random.normal(100, 1, (400_000, 20)).std(axis=1, ddof=1)).mean()) / 100
    assert covered(random.normal(100, 1, (400, executions, 20)), nd.Metric.MEASUREMENT, truth) >= 0.92


# Gates


def pooled_sample(kind: str) -> list[np.ndarray]:
    """Ten executions of one program."""
    random = np.random.default_rng(8)
    if kind == "rare":
        levels = np.where(np.arange(10) % 5 == 0, 130.0, 100.0)
        return list(levels[:, None] + random.normal(0, 1, (10, 6)))
    if kind == "tied":
        return list(
            np.repeat([[100.0, 101.0], [102.0, 100.0], [101.0, 103.0], [100.0, 105.0], [130.0, 131.0]], 2, axis=0)
        )
    return list(100 * random.lognormal(0, 0.5, (10, 1)) * random.lognormal(0, 0.2, (10, 6)))


@pytest.mark.parametrize("kind", ["rare", "tied", "lognormal"])
@pytest.mark.parametrize("new", [2, 3, 5])
def test_no_gate_fails_falsely_more_often_than_its_level(kind: str, new: int) -> None:
    """Every division of one program's executions into A and B: exactly the null hypothesis."""
    rows = pooled_sample(kind)
    level = 0.9
    failed: dict[str, int] = {}
    divisions = list(combinations(range(len(rows)), new))
    for chosen in divisions:
        sides = [[row for i, row in enumerate(rows) if (i in chosen) is is_new] for is_new in (False, True)]
        pair = [nd.Experiment("g", name, nd.Executions.of(side)) for name, side in zip("AB", sides, strict=True)]
        found = nd.changes(pair[0], pair[1], nd.Resampling(seed=1, estimate_draws=100, level=level))
        for text in ("mean>0%", "measurement>0%", "unclassified>0%", "execution>0%", "mean<0%", "unclassified<0%"):
            failed[text] = failed.get(text, 0) + (judge(parse_gate(text), "c", found, level).outcome == "fail")
    for text, count in failed.items():
        assert count <= (1 - level) / 2 * len(divisions), f"{text}: {count} of {len(divisions)}"


def test_the_exchange_is_the_permutation_test_of_scipy() -> None:
    import scipy.stats

    random = np.random.default_rng(4)
    a, b = random.lognormal(0, 0.4, 6), random.lognormal(0.3, 0.6, 5)

    def statistic(new: np.ndarray, base: np.ndarray) -> float:
        errors = [one.var() / (one.size - 1) / one.mean() ** 2 for one in (new, base)]
        return float((np.log(new.mean()) - np.log(base.mean())) / sum(errors) ** 0.5)

    for ratio in (1.0, 1.2):
        found = exchange(nd.Metric.MEAN, nd.Executions.of(a), nd.Executions.of(b), ratio, seed=1, tail=0.025)
        assert found.exact
        for side, p in (("less", found.lower), ("greater", found.higher)):
            expected = scipy.stats.permutation_test(
                (b, a * ratio), statistic, n_resamples=np.inf, alternative=side, vectorized=False
            )
            assert p == pytest.approx(expected.pvalue, abs=1e-9)


def test_too_few_executions_are_inconclusive_whatever_they_show() -> None:
    pair = [
        nd.Experiment("g", n, nd.Executions.of(rows)) for n, rows in (("A", [1.0, 1.01, 0.99]), ("B", [9.0, 9.1, 9.2]))
    ]
    judged = judge(parse_gate("mean>3%"), "c", nd.changes(pair[0], pair[1], SETTINGS), 0.95)
    assert judged.outcome == "inconclusive"
    assert "so few executions" in judged.reason


def normal_executions(name: str, number: int, mean: float, sd: float) -> nd.Experiment:
    """Quantiles of the normal with exactly this mean and standard deviation."""
    from scipy.stats import norm

    drawn = norm.ppf((np.arange(number) + 0.5) / number)
    return nd.Experiment("g", name, nd.Executions.of(mean + sd * drawn / drawn.std(ddof=1)))


@pytest.mark.parametrize(("executions", "sd"), [(3, 1.1), (4, 1.45), (3, 4.0), (8, 4.0)])
def test_the_executions_that_would_decide_do_decide(executions: int, sd: float) -> None:
    """Regression: of 3 executions "about 4 decide", of 4 that they are too few, run 5."""

    def judged(number: int) -> Judgement:
        pair = [normal_executions(name, number, 100, sd) for name in "AB"]
        return judge(parse_gate("mean>3%"), "c", nd.changes(pair[0], pair[1], SETTINGS, ratio_level=0.975), 0.975)

    first = judged(executions)
    assert first.outcome == "inconclusive"
    assert first.needed is not None
    assert judged(first.needed).outcome == "pass", first.reason


def test_many_executions_are_inconclusive_as_few_are() -> None:
    """Regression: OverflowError, from 515 executions on."""
    pair = [normal_executions(name, 1200, 100, 25) for name in "AB"]
    judged = judge(parse_gate("mean>1%"), "c", nd.changes(pair[0], pair[1], SETTINGS), 0.95)
    assert judged.outcome == "inconclusive"
    assert judged.needed is not None
    assert judged.needed > 1200


def test_a_pass_says_which_modes_it_cannot_know() -> None:
    random = np.random.default_rng(5)
    pair = [nd.Experiment("g", name, nd.Executions.of(random.normal(100, 0.5, 20))) for name in "AB"]
    judged = judge(parse_gate("mean>10%"), "c", nd.changes(pair[0], pair[1], SETTINGS), 0.95)
    assert judged.outcome == "pass"
    assert "1 in 7 executions" in judged.reason


# Ranks and verdicts


@pytest.mark.parametrize("executions", [2, 3, 5])
def test_few_single_measurements_tell_nothing_apart(executions: int) -> None:
    """Two times the same program differed in 33, 10 and 5% of pairs."""
    random = np.random.default_rng(executions)
    experiments = [
        nd.Experiment(str(i), side, nd.Executions.of(random.normal(100, 5, executions)))
        for i in range(50)
        for side in "AB"
    ]
    table = nd.characterize(experiments, SETTINGS)
    with pytest.raises(StatsRefusedError, match="cannot tell"):
        nd.groups_of(table, nd.Metric.MEAN)
    found = nd.changes(experiments[0], nd.Experiment("0", "C", nd.Executions.of([500.0] * executions)), SETTINGS)
    assert found.changes[0].verdict == "cannot-tell"


def test_from_six_on_equal_programs_seldom_differ() -> None:
    random = np.random.default_rng(6)
    experiments = [
        nd.Experiment(str(i), side, nd.Executions.of(random.normal(100, 5, 6))) for i in range(600) for side in "AB"
    ]
    table = nd.characterize(experiments, SETTINGS)
    apart = nd.beats(nd.groups_of(table, nd.Metric.MEAN)).any(axis=(1, 2)).mean()
    assert apart <= 0.015
