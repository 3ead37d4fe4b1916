"""Errors that others found on the same data: GUPS of 1 GiB in 25 layouts on two machines, digitised from a figure."""

from __future__ import annotations

import pytest

from models.planted import digitised
from pagelab.models import judge, models

KNOWN = {
    ("broadwell", "poly1"): (8.6, 9.8),
    ("broadwell", "poly2"): (1.5, 1.6),
    ("broadwell", "poly3"): (1.3, 1.5),
    ("skylake", "poly1"): (13.6, 15.5),
    ("skylake", "poly2"): (3.3, 4.4),
    ("skylake", "poly3"): (3.0, 3.5),
}
"""Maximal error in percent: in-sample, one layout left out."""


@pytest.mark.parametrize(("machine", "name"), KNOWN)
def test_polynomials_have_the_known_errors(machine: str, name: str) -> None:
    found = judge(digitised(machine), [models()[name]]).named(name)
    assert found.in_sample is not None
    assert found.left_out is not None
    assert (round(100 * found.in_sample.maximum, 1), round(100 * found.left_out.maximum, 1)) == KNOWN[machine, name]


@pytest.mark.parametrize(("machine", "aim"), [("broadwell", 1.5), ("skylake", 0.5)])
def test_ours_reaches_its_aim_on_layouts_left_out(machine: str, aim: float) -> None:
    found = judge(digitised(machine), [models()["gp"]]).named("gp")
    assert found.left_out is not None
    assert 100 * found.left_out.maximum <= aim
