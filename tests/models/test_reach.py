"""How far counts lie beyond the layouts that were fitted, as predictions and reports tell it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.planted import points
from pagelab.models import Points
from pagelab.models.answer import warnings_of
from pagelab.models.gaussian_process import GaussianProcess
from pagelab.models.reach import beyond, excess, judged_beyond, unlike


@given(share=st.floats(0.001, 50), above=st.booleans())
def test_the_excess_is_a_share_of_the_range(share: float, above: bool) -> None:
    fitted = np.array([3.0, 7.0, 5.0])
    value = 7.0 + 4.0 * share if above else 3.0 - 4.0 * share
    assert excess(fitted, value) == pytest.approx(share)


@given(value=st.floats(3.0, 7.0))
def test_inside_there_is_none(value: float) -> None:
    assert excess(np.array([3.0, 7.0]), value) == 0.0


def test_where_all_are_the_same_another_is_infinitely_far() -> None:
    assert excess(np.array([2.0, 2.0]), 2.0) == 0.0
    assert excess(np.array([2.0, 2.0]), 2.1) == float("inf")


def test_a_prediction_beyond_the_layouts_says_by_how_much() -> None:
    planted = points(30)
    assert planted.m is not None
    assert planted.h is not None
    h, m = float(np.median(planted.h)), float(np.median(planted.m))
    low, high = float(planted.c.min()), float(planted.c.max())
    (told,) = beyond(planted, h, m, high + 0.25 * (high - low))
    assert told.kind == "extrapolation"
    assert ", by 25% of their range: the prediction extrapolates" in told.message
    (told,) = beyond(planted, h, m, high + 3 * (high - low))
    assert ", by 3 times their range: " in told.message
    (apart,) = beyond(planted, h, float(planted.m.max()), low)
    far = re.search(r"the nearest is (\S+) times as far as layouts have theirs", apart.message)
    assert far is not None
    assert float(far[1]) > 1.5


def test_a_gap_in_the_only_input_is_told() -> None:
    """Regression: between groups of layouts nothing was said, since the count lies within the range of all."""
    c = np.concatenate([centre + np.arange(8.0) for centre in (1e6, 5e8, 1e9)])
    data = Points.of("groups", r=1e10 + 0.7 * c, c=c)
    (told,) = beyond(data, None, None, 2.5e8)
    assert "no layout that was fitted has such a C: the nearest differs by 25% of their range; " in told.message
    assert beyond(data, None, None, 5.1e8) == []
    even = Points.of("even", r=1e10 + 0.7 * c, c=np.linspace(1e6, 1e9, 24))
    assert all(beyond(even, None, None, float(each)) == [] for each in np.linspace(1e6, 1e9, 100))


def with_an_isolated_layout() -> Points:
    """Layouts that lie close together along a line in H, M and C, and 4K far off."""
    random = np.random.default_rng(11)
    covered = np.append(np.sort(random.uniform(0, 0.12, 23)), 1.0)
    m = 2.5e8 * covered * random.uniform(0.99, 1.01, 24)
    c = 40 * m * random.uniform(0.99, 1.01, 24)
    names = [*(f"layout{i}" for i in range(23)), "4K"]
    r = (2e10 + 0.7 * c) * random.normal(1, 0.0005, 24)
    return Points.of("isolated", r=r, c=c, m=m, h=2e8 - 1e8 * covered, layouts=names)


def test_one_isolated_layout_does_not_hide_that_a_prediction_extrapolates() -> None:
    """Regression: its distance was the width that gaps may have, so nothing in the whole range was ever far off."""
    data = with_an_isolated_layout()
    assert data.m is not None
    assert data.h is not None
    (told,) = beyond(data, float(data.h[0]), float(data.m[-1]) / 2, float(data.c[2]))
    assert told.message.startswith("no layout that was fitted has such H, M, C together: the nearest is ")
    alone = Points.of("alone", r=data.r, c=data.c)
    assert "no layout that was fitted has such a C" in beyond(alone, None, None, float(data.c[-1]) / 2)[0].message
    assert beyond(data, float(data.h[5]), float(data.m[5]), float(data.c[5])) == []
    assert beyond(data, float(data.h[-1]), float(data.m[-1]), float(data.c[-1])) == []


@pytest.mark.parametrize("spaced", ["evenly", "by ratios"])
@pytest.mark.parametrize("inputs", [1, 3])
@pytest.mark.parametrize("layouts", [25, 54])
def test_counts_like_those_of_the_layouts_are_rarely_called_extrapolation(
    spaced: str, inputs: int, layouts: int
) -> None:
    """Regression: 4% to 11% of them were, because a tenth of the layouts' own gaps counted for nothing."""
    told = []
    for seed in range(20):
        share = np.random.default_rng([seed, layouts]).uniform(0, 1, (layouts + 40, inputs))
        counted = 1e6 + 1e9 * share if spaced == "evenly" else 10 ** (6 + 3 * share)
        fitted, others = counted[:layouts], counted[layouts:]
        data = Points.of("own", r=1e11 + fitted.sum(axis=1), **dict(zip("cmh", fitted.T, strict=False)))
        within = np.all((others >= fitted.min(axis=0)) & (others <= fitted.max(axis=0)), axis=1)
        for each in others[within].tolist():
            c, m, h = (*each, None, None)[:3]
            told.append(bool(beyond(data, h, m, c)))
    assert len(told) > 200
    assert np.mean(told) <= 0.025


