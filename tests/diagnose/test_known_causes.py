"""What is said of programs whose causes are known: a false word here is a false diagnosis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_diagnose import diagnosed, finding, settings, steady, tools

from pagelab.diagnose import allocate, judge
from pagelab.diagnose.run import begin
from pagelab.diagnose.spread import between_values, spread_ratio
from pagelab.errors import BadInputError
from pagelab.record import Record
from pagelab.study.plan import Condition
from pagelab.study.tools import Tools
from study.fakes import FakeRunner, record


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocate, "MOST_BLOCKS", 16)
    monkeypatch.setattr(allocate, "MOST_CONFIRMED", 60)


def in_pools(condition: Condition) -> bool:
    """The library keeps heap and mappings at fixed addresses."""
    return "pages" in condition.request.policy_toml or "frames" in condition.request.policy_toml


@pytest.mark.parametrize("blocks", [15, 40])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_pin_that_multiplies_every_time_changes_no_spread(blocks: int, factor: float) -> None:
    """80 confirmations; 2.5% false ones make more than 7 less likely than 1 in 1,000."""
    random, wrong = np.random.default_rng(blocks), 0
    for trial in range(80):
        rows = random.lognormal(0, 0.05, (2, blocks))
        found = spread_ratio(rows[:1], factor * rows[1:], seed=trial, permutations=499)
        moved = judge.falls(found) or found.log_ratio.estimate > 0
        wrong += found.p <= 0.05 and moved
    assert wrong <= 7


@pytest.mark.by_turns(4)
def test_the_addresses_that_come_with_a_page_size_are_not_the_page_size(tmp_path: Path) -> None:
    """Heap and mappings at fixed addresses make it steady: pages and frames have them too, and are not the cause."""

    def program(condition: Condition, random: np.random.Generator) -> float:
        slow = not in_pools(condition) and random.random() < 0.5
        return float((130 if slow else 100) * random.lognormal(0, 0.003))

    found = diagnosed(tmp_path, program)
    for key in ("pages", "frames-page-coloring", "frames-bin-hopping", "frames-random", "aslr", "environment"):
        assert finding(found, key).verdict in ("undecided", "ruled-out"), key
    assert finding(found, "addresses").verdict == "cause"
    assert found.outcome == "confirmed"
    assert found.confirmation is not None
    assert found.confirmation.recommended == "addresses-fixed"
    assert "page sizes left to the kernel" in finding(found, "pages").against


@pytest.mark.by_turns(4)
def test_aslr_that_is_off_with_an_environment_size_is_not_the_environment(tmp_path: Path) -> None:
    """ASLR off makes it steady, whatever the environment's size is."""

    def program(condition: Condition, random: np.random.Generator) -> float:
        slow = condition.request.aslr is not False and random.random() < 0.5
        return float((130 if slow else 100) * random.lognormal(0, 0.003))

    found = diagnosed(tmp_path, program)
    assert finding(found, "aslr").verdict == "cause"
    environment = finding(found, "environment")
    assert environment.verdict in ("undecided", "ruled-out")
    assert not environment.values_differ
    assert environment.against == "ASLR off, the environment as it is"
    assert found.confirmation is not None
    assert found.confirmation.recommended == "aslr-off"


@pytest.mark.by_turns(4)
def test_a_confirmation_against_the_control_says_so(tmp_path: Path) -> None:
    """Steady with 4K pages, and neither by default nor in the control."""

    def program(condition: Condition, random: np.random.Generator) -> float:
        slow = 'pages = "4K"' not in condition.request.policy_toml and random.random() < 0.5
        return float((130 if slow else 100) * random.lognormal(0, 0.003))

    found = diagnosed(tmp_path, program)
    one = found.confirmation
    assert one is not None
    assert one.recommended == "pages-4K"
    assert [each.name for each in one.contrasts] == ["default", "addresses-fixed"]
    assert all(each.result == "confirmed" for each in one.contrasts)
    assert any(
        told.startswith("it is the cause, not its side effects: against the same library") for told in found.sentences
    )


@pytest.mark.by_turns(4)
def test_causes_that_add_up_are_not_said_to_interact(tmp_path: Path) -> None:
    """Four independent causes of a quarter each: all together remove everything, none alone is seen in 16 blocks."""

    def program(condition: Condition, random: np.random.Generator) -> float:
        pinned = [
            condition.request.aslr is False,
            in_pools(condition),
            bool(condition.request.cpus),
            any("cat" in str(step) and "/dev/null" not in str(step) for step in condition.setup),
        ]
        noise = sum(random.normal(0, 0.05) * (not held) for held in pinned)
        return float(100 * np.exp(noise + random.normal(0, 0.005)))

    found = diagnosed(tmp_path, program)
    assert finding(found, "everything").verdict == "cause"
    told = " ".join(found.interactions)
    assert "interact" not in told
    assert "act together" not in told


def test_the_share_of_drawn_values_is_that_of_the_population() -> None:
    """200 intervals of 5 values, each drawn; below 180 that hold the share is less likely than 1 in 1,000 at 95%."""
    random, held = np.random.default_rng(1), 0
    for trial in range(200):
        levels = 0.05 * random.normal(0, 1, (5, 1))
        rows = 100 * np.exp(levels + 0.05 * random.normal(0, 1, (5, 16)))
        share = between_values(rows, drawn=True, seed=trial, permutations=19).share
        assert share is not None
        held += share.low <= 0.5 <= share.high
    assert held >= 180


