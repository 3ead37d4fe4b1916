"""Data that cannot be fitted is refused; what only weakens a fit is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from models.planted import points
from pagelab.errors import BadInputError
from pagelab.models import Points
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
        ({"walkers": 0}, "0 walkers"),
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
