"""Chooses wall time or processor time as the default metric, from a trial execution of each command."""

from __future__ import annotations

import polars as pl

WAITED = 0.01
"""Waiting for a processor is left out of the metric where it takes at least this share of the time."""
ACCOUNTED = 0.9
"""A program that spent less than this share of its time on a processor, or waiting for one, waited for something
else."""
_LITTLE = 0.005
"""Least share of the time that is told as waiting for something else."""


def metric_of(runs: pl.DataFrame) -> tuple[str, str]:
    """The default metric and the reason: processor time for programs that only compute or wait for a processor.

    Other programs slow a waiting program down by changing amounts: beside them, wall time varies by 20-30% and
    processor time by 5-10%. Wall time is the metric of programs with several working threads, and of programs that wait
    for devices, children or timers: for these, processor time is not the elapsed time. So every run of the pilot, of
    each setting, must be accounted for, and have waited for other things no longer than for a processor: processor time
    leaves out both, and a setting that only adds waiting of the other kind would seem to change nothing.
    """
    times = _accounts(runs)
    if times.height < runs.height or times.height == 0:
        return "wall_s", ""
    wall, waiting = float(times["wall_s"].sum()), float(times["waiting_s"].sum())
    others = [_for_others(*row) for row in times.iter_rows()]
    if waiting < WAITED * wall or None in others:
        return "wall_s", ""
    most = max(other or 0.0 for other in others)
    rest = f"for little else ({100 * most:.0f}% at most)" if most >= _LITTLE else "for nothing else"
    waited = f"it waited for a processor in {100 * waiting / wall:.0f}% of its time, and {rest}"
    return "cpu_s", f"{waited} (wall time: --metric wall_s)"


def waited(runs: pl.DataFrame) -> str | None:
    """Words on waiting for a processor, where processor time stands for the time of all runs together; else None.

    That is enough to advise it for a next session. To choose it unasked, :func:`metric_of` wants it of every run.
    """
    times = _accounts(runs)
    wall, cpu, waiting, steal = (float(column.sum()) for column in times)
    if times.height < runs.height or waiting <= WAITED * wall or _for_others(wall, cpu, waiting, steal) is None:
        return None
    return f"it waited for a processor in {100 * waiting / wall:.0f}% of its time"


def _accounts(runs: pl.DataFrame) -> pl.DataFrame:
    """Time, processor time, waiting for a processor and steal of the runs that know them."""
    return runs.select("wall_s", "cpu_s", "waiting_s", pl.col("steal_s").fill_null(0.0)).drop_nulls()


def _for_others(wall: float, cpu: float, waiting: float, steal: float) -> float | None:
    """The share of a run's time in which it waited for something other than a processor.

    None where processor time does not stand for its time: it had several threads at work, or waited for others longer.
    """
    for_a_processor = waiting + min(steal, max(0.0, wall - cpu))
    other = wall - cpu - for_a_processor
    if cpu > 1.02 * wall or other > (1 - ACCOUNTED) * wall or other > max(for_a_processor, WAITED * wall):
        return None
    return max(0.0, other / wall)


def may_wait(metric: str) -> bool:
    """Whether waiting for a processor may be part of the metric: of wall time, and of what the program measures."""
    counted = metric.endswith((".faults", ".major_faults", ".resident", ".huge"))
    return metric == "wall_s" or (metric.startswith("measure.") and not counted and not is_processor_time(metric))


def is_disturbed(metric: str) -> bool:
    """Whether other programs on the machine change the metric: not the numbers of faults and of bytes."""
    return metric not in ("minor_faults", "major_faults", "peak_rss_bytes")


def is_processor_time(metric: str) -> bool:
    """Whether the metric is processor time, of a whole run or inside one of its windows (docs/api)."""
    measurement = metric.removeprefix("measure.")
    return metric in ("cpu_s", "user_s", "system_s") or (
        measurement != metric and measurement.endswith((".cpu", ".user", ".system", ".thread"))
    )
