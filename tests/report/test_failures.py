"""Executions without a time: failed ones are counted, timed-out ones count as slowest."""

from __future__ import annotations

from pathlib import Path

import factory
from factory import Run, separated, study

from pagelab.stats import rank_sum
from pagelab.study.plan import Condition
from pagelab.study.schedule import Slot


def test_failed_executions_are_counted_and_have_no_time(tmp_path: Path) -> None:
    def fail(condition: Condition, slot: Slot, run: Run) -> Run:
        if condition.policy == "b" and slot.execution < 2:
            run.status, run.wall_s = ("timed-out" if slot.execution else "signalled"), 99.0
        return run

    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 8), separated(8, 1.0, 2.0), fail)
    b = found.condition("w/b")
    assert (b.finished, b.analysed, b.failures) == (8, 6, {"signalled": 1, "timed-out": 1})
    summary = found.summary("w/b", "wall_s")
    assert summary is not None
    assert summary.n == 6
    assert summary.maximum < 2
    assert [(f.status, f.message) for f in found.failures] == [
        ("signalled", "ended by signal 11"),
        ("timed-out", "stopped after 60 s"),
    ]
    assert any(c.startswith("1 execution ended without a time to analyse (1 of 8 in w/b)") for c in found.caveats)
    assert any(c.startswith("1 execution timed out (1 of 8 in w/b): the tests count them") for c in found.caveats)


def test_timed_out_executions_are_the_slowest_in_the_test_and_absent_from_the_sizes(tmp_path: Path) -> None:
    """Leaving them out would flatter the policy that is too slow to finish."""

    def stop(condition: Condition, slot: Slot, run: Run) -> Run:
        if condition.policy == "b" and slot.execution >= 4:
            run.status, run.wall_s = "timed-out", 60.0
        return run

    values = [1.0 + i / 100 for i in range(8)]
    times = {"w/a": values, "w/b": [v + 0.001 for v in values]}
    found = study(tmp_path / "late", factory.plan(["w"], ["a", "b"], 8), times, stop)
    (contrast,) = found.planned()
    everything = rank_sum([*times["w/b"][:4], 60, 60, 60, 60], values)
    assert contrast.p == everything.p
    assert contrast.w == everything.w
    assert (contrast.n, contrast.timed_out, contrast.timed_out_baseline) == (4, 4, 0)
    assert (contrast.shift or 0) < 0, "of those that finished"
    assert (
        "Timed-out executions (4 of b) count as slowest in the test and have no part in the sizes" in contrast.sentence
    )


def test_no_size_is_given_where_those_that_finished_point_the_other_way(tmp_path: Path) -> None:
    """Of 20 executions 14 never ended; the 6 that did were fast: slower, by nobody knows how much."""

    def stop(condition: Condition, slot: Slot, run: Run) -> Run:
        if condition.policy == "b" and slot.execution >= 6:
            run.status = "timed-out"
        return run

    values = [1.0 + i / 100 for i in range(20)]
    times = {"w/a": values, "w/b": [v - 0.4 for v in values]}
    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 20), times, stop)
    (contrast,) = found.planned()
    assert (contrast.verdict, (contrast.shift or 0) < 0) == ("higher", True)
    assert "the size of the difference cannot be estimated from the executions that finished" in contrast.sentence
    assert "%" not in contrast.sentence
    assert "14 of b" in contrast.sentence
