"""One rule of evidence: ``try``, ``compare`` and the report say the same of a study, also with time-outs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import factory
import pytest
from factory import Run, data_of

from pagelab.analysis import analyse
from pagelab.analysis.answer import Answer, Evidence, further, judged, words
from pagelab.analysis.compare import compare, sides_of
from pagelab.analysis.compare_document import document
from pagelab.analysis.following import following_of
from pagelab.analysis.gates import parse_gate
from pagelab.analysis.model import Analysis, Execution, Interval, Metric
from pagelab.analysis.planned_test import counts_as_slowest
from pagelab.analysis.verdict import judged_of
from pagelab.cli.compare_text import text
from pagelab.cli.try_ import _document
from pagelab.study.plan import Condition
from pagelab.study.schedule import Slot
from pagelab.study.setting import Setting
from pagelab.study.trying import Pilot, Trying

TRIED = Trying(("./job",), "/", (Setting("M=a", ""), Setting("M=b", "")))
Behaviour = Callable[[bool, Slot], Run]
"""Of an execution: whether it is one of B, and its place."""


def kept(directory: Path, behave: Behaviour, *, executions: int = 24, metric: str = "wall_s") -> Path:
    """A study of one program under two settings, tested within pairs."""
    plan = factory.plan(["job"], TRIED.names(), executions, metric=metric).model_copy(update={"test": "pairs"})

    def run_of(condition: Condition, slot: Slot) -> Run:
        return behave(condition.policy == "M-b", slot)

    return factory.store(directory, plan, run_of)


def hangs(share: float, faster: float, noise: float = 0.02) -> Behaviour:
    """B hangs in the first blocks, and is faster by a factor in the others."""

    def behave(is_b: bool, slot: Slot) -> Run:
        late = is_b and slot.block < share * 24
        level = (1 + noise * math.sin(7.0 * slot.position)) / (faster if is_b else 1.0)
        return Run(wall_s=60.0 if late else level, status="timed-out" if late else "ok")

    return behave


def errors(is_b: bool, slot: Slot) -> Run:
    return Run(measurements=[float(3 + slot.block % 7) if is_b else 0.0], measurement_name="errors", unit="1")


def all_three(directory: Path, metric: str) -> tuple[Analysis, list[tuple[str, str]]]:
    """The report's analysis, and what ``try``, the report and ``compare`` say of the study, each with its words."""
    data = data_of(directory)
    found = analyse(data)
    (tried,) = _document(TRIED, found, directory, Pilot(1.0, 1.0), data.plan.executions, []).settings
    (reported,) = judged_of(found.compared(), found.design, found.metrics)
    compared = compare(*sides_of(data), one_study=True, metric=metric).in_pairs
    assert compared is not None
    answers: list[Answer] = [reported.answer, compared.answer]
    return found, [(tried.said, tried.words), *((one.said, words(one, reported.metric)) for one in answers)]


@pytest.mark.parametrize(
    ("behave", "metric", "said", "told"),
    [
        (hangs(0.6, 1.08), "wall_s", "higher", "slower, size unknown"),
        (hangs(0.6, 1.08), "cpu_s", "higher", "slower, size unknown"),
        (hangs(0.6, 1.08), "user_s", "higher", "slower, size unknown"),
        (hangs(1.0, 1.0), "wall_s", "higher", "slower, size unknown"),
        (hangs(0.45, 1.08), "wall_s", "cannot-tell", "cannot tell: 11 executions timed out"),
        (hangs(0.04, 1.0), "wall_s", "cannot-tell", "cannot tell: 1 execution timed out"),
        (hangs(0.04, 1.5), "wall_s", "lower", "33.3% faster"),
        (hangs(0.0, 1.0), "wall_s", "same", "same within ±0.55%"),
        (errors, "measure.errors", "higher", "5.75 higher"),
    ],
)
def test_try_compare_and_the_report_say_the_same(
    tmp_path: Path, behave: Behaviour, metric: str, said: str, told: str
) -> None:
    """Regression: of the same study, in which B hung in 60% of its executions, ``try`` said that B was 7.5% faster
    (p = 1.5e-5), and the report that it was slower; processor time had no time-outs at all; and of a metric that can be
    0, ``try`` could not tell (p = 6.0e-8).
    """
    _, answers = all_three(kept(tmp_path / "s", behave, metric=metric), metric)
    assert answers == [(said, told)] * 3


