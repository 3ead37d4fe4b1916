"""Chooses the next layouts: the paper's windows, at random, by gaps in C, or where the model is least certain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagelab import layouts as making
from pagelab.errors import BadInputError
from pagelab.layouts import Footprint, Layout, moselect
from pagelab.layouts.campaign import FEWEST
from pagelab.layouts.windows import SHARES
from pagelab.model_run.document import Select
from pagelab.model_run.simulation import Counts
from pagelab.models import Points
from pagelab.models.gaussian_process import FittedProcess, GaussianProcess

Array = NDArray[np.float64]
START = 10
"""Layouts of an adaptive campaign's first round, anchors included. A cubic in C has four coefficients; the Gaussian
process has a slope, a length and more for each of three inputs."""
MOST_CANDIDATES = 160


@dataclass(frozen=True)
class Space:
    """The space of layouts: the tiles, their misses if known, and the test layouts, which must not be chosen."""

    footprint: Footprint
    misses: Array | None
    tests: tuple[Layout, ...]
    seed: int

    def allowed(self, layouts: Sequence[Layout]) -> list[Layout]:
        """Returns the distinct layouts without the test layouts; the anchors come first, under their own names."""
        small, large = making.anchors(self.footprint)
        forbidden = {one.tiles for one in self.tests}
        found = {small.tiles: small, large.tiles: large}
        for one in layouts:
            if one.tiles not in forbidden:
                found.setdefault(one.tiles, one)
        return list(found.values())


def candidates(space: Space, most: int) -> list[Layout]:
    """At most ``most`` distinct layouts, anchors first: a quarter growing, a quarter random, the rest sliding windows.

    If no misses are known, random layouts replace the sliding ones. Small spaces give fewer layouts.
    """
    quarter = max(2, most // 4)
    each = max(2, (most - 2 * quarter) // len(SHARES))
    made = [*making.growing(space.footprint, quarter), *making.random_windows(space.footprint, quarter, space.seed)]
    for share in SHARES:
        made += making.sliding(space.footprint, space.misses, share, each, space.seed)
    return space.allowed(made)[:most]


def fixed(select: Select, space: Space, count: int) -> list[Layout]:
    """All layouts of a campaign that chooses without measurements, anchors first; fewer in small spaces.

    ``profile``: the paper's windows. ``random``: random windows.
    """
    if select == "profile":
        if space.misses is None:
            raise BadInputError("--select profile needs misses, which are simulated; or: --select random")
        return space.allowed(making.campaign(space.footprint, space.misses, count, space.seed).layouts)
    drawn = making.random_windows(space.footprint, 50 * count, space.seed)
    return space.allowed(drawn)[:count]


def profiled(space: Space, count: int, most: int) -> list[Layout]:
    """``count`` layouts of the shortest of the paper's campaigns, up to ``most``, with as many distinct ones.

    All its kinds of windows are among them, which the first ``count`` of a longer campaign would not have.
    """
    found = fixed("profile", space, max(count, FEWEST))
    for longer in range(max(count, FEWEST) + 1, most + 1):
        if len(found) >= count:
            break
        found = fixed("profile", space, longer)
    anchors, others = found[:2], found[2:]
    kept = np.linspace(0, len(others) - 1, min(count - len(anchors), len(others))).round().astype(int)
    return [*anchors, *(others[at] for at in kept)]


def by_gaps(
    space: Space,
    measured: Sequence[tuple[Layout, float]],
    count: int,
    total: int,
    without: Sequence[Layout] = (),
) -> list[Layout]:
    """``count`` further layouts by moselect's rule, each in the middle of the largest gap in C.

    ``measured``: layouts and their C; ``without``: layouts that ran, and whose C is not known. For a layout chosen in
    this round C is unknown; the middle of its gap stands for it. Returns fewer layouts if no gap gives a new one.

    Raises `BadInputError` if misses are not known.
    """
    if space.misses is None:
        raise BadInputError("--select moselect needs misses, which are simulated; or: --select random")
    found: list[Layout] = []
    forbidden = {one.tiles for one in (*space.tests, *without)}
    believed = [pair for pair in measured if np.isfinite(pair[1])]
    while len(found) < count:
        one = moselect.next_layout(space.footprint, space.misses, believed, f"gap-{total + len(found)}")
        if one is None:
            break
        share = _between(believed)
        believed.append((one, share))
        if one.tiles not in forbidden:
            found.append(one)
    return found


def _between(measured: Sequence[tuple[Layout, float]]) -> float:
    """The middle of the largest gap in C."""
    ordered = np.sort([c for _, c in measured])
    at = int(np.argmax(np.diff(ordered)))
    return float(ordered[at] + ordered[at + 1]) / 2


def spread(counts: Sequence[Counts], count: int, chosen: Sequence[int]) -> list[int]:
    """Positions of ``count`` candidates, ``chosen`` included, that fill the space of (H, M, C): each next candidate is
    the one farthest from those before (Kennard and Stone, Technometrics 11, 1969)."""
    rows = np.array([[one.h, one.m, one.c] for one in counts])
    scale = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    found = list(chosen)
    nearest = np.min(np.linalg.norm(rows[:, None] - rows[found][None], axis=2), axis=1)
    while len(found) < min(count, len(rows)):
        nearest[found] = -1.0
        following = int(np.argmax(nearest))
        found.append(following)
        nearest = np.minimum(nearest, np.linalg.norm(rows - rows[following], axis=1))
    return found


@dataclass(frozen=True)
class Choice:
    """The layouts of an adaptive campaign's next round, and the uncertainty before it."""

    layouts: list[int]
    """Positions of the layouts among the candidates."""
    widest: float
    """Half-width of the widest 95% interval of a candidate's mean before this round, relative to its prediction."""


def least_certain(points: Points, counts: Sequence[Counts], taken: Sequence[int], most: int, seed: int) -> Choice:
    """Up to ``most`` candidates, each where the process fitted to ``points`` has the largest relative uncertainty of R.

    After each choice the process is updated as if its prediction there had been measured, so that the next candidate
    lies elsewhere. ``taken``: positions of the candidates that were run.
    """
    fitted: FittedProcess = GaussianProcess(seed=seed).fit(points)
    h, m, c = (np.array([getattr(one, name) for one in counts]) for name in ("h", "m", "c"))
    low, high = fitted.interval(h, m, c)
    widest = float(np.max((high - low) / 2 / np.abs(fitted.predict(h, m, c))))
    free = np.ones(len(counts), dtype=bool)
    free[list(taken)] = False
    found: list[int] = []
    while len(found) < most and free.any():
        unsure = np.where(free, fitted.uncertainty(h, m, c), -1.0)
        following = int(np.argmax(unsure))
        found.append(following)
        free[following] = False
        at = slice(following, following + 1)
        fitted = fitted.believing(h[at], m[at], c[at])
    return Choice(found, widest)
