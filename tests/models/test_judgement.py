"""Errors, folds and floors: against naive versions, without leaks, and without skill where there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.planted import DIGITISED, points
from pagelab.cli.model.text import text
from pagelab.errors import BadInputError
from pagelab.models import Points, judge, models
from pagelab.models.answer import verdict
from pagelab.models.document import file_of, fits_of
from pagelab.models.gaussian_process import GaussianProcess
from pagelab.models.judgement import Errors, cross_validated, floor_of, r_squared, skill_of
from pagelab.models.mosmodel import Mosmodel

FITTED = ["poly1", "poly3", "mosmodel", "gp"]


@pytest.mark.parametrize("name", ["poly3", "gp"])
def test_layouts_of_equal_counts_are_left_out_together(name: str) -> None:
    """Regression: a layout was predicted from another one at the same place, and noise there passed for a law."""
    data = points(8, noise=0.1)
    rows = np.repeat(np.arange(8), 3)
    thrice = replace(
        data.take(rows), layouts=tuple(f"{row}.{i % 3}" for i, row in enumerate(rows)), anchors={},
    )  # fmt: skip
    assert list(thrice.places) == list(rows)
    r = thrice.r.copy()
    r[6:9] *= np.array([2.0, 3.0, 4.0])
    model = models()[name]
    before, after = (cross_validated(model, one, 24) for one in (thrice, replace(thrice, r=r)))
    assert list(after[6:9]) == list(before[6:9])
    assert not np.any(np.isclose(np.delete(after, [6, 7, 8]), np.delete(before, [6, 7, 8]), rtol=1e-9))
    assert judge(thrice, [models()["poly1"]], folds=10).fold_count == 8
    with pytest.raises(BadInputError, match="all have the same counts"):
        cross_validated(model, thrice.take([0, 1, 2]), 3)


@given(st.lists(st.tuples(st.floats(1, 1e12), st.floats(0.1, 10)), min_size=3, max_size=20))
def test_errors_are_equations_one_and_two(rows: list[tuple[float, float]]) -> None:
    r = np.array([one for one, _ in rows])
    predicted = np.array([one * factor for one, factor in rows])
    data = Points.of("w", r=r, c=0 * r, layouts=[f"{i}" for i in range(len(r))], anchors={"4K": "1"})
    found = Errors.of(data, predicted, ("4K",))
    errors = [abs(a - b) / a for a, b in zip(r, predicted, strict=True)]
    assert found.maximum == pytest.approx(max(errors), rel=1e-9, abs=1e-12)
    others = errors[:1] + errors[2:]
    product = np.prod(np.array(others, dtype=np.longdouble)) ** (1 / len(others))
    assert found.geometric_mean == pytest.approx(float(product), rel=1e-6, abs=1e-12)
    assert errors[int(found.worst)] == pytest.approx(max(errors), rel=1e-9)


def test_layouts_that_determine_a_model_count_where_it_does_not_pass_through_them() -> None:
    """Regression: gandhi's largest errors, in its two layouts, were left out of its geometric mean."""
    data = points(20, noise=0.01)
    for name, left_out in (("basu", ["4K"]), ("yaniv", ["4K", "2M"]), ("gandhi", [])):
        found = judge(data, [models()[name]], folds=2).named(name).in_sample
        assert found is not None
        rows = [data.anchor(size) for size in left_out]
        others = [abs(error) for i, error in enumerate(found.relative) if i not in rows]
        assert found.geometric_mean == pytest.approx(float(np.exp(np.mean(np.log(others)))))


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("name", FITTED)
def test_nothing_of_a_layout_reaches_its_own_prediction(name: str) -> None:
    """A run time that is ten times too long changes every prediction but that of its own fold."""
    data, model = points(24, noise=0.01), models()[name]
    before = cross_validated(model, data, len(data))
    r = data.r.copy()
    r[7] *= 10
    after = cross_validated(model, replace(data, r=r), len(data))
    assert after[7] == before[7]
    assert not np.any(np.isclose(np.delete(after, 7), np.delete(before, 7), rtol=1e-9))


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("name", FITTED)
def test_permuted_run_times_show_no_skill(name: str) -> None:
    data, model = points(40, noise=0.005), models()[name]
    assert skill_of(data, cross_validated(model, data, 10)) > 0.9
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(data))
        permuted = replace(data, r=data.r[order])
        assert skill_of(permuted, cross_validated(model, permuted, 10)) < 0.25