def test_repeated_layouts_do_not_make_the_others_isolated() -> None:
    """Regression: most neighbours of layouts that are there twice are at no distance at all."""
    c = np.linspace(1e9, 9e9, 9)
    twice = Points.of("twice", r=np.tile(1e10 + c, 2), c=np.tile(c, 2))
    assert all(beyond(twice, None, None, float(each)) == [] for each in np.linspace(1e9, 9e9, 50))


def test_a_prediction_that_is_unlike_the_fitted_layouts_is_told() -> None:
    data = points(30, noise=0.002)
    low, high = float(data.r.min()), float(data.r.max())
    span = high - low
    assert unlike(data, low - 0.05 * span) == unlike(data, (low + high) / 2) == []
    assert ", by 20% of their range: the prediction extrapolates" in unlike(data, low - 0.2 * span)[0].message
    widths = np.append(np.full(29, 1e9), 1e11)
    assert unlike(data, low - 0.6e9, 0.7e9, widths) == []
    assert "R lies outside the measured run times" in unlike(data, low - 0.8e9, 0.7e9, widths)[0].message
    assert "the interval is 4 times as wide as at most layouts" in unlike(data, low, 2e9, widths)[0].message


def test_the_interval_widens_with_what_is_told() -> None:
    planted = points(30, noise=0.005)
    process = GaussianProcess(seed=1).fit(planted)
    assert planted.h is not None
    assert planted.m is not None
    h, m = float(np.median(planted.h)), float(np.median(planted.m))
    c = float(planted.c.max())
    span = c - float(planted.c.min())
    widths = []
    for share in (0.0, 0.5, 2.0):
        low, high = process.interval(h, m, c + share * span, level=0.95, of="mean", run_sd=0.0)
        widths.append(float(high) - float(low))
    assert widths == sorted(widths)


def test_a_report_tells_of_test_layouts_outside_the_fitted_ones() -> None:
    planted = points(30)
    order = np.argsort(planted.c)
    ends = order[-2:]
    outside = replace(planted, roles=tuple("test" if i in ends else "train" for i in range(30)))
    (told,) = judged_beyond(outside)
    assert told.message.startswith("2 of 2 test layouts lie outside the layouts that were fitted")
    train, test = outside.role("train"), outside.role("test")
    shares = {name: [excess(values, float(v)) for v in test.inputs[name]] for name, values in train.inputs.items()}
    worst = max(shares, key=lambda name: max(shares[name]))
    assert test.layouts[int(np.argmax(shares[worst]))] + " farthest" in told.message
    assert f"{100 * max(shares[worst]):.2g}% of their range" in told.message
    assert told in warnings_of(outside)
    within = np.all(
        [(values > np.sort(values)[0]) & (values < np.sort(values)[-1]) for values in planted.inputs.values()], axis=0
    )
    middle = [int(i) for i in np.flatnonzero(within)[:3]]
    assert len(middle) == 3
    inside = replace(planted, roles=tuple("test" if i in middle else "train" for i in range(30)))
    assert judged_beyond(inside) == []
    assert judged_beyond(planted) == []
