"""The models' formulas against the paper's, against naive ones, and against the library's own."""

from __future__ import annotations

import warnings
from itertools import combinations_with_replacement as choose

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.planted import counts, points
from pagelab.errors import BadInputError
from pagelab.models import Points, models
from pagelab.models.mosmodel import Mosmodel
from pagelab.models.poly import amplification

COUNTS = st.floats(1e6, 1e11)


@given(
    r4=st.floats(1e9, 1e12), r2=st.floats(1e9, 1e12), shares=st.tuples(*[st.floats(0.01, 0.99)] * 2),
    m4=COUNTS, h4=COUNTS, at=st.tuples(COUNTS, COUNTS, COUNTS),
)  # fmt: skip
def test_the_linear_models_are_those_of_section_three(
    r4: float, r2: float, shares: tuple[float, float], m4: float, h4: float, at: tuple[float, float, float]
) -> None:
    c4, c2 = shares[0] * r4, shares[1] * r2
    if c4 == c2:
        return
    two = Points.of(
        "two",
        r=[r4, r2],
        c=[c4, c2],
        m=[m4, m4 / 9],
        h=[h4, h4 / 2],
        layouts=["a", "b"],
        anchors={"4K": "a", "2M": "b"},
    )
    h, m, c = at
    wanted = {
        "basu": c4 / m4 * m + (r4 - c4),
        "gandhi": c4 / m4 * m + (r2 - c2),
        "pham": 7 * h + c + (r4 - c4 - 7 * h4),
        "alam": c + (r2 - c2),
        "yaniv": r4 + (r2 - r4) / (c2 - c4) * (c - c4),
    }
    size = max(r4, r2, h, m, c) * (1 + abs((r2 - r4) / (c2 - c4)) + c4 / m4)
    for name, value in wanted.items():
        assert models()[name].fit(two).predict(h, m, c) == pytest.approx(value, abs=1e-9 * size)


@pytest.mark.parametrize("name", ["basu", "pham", "alam", "yaniv"])
def test_linear_models_pass_through_the_points_that_determine_them(name: str) -> None:
    data, model = points(rule="kink"), models()[name]
    fitted = model.fit(data)
    for size in model.own_points:
        row = data.anchor(size)
        assert row is not None
        assert data.h is not None
        assert data.m is not None
        assert fitted.predict(data.h[row], data.m[row], data.c[row]) == pytest.approx(data.r[row], rel=1e-12)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_polynomials_are_those_of_least_squares(degree: int) -> None:
    data = points(rule="kink", noise=0.01)
    fitted = models()[f"poly{degree}"].fit(data)
    x = data.c / data.c.max()
    design = np.vander(x, degree + 1)
    naive = design @ np.linalg.solve(design.T @ design, design.T @ data.r)
    assert fitted.predict(None, None, data.c) == pytest.approx(naive, rel=1e-9)
    plain = [fitted.parameters[f"c{power}"] for power in range(degree + 1)]
    assert sum(a * data.c**power for power, a in enumerate(plain)) == pytest.approx(naive, rel=1e-9)


@pytest.mark.parametrize("width", [3.0, 1e4])
def test_polynomials_between_few_groups_of_walk_cycles_are_refused(width: float) -> None:
    """Regression: three groups of nearly equal C gave a cubic that was off by 20,000 times between them."""
    random = np.random.default_rng(1)
    c = np.repeat([1e6, 5e8, 1e9], 8) + width * random.uniform(-1, 1, 24)
    data = Points.of("groups", r=(1e10 + 0.7 * c) * (1 + 0.001 * random.normal(size=24)), c=c)
    with pytest.raises(BadInputError, match=r"cannot fit poly3 to groups: .* form too few groups, .* times"):
        models()["poly3"].fit(data)
    fitted = models()["poly2"].fit(data)
    assert fitted.predict(None, None, 2.5e8) == pytest.approx(1e10 + 0.7 * 2.5e8, rel=0.01)


def test_the_amplification_is_that_of_drawn_errors() -> None:
    random = np.random.default_rng(3)
    c = np.array([1e9, 1.1e9, 2e9, 6e9, 6.2e9, 9e9])
    coefficients = np.polynomial.polynomial.polyfit(c / 1e9, random.normal(size=(6, 4000)), 3)
    fitted = np.polynomial.polynomial.polyval(np.linspace(1, 9, 201), coefficients)
    assert amplification(c, 3) == pytest.approx(fitted.std(axis=0).max(), rel=0.05)