@pytest.mark.parametrize("name", ["poly3", "mosmodel", "gp"])
def test_planted_polynomials_are_recovered(name: str) -> None:
    """Within the noise: nearer to the truth than the measured run times are, at worst and in the mean square."""
    data = points(40, noise=0.003, seed=3)
    truth = points(40, noise=0.0, seed=3)
    fitted = models()[name].fit(data)
    error = fitted.predict(truth.h, truth.m, truth.c) / truth.r - 1
    noise = data.r / truth.r - 1
    if name == "poly3":  # knows nothing of H
        assert np.max(np.abs(error)) < 0.02
    else:
        assert np.max(np.abs(error)) < 0.8 * np.max(np.abs(noise))
        assert np.mean(error**2) < 0.5 * np.mean(noise**2)
    clean = models()["mosmodel"].fit(truth)
    assert np.max(np.abs(clean.predict(truth.h, truth.m, truth.c) / truth.r - 1)) < 1e-4


@pytest.mark.by_turns(4)
def test_ours_is_nearer_than_mosmodel_where_time_bends() -> None:
    """A kink, as out-of-order processors have: several made-up workloads, equal data, ten folds."""
    largest: dict[str, list[float]] = {"gp": [], "mosmodel": []}
    for seed in range(3):
        data = points(40, noise=0.003, seed=seed, rule="kink")
        for name, into in largest.items():
            into.append(Errors.of(data, cross_validated(models()[name], data, 10)).maximum)
    assert np.mean(largest["gp"]) < 0.8 * np.mean(largest["mosmodel"])


@pytest.mark.by_turns(4)
def test_test_layouts_have_no_part_in_the_fit() -> None:
    roles = ["train"] * 19 + ["test"] * 4 + ["train"]
    data = points(24, noise=0.01, roles=roles)
    r = data.r.copy()
    r[19:23] *= 3
    changed = replace(data, r=r, anchors={})
    for name in FITTED:
        first, second = (judge(one, [models()[name]], folds=2).named(name) for one in (data, changed))
        assert first.in_sample is not None
        assert second.in_sample is not None
        assert np.array_equal(first.in_sample.relative, second.in_sample.relative)
        assert first.test is not None
        assert second.test is not None
        assert second.test.maximum > 0.5 > first.test.maximum
        assert len(first.test.relative) == 4


@pytest.mark.by_turns(4)
def test_intervals_hold_test_layouts_that_are_like_the_fitted_ones_and_no_others() -> None:
    tests = np.arange(1, 36, 3)
    roles = ["test" if i in tests else "train" for i in range(40)]
    data = points(40, noise=0.003, roles=roles, r_sd=np.full(40, 4e8), repeats=[4] * 40)
    own = judge(data, [models()["gp"], models()["poly3"]], folds=2)
    fitted = GaussianProcess().fit(data.role("train"))
    testing = data.role("test")
    assert testing.h is not None
    assert testing.m is not None
    assert testing.r_se is not None
    counted = 0
    for i in range(12):
        sd = float(testing.r_se[i] / testing.r[i])
        low, high = fitted.interval(testing.h[i], testing.m[i], testing.c[i], of="run", run_sd=sd)
        counted += bool(low <= testing.r[i] <= high)
    assert own.named("gp").covered == counted
    assert counted >= 10
    assert own.named("poly3").covered is None
    r = data.r.copy()
    r[tests] *= 1.5
    assert judge(replace(data, r=r), [models()["gp"]], folds=2).named("gp").covered == 0


def test_rows_sorted_by_run_time_do_not_make_inner_folds_extrapolate() -> None:
    """Neighbours as folds would choose a λ of 0.15 and more here: a fold at an end has the kink's far side alone."""
    for seed in (3, 4):
        data = points(40, rule="kink", noise=0.003, seed=seed)
        fitted = Mosmodel().fit(data.take(np.argsort(data.r)))
        assert fitted.penalty < 0.01


@pytest.mark.parametrize("count", [2, 3])
def test_few_distinct_counts_do_not_leave_one_to_fit(count: int) -> None:
    """Regression: folds by counts left one or two of them, and the largest λ was chosen: 16% off, in-sample."""
    x = np.arange(24) % count / (count - 1)
    data = Points.of("few", r=2e10 * (1 + 0.5 * x), c=1e9 + 1e10 * x, h=2e8 - 1e8 * x**2, m=1e7 + 2e8 * x**2)
    noisy = replace(data, r=data.r * np.random.default_rng(2).normal(1, 0.001, 24))
    assert np.max(np.abs(Mosmodel().fit(noisy).predict(data.h, data.m, data.c) / data.r - 1)) < 0.005


def test_skill_is_against_the_mean_of_layouts_of_other_counts() -> None:
    """Regression: the mean had the twins of the layout that was left out, which no model had seen."""
    c = np.repeat(np.linspace(1e9, 9e9, 4), 3)
    data = Points.of("twins", r=1e10 + c, c=c)
    others = np.array([data.r[c != each].mean() for each in c])
    assert skill_of(data, others) == pytest.approx(0, abs=1e-12)
    apart = points(12)
    alone = np.array([np.delete(apart.r, i).mean() for i in range(12)])
    assert skill_of(apart, alone) == pytest.approx(0, abs=1e-12)


