"""Data that cannot be fitted is refused; what only weakens a fit is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from models.planted import points
from pagelab.errors import BadInputError
from pagelab.models import Points
from pagelab.models.judgement import floor_of
from pagelab.models.noise import _prior, moderated
from pagelab.models.points import independent

GOOD: dict[str, Any] = {
    "r": [1e10, 2e10, 3e10], "c": [1e9, 2e9, 3e9], "h": [1, 2, 3], "m": [3, 1, 2], "layouts": ["a", "b", "c"]
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"c": [1e9, float("nan"), 3e9]}, "C of b is no number"),
        ({"r": [1e10, 0, 3e10]}, "R of b is not above zero"),
        ({"m": [3, -1, 2]}, "M of b is not above zero"),
        ({"c": [1e9, 4.1e10, 3e9]}, "C of b is more than R times 2 walkers.*--walkers N"),
        ({"c": [1e9, 2.1e10, 3e9], "cycles": "active"}, "more cycles with a walk active than cycles in all, in b"),
        ({"extra": {"active_cycles": [1e9, 2.1e10, 1.0]}}, "walk active .active_cycles. than cycles in all, in b"),
        ({"h": [1, 2]}, "H has 2 values for 3 layouts"),
        ({"layouts": ["a", "b", "b"]}, "layout b has two rows"),
        ({"anchors": {"4K": "z"}}, "the layout of 4K pages, z, is not among them"),
        (
            {"roles": ["test", "train", "train"], "anchors": {"4K": "a"}},
            "a is a test layout, .* the one of 4K pages; .*role train",
        ),
        ({"roles": ["test"] * 3}, "every layout is a test layout"),
        ({"roles": ["train"]}, "1 roles for 3 layouts"),
        ({"r_sd": [1, -1, 1]}, "a standard deviation of R is below zero"),
        ({"repeats": [3, float("nan"), 3]}, "repeats of b is nan: no whole number of at least 1"),
        ({"repeats": [3, 3, float("inf")]}, "repeats of c is inf"),
        ({"repeats": [2.9, 3, 3]}, "repeats of a is 2.9"),
        ({"repeats": [3, 0, 3]}, "repeats of b is 0"),
        ({"repeats": [3, 3]}, "repeats has 2 values for 3 layouts"),
        ({"walkers": 0}, "0 walkers"),
        ({"r": [1e10, 1e31, 3e10]}, r"R of b is not within 1e-30 \.\.\. 1e\+30; check its unit"),
        ({"m": [3, 1e-31, 2]}, "M of b is not within"),
        ({"r_sd": [1, 1e31, 1]}, "a standard deviation of R is below zero, or above"),
    ],
)
def test_impossible_points_are_refused(change: dict[str, Any], message: str) -> None:
    Points.of("w", **GOOD)
    with pytest.raises(BadInputError, match=message):
        Points.of("w", **{**GOOD, **change})


def test_simulated_cycles_may_exceed_the_run_time() -> None:
    """Their unit is the simulator's: models that are fitted scale it."""
    simulated = Points.of("w", **{**GOOD, "c": [9e10, 2e9, 3e9]}, source="simulated")
    told = {one.kind: one.message for one in simulated.warnings()}
    assert "simulated C is above R times 2 walkers in 1 of 3 layouts (a)" in told["more-walks-than-time"]


@pytest.mark.parametrize(
    ("change", "name"),
    [({"cycles": "active"}, "C"), ({"extra": {"active_cycles": [1e9, 2.1e10, 3e9]}}, "active_cycles")],
)
def test_simulated_walks_that_are_active_for_longer_than_the_run_are_told(change: dict[str, Any], name: str) -> None:
    """Of two walkers that are added up, 2.1e10 cycles in 2e10 are possible."""
    data = Points.of("w", **{**GOOD, "c": [1e9, 2.1e10, 3e9], **change}, source="simulated")
    (told,) = [one.message for one in data.warnings() if one.kind == "more-walks-than-time"]
    assert f"simulated {name} is above R in 1 of 3 layouts (b)" in told


def test_few_test_layouts_are_told() -> None:
    assert "few-tests" in kinds(points(30, roles=["train", *["test"] * 11, *["train"] * 18]))
    assert "few-tests" not in kinds(points(30, roles=["train", *["test"] * 12, *["train"] * 17]))
    assert "few-tests" not in kinds(points(30))


def test_test_layouts_with_the_counts_of_training_layouts_are_told() -> None:
    data = points(30)
    roles = ("test", *("train",) * 28, "test")
    alike = replace(data, roles=roles, anchors={}, **{n: np.append(v[:-1], v[3]) for n, v in data.inputs.items()})
    told = {one.kind: one.message for one in alike.warnings()}["tests-like-training"]
    assert told.startswith("test layouts with the counts of a training layout (layout29): ")
    assert "tests-like-training" not in {one.kind for one in replace(data, roles=roles, anchors={}).warnings()}


def test_run_times_of_another_order_of_magnitude_are_told() -> None:
    data = points(30)
    r = data.r.copy()
    r[3], r[5] = r[3] / 1e3, 50 * np.median(r)
    (told,) = [one.message for one in replace(data, r=r).warnings() if one.kind == "far-off"]
    assert told.startswith("R of layout3 is more than 100 times above or below the median layout's")
    assert "far-off" not in kinds(data)


