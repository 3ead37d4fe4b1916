"""Prepares ALLOC's Figure 1 for any program: every execution with its measurements, in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pagelab.analysis.nondeterminism_model import Experiment, Trace, TraceExecution
from pagelab.stats import nondeterminism as nd

MOST_GROUPS = 8
"""Most plots on a page, so that it opens on a phone."""
MOST_POINTS = 2000
"""Most points in a plot."""


def traces_of(
    samples: Mapping[tuple[str, str], nd.Executions], experiments: Sequence[Experiment]
) -> tuple[tuple[Trace, ...], int]:
    """Plots of the groups whose executions differ most, in the order of the study; and the number of other groups."""
    repeated: dict[str, list[Experiment]] = {}
    for one in experiments:
        if one.repeated:
            repeated.setdefault(one.group, []).append(one)
    ordered = sorted(repeated, key=lambda group: -max(_differ(one) for one in repeated[group]))
    chosen = [group for group in repeated if group in ordered[:MOST_GROUPS]]
    traces = [
        _trace(group, repeated[group][0].column, {c: found for (g, c), found in samples.items() if g == group})
        for group in chosen
    ]
    return tuple(traces), len(repeated) - len(chosen)


def _differ(one: Experiment) -> float:
    """How much executions differ: the impact factor; without one, the spread of everything, scaled below any factor."""
    for metric, scale in ((nd.Metric.EXECUTION, 1.0), (nd.Metric.UNCLASSIFIED, 1e-6)):
        value = one.numbers[metric.value].value
        if value is not None:
            return value * scale
    return 0.0


def _trace(group: str, column: str, conditions: Mapping[str, nd.Executions]) -> Trace:
    total = sum(found.values.size for found in conditions.values())
    step = -(-total // MOST_POINTS)
    return Trace(
        group=group,
        column=column,
        step=step,
        executions={
            name: tuple(
                TraceExecution(
                    run=number,
                    count=row.size,
                    low=float(row.min()),
                    high=float(row.max()),
                    mean=float(row.mean()),
                    values=tuple(row[::step].tolist()),
                )
                for number, row in enumerate(found, start=1)
            )
            for name, found in conditions.items()
        },
    )