def test_the_caveat_on_time_outs_does_not_say_that_they_have_no_part(tmp_path: Path) -> None:
    """Regression: "the conclusions are about executions that finish" stood beside a verdict made by the time-outs."""
    found = analyse(data_of(kept(tmp_path / "s", hangs(0.6, 1.08))))
    assert found.headline.startswith("job is slower under M-b than under M-a; the size is unknown (9 of 24 pairs ")
    told = [caveat for caveat in found.caveats if "timed out" in caveat]
    assert told == [
        "15 executions timed out (15 of 24 in job/M-b): the tests count them as slower than all that finished, and the "
        "sizes are those of executions that finished."
    ]
    assert not any("conclusions are about executions that finish" in caveat for caveat in found.caveats)


def test_time_outs_have_no_part_in_other_metrics(tmp_path: Path) -> None:
    found = analyse(data_of(kept(tmp_path / "s", hangs(0.6, 1.08), metric="minor_faults")))
    (contrast,) = found.planned()
    assert (contrast.timed_out, contrast.n) == (0, 9)
    assert any("15 of 24 in job/M-b): the conclusions are about executions that finish" in c for c in found.caveats)


@pytest.mark.parametrize(
    ("behave", "metric", "gate", "outcome", "reason"),
    [
        (hangs(0.45, 1.4), "wall_s", "ratio>3%", "inconclusive", "11 of 24 executions of B timed out, so the size"),
        (hangs(0.45, 1.4), "cpu_s", "ratio>3%", "inconclusive", "11 of 24 executions of B timed out, so the size"),
        (hangs(0.9, 1.4), "wall_s", "ratio>3%", "fail", "the change is beyond the limit, with time-outs counted as "),
        (hangs(1.0, 1.4), "wall_s", "ratio>3%", "fail", "the change is beyond the limit, with time-outs counted as "),
        (hangs(0.04, 1.4), "wall_s", "ratio>3%", "inconclusive", "1 of 24 executions of B timed out, and none of A"),
        (hangs(0.04, 1.4), "wall_s", "mean>3%", "inconclusive", "1 of 24 executions of B timed out, and none of A"),
        (hangs(0.45, 1.4), "peak_rss_bytes", "mean>3%", "inconclusive", "11 of 24 executions of B timed out, and none"),
        (hangs(0.0, 1.4), "wall_s", "ratio>3%", "pass", "the whole interval is within the limit"),
        (hangs(0.04, 0.7), "wall_s", "ratio>3%", "fail", "the change is beyond the limit, with time-outs counted as "),
    ],
)
def test_a_gate_does_not_pass_what_hangs(
    tmp_path: Path, behave: Behaviour, metric: str, gate: str, outcome: str, reason: str
) -> None:
    """Regression: 11 of 24 executions of B timed out, and the gate passed (exit code 0), with "28.2% faster"."""
    data = data_of(kept(tmp_path / "s", behave, metric=metric))
    found = compare(*sides_of(data), gates=(parse_gate(gate),), one_study=True)
    (judgement,) = found.judgements
    assert (judgement.outcome, found.outcome) == (outcome, outcome)
    assert judgement.reason.startswith(reason)
    shown = text(found, None, None)
    assert outcome in shown
    json = document(found).model_dump()
    told = (json["refused"] or json["conditions"])[0]["in_pairs"]
    late = 0 if metric == "peak_rss_bytes" else found.in_pairs.late[1]  # type: ignore[union-attr]
    assert told["timed_out"] == {"a": 0, "b": late}


def some_errors(is_b: bool, slot: Slot) -> Run:
    """Counts of 0, 1 and 2 in A; half as many again in B."""
    count = (slot.block % 3) * (1.5 if is_b else 1.0)
    return Run(measurements=[count], measurement_name="errors", unit="1")


