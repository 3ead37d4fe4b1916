"""Campaigns whose executions are not all alike: what changed is told or left out, and never fitted in silence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playing import Machine, Notes, linear
from test_model_run import asked, campaign

from pagelab.errors import BadInputError, MachineError
from pagelab.model_run.answer import probed
from pagelab.model_run.executions import Execution
from pagelab.model_run.points import machine_moved
from pagelab.model_run.run import kernels_share, run
from pagelab.models.answer import report_of
from pagelab.models.document import ModelFile, read

pytestmark = pytest.mark.usefixtures("few_repeats")


@pytest.fixture
def few_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagelab.model_run.planning._MOST_REPEATS", 3)
    monkeypatch.setattr("pagelab.model_run.executions._CLOCK", """echo '{"cycle_ns": 1.0}'""")


def reported(file: ModelFile) -> dict[str, str]:
    """Warnings of ``pagelab model report``, by kind."""
    assert file.fits is not None
    return {one.kind: one.message for one in report_of(file, file.fits).warnings}


def probes_alternate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: dict[str, float], second: dict[str, float]
) -> None:
    """The chains beside the executions find these two by turns."""
    script = tmp_path / "clock.sh"
    script.write_text(
        'n=$(cat "$0.n" 2>/dev/null || echo 0)\necho $((n + 1)) > "$0.n"\n'
        f"[ $((n % 2)) = 0 ] && echo '{json.dumps(first)}' || echo '{json.dumps(second)}'\n"
    )
    monkeypatch.setattr("pagelab.model_run.executions._CLOCK", f"sh {script}")


@pytest.mark.by_turns(4)
def test_a_clock_that_changes_meanwhile_is_told(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other execution finds a clock that is slower by a tenth."""
    probes_alternate(tmp_path, monkeypatch, {"cycle_ns": 1.0}, {"cycle_ns": 1.1})
    found, file = campaign(tmp_path, Machine(trace), asked(trace, select="random"))
    told = {one.kind: one.message for one in found.told}
    assert "a cycle took 1.000 to 1.100 ns" in told["clock-changed"]
    assert reported(file)["clock-changed"] == told["clock-changed"]


