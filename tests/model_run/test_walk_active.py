"""Cycles with a walk active: asked for only where the processor has the event."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from playing import Machine
from test_model_run import asked

from pagelab import paths
from pagelab.model_run.executions import ACTIVE, TRIAL, trial_records
from pagelab.model_run.run import session_of, try_it
from pagelab.study.launching import has_event, local_tools
from pagelab.study.progress import Silent


@pytest.mark.needs_page_sizes
def test_a_trial_runs_with_the_launcher_of_this_machine(trace: Path, tmp_path: Path) -> None:
    """Regression: it asked for an event that the launcher refuses on each processor without one for it."""
    command = (str(paths.workload()), "gups", "--bytes", "32M")
    session = session_of(asked(trace, argv=command, counts="auto"), tmp_path, local_tools(), Silent())
    try_it(session)
    assert session.campaign.trial is not None
    assert set(trial_records(tmp_path / TRIAL)) == {"4K", "2M"}


def test_the_launcher_tells_its_events() -> None:
    command = [str(paths.launcher()), "--counters"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in (ACTIVE, "tlb.walks"):
        assert has_event(name) == (f'"role": "{name}"' in told)
    assert not has_event("tlb.no_such_event")


@pytest.mark.parametrize("missing", [["tlb.walks", ACTIVE], [ACTIVE]])
def test_why_counts_are_simulated_is_told(missing: list[str], trace: Path, tmp_path: Path) -> None:
    """Regression: a warning of all missing events was dropped, because it named this one, too."""
    warning = {
        "kind": "counter-unavailable", "severity": "info", "data": {"counters": missing},
        "message": f"this machine shows no hardware counters: {', '.join(missing)} not counted",
    }  # fmt: skip
    machine = Machine(trace, counts=False, active=True, wrong={"none": {"warnings": [warning]}})
    session = session_of(asked(trace, counts="auto"), tmp_path, machine.tools(), Silent())
    try_it(session)
    assert session.campaign.trial is not None
    assert ("this machine shows no hardware counters" in session.campaign.trial.counts_why) == (missing != [ACTIVE])
