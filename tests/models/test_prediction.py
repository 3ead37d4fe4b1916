"""What a prediction says of the counts that it is given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from models.planted import DIGITISED, points
from pagelab.models import Points
from pagelab.models.document import file_of
from pagelab.models.prediction import predict


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
