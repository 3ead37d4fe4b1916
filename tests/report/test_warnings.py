"""Warnings on their way from records to the page: kept whole, grouped, said once."""

from __future__ import annotations

from pathlib import Path

import factory
import polars as pl
import pytest
from factory import Run, separated, study

from pagelab.cli.study import _show_status
from pagelab.record import WarningKind
from pagelab.study.plan import Condition
from pagelab.study.schedule import Slot
from pagelab.study.status import status_of
from pagelab.study.store import Store


def test_what_is_true_of_the_machine_is_said_once(tmp_path: Path) -> None:
    """Regression: a demo without hardware counters said so 374 times."""

    def warn(_condition: Condition, _slot: Slot, run: Run) -> Run:
        run.warnings = [
            factory.warning(WarningKind.COUNTER_UNAVAILABLE, "no hardware counters", "info", scope="machine"),
            factory.warning(WarningKind.COUNTER_UNAVAILABLE, "cycles refused"),
        ]
        return run

    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 8), separated(8, 1.0, 2.0), warn)
    refused, missing = factory.recorded(found)
    assert (refused.severity, refused.count, refused.executions) == ("warning", 16, 16)
    assert (missing.severity, missing.count, missing.executions, missing.conditions) == ("info", 1, 0, ())
    with Store.open(tmp_path, write=False) as store:
        frame = store.warnings().filter(pl.col("severity") == "info")
        assert frame.select("run_id", "condition").rows() == [(None, None)]
        assert set(store.runs()["warnings"]) == {1}
    assert status_of(tmp_path).warnings == {"counter-unavailable": 17}


def test_warnings_keep_their_type_and_are_grouped(tmp_path: Path) -> None:
    def warn(_condition: Condition, slot: Slot, run: Run) -> Run:
        run.warnings = [factory.warning(WarningKind.COUNTER_MULTIPLEXED, f"ran {slot.execution}% of the time")]
        if slot.position == 3:
            run.warnings.append(factory.warning(WarningKind.SETTING_NOT_RESTORED, "read_ahead_kb", "serious", now=0))
        return run

    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 8), separated(8, 1.0, 2.0), warn)
    first, second = factory.recorded(found)
    assert (first.severity, first.kind, first.count) == ("serious", "setting-not-restored", 1)
    assert first.objects == (
        {"kind": "setting-not-restored", "severity": "serious", "message": "read_ahead_kb", "data": {"now": 0}},
    )
    assert (second.count, second.executions, second.different_messages) == (16, 16, 8)
    assert second.conditions == ("w/a", "w/b")
    assert "1 serious warning (setting-not-restored): see Warnings." in found.caveats


def test_serious_warnings_are_counted_once_a_condition(tmp_path: Path) -> None:
    """262 executions that all say the same are one thing to know of each condition, not 262."""

    def warn(condition: Condition, _slot: Slot, run: Run) -> Run:
        run.warnings = [factory.warning(WarningKind.PLACEMENT_SHORTFALL, "fewer tiles", "serious")]
        if condition.policy == "b":
            run.warnings.append(factory.warning(WarningKind.GUEST_DISABLED, "no room", "serious"))
        return run

    times = separated(8, 1.0, 2.0)
    times |= {"v/a": times["w/a"], "v/b": times["w/b"]}
    found = study(tmp_path, factory.plan(["v", "w"], ["a", "b"], 8), times, warn)
    disabled, short = factory.recorded(found)
    assert (disabled.count, short.count) == (16, 32), "the list of warnings has all of them"
    assert "2 serious warnings (guest-disabled): see Warnings." in found.caveats
    (told,) = (one for one in found.caveats if "fewer pages" in one)
    where = "(v/a, v/b, w/a and w/b, in all executions)"
    assert told.startswith(f"4 conditions got fewer pages of the asked size than the policy names {where}")


def test_status_shows_the_medians_of_the_report_not_what_pagelab_added(tmp_path: Path) -> None:
    """Regression: a policy that needs more set-up looked slower in the status than in the report."""
    plan = factory.plan(["w"], ["a", "b"], 3, warmups=1)
    factory.store(tmp_path, plan, lambda c, s: Run(wall_s=(9.0 if s.warmup else 0.5 + 0.25 * c.index)))
    status = status_of(tmp_path)
    assert [(one.metric, one.median) for one in status.conditions] == [("wall_s", 0.5), ("wall_s", 0.75)]


def test_status_prints_the_metric_with_its_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    factory.store(tmp_path, factory.plan(["w"], ["a", "b"], 3), lambda *_: Run(wall_s=0.125))
    _show_status(status_of(tmp_path), tmp_path)
    shown = capsys.readouterr().out
    assert "median wall_s" in shown
    assert "0.125 s" in shown
