"""Seconds for ALLOC's whole summary: 1,500 triplets, 10 executions of 20 measurements, 1,000 resamples of 100 ratios.

``python -m bench.stats``; the goal is 30 s on two cores.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from pagelab.stats import nondeterminism as nd

GOAL_S = 30.0
CONDITIONS = {"default": 4.0, "page-coloring": 1.0, "bin-hopping": 0.5}
"""Condition to standard deviation between executions, in percent of the mean; 1% inside."""


def experiments(triplets: int) -> list[nd.Experiment]:
    random = np.random.default_rng(2010)
    found = []
    for i in range(triplets):
        for condition, between in CONDITIONS.items():
            data = 100 + random.normal(0, between, (10, 1)) + random.normal(0, 1, (10, 20))
            found.append(nd.Experiment(f"{i}", condition, nd.Executions.of(data), {"size": str(i % 3)}))
    return found


def summarize(found: list[nd.Experiment], settings: nd.Resampling) -> int:
    """Everything that is shown for all triplets; returns how many numbers."""
    table = nd.characterize(found, settings)
    numbers = sum(int(mask.sum()) for mask in table.warned.values())
    for metric in nd.Metric:
        groups = nd.groups_of(table, metric)
        numbers += sum(len(share.percent) for share in nd.rank_shares(groups))
        for condition in list(CONDITIONS)[1:]:
            numbers += len(nd.pair_shares(table, metric, condition, "default"))
            numbers += len(nd.overheads(groups, "default", condition).significant)
    numbers += nd.ecdf(table.grid(nd.Metric.EXECUTION).value).value.size
    return numbers + len(nd.balance(found).levels)


@contextmanager
def timed(name: str, goal_s: float | None = None) -> Iterator[None]:
    def processor() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    wall, cpu = time.perf_counter(), processor()
    yield
    wall, cpu = time.perf_counter() - wall, processor() - cpu
    verdict = "" if goal_s is None else f", goal {goal_s:g} s: {'met' if wall < goal_s else 'missed'}"
    print(f"{name}: {wall:.1f} s, {cpu:.1f} s of processor time{verdict}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.stats", description=__doc__)
    parser.add_argument("--triplets", type=int, default=1_500)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} CPUs, {arguments.threads} threads, load before {os.getloadavg()[0]:.1f}")
    with timed("data"):
        found = experiments(arguments.triplets)
    with timed(f"summary of {len(found)} experiments", GOAL_S if arguments.triplets == 1_500 else None):
        summarize(found, nd.Resampling(seed=1, threads=arguments.threads))
    return 0


if __name__ == "__main__":
    sys.exit(main())