def test_few_repeats_share_their_spread() -> None:
    """Regression: with two repeats each, a perfect model was said to be off by up to 1.4 times of what it is."""
    random = np.random.default_rng(2)
    truth = 1e10 * (1 + random.random(54))
    for repeats in (2, 3):
        told, off = [], []
        for _ in range(40):
            runs = truth[:, None] * (1 + 0.03 * random.normal(size=(54, repeats)))
            spread = runs.std(axis=1, ddof=1)
            data = Points.of("w", r=runs.mean(axis=1), c=truth / 9, r_sd=spread, repeats=[repeats] * 54)
            found = floor_of(data)
            assert found is not None
            errors = np.abs(truth / data.r - 1)
            told.append((found.maximum, found.geometric_mean))
            off.append((errors.max(), np.exp(np.log(errors).mean())))
        assert np.median(told, axis=0) == pytest.approx(np.median(off, axis=0), rel=0.1)


def test_many_repeats_have_the_spread_of_their_own_layout() -> None:
    data = Points.of("w", r=[100, 200, 300], c=[1, 2, 3], r_sd=[1, 6, 3], repeats=[25, 25, 2])
    pooled = (24 * (0.01**2 + 0.03**2) + 0.01**2) / 49
    assert data.r_se == pytest.approx([1 / 5, 6 / 5, 300 * (pooled / 2) ** 0.5])


def test_a_layout_without_a_spread_of_its_own_has_that_of_the_others() -> None:
    """Regression: one row too few, or one nan, and the noise of all others was said not to be known."""
    data = points(40, r_sd=np.full(40, 1e8), repeats=[5] * 40)
    assert data.r_sd is not None
    assert data.repeats is not None
    sd, repeats = data.r_sd.copy(), data.repeats.copy()
    sd[3], repeats[3], sd[9] = np.nan, 1, np.nan
    partly = replace(data, r_sd=sd, repeats=repeats)
    assert kinds(partly) == {"noise-of-others"}
    (told,) = [one.message for one in partly.warnings()]
    assert told.startswith("layout3, layout9: no spread of R over repeats of their own")
    assert data.r_se is not None
    assert partly.r_se is not None
    rest = partly.r_se / data.r_se
    assert rest[3] == pytest.approx(5**0.5, rel=0.05)
    assert np.delete(rest, 3) == pytest.approx(1, rel=0.05)


def test_one_layout_of_two_runs_does_not_decide_over_all_others() -> None:
    sd = np.full(40, np.nan)
    sd[3] = 1e6
    data = points(40, r_sd=sd, repeats=[1, 1, 1, 2, *[1] * 36])
    assert data.r_se is None
    (told,) = [one.message for one in data.warnings() if one.kind == "noise-unknown"]
    assert "is not known in most layouts (layout0, layout1, layout2 and 36 more)" in told


@pytest.mark.parametrize(("repeats", "least"), [(3, 0.74), (4, 0.8), (6, 0.85)])
def test_a_layout_that_is_noisier_has_a_larger_error(repeats: int, least: float) -> None:
    """Regression: with five times the noise of 21 others its 95% interval, of the pooled spread, held about half the
    time, with any number of repeats."""
    random = np.random.default_rng(1)
    held = []
    for _ in range(300):
        runs = random.normal(size=(22, repeats)) * np.array([0.05, *[0.01] * 21])[:, None]
        variance, freedom = moderated(runs.var(axis=1, ddof=1), np.full(22, repeats))
        held.append(np.abs(runs.mean(axis=1)) <= t.ppf(0.975, freedom) * np.sqrt(variance / repeats))
    share = np.mean(held, axis=0)
    assert share[0] > least
    assert 0.93 < share[1:].mean() < 0.98


def test_moderated_variances_are_those_of_the_prior_that_they_were_drawn_from() -> None:
    random = np.random.default_rng(2)
    truth = 4 * 6 / random.chisquare(6, size=4000)
    own = truth * random.chisquare(3, size=4000) / 3
    centre, prior = _prior(own, np.full(4000, 3.0), float(own.mean()))
    assert centre == pytest.approx(4, rel=0.05)
    assert prior == pytest.approx(6, rel=0.15)
    variance, freedom = moderated(own, np.full(4000, 4))
    assert np.log(variance / truth).std() < 0.75 * np.log(own / truth).std()
    assert np.median(freedom) == pytest.approx(prior + 3)


def kinds(data: Points) -> set[str]:
    return {one.kind for one in data.warnings()}


def test_warnings_name_what_weakens_a_fit() -> None:
    whole = points(40, r_sd=np.full(40, 1e8), repeats=[5] * 40)
    assert kinds(whole) == set()
    assert kinds(points(12)) == {"few-layouts", "noise-unknown"}
    assert "no-anchor" in kinds(Points.of("w", **GOOD))


def test_constant_and_collinear_inputs_are_told() -> None:
    data = points(40)
    assert data.m is not None
    same = Points.of("w", r=data.r, c=data.c, h=np.full(40, 5.0), m=3 * data.c + 7)
    assert {"constant-input", "collinear-input"} <= kinds(same)
    assert list(independent(same)) == ["c"]
    assert list(independent(data)) == ["h", "m", "c"]


def test_rows_are_taken_with_all_that_belongs_to_them() -> None:
    data = points(10, r_sd=np.arange(10), repeats=[3] * 10, extra={"reads": range(10)})
    part = data.take([7, 0])
    assert part.layouts == ("layout7", "layout0")
    assert part.anchors == {"4K": "layout0"}
    assert part.r_sd is not None
    assert (list(part.r_sd), list(part.extra["reads"])) == ([7, 0], [7, 0])
    assert part.anchor("4K") == 1
    assert part.anchor("2M") is None


def test_anchors_that_seem_swapped_are_told() -> None:
    data = points(12)
    most, least = data.layouts[int(data.c.argmax())], data.layouts[int(data.c.argmin())]
    assert "swapped-anchors" not in kinds(replace(data, anchors={"4K": most, "2M": least}))
    assert "swapped-anchors" in kinds(replace(data, anchors={"4K": least, "2M": most}))
