"""A program's TLB misses with base pages, by tile of its footprint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pagelab.errors import BadInputError
from pagelab.layouts.footprint import Footprint
from pagelab.trace.pools import Pool

if TYPE_CHECKING:
    import polars as pl

WINDOW = 2 << 20
"""Bytes of a window of ``pagelab simulate tlb --output``."""


@dataclass(frozen=True)
class Profile:
    """Misses of each tile, in the order of the footprint's positions, and misses outside of the footprint.

    Simulated misses are counts; sampled ones are samples, weighted by their periods.
    """

    misses: NDArray[np.float64]
    elsewhere: float
    source: str
    """What they come from, for pictures and reports."""

    @property
    def total(self) -> float:
        """All misses, including those outside of the footprint."""
        return float(self.misses.sum()) + self.elsewhere


def of_windows(windows: pl.DataFrame, footprint: Footprint, pools: Sequence[Pool]) -> Profile:
    """The profile from the windows of ``simulate tlb`` (``placement, seed, start, m``) under its placement ``4K``.

    Without a placement of that name, the first one. Misses are M: those of both levels, which walk the page tables;
    the mean over seeds. Raises :class:`BadInputError` where columns are missing.
    """
    import polars as pl

    missing = {"placement", "seed", "start", "m"} - set(windows.columns)
    if missing:
        raise BadInputError(
            f"a profile of windows has no column {', '.join(sorted(missing))}; make one with: pagelab simulate tlb "
            "TRACE --processor NAME --pages 4K --output windows.parquet"
        )
    if not len(windows):
        return Profile(np.zeros(len(footprint)), 0.0, "simulate tlb")
    names = windows["placement"].unique().to_list()
    name = "4K" if "4K" in names else windows["placement"][0]
    own = windows.filter(pl.col("placement") == name)
    return _summed(
        own["start"].to_numpy(), own["m"].to_numpy() / own["seed"].n_unique(), footprint, pools, f"simulate tlb, {name}"
    )


def of_samples(
    samples: Iterable[tuple[int, float]], footprint: Footprint, pools: Sequence[Pool], source: str = "samples"
) -> Profile:
    """The profile from sampled addresses and weights, as :func:`pagelab.layouts.perf_script.samples` reads them."""
    pairs = list(samples)
    return _summed(
        np.array([address for address, _ in pairs], np.uint64),
        np.array([weight for _, weight in pairs], np.float64),
        footprint,
        pools,
        source,
    )


def _summed(
    addresses: NDArray[np.uint64],
    weights: NDArray[np.float64],
    footprint: Footprint,
    pools: Sequence[Pool],
    source: str,
) -> Profile:
    if footprint.page_bytes < WINDOW and source.startswith("simulate"):
        raise BadInputError(f"windows have {WINDOW} bytes: no profile of tiles of {footprint.page_bytes}; use samples")
    misses = np.zeros(len(footprint))
    elsewhere = float(weights.sum())
    for pool in pools:
        inside = (addresses >= np.uint64(pool.start)) & (addresses < np.uint64(pool.end))
        tiles, at = np.unique(
            (addresses[inside] - np.uint64(pool.start)) // np.uint64(footprint.page_bytes), return_inverse=True
        )
        sums = np.bincount(at, weights[inside], minlength=len(tiles))
        for tile, found in zip(tiles.tolist(), sums.tolist(), strict=True):
            position = footprint.position.get((pool.memory, tile * footprint.page_bytes))
            if position is not None:
                misses[position] += found
                elsewhere -= found
    return Profile(misses, max(elsewhere, 0.0), source)