@pytest.mark.by_turns(4)
def test_a_confirmation_is_sized_for_the_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spread of 1.2% whose half ASLR makes: the mean needs 15 executions, the spread some 60."""
    monkeypatch.setattr(allocate, "MOST_BLOCKS", 60)
    monkeypatch.setattr(allocate, "MOST_CONFIRMED", 2000)

    def program(condition: Condition, random: np.random.Generator) -> float:
        return float(100 * np.exp(random.normal(0, 0.007 if condition.request.aslr is False else 0.012)))

    few = {"pages", "frames", "cpus", "env", "flush", "setup"}

    def left_out(condition: Condition) -> str | None:
        others = in_pools(condition) or condition.request.cpus or condition.request.env.set or condition.setup
        return f"not needed: {few}" if others or condition.request.flush.mode != "none" else None

    asked = settings(tmp_path).model_copy(update={"unchanged": 0.02})
    found = begin(asked, tmp_path / "d", tools(program, left_out))
    assert found.confirmation is not None
    assert found.confirmation.executions >= 40
    assert found.outcome == "confirmed"


def timing_out(share: float, everything: bool = False) -> Tools:
    """100 ± 2 ms; a share of the executions, by default or under every pin, does not end."""
    random, started = np.random.default_rng(1), 0

    def behave(condition: Condition) -> Record:
        nonlocal started
        started += 1
        late = random.random() < share and started > 60  # not in the pilot, nor in the probe
        if late and (everything or condition.policy.startswith("default")):
            ended = {"status": "timed-out", "exit_code": None, "signal": 9}
            return record(condition, wall_ns=1_000_000_000, outcome=ended)
        return record(condition, wall_ns=int(1e8 * random.lognormal(0, 0.02)))

    machine = {"machine": {"thp_bytes": 2 << 20}, "provenance": {}}
    return Tools(FakeRunner(behave), lambda _: None, lambda: machine)


@pytest.mark.by_turns(4)
def test_executions_that_time_out_now_and_then_leave_a_diagnosis(tmp_path: Path) -> None:
    """1 in 25: in nearly every block one of some 40 conditions does not end. They count with the time they had."""
    asked = settings(tmp_path).model_copy(update={"timeout_s": 1.0, "seed": 3})
    found = begin(asked, tmp_path / "d", timing_out(0.04, everything=True))
    assert found.blocks == 16
    assert found.default_spread.estimate > 0.1
    assert found.caveat is not None
    assert found.caveat.severity == "serious"
    assert "did not end within --timeout 1" in found.caveat.text
    assert not any(one.verdict in ("cause", "part", "adds") for one in found.findings)


@pytest.mark.by_turns(4)
def test_a_default_that_often_times_out_is_refused_with_advice(tmp_path: Path) -> None:
    asked = settings(tmp_path).model_copy(update={"timeout_s": 1.0})
    with pytest.raises(
        BadInputError, match=r"executions by default did not end within --timeout 1.*give them more: --timeout 2"
    ):
        begin(asked, tmp_path / "d", timing_out(0.3))


@pytest.mark.by_turns(4)
def test_a_pin_that_often_times_out_is_left_out_and_not_called_steady(tmp_path: Path) -> None:
    """All executions at the limit have the same time: that is no spread that fell."""
    probed: set[str] = set()
    random = np.random.default_rng(1)

    def behave(condition: Condition) -> Record:
        if condition.policy == "aslr-off" and condition.policy in probed:
            ended = {"status": "timed-out", "exit_code": None, "signal": 9}
            return record(condition, wall_ns=1_000_000_000, outcome=ended)
        probed.add(condition.policy)
        return record(condition, wall_ns=int(1e8 * random.lognormal(0, 0.2)))

    machine = {"machine": {}, "provenance": {}}
    asked = settings(tmp_path).model_copy(update={"timeout_s": 1.0})
    found = begin(asked, tmp_path / "d", Tools(FakeRunner(behave), lambda _: None, lambda: machine))
    aslr = finding(found, "aslr")
    assert aslr.verdict == "left-out"
    assert aslr.reason is not None
    assert "16 of 16 executions did not end within --timeout" in aslr.reason


@pytest.mark.by_turns(4)
def test_a_confirmation_that_fails_leaves_the_exploration(tmp_path: Path) -> None:
    random = np.random.default_rng(1)

    def behave(condition: Condition) -> Record:
        if (tmp_path / "d" / "confirmation" / "study.db").exists() and condition.request.aslr is False:
            return record(condition, outcome={"status": "failed", "exit_code": 7, "signal": None})
        slow = condition.request.aslr is not False and random.random() < 0.5
        return record(condition, wall_ns=int((1.3e8 if slow else 1e8) * random.lognormal(0, 0.003)))

    machine = {"machine": {}, "provenance": {}}
    found = begin(settings(tmp_path), tmp_path / "d", Tools(FakeRunner(behave), lambda _: None, lambda: machine))
    assert found.outcome == "undecided"
    assert found.headline.startswith("No confirmed cause: 100 or 130 ms; ASLR looked like it, and aslr-off")
    assert finding(found, "aslr").verdict == "cause"
    assert (tmp_path / "d" / "diagnosis.json").exists()


@pytest.mark.by_turns(4)
def test_nothing_that_was_tried_is_said_to_be_sure_of_a_rare_mode(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, steady)
    assert "a slow mode rarer than 1 in 16 may not have shown" in found.headline
