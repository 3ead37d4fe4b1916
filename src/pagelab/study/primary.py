"""Chooses wall time or processor time as the default metric, from a trial execution of each command."""

from __future__ import annotations

import polars as pl

WAITED = 0.01
"""Waiting for a processor is left out of the metric where it takes at least this share of the time."""
ACCOUNTED = 0.9
"""A program that spent less than this share of its time on a processor, or waiting for one, waited for something
else."""


def metric_of(runs: pl.DataFrame) -> tuple[str, str]:
    """The default metric and the reason: processor time for programs that only compute or wait for a processor.

    Other programs slow a waiting program down by changing amounts: beside them, wall time varies by 20-30% and
    processor time by 5-10%. Wall time is the metric of programs with several working threads, and of programs that wait
    for devices, children or timers: for these, processor time is not the elapsed time. The rule uses the pilot's runs
    of all settings together, and no difference between settings.
    """
    times = runs.select("wall_s", "cpu_s", "waiting_s", pl.col("steal_s").fill_null(0.0)).drop_nulls()
    if times.height < runs.height or times.height == 0:
        return "wall_s", ""
    wall, cpu, waiting, steal = (float(times[name].sum()) for name in times.columns)
    if cpu > 1.02 * wall or cpu + waiting + min(steal, wall - cpu) < ACCOUNTED * wall or waiting < WAITED * wall:
        return "wall_s", ""
    share = 100 * waiting / wall
    waited = f"it waited for a processor in {share:.0f}% of its time, and for nothing else"
    return "cpu_s", f"{waited} (wall time: --metric wall_s)"


def is_processor_time(metric: str) -> bool:
    """Whether the metric is processor time, of a whole run or inside one of its windows (docs/api)."""
    measurement = metric.removeprefix("measure.")
    return metric in ("cpu_s", "user_s", "system_s") or (
        measurement != metric and measurement.endswith((".cpu", ".user", ".system", ".thread"))
    )
