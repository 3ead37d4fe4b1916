"""Data that statistics of non-determinism can hardly be made of: a right answer or a typed refusal, never a NaN."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nondeterministic
import numpy as np
import polars as pl
import pytest
from factory import Run, data_of
from nondeterministic import part_of

from pagelab.analysis import Analysis, analyse
from pagelab.report import write_report
from pagelab.report.figures import figures_of
from pagelab.report.nondeterminism import tables
from pagelab.stats import nondeterminism as nd
from pagelab.study.plan import Condition
from pagelab.study.schedule import Slot

MEAN, _, EVERYTHING, BETWEEN = (metric.value for metric in nd.Metric)


def bad(tmp_path: Path, **more: Any) -> Analysis:
    study = nondeterministic.repeated(tmp_path / "s", ("fft-half", "lu-half"), **{"measurements": 5, **more})
    written = write_report(data_of(study), tmp_path / "report", ("html", "data"))
    json.loads((tmp_path / "report" / "analysis.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    for value in _floats(dataclasses.asdict(part_of(written.analysis))):
        assert math.isfinite(value)
    return written.analysis


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _floats(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _floats(inner)


def numbers(found: Analysis, condition: str = "default", group: str = "fft-half") -> dict[str, Any]:
    one = part_of(found).experiment(group, condition)
    assert one is not None
    return one.numbers


def test_one_execution_is_refused_with_what_to_add(tmp_path: Path) -> None:
    found = bad(tmp_path, executions=1)
    assert {n.refusal for n in numbers(found).values()} == {"one-execution"}
    assert "run at least 2 more (better 10 in all)" in tables.refusals(found)[0]
    assert next(g for g in found.warnings if g.kind == "statistic-refused").severity == "warning"


def test_one_measurement_keeps_the_mean_and_the_spread_of_everything(tmp_path: Path) -> None:
    found = bad(tmp_path, measurements=1)
    assert [n.refusal for n in numbers(found).values()] == [None, "one-measurement", None, "one-measurement"]
    assert not [g for g in found.warnings if g.kind == "statistic-refused"]


def test_zero_variance_is_a_right_answer_but_for_the_impact_factor(tmp_path: Path) -> None:
    def constant(run: Run, *_: Any) -> Run:
        run.measurements = [5.0] * 5
        return run

    found = bad(tmp_path, change=constant)
    assert (numbers(found)[MEAN].value, numbers(found)[MEAN].low) == (5.0, 5.0)
    assert numbers(found)[EVERYTHING].value == 0
    assert numbers(found)[BETWEEN].refusal == "no-spread-within"
    assert any("use a finer clock" in text for text in tables.refusals(found))
    family = part_of(found).families[0]
    assert "no group has it" in (family.ranking(BETWEEN) or pytest.fail("none")).reason


def test_missing_runs_leave_their_group_out_of_the_ranks(tmp_path: Path) -> None:
    def missing(run: Run, condition: Condition, slot: Slot) -> Run | None:
        if condition.name == "fft-half/bin-hopping":
            return None
        if condition.name == "lu-half/default" and slot.execution < 3:
            run.status = "failed"
        return run

    found = bad(tmp_path, change=missing)
    mean = part_of(found).families[0].ranking(MEAN)
    assert mean is not None
    assert mean.left_out == {"fft-half": "no bin-hopping"}
    assert (part_of(found).experiment("lu-half", "default") or pytest.fail("none")).left_out == (
        "3 of 12 executions did not end well",
    )
    assert "fft-half (no bin-hopping)" in " ".join(tables.balance_sentences(found))


def test_executions_of_different_lengths_are_answered_and_said_to_be(tmp_path: Path) -> None:
    def ragged(run: Run, _: Condition, slot: Slot) -> Run:
        run.measurements = run.measurements[: 5 + slot.execution]
        return run

    found = bad(tmp_path, measurements=20, change=ragged)
    one = part_of(found).experiment("fft-half", "default")
    assert one is not None
    assert (one.fewest, one.most) == (5, 16)
    assert "unbalanced" in {doubt.doubt for doubt in one.doubts}


@pytest.mark.parametrize("value", [-3.0, 0.0])
def test_times_that_cannot_be_are_refused_by_place(tmp_path: Path, value: float) -> None:
    def broken(run: Run, condition: Condition, slot: Slot) -> Run:
        if condition.name == "fft-half/default" and slot.execution == 3:
            run.measurements[2] = value
        return run

    found = bad(tmp_path, change=broken)
    part = part_of(found)
    assert f"execution 3, measurement 2 is {value}" in part.refused["fft-half/default"]
    assert part.experiment("fft-half", "default") is None
    assert numbers(found, "page-coloring")[MEAN].value
    assert "spreads need positive values; if it is a time: check the clock" in next(
        g.message for g in found.warnings if g.kind == "statistic-refused"
    )


def test_nan_in_the_output_is_left_out_and_counted(tmp_path: Path) -> None:
    """The launcher stores no such value and warns (measurement-unparsed); a store from elsewhere may hold one."""
    data = data_of(nondeterministic.repeated(tmp_path / "s", ("fft-half", "lu-half"), measurements=5))
    mine = data.runs.filter(pl.col("condition") == "fft-half/default")["run_id"].to_list()[2:4]
    broken = pl.col("run_id").is_in(mine) & (pl.col("idx") == 1)
    spoilt = data.measurements.with_columns(value=pl.when(broken).then(float("nan")).otherwise(pl.col("value")))
    part = part_of(analyse(dataclasses.replace(data, measurements=spoilt)))
    one = part.experiment("fft-half", "default")
    assert one is not None
    assert one.left_out == ("2 of 60 values are not finite numbers",)
    assert (one.measurements, one.fewest) == (58, 4)
    assert all(math.isfinite(value) for value in _floats(dataclasses.asdict(part)))


def test_a_million_measurements_in_an_execution(tmp_path: Path) -> None:
    """The store is bypassed: it is the analysis and the plot that must bear them."""
    data = data_of(nondeterministic.repeated(tmp_path / "s", ("fft-half",), executions=3, measurements=3))
    run = data.runs.filter(pl.col("condition") == "fft-half/default")["run_id"][0]
    count = 1_000_000
    many = pl.DataFrame(
        {
            "run_id": [run] * count, "name": ["latency"] * count, "idx": range(count),
            "value": np.random.default_rng(1).normal(1e6, 1e4, count), "unit": ["ns"] * count,
            "dropped": [False] * count,
        },
        schema=data.measurements.schema,
    )  # fmt: skip
    kept = data.measurements.filter(pl.col("run_id") != run)
    found = analyse(dataclasses.replace(data, measurements=pl.concat([kept, many])))
    part = part_of(found)
    one = part.experiment("fft-half", "default")
    assert one is not None
    assert one.most == count
    assert one.numbers[MEAN].value == pytest.approx(1e6, rel=0.2)
    (trace,) = part.traces
    assert sum(len(e.values) for e in trace.executions["default"]) < 2100
    figure = next(f for f in figures_of(found) if f.section == "traces")
    assert f"One in {trace.step} measurements is drawn" in figure.caption
