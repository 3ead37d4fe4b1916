"""The default metric of times: decided by a first execution of each command, before any that counts."""

from __future__ import annotations

import polars as pl

WAITED = 0.01
"""From this share of its time on, waiting for a processor is worth leaving out."""
ACCOUNTED = 0.9
"""Who spent less than this share of the time on a processor, or waiting for one, waited for something else."""


def metric_of(runs: pl.DataFrame) -> tuple[str, str]:
    """The default metric: processor time of programs that only compute or wait for a processor.

    Who waits is slowed by other programs, by as much as these happen to want: with other programs beside, wall time
    varies by 20-30% where processor time varies by 5-10%. Programs with several threads at work, and programs that wait
    for devices, children or time, are judged by wall time: there processor time is not what passes. The rule looks at
    the pilot's runs of all settings together and at no difference between them. Returns the metric and why.
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
    """Of the runs, or inside one of their windows (docs/api)."""
    measurement = metric.removeprefix("measure.")
    return metric in ("cpu_s", "user_s", "system_s") or (
        measurement != metric and measurement.endswith((".cpu", ".user", ".system", ".thread"))
    )
