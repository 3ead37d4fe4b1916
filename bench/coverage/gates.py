"""False failures and false passes of ``pagelab compare --fail-if``, with the shipped settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bench.coverage.programs import MEASUREMENTS, PROGRAMS, Program
from pagelab.analysis.gates import METRICS, judge, parse_gate
from pagelab.stats import nondeterminism as nd

LEVEL = 0.95
SIZES = ((20, 20), (10, 10), (8, 32), (40, 5), (20, 2))
"""Executions in A and in B."""
SLOWER = 1.2
"""Ratio of B to A at which a limit of 20% on the mean is just met."""


@dataclass(frozen=True, slots=True)
class FalseVerdicts:
    """Shares of simulated comparisons that failed, and that passed, where the true change is exactly the limit."""

    gate: str
    program: Program
    base: int
    new: int
    failed: float
    passed: float


def measure(comparisons: int, seed: int) -> Iterator[FalseVerdicts]:
    """Every gate × program × sizes: A and B are one program, the limit is 0; and B is 20% slower, the limit 20%."""
    settings = nd.Resampling(seed=seed, level=LEVEL)
    of_means = nd.Resampling(seed=seed, level=LEVEL, estimate_draws=100)
    gates = [parse_gate(f"{name}>0%") for name in METRICS if name != "ratio"]
    slower = parse_gate("mean>20%")
    for number, program in enumerate(PROGRAMS):
        for base, new in SIZES:
            random = np.random.default_rng([seed, number, base, new])
            outcomes: dict[str, list[str]] = {gate.text: [] for gate in (*gates, slower)}
            for _ in range(comparisons):
                times = [program.times(random, 1, n, MEASUREMENTS)[0] for n in (base, new)]
                # The mean's gate does not use the impact factor, whose draws take most of the time.
                for factor, judged, chosen in ((1.0, gates, settings), (SLOWER, [slower], of_means)):
                    sides = [
                        nd.Experiment("g", name, nd.Executions.of(rows))
                        for name, rows in zip("ab", (times[0], times[1] * factor), strict=True)
                    ]
                    found = nd.changes(sides[0], sides[1], chosen)
                    for gate in judged:
                        outcomes[gate.text].append(judge(gate, "c", found, LEVEL).outcome)
            for text, seen in outcomes.items():
                shares = [seen.count(outcome) / comparisons for outcome in ("fail", "pass")]
                yield FalseVerdicts(text, program, base, new, *shares)
