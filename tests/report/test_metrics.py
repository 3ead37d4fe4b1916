"""What a study can be judged by, and what it is called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import factory
import polars as pl
import pytest
from factory import Run, data_of

from pagelab.analysis.metrics import metric_named, metrics_of, windows_of
from pagelab.analysis.wording import in_common

WINDOW = {"work": "s", "work.cpu": "s", "work.user": "s", "work.system": "s", "work.thread": "s", "work.faults": ""}


def test_times_inside_a_window_are_times(tmp_path: Path) -> None:
    """So that less of them is faster; what a program reports of itself is higher or lower."""
    data = data_of(factory.store(tmp_path / "study", factory.plan(["w"], ["a", "b"], 2), lambda _c, _s: Run()))
    rows = [(1, name, 0, 1.0, unit, False) for name, unit in [*WINDOW.items(), ("op", "ms")]]
    data = replace(data, measurements=pl.DataFrame(rows, schema=data.measurements.schema, orient="row"))
    found = {m.name.removeprefix("measure."): m for m in metrics_of(data) if m.name.startswith("measure.")}
    assert {name: m.kind for name, m in found.items()} == {
        **dict.fromkeys(("work", "work.cpu", "work.user", "work.system", "work.thread"), "time"),
        "work.faults": "measurement",
        "op": "measurement",
    }
    assert found["work.cpu"].label == "CPU time of work"
    assert found["work"].label == "time of work"


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["wall_s", "wall_s"], "wall time"),
        (["wall_s", "cpu_s"], "time"),
        (["cpu_s", "peak_rss_bytes"], "the primary metric"),
    ],
)
def test_several_programs_metrics_have_one_name(names: list[str], shown: str) -> None:
    assert in_common([metric_named(name) for name in names]) == shown


@pytest.mark.parametrize(
    ("names", "windows"),
    [(["a", "a.cpu"], set()), ([*WINDOW, "work.cpu.cpu"], {"work"}), (["op"], set()), ([], set())],
)
def test_a_window_has_all_of_its_times(names: list[str], windows: set[str]) -> None:
    assert windows_of(names) == windows