@pytest.mark.by_turns(4)
def test_a_memory_that_is_not_equally_fast_is_told(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other execution finds loads that take half as long again; what both take is in the model's file."""
    fast, slow = ({"cycle_ns": 1.0, "memory_ns": memory} for memory in (100, 150))
    probes_alternate(tmp_path, monkeypatch, fast, slow)
    found, file = campaign(tmp_path, Machine(trace), asked(trace, select="random"))
    told = {one.kind: one.message for one in found.told}
    assert "a load took 100 to 150 ns" in told["memory-changed"]
    assert "clock-changed" not in told
    assert reported(file)["memory-changed"] == told["memory-changed"]
    assert file.campaign is not None
    assert file.campaign.memory_ns is not None
    assert 100 <= file.campaign.memory_ns <= 150
    assert probed(file)[0].startswith("timed beside every execution: a cycle 1.000 ns, a load from memory 1")


def test_the_machine_is_told_by_both_chains_on_their_own_limits() -> None:
    """A clock may move by 2% and a load by 25% without a word; counted cycles do not depend on the clock."""
    usual = Execution("4K", 0, 0, "ok", "", 1.0, 0.0, {}, 1.0, 100.0, False, 0, 1.0)

    def kinds(cycle_ns: float, memory_ns: float | None, *, counted: bool = False) -> set[str]:
        other = replace(usual, cycle_ns=cycle_ns, memory_ns=memory_ns)
        return {one.kind for one in machine_moved([[usual, other] * 5], counted=counted)}

    assert kinds(1.019, 124.0) == set()
    assert kinds(1.03, 124.0) == {"clock-changed"}
    assert kinds(1.0, 126.0) == {"memory-changed"}
    assert kinds(1.03, 126.0, counted=True) == {"memory-changed"}
    assert kinds(1.0, None) == set()
    assert machine_moved([[]], counted=False) == []
    slower = replace(usual, cycle_ns=1.1)
    (in_cycles,), (in_seconds,) = (
        machine_moved([[usual, slower] * 5], counted=False, in_cycles=cycles) for cycles in (True, False)
    )
    assert "R is in cycles of 1.050 ns" in in_cycles.message
    assert "R is in seconds and follows it" in in_seconds.message


@pytest.mark.by_turns(4)
def test_a_clock_that_stays_is_not_told(trace: Path, tmp_path: Path) -> None:
    found, _ = campaign(tmp_path, Machine(trace, noise=0.001), asked(trace, select="random"))
    assert {one.kind for one in found.told} & {
        "clock-changed",
        "memory-changed",
        "rounds-apart",
        "machine-changed",
    } == set()


@pytest.mark.by_turns(4)
def test_rounds_that_ran_on_a_slower_machine_are_told(trace: Path, tmp_path: Path) -> None:
    """A migration in the middle: what runs after the first round takes half as long again."""
    machine = Machine(trace, noise=0.001)
    first_round = 2 + 9 + 60
    machine.rule = lambda counts: linear(counts) * (1.5 if machine.runs > first_round else 1.0)
    found, _ = campaign(tmp_path, machine, asked(trace, select="adaptive", aim=0.0001))
    assert len(found.rounds) > 1
    assert "rounds-apart" in {one.kind for one in found.told}


@pytest.mark.by_turns(4)
def test_another_kernel_in_the_second_session_is_told(trace: Path, tmp_path: Path) -> None:
    wanted = asked(trace, select="random")

    def on(release: str) -> Any:
        machine = {"machine": {}, "provenance": {"host": "here", "kernel": {"release": release}}}
        return replace(Machine(trace).tools(), machine=lambda: machine)

    run(wanted, tmp_path / "gups.model", on("6.1"), dry_run=True)
    found = run(wanted, tmp_path / "gups.model", on("6.12"))
    told = {one.kind: one.message for one in found.told}
    assert "kernel.release: 6.1 → 6.12" in told["machine-changed"]


def moving(machine: Machine, after: dict[str, Any]) -> Any:
    """Tools of a guest that is another one from the first round on, whatever its name."""
    cpu = {"model_name": "AMD EPYC", "family": 25, "model": 17, "stepping": 1}

    def now() -> dict[str, Any]:
        provenance: dict[str, Any] = {"host": "here", "cpu": cpu, "governor": None}
        return {"machine": {}, "provenance": {**provenance, **(after if machine.runs > 2 + 20 else {})}}

    return replace(machine.tools(), machine=now)


def test_a_guest_that_moves_to_another_processor_of_the_same_name_is_refused(trace: Path, tmp_path: Path) -> None:
    other = {"cpu": {"model_name": "AMD EPYC", "family": 26, "model": 2, "stepping": 1}}
    with pytest.raises(MachineError, match=r"began on another machine \(cpu.family: 25 → 26; cpu.model: 17 → 2\)"):
        run(asked(trace, select="random"), tmp_path / "gups.model", moving(Machine(trace), other))
    assert not (tmp_path / "gups.model/model.json").exists()


@pytest.mark.by_turns(4)
def test_a_setting_that_changes_during_a_round_is_told_in_the_report(trace: Path, tmp_path: Path) -> None:
    run(asked(trace, select="random"), tmp_path / "gups.model", moving(Machine(trace), {"governor": "powersave"}))
    assert "governor: None → powersave" in reported(read(tmp_path / "gups.model"))["machine-changed"]


SHORT = {"warnings": [{"kind": "placement-shortfall", "severity": "warning", "message": "short", "data": {}}]}


@pytest.mark.parametrize(
    ("tiles", "message"),
    [
        (24, r"too few for a model; left out: .*did not get the pages of the layout"),
        (25, r"the layout of 2M pages alone got 0 of 0 tiles in 10 of 10 executions of the pilot"),
    ],
)
def test_layouts_that_never_get_their_pages_are_not_fitted(
    tiles: int, message: str, trace: Path, tmp_path: Path
) -> None:
    """Mixtures alone, or everything but 4K: the trace has 24 tiles."""
    with pytest.raises(BadInputError, match=message):
        campaign(tmp_path, Machine(trace, tiles=tiles, wrong={"some": SHORT}), asked(trace, select="random"))


def test_an_anchor_that_is_short_is_refused_after_the_pilot(trace: Path, tmp_path: Path) -> None:
    """Regression: CPython splits one of nine tiles in every execution; 352 executions ran before that was refused."""

    def split(number: int) -> dict[str, Any]:
        got = 7 + number % 2
        placement = {"by_size": [], "whole_touched_tiles": 9, "tiles_as_asked": got, "placed_fraction": got / 9}
        return {**SHORT, "placement": placement}

    machine, notes = Machine(trace, wrong={"some": split, "all": split}), Notes()
    with pytest.raises(BadInputError) as told:
        run(asked(trace, select="random"), tmp_path / "gups.model", machine.tools(), notes)
    assert machine.runs == 2 + 20
    message = str(told.value)
    assert message.startswith("the layout of 2M pages alone got 7 to 8 of 9 tiles in 10 of 10 executions of the pilot")
    assert "splits a tile if it forks" in message
    assert f"pagelab study status {tmp_path / 'gups.model/pilot'}" in message
    assert any("in 2M pages the program got" in one and "of 9 tiles" in one for one in notes.said)


@pytest.mark.by_turns(4)
def test_an_anchor_that_is_short_now_and_then_is_no_reason_to_refuse(trace: Path, tmp_path: Path) -> None:
    """Two executions of the pilot with their pages are as many as a layout needs in a campaign."""
    machine = Machine(trace, wrong={"some": lambda number: SHORT if number < 19 else {}})
    found, _ = campaign(tmp_path, machine, asked(trace, select="random"))
    assert found.stopped == "the plan is done"


@pytest.mark.by_turns(4)
def test_executions_whose_counters_did_not_count_are_left_out_and_listed(trace: Path, tmp_path: Path) -> None:
    """Of mixtures, every third execution lost its counters to somebody else."""

    def lost(number: int) -> dict[str, Any]:
        if number % 3:
            return {}
        values = {"": 0.05, ".cpu": 0.05, ".user": 0.05, ".system": 0.0, ".thread": 0.05}
        values |= {".faults": 0.0, ".major_faults": 0.0}
        return {"measurements": [{"name": f"work{part}", "value": v, "unit": "s"} for part, v in values.items()]}

    machine = Machine(trace, counts=True, noise=0.001, wrong={"some": lost})
    found, file = campaign(tmp_path, machine, asked(trace, counts="measured", select="random"))
    assert {one.why for one in found.excluded} == {"counters did not count"}
    assert "counters did not count; the others count" in reported(file)["left-out"]
    assert file.points().source == "counted"


@pytest.mark.by_turns(4)
def test_counts_that_are_the_same_in_every_layout_are_told_beside_the_models(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counters that count something else: H, M and C do not follow the pages, the time does."""
    machine = Machine(trace, counts=True)
    real = machine.simulated
    monkeypatch.setattr(machine, "simulated", lambda layout: {**real(layout), "h": 5.0})
    machine.rule = lambda counts: 2e7 + 0.8 * counts["c"]
    _, file = campaign(tmp_path, machine, asked(trace, counts="measured", select="random"))
    assert "constant-input" in {one.kind for one in file.points().warnings()}


@pytest.mark.parametrize(
    ("small", "large", "told"),
    [(0.01, 0.0, False), (0.04, 0.035, False), (0.03, 0.005, True), (0.06, 0.06, True), (0.0, 0.05, True)],
)
def test_time_of_the_kernel_in_a_window_is_told(small: float, large: float, told: bool) -> None:
    """Regression: faults in a marked window were taken for translation, without a word."""
    said = kernels_share({"4K": small, "2M": large}, counted=False)
    assert bool(said) == told
    assert not told or f"the kernel had {small:.0%} of the window's processor time in 4K pages and {large:.0%}" in said


@pytest.mark.parametrize("active", [True, False])
def test_cycles_with_a_walk_active_are_kept_beside_c_where_they_are_counted(
    active: bool, trace: Path, tmp_path: Path
) -> None:
    machine = Machine(trace, counts=True, active=active, noise=0.001)
    found, file = campaign(tmp_path, machine, asked(trace, counts="auto", select="random", layouts=8))
    assert found.trial is not None
    assert (found.trial.counts, found.trial.active) == ("counted", active)
    assert file.cycles == "sum"
    for row in file.layouts:
        assert row.extra.get("active_cycles") == (pytest.approx(0.75 * row.c) if active else None)
    spec = (tmp_path / "gups.model" / found.rounds[0].directory / "study.toml").read_text()
    assert ("tlb.walk_active" in spec) == active
