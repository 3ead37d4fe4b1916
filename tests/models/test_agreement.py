"""Simulated counts beside counted ones: known ratios, and where there is nothing to compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pagelab.models import Points
from pagelab.models.agreement import Agreement, agreements
from pagelab.models.answer import agreements_told

COUNTED: dict[str, Any] = {
    "r": [9.0, 8.0, 7.0, 6.0], "c": [4.0, 2.0, 1.0, 0.0], "m": [4, 3, 2, 1], "layouts": ["4K", "a", "b", "2M"],
    "extra": {"simulated_c": [2.0, 2.0, 3.0, 5.0], "huge_bytes": [0, 1, 2, 3]},
}  # fmt: skip


def test_ratios_are_of_layouts_in_which_events_were_counted() -> None:
    """C is 0 in 2M pages, and has no ratio there; M was not simulated."""
    points = Points.of("w", **COUNTED)
    assert agreements(points) == [Agreement("C", median=1.0, low=0.5, lowest="4K", high=3.0, highest="b")]
    (told,) = agreements_told(points)
    assert told == "simulated C over the counted one: 1.00 in the median layout, 0.50 (4K) to 3.00 (b)"


@pytest.mark.parametrize(
    "change",
    [{"source": "simulated"}, {"extra": {}}, {"c": [0.0] * 4}, {"extra": {"simulated_c": [np.nan] * 4}}],
)
def test_what_has_one_source_only_is_not_compared(change: dict[str, Any]) -> None:
    assert agreements(Points.of("w", **{**COUNTED, **change})) == []