@pytest.mark.parametrize(
    ("gate", "outcome", "reason"),
    [
        ("mean>30%", "fail", "the whole interval is beyond the limit"),
        ("mean>80%", "pass", "the whole interval is within the limit"),
        ("ratio>30%", "inconclusive", "a value is zero or negative: no ratio of it exists; judge the mean"),
        ("execution>30%", "inconclusive", "A, A against B, "),
    ],
)
def test_a_mean_of_counts_that_can_be_zero_is_judged(tmp_path: Path, gate: str, outcome: str, reason: str) -> None:
    """Regression: zeros, of which spreads have none, left the mean of pairs unjudged too: "a time is positive"."""
    data = data_of(kept(tmp_path / "s", some_errors, metric="measure.errors"))
    found = compare(*sides_of(data), gates=(parse_gate(gate),), one_study=True)
    (judgement,) = found.judgements
    assert judgement.outcome == outcome
    assert judgement.reason.startswith(reason)
    shown = text(found, None, None)
    assert "\n  mean            1 → 1.500: +50.0% (" in shown
    assert "not compared: A against B: A, A against B, errors: execution 0, measurement 0 is 0.0" in shown


def equal_but_some(is_b: bool, slot: Slot) -> Run:
    """Counts: B has one more in every fourth execution."""
    return Run(measurements=[20 + float(is_b and slot.execution % 4 == 0)], measurement_name="errors", unit="1")


def test_most_pairs_equal_give_a_direction_and_an_estimate_of_0(tmp_path: Path) -> None:
    """Regression: the size "cannot be estimated from the executions that finished", though all had; the JSON showed an
    interval as Python writes it, and said that 6 executions were needed.
    """
    directory = kept(tmp_path / "s", equal_but_some, executions=32, metric="measure.errors")
    found, told = all_three(directory, "measure.errors")
    assert told == [("higher", "higher, median change 0")] * 3
    assert "; the median change is 0 (95% interval 0.00% to " in found.headline
    (contrast,) = found.planned()
    assert "; most differences are 0, and so is the estimate of its size (95% interval 0.00% to " in contrast.sentence
    pairs = document(compare(*sides_of(data_of(directory)), one_study=True)).model_dump()["conditions"][0]["in_pairs"]
    assert (pairs["ratio"]["value"], pairs["ratio"]["low"], pairs["ratio"]["reason"]) == (0, 0, None)
    assert (pairs["said"], pairs["needed"], pairs["seen_percent"]) == ("higher", None, None)


def test_windows_of_what_timed_out_are_not_known_to_be_slow() -> None:
    """Regression: an execution that hung after its window made the window slower."""
    late = Execution(1, 0, 0, "w", "b", "w/b", 0, False, "timed-out", False, False, {})
    window = Metric("measure.solve", "time of solve", "s", "time", "inside the window solve")
    assert not counts_as_slowest(late, window)
    assert all(counts_as_slowest(late, Metric(f"{name}_s", "", "s", "time", "")) for name in ("wall", "user", "cpu"))


def test_what_never_finishes_is_told_in_the_first_line(tmp_path: Path) -> None:
    """Regression: with no execution of B in time there was no answer: "0 pairs", and no picture."""
    data = data_of(kept(tmp_path / "s", hangs(1.0, 1.0)))
    found = compare(*sides_of(data), one_study=True)
    first, *rest = text(found, None, None).splitlines()
    assert first == "B is slower than A; the size is unknown (0 of 24 pairs finished, p = 1.2 × 10⁻⁷)"
    assert "B  slower, size unknown; none finished" in rest
    assert any(line.startswith("executions in pairs that timed out: 24 of 24 of B; the test ") for line in rest)


