"""What a study plans to test: programs one by one, or as a set; no test is planned that cannot succeed."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import spec_in, tools

from pagelab.benchmarks import catalogue
from pagelab.study.answering import programs_by_policy, reachability
from pagelab.study.control import run_study
from pagelab.study.errors import SpecError
from pagelab.study.plan import Condition, Plan
from pagelab.study.planning import plan_text
from pagelab.study.prepare import Prepared, prepare
from pagelab.study.quick import quick_text
from pagelab.study.store import Store

POLICIES = '[[policy]]\nname = "kernel"\n[[policy]]\nname = "4K"\npages = "4K"\n'


def text_of(programs: int, *, executions: int = 6, head: str = "") -> str:
    workloads = "".join(f'[[workload]]\nname = "w{i}"\ncommand = "true"\n' for i in range(programs))
    return f'name = "s"\nexecutions = {executions}\nwarmups = 0\n{head}{workloads}{POLICIES}'


def prepared(directory: Path, text: str) -> Prepared:
    return prepare(spec_in(directory, text), directory / "out", lambda _: None)


@pytest.mark.parametrize(
    ("programs", "executions", "head", "answer"),
    [
        (1, 6, "", "each"),  # 1 comparison: 2/2^6 is enough
        (20, 20, "", "each"),
        (20, 6, "", "set"),
        (7, 6, "", "set"),  # the fewest: 2 comparisons, 2 · 2/2^7
        (6, 6, "", "each"),  # neither can reach the level
        (20, 1, "", "each"),  # one execution has no spread
        (20, 6, 'answer = "each"\n', "each"),
        (20, 20, 'answer = "set"\n', "set"),
    ],
)
def test_programs_are_answered_as_a_set_where_alone_they_cannot_be(
    tmp_path: Path, programs: int, executions: int, head: str, answer: str
) -> None:
    found = prepared(tmp_path, text_of(programs, executions=executions, head=head))
    assert found.plan.answer == answer
    unreachable = (programs, answer) in ((6, "each"), (20, "each")) and executions < 20
    assert [warning.kind for warning in found.warnings] == ["level-not-reachable"] * unreachable
    assert found.plan.tested == (not unreachable)
    assert len(found.notes) == (answer == "set" and not head)
    for note in found.notes:
        assert f"over {programs} programs 2 comparisons can reach the level" in note


def test_configurations_of_a_program_are_no_programs(tmp_path: Path) -> None:
    text = text_of(2, head="[parameters]\nsize = [1, 2, 3, 4, 5, 6]\n").replace('"true"', '"true {size}"')
    found = prepared(tmp_path, text)
    assert programs_by_policy(found.plan) == {("4K", "kernel"): ["w0", "w1"]}
    assert found.plan.answer == "each"
    assert not found.plan.tested
    assert "with 6 executions of each condition no difference in 12 comparisons could" in found.warnings[0].message
    assert "tests need 9 executions of each" in found.warnings[0].message


def test_what_this_machine_leaves_out_is_no_part_of_the_set(tmp_path: Path) -> None:
    def check(condition: Condition) -> str | None:
        return "not here" if condition.workload in ("w0", "w1") else None

    spec = spec_in(tmp_path, text_of(8))
    found = prepare(spec, tmp_path / "out", check, skip_impossible=True)
    assert found.plan.answer == "each"
    assert "level-not-reachable" in [warning.kind for warning in found.warnings]
    assert prepare(spec, tmp_path / "out", lambda _: None).plan.answer == "set"


def test_a_set_of_too_few_programs_is_told_before(tmp_path: Path) -> None:
    found = prepared(tmp_path, text_of(5, head='answer = "set"\n'))
    (warning,) = found.warnings
    assert warning.message == (
        "described without tests: over 5 programs under 4K no difference could be found, however clear (the smallest "
        "possible p is 0.0625, 0.125 after Holm over 2 comparisons, the level 0.05); tests need 7 programs, or answer "
        '= "each"'
    )
    assert not found.plan.tested


def test_minutes_plan_the_blocks_that_tests_need(tmp_path: Path) -> None:
    """Whatever number the file names: with 3 executions nothing could be found, and with a time there are more."""
    spec = spec_in(tmp_path, text_of(2, executions=3))
    few = prepare(spec, tmp_path / "out", lambda _: None)
    timed = prepare(spec, tmp_path / "out", lambda _: None, minutes=5)
    assert (few.plan.tested, few.plan.executions) == (False, 3)
    assert (timed.plan.tested, timed.plan.executions, timed.warnings) == (True, 7, [])


def test_minutes_do_not_help_a_set_of_too_few_programs(tmp_path: Path) -> None:
    spec = spec_in(tmp_path, text_of(5, head='answer = "set"\n'))
    found = prepare(spec, tmp_path / "out", lambda _: None, minutes=5)
    assert not found.plan.tested
    assert [warning.kind for warning in found.warnings] == ["level-not-reachable"]


def test_a_set_of_single_executions_is_told_before(tmp_path: Path) -> None:
    (warning,) = prepared(tmp_path, text_of(20, executions=1, head='answer = "set"\n')).warnings
    assert "1 execution of each has no spread; tests need 2 executions of each at least" in warning.message


def test_the_answer_is_stored_and_told(tmp_path: Path) -> None:
    class Heard:
        def __init__(self) -> None:
            self.notes: list[str] = []

        def note(self, text: str) -> None:
            self.notes.append(text)

        def __getattr__(self, _: str) -> object:
            return lambda *_args, **_named: None

    heard = Heard()
    run_study(spec_in(tmp_path, text_of(8)), tmp_path / "out", tools(), progress=heard)  # type: ignore[arg-type]
    assert [note for note in heard.notes if "answered as a set" in note]
    assert not [note for note in heard.notes if note.startswith("described")]
    with Store.open(tmp_path / "out", write=False) as store:
        assert store.plan().answer == "set"
        assert [warning.kind for warning in store.study_warnings()] == []


def test_bad_answers_are_heard() -> None:
    def plan(head: str) -> Plan:
        return plan_text(text_of(2, head=head), Path("/nowhere/study.toml"), Path("/nowhere/out"))

    with pytest.raises(SpecError, match="'each' or 'set'"):
        plan('answer = "all"\n')
    with pytest.raises(SpecError, match="exclude each other: its looks are at the intervals of single programs"):
        plan_text(
            f'name = "s"\nanswer = "set"\n[precision]\ntarget = "2%"\nlooks = [20]\n[[workload]]\nname = "w"\n'
            f'command = "true"\n{POLICIES}',
            Path("/nowhere/study.toml"),
            Path("/nowhere/out"),
        )


@pytest.mark.parametrize("quick", [False, True])
def test_the_bundled_comparison_can_reach_its_level(quick: bool) -> None:
    spec = Path(catalogue.__file__).parent / "nondeterminism.toml"
    text = quick_text(spec.read_text(), spec) if quick else spec.read_text()
    plan = plan_text(text, spec, Path("/nowhere/out"))
    assert plan.answer == "set"
    assert reachability(plan) == []
    assert all(len(programs) > 40 for programs in programs_by_policy(plan).values())
