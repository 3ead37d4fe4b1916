"""The floor under models that rise with their inputs, against all such models."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from models.planted import digitised
from pagelab.models import Points
from pagelab.models.contradiction import contradiction


def least_error(points: Points, inputs: tuple[str, ...]) -> float:
    """By linear programming: predictions that rise with the inputs, and the least maximal relative error."""
    count = len(points)
    columns = [points.inputs[name] for name in inputs]
    rows, limits = [], []
    for i in range(count):
        for sign in (1.0, -1.0):
            row = np.zeros(count + 1)
            row[i], row[count] = sign / points.r[i], -1
            rows.append(row)
            limits.append(sign)
        for j in range(count):
            if i != j and all(column[i] <= column[j] for column in columns):
                row = np.zeros(count + 1)
                row[i], row[j] = 1, -1
                rows.append(row)
                limits.append(0.0)
    found = linprog(np.eye(count + 1)[count], A_ub=np.array(rows), b_ub=limits, bounds=[(0, None)] * (count + 1))
    return float(found.x[count])


@given(
    rows=st.lists(st.tuples(*[st.integers(1, 20)] * 3, st.integers(10, 40)), min_size=2, max_size=7),
    inputs=st.sampled_from([("c",), ("h", "m", "c")]),
)
def test_no_rising_model_is_nearer(rows: list[tuple[int, int, int, int]], inputs: tuple[str, ...]) -> None:
    h, m, c, r = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    points = Points.of("w", r=r, c=c, h=h, m=m, source="simulated")
    found = contradiction(points, inputs)
    assert found.error == pytest.approx(least_error(points, inputs), abs=1e-6)
    if found.error:
        longer, shorter = points.layouts.index(found.longer), points.layouts.index(found.shorter)
        assert points.r[longer] > points.r[shorter]
        assert all(points.inputs[name][longer] <= points.inputs[name][shorter] for name in inputs)


def test_two_layouts_of_the_digitised_figure_contradict_each_other() -> None:
    found = contradiction(digitised("broadwell"), ("c",))
    assert (found.longer, found.shorter) == ("layout17", "layout18")
    assert found.error == pytest.approx((2.7573 - 2.7477) / (2.7573 + 2.7477), rel=1e-6)