def test_two_studies_of_which_one_hangs_do_not_pass(tmp_path: Path) -> None:
    """Regression: time-outs were left out of the mean, so that a study of which half hung passed."""
    plain, late = (kept(tmp_path / name, hangs(share, 1.0)) for name, share in (("plain", 0.0), ("late", 0.5)))
    gates = (parse_gate("mean>30%"),)
    found = compare(data_of(plain), data_of(late), gates=gates)
    told = {one.condition: (one.outcome, one.reason.split(",")[0]) for one in found.judgements}
    assert told["job/M-b"] == ("inconclusive", "12 of 24 executions of B timed out")
    assert told["job/M-a"][0] == "pass"
    back = compare(data_of(late), data_of(plain), gates=(parse_gate("mean<-30%"),))
    assert {one.condition: one.outcome for one in back.judgements}["job/M-b"] == "inconclusive"
    assert {one.condition: one.outcome for one in compare(data_of(late), data_of(plain), gates=gates).judgements} == {
        "job/M-a": "pass",
        "job/M-b": "pass",
    }


def test_a_set_in_which_a_policy_hangs_is_not_called_faster(tmp_path: Path) -> None:
    """Regression: the programs' ratios leave out time-outs, so a policy under which programs hung made runs faster."""
    programs = [f"p{i}" for i in range(10)]
    plan = factory.plan(programs, ["a", "b"], 6).model_copy(update={"test": "pairs", "answer": "set"})

    def run_of(late: int) -> Callable[[Condition, Slot], Run]:
        def behave(condition: Condition, slot: Slot) -> Run:
            is_b = condition.policy == "b"
            hung = is_b and slot.block < late
            level = (0.8 if is_b else 1.0) * (1 + 0.01 * math.sin(slot.position))
            return Run(wall_s=level, status="timed-out" if hung else "ok")

        return behave

    said = {}
    for late in (0, 2):
        data = data_of(factory.store(tmp_path / str(late), plan, run_of(late)))
        found = analyse(data)
        assert found.over_set is not None
        said[late] = found.over_set.contrasts[0].verdict, found.headline
    assert said[0][0] == "lower"
    assert said[2][0] == "no-difference"
    assert "20 executions timed out, which no ratio includes" in said[2][1]


def test_the_next_command_is_not_more_of_what_times_out(tmp_path: Path) -> None:
    data = data_of(kept(tmp_path / "s", hangs(0.45, 1.4)))
    found = following_of(analyse(data), data)
    assert found.command.startswith("pagelab study status ")
    assert "next:" not in text(compare(*sides_of(data), one_study=True), None, "pagelab compare ./job")


def crashes(share: float, slower: float = 1.0) -> Behaviour:
    """B crashes in the first blocks."""

    def behave(is_b: bool, slot: Slot) -> Run:
        failed = is_b and slot.block < share * 24
        level = (1 + 0.02 * math.sin(7.0 * slot.position)) * (slower if is_b else 1.0)
        return Run(wall_s=level, status="failed" if failed else "ok")

    return behave


def test_nothing_passes_while_more_of_the_new_command_fails(tmp_path: Path) -> None:
    """Regression: 15 of 24 executions of B died, and the limit "ratio>50%" passed."""
    data = data_of(kept(tmp_path / "s", crashes(0.6)))
    found = compare(*sides_of(data), one_study=True, gates=(parse_gate("ratio>50%"), parse_gate("mean<-50%")))
    told = "15 of 24 executions of B failed, and none of A, and only those that ended well are compared"
    assert [(one.outcome, one.reason) for one in found.judgements] == [("inconclusive", told)] * 2
    shown = text(found, None, None).splitlines()
    assert shown[1] == "15 of 24 executions of B failed, and none of A; only those that ended well are compared"
    said = document(found).conditions[0].in_pairs
    assert said is not None
    assert (said.failed.a, said.failed.b) == (0, 15)


def test_a_failure_of_a_limit_stays_one(tmp_path: Path) -> None:
    data = data_of(kept(tmp_path / "s", crashes(0.25, slower=2.0)))
    found = compare(*sides_of(data), one_study=True, gates=(parse_gate("ratio>50%"),))
    assert found.outcome == "fail"


