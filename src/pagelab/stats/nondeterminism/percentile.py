"""Percentile ends of resampled statistics, as every interval of this package takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def percentile_ends(resampled: NDArray[np.float64], tail: float) -> tuple[float, float]:
    """The k-th smallest and the k-th largest, k the whole part of (count + 1) tail, at least 1."""
    ordered = np.sort(resampled)
    k = max(1, int((ordered.size + 1) * tail + 1e-9))
    return float(ordered[k - 1]), float(ordered[-k])
