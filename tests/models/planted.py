"""Layouts of a made-up workload, and run times by known rules."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagelab.models import Points

Array = NDArray[np.float64]
DIGITISED = Path(__file__).parent.parent / "data/gups-1gib-digitised.csv"
"""GUPS, 1 GiB, 25 layouts on each of two machines: read off a published figure, so good to about a pixel."""


def digitised(machine: str) -> Points:
    rows = [row for row in csv.DictReader(DIGITISED.read_text().splitlines()) if row["machine"] == machine]
    return Points.of(
        machine, r=[float(row["runtime_cycles"]) for row in rows], c=[float(row["walk_cycles"]) for row in rows]
    )


def counts(layouts: int, seed: int) -> tuple[Array, Array, Array]:
    """H, M and C: the first layout has no huge page, the last nothing else; H does not follow from M."""
    random = np.random.default_rng(seed)
    covered = np.sort(random.uniform(0, 1, layouts))
    covered[0], covered[-1] = 0, 1
    other = np.clip(covered + 0.6 * random.normal(size=layouts) * covered * (1 - covered), 0, 1)
    m = 1e9 * (1.002 - covered)
    c = m * (35 + 25 * (1 - covered) + random.normal(0, 1.5, layouts))
    h = 2e9 * (0.7 + 1.5 * other - 2 * other**2)
    return h, m, c


def points(layouts: int = 40, *, seed: int = 1, noise: float = 0.0, rule: str = "cubic", **others: object) -> Points:
    """``noise``: relative standard deviation of R."""
    h, m, c = counts(layouts, seed)
    x, y = c / 6e10, h / 2e9
    r = {
        "line": 4e10 * (1 + 0.9 * x + 0.05 * y),
        "cubic": 4e10 * (1 + 0.3 * x + 0.6 * x**2 + 0.2 * x**3 + 0.06 * y),
        "kink": 4e10 * (1 + 0.1 * x + 1.2 * np.maximum(0, x - 0.4) + 0.04 * y),
    }[rule]
    r = r * (1 + noise * np.random.default_rng([seed, 7]).normal(size=layouts))
    names = [f"layout{i}" for i in range(layouts)]
    anchors = {"4K": names[0], "2M": names[-1]}
    return Points.of(rule, r=r, c=c, h=h, m=m, layouts=names, anchors=anchors, **others)
