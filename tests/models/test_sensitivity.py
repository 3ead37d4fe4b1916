"""What wrong counts do: against formulas, and without any where nothing is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from models.planted import points
from pagelab.errors import BadInputError
from pagelab.models import Points, models
from pagelab.models.judgement import Errors, cross_validated
from pagelab.models.sensitivity import sensitivity


def test_a_line_is_off_by_its_share_of_the_input() -> None:
    c = np.linspace(1e9, 9e9, 20)
    data = Points.of("w", r=1e10 + 0.5 * c, c=c)
    (found,) = sensitivity(data, [models()["poly1"]], by=0.5).models
    assert found.unchanged == pytest.approx(0, abs=1e-9)
    share = 0.25 * 9e9 / (1e10 + 4.5e9)
    assert found.lower == {"C": pytest.approx(share)}
    assert found.higher == {"C": pytest.approx(share)}


@pytest.mark.parametrize("name", ["poly3", "mosmodel"])
def test_unchanged_counts_give_the_errors_of_the_folds(name: str) -> None:
    data = points(24, noise=0.01)
    (found,) = sensitivity(data, [models()[name]], folds=6).models
    assert found.unchanged == Errors.of(data, cross_validated(models()[name], data, 6)).maximum
    assert list(found.lower) == ["H", "M", "C"]
    if name == "poly3":  # knows C alone
        assert found.lower["H"] == found.higher["M"] == found.unchanged
    assert found.higher["C"] > found.unchanged


def test_models_that_two_layouts_determine_are_judged_on_all() -> None:
    data = points(12, rule="kink")
    (found,) = sensitivity(data, [models()["alam"]], by=0.2).models
    beta = data.r[-1] - data.c[-1]
    assert found.higher["C"] == pytest.approx(np.max(np.abs((1.2 * data.c + beta) / data.r - 1)))


def test_what_cannot_be_asked_is_refused() -> None:
    data = points(12)
    for by in (0.0, 1.0, -0.1):
        with pytest.raises(BadInputError, match="not above 0 and below 100 percent"):
            sensitivity(data, [models()["poly1"]], by=by)
    with pytest.raises(BadInputError, match="--folds 13"):
        sensitivity(data, [models()["poly1"]], folds=13)
    (found,) = sensitivity(data.take(range(1, 12)), [models()["basu"]]).models
    assert found.unchanged is None
    assert "--anchor-4k" in found.refusal
