"""Studies of programs × frame policies with repeated measurements, as studies/nondeterminism.toml makes them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from factory import Run, plan, store

from pagelab.analysis import Analysis
from pagelab.analysis.nondeterminism_model import NondeterminismPart
from pagelab.study.plan import Condition, Plan
from pagelab.study.schedule import Slot

POLICIES = ("default", "page-coloring", "bin-hopping")
BETWEEN = {"default": 0.06, "page-coloring": 0.01, "bin-hopping": 0.002}
"""Standard deviation between executions, of the mean; 1% inside."""
SLOWER = {"default": 1.0, "page-coloring": 1.01, "bin-hopping": 1.15}
MISSES = "cache.l3_misses"


def repeated(
    directory: Path,
    workloads: tuple[str, ...] = ("fft-half", "fft-equal", "fft-double", "lu-half", "lu-equal", "lu-double"),
    *,
    single: tuple[str, ...] = (),
    executions: int = 12,
    measurements: int = 15,
    counters: bool = True,
    metric: str = "measure.latency",
    change: Callable[[Run, Condition, Slot], Run | None] | None = None,
) -> Path:
    """``single``: programs timed as a whole. Their times follow their cache misses, also within a policy."""
    draws = random.Random(2010)
    made = plan([*workloads, *single], POLICIES, executions, metric=metric, question="Which policy steadies run times?")
    made = with_factors(made, single)

    def run(condition: Condition, slot: Slot) -> Run | None:
        level = SLOWER[condition.policy] * (1 + abs(draws.gauss(0, BETWEEN[condition.policy])))
        inside = [1e6 * level * draws.gauss(1, 0.01) for _ in range(measurements)]
        found = Run(
            wall_s=level if condition.workload in single else 0.05 + sum(inside) * 1e-9,
            measurements=[] if condition.workload in single else inside,
            counters={MISSES: round(2e6 * level**2 * draws.gauss(1, 0.005))} if counters else {},
        )
        return found if change is None else change(found, condition, slot)

    return store(directory, made, run)


def with_factors(made: Plan, single: tuple[str, ...] = ()) -> Plan:
    """``fft-half`` is the benchmark fft at the size half."""

    def changed(condition: Condition) -> Condition:
        program, _, size = condition.workload.partition("-")
        facts: dict[str, Any] = {"factors": {"benchmark": program, **({"size": size} if size else {})}}
        if condition.workload in single:
            facts["metric"] = "wall_s"
        return condition.model_copy(update=facts)

    return made.model_copy(update={"conditions": [changed(one) for one in made.conditions]})


def part_of(found: Analysis) -> NondeterminismPart:
    assert found.nondeterminism is not None
    return found.nondeterminism
