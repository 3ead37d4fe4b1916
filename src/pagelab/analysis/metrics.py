"""Lists the metrics of a study, and every execution's value of each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import polars as pl

from pagelab.analysis import wording
from pagelab.analysis.data import StudyData
from pagelab.analysis.model import Execution, Metric
from pagelab.stats import execution_means
from pagelab.stats.nondeterminism import Executions
from pagelab.study.plan import METRICS

ANALYSED = ("ok",)
"""Statuses of executions that have a time to analyse."""
_BASE = {
    "wall_s": Metric("wall_s", "wall time", "s", "time", "from exec to the end of the last process"),
    "user_s": Metric("user_s", "user time", "s", "time", "in user mode, all processes of the tree"),
    "system_s": Metric("system_s", "system time", "s", "time", "in the kernel, all processes of the tree"),
    "cpu_s": Metric("cpu_s", "CPU time", "s", "time", "user and system time together"),
    "peak_rss_bytes": Metric("peak_rss_bytes", "peak memory", "B", "memory", "largest single process, resident"),
    "minor_faults": Metric("minor_faults", "minor faults", "1", "count", "page faults served without a device"),
    "major_faults": Metric("major_faults", "major faults", "1", "count", "page faults that waited for a device"),
}
_COUNTERS = {
    "tlb.hits": ("L2-TLB hits (H)", "translations missed by the first-level data TLB and found in the second"),
    "tlb.walks": ("page walks (M)", "translations missed by both levels of the data TLB"),
    "tlb.walk_cycles": ("walk cycles (C)", "cycles in which the page walker was busy"),
    "cycles": ("cycles", "CPU cycles"),
    "instructions": ("instructions", "instructions retired"),
}
_SIMULATED = {
    "simulated.cycles": (
        "simulated cycles of memory",
        "each access costs the cycles of the level that has its line, as if it waited for the one before",
    ),
    "simulated.memory_reads": ("simulated reads of memory", "lines that no level had"),
    "simulated.memory_writes": ("simulated writes to memory", "dirty lines that fell out of the last level"),
}
"""Measurements of executions that `pagelab simulate cache --study` wrote; misses have their level in the name."""

_OF_WINDOW = {".cpu": "CPU time", ".user": "user time", ".system": "system time", ".thread": "thread time", "": "time"}
"""End of a window's measurement name → the quantity that it measures."""


def metrics_of(data: StudyData) -> tuple[Metric, ...]:
    """Every metric of which at least one execution has a value, in a fixed order."""
    columns = data.runs.columns
    found = [_BASE[name] for name in METRICS if name in columns and data.runs[name].count() > 0]
    for column in columns:
        if column.startswith("counter.") and data.runs[column].count() > 0:
            found.append(_counter(column))
    if data.measurements.height:
        pairs = data.measurements.select("name", "unit").unique(subset="name", keep="first", maintain_order=True)
        windows = windows_of(pairs["name"])
        found += [
            _of_window(name, unit, windows) or _measurement(name, unit) for name, unit in pairs.sort("name").iter_rows()
        ]
    return tuple(found)


def windows_of(names: Iterable[str]) -> set[str]:
    """The names of windows (docs/api) among names of measurements."""
    known = set(names)
    return {name for name in known if {f"{name}{part}" for part in _OF_WINDOW} <= known}


def _of_window(name: str, unit: str, windows: set[str]) -> Metric | None:
    """The metric of a time inside a window; None for other measurements."""
    for part, label in _OF_WINDOW.items():
        if name.removesuffix(part) in windows and name.endswith(part) and unit in wording.SECONDS:
            window = name.removesuffix(part)
            return Metric(f"measure.{name}", f"{label} of {window}", unit, "time", f"inside the window {window}")
    return None


def metric_named(name: str) -> Metric:
    """The description of a metric, even where no execution has a value of it."""
    if name in _BASE:
        return _BASE[name]
    return _counter(name) if name.startswith("counter.") else _measurement(name.removeprefix("measure."), "")


