"""The same numbers as R: base stats, exactRankTests and coin, on random, tied and degenerate data."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from r_reference import Cases

from pagelab import stats

SIDES = ["two-sided", "less", "greater"]
EXACT = 1e-12
"""R's own p-values are double arithmetic; ours are correctly rounded counts."""


def _two_sample_cases(cases: Cases) -> None:
    random = np.random.default_rng(20091109)
    for n, m in [
        (1, 1),
        (1, 2),
        (2, 1),
        (1, 9),
        (3, 3),
        (4, 7),
        (5, 5),
        (10, 10),
        (12, 31),
        (20, 20),
        (4, 40),
        (33, 8),
    ]:
        cases.add("two", f"normal-{n}-{m}", random.normal(10, 1, n), random.normal(10.3, 2, m))
        cases.add("two", f"lognormal-{n}-{m}", random.lognormal(1, 0.6, n), random.lognormal(1.4, 0.2, m))
    sizes = [(2, 2), (2, 3), (1, 6), (6, 1), (5, 4), (5, 5), (8, 13), (13, 8), (20, 20), (30, 12), (35, 40)]
    for n, m in sizes:
        for values in (2, 3, 6, 15):
            x, y = random.integers(0, values, n), random.integers(0, values, m) + random.integers(0, 2)
            cases.add("two", f"tied-{n}-{m}-{values}", x, y)
        cases.add("two", f"rounded-{n}-{m}", random.normal(3, 1, n).round(1), random.normal(3.5, 1, m).round(1))
    cases.add("two", "all-equal", [7.0] * 5, [7.0] * 6)
    cases.add("two", "separated-with-ties", [1.0] * 4, [2.0] * 6)
    cases.add("two", "one-against-equal", [0.0], [1.0, 1.0])
    cases.add("two", "prepage-like", 65 + np.sort(random.exponential(4, 20)), 57.8 + random.uniform(0, 4, 20))
    cases.add("two", "tiny-and-huge", [1e-300, 2e-300, 1e300], [3e-300, 1.0, 2e299, 5.0])


@lru_cache(maxsize=1)
def collected() -> tuple[Cases, dict[str, dict[str, np.ndarray]]]:
    cases = Cases()
    _two_sample_cases(cases)
    random = np.random.default_rng(1977)
    for n in range(1, 26):
        cases.add("one", f"random-{n}", random.lognormal(0, 1, n))
    for n in (4, 9, 20):
        cases.add("one", f"tied-{n}", random.integers(0, 3, n))
    cases.add("one", "constant", [0.1] * 7)
    for n in (1, 2, 7, 30):
        cases.add("holm", f"random-{n}", random.uniform(0, 0.1, n))
    cases.add("holm", "ties-and-ends", [0.01, 0.01, 0.0, 1.0, 0.3, 0.01, 0.02])
    for n, m in [(1, 1), (1, 8), (4, 6), (7, 7), (20, 20), (13, 29)]:
        cases.add("null", f"{n}-{m}", [n, m])
    return cases, cases.answer()


@pytest.fixture(scope="module")
def r() -> tuple[Cases, dict[str, dict[str, np.ndarray]]]:
    return collected()


@pytest.mark.parametrize("side", SIDES)
def test_exact_p_values_with_and_without_ties(r, side: str) -> None:
    cases, answers = r
    references = [f"{who}.{side.replace('-', '.')}" for who in ("wilcox.exact", "perm.test", "coin", "wilcox.test")]
    for name in cases.of("two"):
        ours, theirs = stats.rank_sum(*cases.inputs[name], alternative=side, method="exact"), answers[name]
        assert ours.w == theirs["W"][0], name
        assert ours.ties == (references[3] not in theirs), name
        assert references[0] in theirs
        for reference in references:
            if reference in theirs:
                assert ours.p == pytest.approx(theirs[reference][0], rel=EXACT, abs=1e-300), (name, reference)


@pytest.mark.parametrize("side", SIDES)
def test_normal_approximation(r, side: str) -> None:
    cases, answers = r
    compared = 0
    for name in cases.of("two"):
        theirs = answers[name][f"normal.{side.replace('-', '.')}"][0]
        if np.isnan(theirs):  # R divides 0 by 0 when all values are equal
            continue
        ours = stats.rank_sum(*cases.inputs[name], alternative=side, method="normal")
        assert ours.p == pytest.approx(theirs, rel=1e-10), name
        assert ours.method is stats.PValueMethod.NORMAL
        compared += 1
    assert compared > 60


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_shift_and_interval_without_ties(r, level: float) -> None:
    cases, answers = r
    compared = 0
    for name in cases.of("two"):
        theirs = answers[name]
        if f"wilcox.test.estimate.{level}" not in theirs:
            continue
        ours = stats.hodges_lehmann(*cases.inputs[name], level=level)
        for package in ("wilcox.test", "wilcox.exact"):
            assert ours.estimate == pytest.approx(theirs[f"{package}.estimate.{level}"][0], rel=EXACT), name
            assert isinstance(ours.interval, stats.Interval)
            bounds = theirs[f"{package}.interval.{level}"]
            assert [ours.interval.low, ours.interval.high] == pytest.approx(list(bounds), rel=EXACT), name
        compared += 1
    assert compared >= 15


def test_five_numbers_are_those_of_fivenum_and_boxplot_stats(r) -> None:
    cases, answers = r
    for name in cases.of("one"):
        ours, theirs = stats.summarize(cases.inputs[name][0]), answers[name]
        assert ours.five == pytest.approx(tuple(theirs["fivenum"]), rel=1e-15), name
        assert ours.five == pytest.approx(tuple(theirs["boxplot.stats"]), rel=1e-15), name
        assert ours.mean == pytest.approx(theirs["moments"][0], rel=1e-14)
        if ours.n > 1:
            assert ours.sd == pytest.approx(theirs["moments"][1], rel=1e-12, abs=1e-15)
        else:
            assert ours.sd is None
            assert ours.cv is None


def test_median_interval_takes_the_binomial_order_statistics(r) -> None:
    cases, answers = r
    for name in cases.of("one"):
        values = np.sort(cases.inputs[name][0])
        interval, k = stats.median_interval(values).interval, int(answers[name]["median.k"][0])
        if k == 0:
            assert isinstance(interval, stats.NotAchievable)
            assert values.size < 6
            continue
        assert isinstance(interval, stats.Interval)
        assert (interval.low, interval.high) == (values[k - 1], values[-k])
        assert interval.achieved == pytest.approx(answers[name]["median.achieved"][0], rel=EXACT)


def test_holm_is_p_adjust(r) -> None:
    cases, answers = r
    for name in cases.of("holm"):
        p = cases.inputs[name][0]
        assert stats.holm(list(p)).adjusted == pytest.approx(tuple(answers[name]["holm"]), rel=1e-14), name


def test_untied_null_distribution_is_pwilcox(r) -> None:
    from math import comb

    from pagelab.stats.rank_null import untied_cumulative

    cases, answers = r
    for name in cases.of("null"):
        n, m = (int(v) for v in cases.inputs[name][0])
        lower = [count / comb(n + m, n) for count in untied_cumulative(n, m)]
        assert lower == pytest.approx(list(answers[name]["pwilcox"][: n * m // 2 + 1]), rel=EXACT)