@pytest.mark.parametrize(
    ("interval", "pairs", "has_size"),
    [
        ((0.01, 0.03), 16, True),
        ((-0.02, 0.03), 16, False),  # chance decides on which side the estimate lies
        ((0.01, 0.03), 14, False),  # half of the averages of two pairs have a time-out: 14 * 15 <= 20 * 21 / 2
    ],
)
def test_survivors_give_no_size_that_would_not_exist_with_time_outs(
    interval: tuple[float, float], pairs: int, has_size: bool
) -> None:
    """Regression: "B is 0.40% slower (-2.0% to +3.0%, p = 4e-6)", where 12 of 20 executions of B timed out."""
    ends = Interval(*interval, 0.95)
    late = 20 - pairs
    found = Evidence(4e-6, "higher", 0.004, ends, None, None, pairs, tested=20, late=late)
    answer = judged(found, level=0.95)
    assert answer.said == "higher"
    assert answer.has_size == has_size


def no_faults(_is_b: bool, _slot: Slot) -> Run:
    return Run(measurements=[0.0], measurement_name="errors", unit="1")


def test_what_is_0_in_every_pair_is_the_same(tmp_path: Path) -> None:
    """Regression: "cannot tell (0 to 0, p = 1)", and twice as many executions each time."""
    _, answers = all_three(kept(tmp_path / "s", no_faults, metric="measure.errors"), "measure.errors")
    assert answers == [("same", "same: no difference in most pairs")] * 3


def few_faults(_is_b: bool, slot: Slot) -> Run:
    return Run(measurements=[float((slot.position * 7) % 3)], measurement_name="errors", unit="1")


def test_what_would_not_be_seen_is_told_in_the_unit_where_there_is_no_percentage(tmp_path: Path) -> None:
    _, answers = all_three(kept(tmp_path / "s", few_faults, metric="measure.errors"), "measure.errors")
    assert len(set(answers)) == 1
    assert answers[0][0] == "cannot-tell"
    assert answers[0][1].startswith("cannot tell: under ")


@pytest.mark.parametrize(
    ("answer", "made", "needed"),
    [
        (Answer("cannot-tell", 0.01, Interval(-0.1, 0.1, 0.95), 0.5, 20, 0.1, 155), 20, 155),
        (Answer("cannot-tell", 0.01, Interval(-0.1, 0.1, 0.95), 0.5, 9, 0.1, 65), 24, 174),  # 9 of 24 have a partner
        (Answer("cannot-tell", None, None, 0.5, 13, None, None, fewest=15), 13, 30),
        (Answer("cannot-tell", None, None, 0.5, 70, None, None), 70, 140),
    ],
)
def test_more_executions_are_more_than_there_are_and_count_those_without_a_partner(
    answer: Answer, made: int, needed: int
) -> None:
    """Regression: "an answer needs more, such as 12 executions" after 12, 13 and 20."""
    assert further(answer, made) == needed


@pytest.mark.parametrize(
    ("numbers", "exists"),
    [
        (((12, 20), (20, 20)), True),
        (((14, 20), (20, 20)), True),
        (((20, 10), (40, 10)), False),
        (((12, 10), (40, 10)), False),
    ],
)
def test_between_executions_the_estimate_exists_while_most_differences_do(
    numbers: tuple[tuple[int, int], tuple[int, int]], exists: bool
) -> None:
    """Finished and all, of treatment and baseline."""
    pairs, tested = min(numbers[0]), min(numbers[1])
    found = Evidence(4e-6, "higher", 0.004, Interval(0.01, 0.03, 0.95), None, None, pairs, tested, 8, numbers=numbers)
    assert judged(found, level=0.95, test="rank-sum").has_size == exists


def test_the_sentence_of_the_page_has_no_size_where_the_headline_has_none(tmp_path: Path) -> None:
    found = analyse(data_of(kept(tmp_path / "s", hangs(0.34, 0.77))))
    assert "the size is unknown" in found.headline
    (sentence,) = found.answers
    assert "the size of the difference cannot be estimated from the executions that finished" in sentence