def test_the_floor_is_what_repeats_alone_give() -> None:
    data = points(30, r_sd=np.linspace(1e8, 9e8, 30), repeats=[4] * 30)
    found = floor_of(data)
    assert found is not None
    assert data.r_se is not None
    random = np.random.default_rng(5)
    errors = np.abs(random.normal(size=(20_000, 30)) * data.r_se / data.r)
    assert found.maximum == pytest.approx(np.median(errors.max(axis=1)), rel=0.01)
    assert found.maximum_high == pytest.approx(np.quantile(errors.max(axis=1), 0.95), rel=0.02)
    assert found.geometric_mean == pytest.approx(np.exp(np.mean(np.log(errors))), rel=0.01)
    assert floor_of(points(30)) is None


def test_r_squared_is_that_of_the_line() -> None:
    data = points(30, noise=0.02)
    assert data.h is not None
    line = np.polynomial.Polynomial.fit(data.h, data.r, 1)
    naive = 1 - np.sum((data.r - line(data.h)) ** 2) / np.sum((data.r - data.r.mean()) ** 2)
    assert r_squared(data.h, data.r) == pytest.approx(naive, rel=1e-9)
    assert r_squared(np.ones(30), data.r) == 0


def test_models_that_two_layouts_determine_have_no_folds() -> None:
    found = judge(points(12), [models()["yaniv"]]).named("yaniv")
    assert found.in_sample is not None
    assert (found.folds, found.left_out, found.skill) == (None, None, None)


def test_refusals_are_told_and_do_not_end_the_judgement() -> None:
    data = replace(points(12), anchors={}, h=None)
    found = judge(data, list(models().values()))
    assert "needs H" in found.named("mosmodel").refusal
    assert "--anchor-4k" in found.named("basu").refusal
    assert found.named("gp").left_out is not None


def test_models_that_cannot_lose_a_layout_say_why_they_are_not_cross_validated() -> None:
    """Mosmodel needs ten layouts, and has nine without one of them."""
    found = judge(points(10), [models()["mosmodel"], models()["poly1"]], folds=5)
    one = found.named("mosmodel")
    assert one.in_sample is not None
    assert (one.folds, one.left_out, one.refusal) == (None, None, "")
    assert "9 training layouts, and it needs 10" in one.not_validated
    assert found.named("poly1").not_validated == ""
    file = file_of(points(10), DIGITISED)
    fits = fits_of(points(10), found, 1)
    assert "mosmodel is not judged on layouts left out: cannot fit mosmodel" in text(file, fits)


def test_folds_beyond_the_layouts_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"--folds 13: not within 2 ... 12"):
        judge(points(12), [models()["poly1"]], folds=13)


def test_one_layout_is_too_few_whatever_the_folds() -> None:
    with pytest.raises(BadInputError, match="it has 1 training layout, and models need 5 or more"):
        judge(points(1), [models()["gp"]])


def test_an_error_on_fitted_layouts_is_called_that_beside_one_on_layouts_left_out() -> None:
    data = points(16, noise=0.01)
    file = file_of(data, DIGITISED)
    said = verdict(file, fits_of(data, judge(data, [models()[name] for name in ("gp", "poly3", "yaniv")], folds=4), 1))
    assert "on layouts left out one at a time" in said
    assert said.split("yaniv ")[1].split(" ", 1)[1].startswith("in-sample")
    assert "in-sample" not in said.split("poly3 ")[1].split("yaniv")[0]


@pytest.mark.parametrize("what", ["inputs", "run time"])
def test_one_layout_that_differs_from_all_others_is_judged(what: str) -> None:
    """Regression: in a fold without it, nothing varies, which ended mosmodel with an error of numpy's or sklearn's."""
    places = np.arange(20)
    if what == "inputs":
        c = np.where(places == 3, 1e9, 5e9)
        data = Points.of("one", r=1e10 + 1e6 * places, c=c, h=c / 9, m=c / 30)
    else:
        c = np.linspace(1e9, 9e9, 20)
        r = np.where(places == 3, 9e9, 1e10)
        data = Points.of("one", r=r, c=c, h=np.linspace(3, 1, 20) ** 2, m=np.linspace(1, 7, 20) ** 3)
    found = judge(data, [models()["mosmodel"]]).named("mosmodel")
    assert found.refusal == ""
    assert found.in_sample is not None
    assert np.all(np.isfinite(found.in_sample.relative))
    assert "the same in every layout" in found.not_validated
