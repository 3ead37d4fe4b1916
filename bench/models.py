"""Seconds of processor time for the models of one workload: 54 layouts with H, M and C, every model fitted once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from pagelab.models import Points, judge, models

from .coverage.models import experiment
from .sample import Result, absolute
from .tools import Bench

LAYOUTS = 54
GOAL_S = 5.0


def measure(bench: Bench) -> Iterator[Result]:
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
