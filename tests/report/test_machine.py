"""What an analysis says of the machine: what it is, and what about it changed."""

from __future__ import annotations

from pathlib import Path

import factory
import pytest
from factory import Run, separated, study

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
