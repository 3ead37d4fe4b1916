"""What a study tells about itself: another machine, policies left out, a level out of reach, noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import interrupted, spec_in, tools

from pagelab.errors import MachineError
from pagelab.record import RunWarning, WarningKind
from pagelab.study.answering import reachability
from pagelab.study.control import resume_study, run_study
from pagelab.study.plan import Condition
from pagelab.study.planning import plan_text
from pagelab.study.store import Store


def test_a_continued_study_on_another_machine_says_so(tmp_path: Path) -> None:
    out = interrupted(tmp_path)
    other = tools()
    moved = type(other)(other.runner, other.check, lambda: {"provenance": {"kernel": {"release": "7.0"}}})
    resume_study(out, moved)
    with Store.open(out, write=False) as store:
        messages = [warning.message for warning in store.study_warnings() if warning.kind == "machine-changed"]
    assert len(messages) == 1
    assert "kernel.release: None → 7.0" in messages[0]


def cannot_do_2m(condition: Condition) -> str | None:
    return "needs transparent huge pages" if condition.policy_name == "4K" else None


def test_an_impossible_policy_is_an_error_or_left_out(tmp_path: Path) -> None:
    spec, out = spec_in(tmp_path), tmp_path / "out"
    with pytest.raises(
        MachineError, match=r"cannot do 2 of 4 conditions:\n  a/4K, b/4K: needs .*\n.*--skip-impossible"
    ):
        run_study(spec, out, tools(check=cannot_do_2m))
    assert not out.exists()
    finished = run_study(spec, out, tools(check=cannot_do_2m), skip_impossible=True)
    assert finished.runs == 8
    with Store.open(out, write=False) as store:
        assert set(store.runs()["condition"]) == {"a/kernel", "b/kernel"}
        assert store.conditions()["left_out"].to_list() == [None, "needs transparent huge pages"] * 2
        (warning,) = store.study_warnings()
        assert warning.kind == "left-out"
        assert warning.message == "policy 4K is left out: needs transparent huge pages"


def test_a_level_that_cannot_be_reached_is_told_before_and_stored(tmp_path: Path) -> None:
    text = 'name = "s"\nexecutions = 5\nwarmups = 0\n[[workload]]\nname = "w"\ncommand = "true"\n'
    text += "".join(f'[[policy]]\nname = "p{number}"\n' for number in range(8))
    run_study(spec_in(tmp_path, text), tmp_path / "out", tools())
    with Store.open(tmp_path / "out", write=False) as store:
        (warning,) = store.study_warnings()
    assert warning.kind == "level-not-reachable"
    assert warning.severity == "info"
    assert "with 5 executions of each condition no difference in 7 comparisons could be found" in warning.message
    assert "0.438 after Holm" in warning.message
    assert "tests need 9 executions of each" in warning.message


def test_a_noisy_machine_is_told_with_the_study(tmp_path: Path) -> None:
    noisy = RunWarning(kind=WarningKind.NOISY_MACHINE, message="the machine was not quiet")
    spec = spec_in(tmp_path)
    run_study(spec, tmp_path / "s", replace(tools(), noise=lambda _plan: noisy))
    with Store.open(tmp_path / "s", write=False) as store:
        assert noisy in store.study_warnings()


def test_reach_is_that_of_the_test_the_study_asks_for(tmp_path: Path) -> None:
    """10 executions reach 1e-5 over all and 0.002 within blocks: over 30 contrasts only one of them is enough."""
    policies = "".join(f'[[policy]]\nname = "p{i}"\n' for i in range(31))
    text = f'name = "s"\nexecutions = 10\n{policies}[[workload]]\nname = "w"\ncommand = "true"\n'
    assert reachability(plan_text(f'test = "rank-sum"\n{text}', tmp_path / "s.toml", tmp_path)) == []
    (warning,) = reachability(plan_text(text, tmp_path / "s.toml", tmp_path))
    assert "the smallest possible p is 0.00195" in warning.message
    assert warning.data["smallest_n"] == 11
