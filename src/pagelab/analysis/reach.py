"""Ends of the axis of a forest plot, in the terminal and on the page."""

from __future__ import annotations

from pagelab.analysis.answer import NEGLIGIBLE

_CROWDED = 3.0
"""An interval that reaches so many times further than four of five others is cut off, with an arrow."""
_NEVER_CUT = 0.5
"""Nothing is cut off before this, where a few comparisons differ much and the others little."""
_NICE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0)


def reach(ends: list[tuple[float, float]]) -> tuple[float, float]:
    """A round reach to either side of 0, of what is crowded together: one wild interval must not squash the others."""
    reaches = sorted(max(abs(low), abs(high)) for low, high in ends)
    most = max(_CROWDED * reaches[(len(reaches) - 1) * 4 // 5], _NEVER_CUT)
    low = min([low for low, _ in ends if low >= -most] + [-NEGLIGIBLE])
    high = max([high for _, high in ends if high <= most] + [NEGLIGIBLE])
    low = max(low, -1.0)
    step = next((nice for nice in _NICE if (high - low) / nice <= 8), _NICE[-1])
    return step * (low // step), step * -(-high // step)