def _counter(column: str) -> Metric:
    role = column.removeprefix("counter.")
    label, description = _COUNTERS.get(role, (role, "hardware counter"))
    return Metric(column, label, "1", "counter", description)


def _measurement(name: str, unit: str) -> Metric:
    if name.startswith("simulated."):
        of_a_level = f"simulated {name.removeprefix('simulated.misses.')} misses"
        label, description = _SIMULATED.get(name, (of_a_level, "accesses that the level had no line for"))
        return Metric(f"measure.{name}", label, unit, "measurement", description)
    return Metric(f"measure.{name}", name, unit, "measurement", "mean over one execution, as the program reported it")


def executions_of(data: StudyData, metrics: tuple[Metric, ...]) -> tuple[Execution, ...]:
    """Every execution in schedule order; only those that ended well have values."""
    means = _measurement_means(data)
    columns = [m.name for m in metrics if not m.name.startswith("measure.")]
    return tuple(_execution(row, columns, means.get(row["run_id"], {})) for row in data.runs.iter_rows(named=True))


def _execution(row: dict[str, Any], columns: list[str], means: dict[str, float]) -> Execution:
    analysed = row["status"] in ANALYSED and not row["warmup"]
    values = {name: float(row[name]) for name in columns if _finite(row.get(name))} | means if analysed else {}
    block = row["block"]
    return Execution(
        run_id=int(row["run_id"]),
        position=int(row["position"]),
        block=None if block is None else int(block),
        workload=row["workload"],
        policy=row["policy"],
        condition=row["condition"],
        execution=int(row["execution"]),
        warmup=bool(row["warmup"]),
        status=row["status"],
        analysed=analysed,
        short_placed=bool(row["short_placed"]),
        values=values,
    )


def _finite(value: Any) -> bool:
    return value is not None and math.isfinite(value)


def _measurement_means(data: StudyData) -> dict[int, dict[str, float]]:
    """run_id → ``measure.<name>`` → mean."""
    found: dict[int, dict[str, float]] = {}
    usable = data.measurements.filter(pl.col("value").is_finite() & ~pl.col("dropped")).sort("name", "run_id", "idx")
    for (name,), rows in usable.partition_by("name", as_dict=True, maintain_order=True).items():
        means = execution_means(rows["run_id"].to_numpy(), rows["value"].to_numpy())
        for run_id, mean in zip(means.execution, means.mean, strict=True):
            found.setdefault(int(run_id), {})[f"measure.{name}"] = float(mean)
    return found


def samples_of(data: StudyData, condition: str, column: Metric, what: str) -> tuple[Executions, list[str]]:
    """The analysed executions of a condition in schedule order, with all measurements, and a list of the omitted ones.

    A column of the runs has one value per execution; ``measure.<name>`` has as many as the program reported. Raises
    ``StatsRefusedError`` where nothing is left, or where a value is not positive.
    """
    runs = data.runs.filter((pl.col("condition") == condition) & ~pl.col("warmup"))
    good = runs.filter(pl.col("status").is_in(ANALYSED))
    notes = []
    if good.height < runs.height:
        failed = runs.height - good.height
        notes.append(f"{failed} of {runs.height} executions did not end well")
    if column.name.startswith("measure."):
        name = column.name.removeprefix("measure.")
        rows = data.measurements.filter((pl.col("name") == name) & ~pl.col("dropped"))
        rows = good.select("run_id").with_row_index("order").join(rows, on="run_id", how="inner").sort("order", "idx")
    else:
        rows = good.select("run_id", pl.col(column.name).cast(pl.Float64).alias("value")).drop_nulls()
    usable = rows.filter(pl.col("value").is_finite())
    if usable.height < rows.height:
        notes.append(f"{rows.height - usable.height} of {rows.height} values are not finite numbers")
    without = good.height - usable["run_id"].n_unique()
    if without:
        notes.append(f"{without} executions have no value")
    return Executions.labelled(usable["run_id"].to_numpy(), usable["value"].to_numpy(), what=what), notes
