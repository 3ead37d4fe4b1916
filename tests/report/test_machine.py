"""What an analysis says of the machine: what it is, and what about it changed."""

from __future__ import annotations

from pathlib import Path

import factory
import pytest
from factory import Run, separated, study

from pagelab.analysis import analyse
from pagelab.analysis.machine import drift_of, unbacked_of
from pagelab.study.host_backing import largest_page
from pagelab.study.plan import Condition
from pagelab.study.schedule import Slot


def test_a_reboot_or_a_new_kernel_within_the_study_is_flagged(tmp_path: Path) -> None:
    def upgrade(_condition: Condition, slot: Slot, run: Run) -> Run:
        if slot.block >= 5:
            run.provenance = factory.PROVENANCE | {"kernel": {"release": "6.13.0"}, "time": f"later {slot.position}"}
        return run

    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 8), separated(8, 1.0, 2.0), upgrade)
    changed = {d.key: d for d in found.machine.differences}
    assert set(changed) == {"provenance.kernel.release", "provenance.kernel.architecture"}
    assert changed["provenance.kernel.release"].values == (("6.12.0", 10), ("6.13.0", 6))
    assert changed["provenance.kernel.architecture"].executions_without == 6
    assert any("The machine was not the same throughout" in c for c in found.caveats)


@pytest.mark.parametrize("by_design", [True, False])
def test_settings_that_conditions_vary_on_purpose_are_no_change_of_the_machine(by_design: bool, tmp_path: Path) -> None:
    def switch(condition: Condition, slot: Slot, run: Run) -> Run:
        run.aslr = condition.policy == "a" if by_design else slot.block < 4
        return run

    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 8), separated(8, 1.0, 2.0), switch)
    changed = {d.key for d in found.machine.differences}
    assert changed == (set() if by_design else {"settings.aslr"})


def test_records_without_machine_are_said_to_have_none(tmp_path: Path) -> None:
    def strip(_condition: Condition, _slot: Slot, run: Run) -> Run:
        run.machine = run.provenance = None
        return run

    found = study(tmp_path, factory.plan(["w"], ["a", "b"], 6), separated(6, 1.0, 2.0), strip)
    assert not found.machine.known
    assert "Nothing is known of the machine: the runs carry no description of it." in found.caveats


def test_a_trend_from_0_has_no_percentage() -> None:
    """Regression: counts of 0 in the first third of the schedule were a division by zero."""
    found = drift_of([(i, float(i >= 5)) for i in range(12)])
    assert (found.first_third, found.last_third) == (0, 1)
    assert "executions went, at the median, from 0 to 1.0 times the median of their condition (" in found.sentence
    assert "became 50.0% slower at the median" in drift_of([(i, 1.0 + 0.5 * (i > 5)) for i in range(12)]).sentence


def on_reporting_host(
    directory: Path, policies: list[str], *, backed_from: int, reports: bool = True, metric: str = "wall_s"
) -> str | None:
    """The caveat of a study of six executions each, whose executions from ``backed_from`` on were backed."""

    def run(_condition: Condition, slot: Slot) -> Run:
        machine = factory.MACHINE | {"free_page_reporting": reports}
        backed = 384 << 20 if slot.execution >= backed_from else None
        return Run(wall_s=1 + 0.001 * slot.position, machine=machine, host_backed_bytes=backed)

    data = factory.data_of(factory.store(directory, factory.plan(["w"], policies, 6, metric=metric), run))
    told = unbacked_of(data)
    assert told is None or told in analyse(data).caveats
    return told


def test_memory_that_the_host_took_back_and_nobody_backed_is_told(tmp_path: Path) -> None:
    told = on_reporting_host(tmp_path, ["4K", "2M"], backed_from=6)
    assert told is not None
    assert "before 12 of 12 executions it was not backed again" in told
    # A quarter and 64 MiB more than the largest program, as studies touch by themselves.
    assert told.endswith('host_backed = "384M" in study.toml.')


@pytest.mark.parametrize("policies", [["kernel", "2M"], ["2M", "1G"]])
def test_more_than_half_unbacked_is_told(policies: list[str], tmp_path: Path) -> None:
    told = on_reporting_host(tmp_path, policies, backed_from=4)
    assert told is not None
    assert "before 8 of 12 executions" in told


@pytest.mark.parametrize(
    ("policies", "backed_from", "reports", "metric"),
    [
        (["4K", "2M"], 1, True, "wall_s"),  # the first of a study has nothing before it
        (["4K", "2M"], 3, True, "wall_s"),  # half
        (["4K", "64K"], 6, True, "wall_s"),
        (["4K", "2M"], 6, False, "wall_s"),
        (["4K", "2M"], 6, True, "measure.latency"),
        (["4K", "2M"], 6, True, "minor_faults"),
    ],
)
def test_memory_of_the_host_is_no_caveat(
    policies: list[str], backed_from: int, reports: bool, metric: str, tmp_path: Path
) -> None:
    assert on_reporting_host(tmp_path, policies, backed_from=backed_from, reports=reports, metric=metric) is None


def test_the_largest_page_of_rules_and_mosaics_counts() -> None:
    mosaic = 'pages = { mosaic = [["0", "64M", "2M"], ["64M", "128M", "64K"]], otherwise = "4K" }'
    rule = 'pages = "4K"\n[[rule]]\nmemory = ["heap"]\npages = "1G"'
    found = [largest_page(text) for text in ("", 'pages = "64K"', mosaic, rule, "not a policy")]
    assert found == [0, 64 << 10, 2 << 20, 1 << 30, 0]
