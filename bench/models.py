"""Models of run time: errors on published points, beside the paper's; and seconds of processor time for the fits.

The points are GUPS of 1 GiB in 25 layouts on each of two machines, read off a published figure: R and C, no H and no M.
The layouts of most and of least walk cycles are taken for 4K and 2M.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from pagelab.models import Points, judge, models
from pagelab.models.catalogue import PUBLISHED, Published
from pagelab.models.judgement import Errors, Judged

from .coverage.models import experiment
from .sample import Result, absolute
from .tools import Bench

LAYOUTS = 54
GOAL_S = 5.0
DIGITISED = Path(__file__).parents[1] / "tests/data/gups-1gib-digitised.csv"
KNOWN = {
    ("broadwell", "poly1"): 9.8,
    ("broadwell", "poly2"): 1.6,
    ("broadwell", "poly3"): 1.5,
    ("broadwell", "gp"): 1.5,
    ("skylake", "poly1"): 15.5,
    ("skylake", "poly2"): 4.4,
    ("skylake", "poly3"): 3.5,
    ("skylake", "gp"): 0.5,
}
"""Maximal error in percent, one layout left out: others' polynomials on the same points; for gp, the aim."""


def measure(bench: Bench) -> Iterator[Result]:
    yield from _errors()
    yield from _times(bench)


def _errors() -> Iterator[Result]:
    """Maximal errors (MOSAIC, equation 1) of every model that these points can fit."""
    for machine in ("broadwell", "skylake"):
        for one in judge(_digitised(machine), list(models().values())).models:
            if one.in_sample is None:
                continue
            # Two layouts determine the paper's older models: they are judged on the others.
            judged, how = (one.left_out, "one left out") if one.left_out else (one.in_sample, "in-sample")
            yield absolute(
                f"models: gups 1 GiB, {machine}, {one.name}, {how}",
                "%",
                [_percent(judged)],
                goal=KNOWN.get((machine, one.name)),
                note=_note(one),
            )


def _percent(errors: Errors) -> float:
    """In the form of the known ones."""
    return round(100 * errors.maximum, 1)


def _note(one: Judged) -> str:
    ways = (("in-sample", one.in_sample), ("10 folds", one.folds), ("one left out", one.left_out))
    own = [
        f"{how} {100 * errors.maximum:.1f}% (geometric mean {100 * errors.geometric_mean:.2f}%)"
        for how, errors in ways
        if errors is not None
    ]
    paper = PUBLISHED.get(one.name)
    if paper is not None and paper != Published(None, None):
        folds = "" if paper.cross_validated is None else f", {100 * paper.cross_validated:g}% in folds"
        known = "–" if paper.in_sample is None else f"{100 * paper.in_sample:g}%"
        own.append(f"the paper, over all its workloads: {known}{folds}")
    return "; ".join(own)


def _digitised(machine: str) -> Points:
    rows = [row for row in csv.DictReader(DIGITISED.read_text().splitlines()) if row["machine"] == machine]
    r = [float(row["runtime_cycles"]) for row in rows]
    c = [float(row["walk_cycles"]) for row in rows]
    points = Points.of(machine, r=r, c=c)
    return replace(points, anchors={"4K": points.layouts[int(np.argmax(c))], "2M": points.layouts[int(np.argmin(c))]})


def _times(bench: Bench) -> Iterator[Result]:
    points = _points()
    _fit(points)  # imports what the fits need
    each = [_timed(lambda: _fit(points)) for _ in range(bench.rounds)]
    yield absolute("models: all fits of one workload, 54 layouts", "s", each, goal=GOAL_S)
    judged = [_timed(lambda: judge(points, list(models().values()))) for _ in range(min(bench.rounds, 6))]
    yield absolute(
        "models: the same, judged in 10 folds and with one left out", "s", judged, note="65 fits of each fitted model"
    )


def _points() -> Points:
    points = experiment("kink", "normal", LAYOUTS, np.random.default_rng(1), repeats=True)
    return replace(points, anchors={"4K": points.layouts[0], "2M": points.layouts[-1]})


def _fit(points: Points) -> None:
    for model in models().values():
        model.fit(points)


def _timed(work: Callable[[], object]) -> float:
    """Seconds of processor time."""
    start = time.process_time()
    work()
    return time.process_time() - start
