"""Reads a store into polars frames, the input of analysis. Column names state units; null means "not measured"."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import polars as pl

from ..record import RunWarning, WarningKind, about_the_machine, is_short
from .plan import Plan

_HUGE_BYTES = 2 << 20

_RUNS: dict[str, Any] = {
    "run_id": pl.Int64,
    "position": pl.Int64,
    "block": pl.Int64,
    "platform": pl.String,
    "workload": pl.String,
    "policy": pl.String,
    "condition": pl.String,
    "execution": pl.Int64,
    "warmup": pl.Boolean,
    "status": pl.String,
    "started_at": pl.String,
    "boot_id": pl.String,
    "uptime_s": pl.Float64,
    "wall_s": pl.Float64,
    "user_s": pl.Float64,
    "system_s": pl.Float64,
    "cpu_s": pl.Float64,
    "waiting_s": pl.Float64,
    "steal_s": pl.Float64,
    "peak_rss_bytes": pl.Int64,
    "minor_faults": pl.Int64,
    "major_faults": pl.Int64,
    "placed_fraction": pl.Float64,
    "huge_bytes": pl.Int64,
    "frames_placed_fraction": pl.Float64,
    "frames_moved_pages": pl.Int64,
    "short_placed": pl.Boolean,
    "warnings": pl.Int64,
    "exit_code": pl.Int64,
    "signal": pl.Int64,
    "message": pl.String,
    "duration_s": pl.Float64,
    "attempts": pl.Int64,
    "imported": pl.Boolean,
}

_RUN_QUERY = """
SELECT run.id, run.position, schedule.block, condition.workload, condition.policy, condition.name, run.execution,
       run.status, run.started_at, json_remove(run.record_json, '$.measurements'), run.message, run.duration_s,
       (SELECT count(*) FROM attempt WHERE attempt.position = run.position),
       block_platform.platform, run.boot_id, run.uptime_s
FROM run JOIN schedule USING (position) LEFT JOIN block_platform USING (block)
     JOIN condition ON condition.id = run.condition
ORDER BY run.position
"""


_SERIES = """
SELECT run, name, min(unit),
       CASE WHEN max(idx) - min(idx) + 1 = count(*) AND min(idx) = 0 THEN count(DISTINCT unit) END, count(*)