def test_mosmodel_solves_the_lasso() -> None:
    """The same problem by coordinate descent, from another implementation of the expansion."""
    from sklearn.linear_model import Lasso

    data = points(54, noise=0.01, rule="kink")
    fitted = Mosmodel().fit(data)
    inputs = np.column_stack([data.h, data.m, data.c])
    scaled = inputs / inputs.max(axis=0)
    columns = np.column_stack(
        [np.prod(scaled[:, list(which)], axis=1) for k in (1, 2, 3) for which in choose(range(3), k)]
    )
    columns = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    assert columns.shape[1] == 19
    centred = (data.r - data.r.mean()) / data.r.std()
    first = np.max(np.abs(columns.T @ centred)) / len(centred)
    naive = Lasso(alpha=fitted.penalty * first, max_iter=2_000_000, tol=1e-10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        naive.fit(columns, centred)
    wanted = data.r.mean() + data.r.std() * naive.predict(columns)
    assert fitted.predict(data.h, data.m, data.c) == pytest.approx(wanted, rel=1e-4)


def test_mosmodels_formula_is_what_it_predicts() -> None:
    data = points(54, noise=0.005)
    fitted = models()["mosmodel"].fit(data)
    values = {"H": data.h, "M": data.m, "C": data.c}
    total = np.full(len(data), fitted.parameters["intercept"])
    terms = {name: value for name, value in fitted.parameters.items() if name[0] in values}
    for name, coefficient in terms.items():
        factor = np.ones(len(data))
        for part in name.split("·"):
            factor = factor * values[part[0]] ** {"": 1, "²": 2, "³": 3}[part[1:]]
        total += coefficient * factor
    assert len(terms) == fitted.parameters["nonzero"]
    assert total == pytest.approx(fitted.predict(data.h, data.m, data.c), rel=1e-8)
    assert fitted.formula.count("·") >= len(terms)


@settings(max_examples=10, deadline=None)
@given(factors=st.tuples(*[st.floats(1e-6, 1e6)] * 3))
@pytest.mark.parametrize("name", ["poly3", "mosmodel", "gp"])
def test_units_of_the_inputs_do_not_matter(name: str, factors: tuple[float, float, float]) -> None:
    data = points(20, noise=0.01)
    assert data.h is not None
    assert data.m is not None
    other = Points.of(
        "scaled", r=data.r, h=data.h * factors[0], m=data.m * factors[1], c=data.c * factors[2], source="simulated"
    )
    first, second = (models()[name].fit(one).predict(one.h, one.m, one.c) for one in (data, other))
    assert second == pytest.approx(first, rel=1e-5)


@pytest.mark.parametrize("name", ["basu", "gandhi", "pham", "alam", "yaniv"])
def test_a_missing_layout_is_named_with_its_option(name: str) -> None:
    h, m, c = counts(12, 1)
    data = Points.of("w", r=4e10 + c, c=c, h=h, m=m)
    with pytest.raises(BadInputError, match=r"--anchor-(4k|2m) LAYOUT"):
        models()[name].fit(data)


@pytest.mark.parametrize(("name", "least"), [("poly3", 5), ("mosmodel", 10), ("gp", 5)])
def test_too_few_layouts_are_refused(name: str, least: int) -> None:
    models()[name].fit(points(least))
    with pytest.raises(BadInputError, match=f"{least - 1} training layouts, and it needs {least}"):
        models()[name].fit(points(least - 1))


def test_models_without_their_inputs_are_refused() -> None:
    _, _, c = counts(12, 1)
    data = Points.of("w", r=4e10 + c, c=c, layouts=[f"{i}" for i in range(12)], anchors={"4K": "0", "2M": "11"})
    for name in ("basu", "gandhi", "pham", "mosmodel"):
        with pytest.raises(BadInputError, match=r"it needs [HM], and the points have none"):
            models()[name].fit(data)
    fitted = models()["gp"].fit(data)
    with pytest.raises(BadInputError, match="add --c NUMBER"):
        fitted.predict(1.0, 1.0, None)


def test_constant_walk_cycles_explain_nothing() -> None:
    data = Points.of("w", r=np.linspace(1e10, 2e10, 12), c=np.full(12, 1e9))
    for name in ("poly1", "gp"):
        with pytest.raises(BadInputError, match="cannot fit"):
            models()[name].fit(data)


@pytest.mark.parametrize("name", ["poly2", "mosmodel", "gp"])
def test_equal_run_times_are_refused(name: str) -> None:
    h, m, c = counts(12, 1)
    with pytest.raises(BadInputError, match="R is the same in every layout; there is nothing to explain"):
        models()[name].fit(Points.of("w", r=np.full(12, 4e10), c=c, h=h, m=m, source="simulated"))


@pytest.mark.parametrize("name", ["mosmodel", "gp"])
def test_inputs_that_say_the_same_do_not_hurt(name: str) -> None:
    """H falls as C rises, M is constant: a line in C alone is found again."""
    c = np.linspace(1e9, 9e9, 20)
    data = Points.of("w", r=1e10 + c, c=c, h=c[::-1].copy(), m=np.full(20, 7.0))
    fitted = models()[name].fit(data)
    assert fitted.predict(data.h, data.m, data.c) == pytest.approx(data.r, rel=1e-3)


def test_mosmodel_minds_columns_that_are_nearly_alike() -> None:
    """M is C up to a part in ten thousand: least angle regression ends early, and another solver goes on."""
    h, _, c = counts(30, 1)
    random = np.random.default_rng(3)
    data = Points.of("w", r=4e10 + 0.5 * c + c**2 / 1e11, c=c, h=h, m=c / 40 * (1 + 3e-4 * random.normal(size=30)))
    fitted = models()["mosmodel"].fit(data)
    assert fitted.predict(data.h, data.m, data.c) == pytest.approx(data.r, rel=5e-3)
