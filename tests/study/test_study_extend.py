"""Executions that are added: the same schedule, a further look, and files that were edited meanwhile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench.coverage.machines import MACHINES, SHAPES, study
from fakes import TWO_BY_TWO, interrupted, spec_in, tools

from pagelab.analysis import analyse, load
from pagelab.analysis.following import following_of
from pagelab.stats import signed_rank
from pagelab.study.control import resume_study, run_study
from pagelab.study.errors import StudyError
from pagelab.study.extend import blocks_of, extended
from pagelab.study.planning import plan_file
from pagelab.study.schedule import Slot, schedule
from pagelab.study.store import Store

EIGHT = TWO_BY_TWO.replace("executions = 3", "executions = 8")


def test_an_extended_study_runs_what_a_longer_one_would_have(tmp_path: Path) -> None:
    for name, text in (("short", EIGHT), ("long", TWO_BY_TWO.replace("executions = 3", "executions = 20"))):
        (tmp_path / name).mkdir()
        run_study(spec_in(tmp_path / name, text), tmp_path / name / "out", tools())
    resume_study(tmp_path / "short" / "out", tools(), executions=20)
    slots = []
    for name in ("short", "long"):
        with Store.open(tmp_path / name / "out", write=False) as store:
            slots.append(store.slots())
            assert len(store.finished()) == len(store.slots())
    assert slots[0] == slots[1]


def test_each_further_look_has_half_of_the_error(tmp_path: Path) -> None:
    spec = spec_in(tmp_path, EIGHT)
    run_study(spec, tmp_path / "out", tools())
    levels = []
    for executions in (None, 12, 20):
        if executions:
            resume_study(tmp_path / "out", tools(), executions=executions)
        with Store.open(tmp_path / "out", write=False) as store:
            found = analyse(load(store))
        levels.append((found.design.executions, found.design.interval_level, found.design.p_factor))
        intervals = {c.shift_interval.level for c in found.planned() if c.shift_interval is not None}
        assert intervals == {found.design.interval_level}
    assert levels == [(8, 0.95, 1), (12, pytest.approx(0.975), 2), (20, pytest.approx(0.9875), 4)]
    assert "had ended, or could be read, with 8 and 12" in found.design.stop
    assert "98.75%" in found.design.stop


def test_an_unfinished_study_was_not_looked_at(tmp_path: Path) -> None:
    out = interrupted(tmp_path, EIGHT)
    resume_study(out, tools(), executions=10)
    with Store.open(out, write=False) as store:
        assert store.plan().earlier_looks == []
        assert store.plan().executions == 10
        assert len(store.finished()) == len(store.slots()) == 4 * 11


def test_an_unfinished_study_whose_report_may_have_shown_a_difference_was_looked_at(tmp_path: Path) -> None:
    """Regression: a long study, stopped, read and extended, could be read at the full level any number of times."""
    out = interrupted(tmp_path, EIGHT, after=34)
    resume_study(out, tools(), executions=10)
    with Store.open(out, write=False) as store:
        assert store.plan().earlier_looks == [8]


@pytest.mark.parametrize("executions", [8, 3, 0, 100_001])
def test_fewer_are_refused(tmp_path: Path, executions: int) -> None:
    run_study(spec_in(tmp_path, EIGHT), tmp_path / "out", tools())
    with pytest.raises(StudyError, match=f"--executions {executions}: the study has 8 of each"):
        resume_study(tmp_path / "out", tools(), executions=executions)


def test_looks_that_were_planned_decide(tmp_path: Path) -> None:
    text = TWO_BY_TWO.replace("executions = 3\n", "") + '[precision]\ntarget = "2%"\nlooks = [20]\n'
    run_study(spec_in(tmp_path, text), tmp_path / "out", tools())
    for more in ({"executions": 40}, {"minutes": 1.0}):
        with pytest.raises(StudyError, match="planned looks"):
            resume_study(tmp_path / "out", tools(), **more)  # type: ignore[arg-type]


def test_a_level_that_can_be_reached_by_now_is_no_warning_any_more(tmp_path: Path) -> None:
    run_study(spec_in(tmp_path), tmp_path / "out", tools())
    kinds = []
    for executions in (None, 5, 12):
        if executions:
            resume_study(tmp_path / "out", tools(), executions=executions)
        with Store.open(tmp_path / "out", write=False) as store:
            kinds.append([str(warning.kind) for warning in store.study_warnings()].count("level-not-reachable"))
            assert store.plan().tested == (kinds[-1] == 0)
    assert kinds == [1, 1, 0]


def test_what_was_described_is_tested_at_the_level_of_a_further_look(tmp_path: Path) -> None:
    """Two comparisons need 2 · 2/2^n <= 0.025 after one look: 8 executions, where 7 were enough for a new study."""
    run_study(spec_in(tmp_path, TWO_BY_TWO), tmp_path / "out", tools())
    found = []
    for executions in (None, 7, 9):
        if executions:
            resume_study(tmp_path / "out", tools(), executions=executions)
        with Store.open(tmp_path / "out", write=False) as store:
            data = load(store)
        analysis = analyse(data)
        found.append((analysis.design.tested, len(analysis.planned()), len(analysis.compared())))
        if not analysis.design.tested:
            assert all(c.p is None and c.verdict == "descriptive" for c in analysis.compared())
    assert found == [(False, 0, 2), (False, 0, 2), (True, 2, 2)]
    assert analysis.design.p_factor == 4


def test_the_command_that_is_proposed_gives_tests(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_study(spec_in(tmp_path, TWO_BY_TWO), out, tools())
    with Store.open(out, write=False) as store:
        data = load(store)
    proposed = following_of(analyse(data), data)
    assert proposed.command == f"pagelab study resume {out} --executions 8"
    assert "tests need 8 executions of each condition" in proposed.why
    resume_study(out, tools(), executions=8)
    with Store.open(out, write=False) as store:
        assert store.plan().tested


@pytest.mark.by_turns(4)
def test_time_that_is_added_goes_to_what_tests_need_first(tmp_path: Path) -> None:
    run_study(spec_in(tmp_path, TWO_BY_TWO), tmp_path / "out", tools())
    resume_study(tmp_path / "out", tools(), minutes=1.0)
    with Store.open(tmp_path / "out", write=False) as store:
        plan = store.plan()
        assert plan.tested
        assert min(blocks_of(plan).values()) >= 8


def test_a_further_look_that_could_find_nothing_is_refused(tmp_path: Path) -> None:
    """Seven programs reach 0.05 over two comparisons, and not 0.025: the tests that were made would be lost."""
    workloads = "".join(f'[[workload]]\nname = "w{i}"\ncommand = "true"\n' for i in range(7))
    policies = '[[policy]]\nname = "kernel"\n[[policy]]\nname = "4K"\npages = "4K"\n'
    text = f'name = "s"\nanswer = "set"\nexecutions = 4\nwarmups = 0\n{workloads}{policies}'
    out = tmp_path / "out"
    run_study(spec_in(tmp_path, text), out, tools())
    with pytest.raises(StudyError, match="7 programs cannot reach whatever the data; nothing is changed"):
        resume_study(out, tools(), executions=8)
    with Store.open(out, write=False) as store:
        data = load(store)
    assert (data.plan.executions, data.plan.tested) == (4, True)
    assert "resume" not in following_of(analyse(data), data).command


def test_plans_of_before_keep_their_tests(tmp_path: Path) -> None:
    """They say nothing of it, and warned: what was planned then is judged as it was."""
    plan = plan_file(spec_in(tmp_path, EIGHT), tmp_path)
    stored = plan.model_dump(mode="json", by_alias=True)
    del stored["tested"]
    assert type(plan).model_validate(stored).tested


def test_workloads_may_have_different_numbers(tmp_path: Path) -> None:
    """Every place once, in whole blocks, whatever the steps in which a study grew."""
    plan = plan_file(spec_in(tmp_path, EIGHT), tmp_path)
    slots = [Slot(s.position, s.block, s.condition, s.execution) for s in schedule(4, 8, 1, plan.seed)]
    for blocks in ({"a": 8, "b": 11}, {"a": 9, "b": 11}, {"a": 30, "b": 11}, {"a": 30, "b": 30}):
        plan, added = extended(plan, slots, blocks)
        slots += added
        assert blocks_of(plan) == blocks
        assert [slot.position for slot in slots] == list(range(len(slots)))
        names = {condition.index: condition.workload for condition in plan.conditions}
        for workload, number in blocks.items():
            mine = sorted((s.block, s.condition) for s in slots if names[s.condition] == workload)
            assert len(set(mine)) == len(mine) == 2 * (number + 1)
            assert {block for block, _ in mine} == set(range(-1, number))
    assert plan.blocks == {}


@pytest.mark.by_turns(4)
def test_what_looking_again_costs() -> None:
    """No difference at all; who finds none adds as many again, twice: docs/method says how often one is found."""
    draw = np.random.default_rng(11)
    repeats, found = 3000, 0
    for _ in range(repeats):
        values = draw.normal(size=40)
        found += any(signed_rank(values[:n]).p <= 0.05 / 2**look for look, n in enumerate((10, 20, 40)))
    assert 0.045 <= found / repeats <= 0.08


@pytest.mark.parametrize("machine", MACHINES)
def test_looking_again_costs_no_more_on_a_machine_that_drifts_or_has_neighbours(machine: str) -> None:
    """As above, of studies whose blocks share what the machine does: 10.5% would be three standard errors beyond."""
    random = np.random.default_rng([12, *map(ord, machine)])
    repeats, found = 500, 0
    for _ in range(repeats):
        shapes = (SHAPES["heavy tails"], SHAPES["heavy tails"])
        baseline, treatment = study(random, MACHINES[machine], shapes, (0.0, 0.0), 40).times.T
        apart = np.log(treatment / baseline)
        found += any(signed_rank(apart[:n]).p <= 0.05 / 2**look for look, n in enumerate((10, 20, 40)))
    assert found / repeats <= 0.105


EDITS = {
    "executions": ("executions = 8", "executions = 12", r"executions: 8 → 12.*resume .* --executions 12"),
    "command": ('command = "true"', 'command = "false"', r'workload."a".command: .true. → .false.'),
    "level": ("seed = 7", "seed = 7\nlevel = 0.99", "level: not there → 0.99"),
    "a table": ('[[policy]]\nname = "4K"\npages = "4K"\n', "", "policy: kernel, 4K → kernel"),
    "broken": ("seed = 7", "seed = ", "all of it: a study → "),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_file_is_noticed(tmp_path: Path, name: str) -> None:
    old, new, message = EDITS[name]
    spec = spec_in(tmp_path, EIGHT)
    run_study(spec, tmp_path / "out", tools())
    spec.write_text(EIGHT.replace(old, new))
    with pytest.raises(StudyError, match=message):
        resume_study(tmp_path / "out", tools())
    if name != "broken":
        with pytest.raises(StudyError, match="began with another file"):
            run_study(spec, tmp_path / "out", tools())
    resume_study(tmp_path / "out", tools(), as_begun=True)
    if name == "executions":
        resume_study(tmp_path / "out", tools(), executions=12)
        resume_study(tmp_path / "out", tools())  # which has by now what the file says
        spec.write_text(EIGHT.replace(old, "executions = 10"))
        with pytest.raises(StudyError, match=r"executions: 8 → 10\), and a study keeps its original file; as it began"):
            resume_study(tmp_path / "out", tools())


@pytest.mark.parametrize("change", [lambda text: text + "\n# a remark\n", None])
def test_what_says_the_same_is_no_edit(tmp_path: Path, change: object) -> None:
    spec = spec_in(tmp_path, EIGHT)
    run_study(spec, tmp_path / "out", tools())
    if change is None:
        spec.unlink()
    else:
        spec.write_text(change(EIGHT))  # type: ignore[operator]
    resume_study(tmp_path / "out", tools())


@pytest.mark.by_turns(4)
def test_more_minutes_are_given_although_the_file_has_others(tmp_path: Path) -> None:
    """The command that the refusal names works."""
    text = TWO_BY_TWO.replace("executions = 3\n", "minutes = 0.05\n")
    spec = spec_in(tmp_path, text)
    run_study(spec, tmp_path / "out", tools())
    spec.write_text(text.replace("0.05", "0.1"))
    with pytest.raises(StudyError, match=r"for more time: pagelab study resume .* --minutes N"):
        resume_study(tmp_path / "out", tools())
    resume_study(tmp_path / "out", tools(), minutes=0.05)


def test_fewer_executions_in_the_file_are_no_advice(tmp_path: Path) -> None:
    spec = spec_in(tmp_path, EIGHT)
    run_study(spec, tmp_path / "out", tools())
    spec.write_text(EIGHT.replace("executions = 8", "executions = 5"))
    with pytest.raises(StudyError) as refused:
        resume_study(tmp_path / "out", tools())
    assert "--executions" not in str(refused.value)


def test_a_quick_study_is_compared_with_its_quick_form(tmp_path: Path) -> None:
    text = EIGHT + "[quick]\nexecutions = 6\n"
    spec = spec_in(tmp_path, text)
    run_study(spec, tmp_path / "out", tools(), quick=True)
    resume_study(tmp_path / "out", tools())
    spec.write_text(text.replace("executions = 6", "executions = 7"))
    with pytest.raises(StudyError, match="executions: 6 → 7"):
        resume_study(tmp_path / "out", tools())