FROM measurement GROUP BY run, name ORDER BY run, name
"""
"""Series of measurements in a run. The number of units is 1 where all values have one unit and no index is missing."""
_EACH = "SELECT idx, value, unit FROM measurement WHERE run = ? AND name = ? ORDER BY idx"


_FAILED_STEPS = """
SELECT step.run, condition.name, phase, command, step.message, output
FROM step LEFT JOIN run ON run.id = step.run LEFT JOIN condition ON condition.id = run.condition
WHERE step.message IS NOT NULL ORDER BY step.id
"""


class Source(Protocol):
    """What the frames are read from: an open store."""

    def plan(self) -> Plan: ...
    def rows(self, query: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]: ...
    def batches(
        self, query: str, parameters: tuple[Any, ...] = (), size: int = ...
    ) -> Iterator[list[tuple[Any, ...]]]: ...
    def study_warnings(self) -> list[RunWarning]: ...


def runs(store: Source) -> pl.DataFrame:
    """One row per execution, in order of position, including warm-ups and failed ones.

    Columns: those of docs/architecture/contracts.md (Store), ``platform`` (of a study on a cluster),
    ``boot_id`` and ``uptime_s`` (the boot, and seconds since it began; null in records of older versions),
    ``short_placed`` (the run has a placement-shortfall warning above the severity "info"),
    ``exit_code``, ``signal``, ``message``, ``duration_s`` (with set-up and flushing), ``attempts`` (more than 1: an
    earlier attempt was interrupted), ``imported``, and one column ``counter.<name>`` for each counter (null where it
    did not count).
    """
    rows = []
    counters: dict[str, None] = {}
    for row in store.rows(_RUN_QUERY):
        facts = _record_facts(json.loads(row[9])) if row[9] else {}
        counters.update(dict.fromkeys(key for key in facts if key.startswith("counter.")))
        rows.append(
            {
                "run_id": row[0],
                "position": row[1],
                "block": row[2],
                "platform": row[13],
                "workload": row[3],
                "policy": row[4],
                "condition": row[5],
                "execution": row[6],
                "warmup": row[2] < 0,
                "status": row[7],
                "started_at": row[8],
                "boot_id": row[14],
                "uptime_s": row[15],
                "duration_s": row[11],
                "attempts": row[12],
                **facts,
                "message": row[10] or facts.get("message"),
            }
        )
    schema = {**_RUNS, **dict.fromkeys(counters, pl.Float64)}
    return pl.DataFrame([{key: row.get(key) for key in schema} for row in rows], schema=schema)


def _record_facts(record: dict[str, Any]) -> dict[str, Any]:
    if record.get("schema") == "pagelab.imported/1":
        times = {key: record.get(key) for key in ("wall_s", "user_s", "system_s", "peak_rss_bytes", "exit_code")}
        return {**times, "cpu_s": _sum(times["user_s"], times["system_s"]), "imported": True}
    time, placement, outcome = record["time"], record["placement"], record["outcome"]
    # Null also in records that are older than the placement of frames.
    frames = record.get("frames") or {"placed_fraction": None, "strategies": None}
    facts: dict[str, Any] = {
        "wall_s": time["wall_ns"] / 1e9,
        "user_s": time["user_ns"] / 1e9,
        "system_s": time["system_ns"] / 1e9,
        "cpu_s": (time["user_ns"] + time["system_ns"]) / 1e9,
        "waiting_s": _seconds(time.get("waiting_ns")),
        "steal_s": _seconds(time.get("steal_ns")),
        "peak_rss_bytes": record["peak_rss_bytes"],
        "minor_faults": record["faults"]["minor"],
        "major_faults": record["faults"]["major"],
        "placed_fraction": placement["placed_fraction"],
        "huge_bytes": sum(size["bytes"] for size in placement["by_size"] if size["page_bytes"] >= _HUGE_BYTES),
        "frames_placed_fraction": frames["placed_fraction"],
        "frames_moved_pages": _moved(frames),
        "short_placed": any(map(is_short, record["warnings"])),
        "warnings": sum(not about_the_machine(warning["data"]) for warning in record["warnings"]),
        "exit_code": outcome["exit_code"],
        "signal": outcome["signal"],
        "message": outcome["message"],
        "imported": False,
    }
    for counter in record["counters"]:
        usable = counter["status"] in ("ok", "multiplexed")
        facts[f"counter.{counter['name']}"] = counter["count"] if usable else None
    return facts


def _moved(frames: dict[str, Any]) -> int | None:
    """Pages that at exit were on other frames than where they had been placed; null where the kernel chose frames."""
    strategies: list[dict[str, int]] | None = frames["strategies"]
    return None if strategies is None else sum(strategy["moved_pages"] for strategy in strategies)


def _seconds(nanoseconds: int | None) -> float | None:
    """Nanoseconds as seconds; null also in records that are older than the measurement."""
    return None if nanoseconds is None else nanoseconds / 1e9


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def measurements(store: Source) -> pl.DataFrame:
    """One row per measurement inside an execution: ``run_id, name, idx, value, unit, dropped``.

    ``dropped`` marks the first measurements of each execution, which study.toml's ``drop_first`` leaves out of the
    mean. A window that the program went through only once has no repetitions, so its value is never dropped.
    """
    schema = {"run_id": pl.Int64, "name": pl.String, "idx": pl.Int64, "value": pl.Float64, "unit": pl.String}
    warm_up = {condition.index: condition.drop_first for condition in store.plan().conditions}
    first = {run: warm_up.get(condition, 0) for run, condition in store.rows("SELECT id, condition FROM run")}
    parts = [pl.DataFrame(schema=schema).with_columns(pl.lit(False).alias("dropped"))]
    series = store.rows(_SERIES)
    once = {(run, name) for run, name, _, _, count in series if count == 1}
    for run, name, unit, units, count in series:
        if units == 1:
            part = pl.DataFrame({"idx": np.arange(count), "value": _values(store, run, name, count)})
            part = part.select(
                pl.lit(run).alias("run_id"), pl.lit(name).alias("name"), "idx", "value", unit=pl.lit(unit)
            )
        else:
            rows = store.rows(_EACH, (run, name))
            part = pl.DataFrame([(run, name, *row) for row in rows], schema=schema, orient="row")
        part = part.cast(schema)  # type: ignore[arg-type]
        warm = 0 if _of_single_window(run, name, once) else first.get(run, 0)
        parts.append(part.with_columns((pl.col("idx") < warm).alias("dropped")))
    return pl.concat(parts, rechunk=False)


def _of_single_window(run: int, name: str, once: set[tuple[int, str]]) -> bool:
    """Whether the measurement is of a window (docs/api) that was begun and ended once in the run."""
    window = name if (run, f"{name}.cpu") in once else name.rpartition(".")[0]
    return {(run, name), (run, window), (run, f"{window}.cpu"), (run, f"{window}.faults")} <= once


def _values(store: Source, run: int, name: str, count: int) -> np.ndarray[Any, Any]:
    """All values of one name in a run, as an array: rows of Python objects would take ten times the memory."""
    query = "SELECT value FROM measurement WHERE run = ? AND name = ? ORDER BY idx"
    values = (value for rows in store.batches(query, (run, name)) for (value,) in rows)
    return np.fromiter(values, dtype=np.float64, count=count)


def conditions(store: Source) -> pl.DataFrame:
    """One row per condition: ``index, condition, workload, policy, baseline, parameters, factors, metric, left_out``.

    ``parameters`` and ``factors`` are JSON objects (docs/architecture/contracts.md: factors); ``metric`` is the primary
    metric of the workload; ``left_out`` the reason why the condition was not run.
    """
    plan = {condition.index: condition for condition in store.plan().conditions}
    schema = {
        "index": pl.Int64,
        "condition": pl.String,
        "workload": pl.String,
        "policy": pl.String,
        "baseline": pl.Boolean,
        "parameters": pl.String,
        "factors": pl.String,
        "metric": pl.String,
        "left_out": pl.String,
    }
    rows = [
        (
            *(index, name, workload, policy, bool(baseline), parameters),
            *(json.dumps(plan[index].factors), plan[index].metric, left_out),
        )
        for index, name, workload, policy, baseline, parameters, left_out in store.rows(
            "SELECT id, name, workload, policy, baseline, parameters, left_out FROM condition ORDER BY id"
        )
    ]
    return pl.DataFrame(rows, schema=schema, orient="row")


def warnings(store: Source) -> pl.DataFrame:
    """One row per warning: ``run_id`` (null: of the study), ``condition, kind, severity, message, data`` (JSON).

    A warning about the machine is in every record; here it is one row without a run.
    """
    schema = dict.fromkeys(("condition", "kind", "severity", "message", "data"), pl.String)
    rows: list[tuple[Any, ...]] = [
        (None, None, w.kind, w.severity, w.message, json.dumps(w.data)) for w in store.study_warnings()
    ]
    query = (
        "SELECT run.id, condition.name, json_remove(record_json, '$.measurements')"
        " FROM run JOIN condition ON condition.id = run.condition"
    )
    of_machine: dict[tuple[str, str], tuple[Any, ...]] = {}
    of_runs = []
    for run, condition, text in store.rows(query + " WHERE record_json IS NOT NULL ORDER BY position"):
        for warning in json.loads(text).get("warnings", []):
            said = (warning["kind"], warning["severity"], warning["message"], json.dumps(warning["data"]))
            if about_the_machine(warning["data"]):
                of_machine.setdefault((warning["kind"], warning["message"]), (None, None, *said))
            else:
                of_runs.append((run, condition, *said))
    rows += [*of_machine.values(), *of_runs]
    for run, condition, phase, command, message, output in store.rows(_FAILED_STEPS):
        output_json = json.dumps({"output": output})
        failed = f"{phase}: {command}: {message}"
        rows.append((run, condition, WarningKind.STEP_FAILED, "serious", failed, output_json))
    return pl.DataFrame(rows, schema={"run_id": pl.Int64, **schema}, orient="row")


def steps(store: Source) -> pl.DataFrame:
    """One row per set-up or tear-down command; ``run_id`` is null for those of a whole session."""
    schema = {
        "session": pl.Int64,
        "run_id": pl.Int64,
        "phase": pl.String,
        "command": pl.String,
        "exit_code": pl.Int64,
        "duration_s": pl.Float64,
        "output": pl.String,
        "message": pl.String,
    }
    query = "SELECT session, run, phase, command, exit_code, duration_s, output, message FROM step ORDER BY id"
    rows = store.rows(query)
    return pl.DataFrame(rows, schema=schema, orient="row")


def metric(store: Source, name: str) -> pl.DataFrame:
    """``run_id, value`` for a column of :func:`runs`, ``counter.<name>``, or ``measure.<name>``.

    The unit of analysis is the execution: repeated measurements inside one are averaged (arithmetic mean), without the
    first ones that ``drop_first`` drops.
    Runs that do not have the metric are absent.
    """
    if name.startswith("measure."):
        frame = measurements(store).filter((pl.col("name") == name.removeprefix("measure.")) & ~pl.col("dropped"))
        return frame.group_by("run_id", maintain_order=True).agg(pl.col("value").mean())
    frame = runs(store)
    if name not in frame.columns:
        return pl.DataFrame(schema={"run_id": pl.Int64, "value": pl.Float64})
    return frame.select("run_id", pl.col(name).cast(pl.Float64).alias("value")).drop_nulls()
