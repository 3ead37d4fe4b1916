"""``pagelab compare``: what changed between two studies, and the exit codes that regression tests rely on."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import factory
import numpy as np
import pytest

from pagelab.analysis import analyse
from pagelab.analysis.compare import Settings, compare, sides_of
from pagelab.analysis.data import StudyData
from pagelab.analysis.gates import InPairs, judge, parse_gate
from pagelab.analysis.verdict import judged_of
from pagelab.cli.compare_text import text
from pagelab.errors import BadInputError
from pagelab.stats import Pairs, paired_ratio
from pagelab.stats.interval import Interval, IntervalMethod
from pagelab.stats.nondeterminism import Estimate, Metric
from pagelab.stats.nondeterminism.exchange import Exchanged
from pagelab.stats.paired_mean import paired_mean_ratio
from pagelab.study.imported import import_into, read_hyperfine
from pagelab.study.plan import Condition, Precision
from pagelab.study.schedule import Slot

INSIDE = "measure.latency"


def study(
    directory: Path,
    seed: int,
    *,
    slower: float = 1.0,
    spread: float = 0.01,
    executions: int = 12,
    policies: tuple[str, ...] = ("kernel", "2M"),
    change: Callable[[factory.Run, int], None] | None = None,
) -> Path:
    """Executions ``spread`` apart, with ten measurements 1% apart inside; ``slower`` is the mean's factor."""
    draws = random.Random(seed)

    def run(_: Any, slot: Any) -> factory.Run:
        level = slower * draws.gauss(1, spread)
        made = factory.Run(wall_s=level, measurements=[1e6 * level * draws.gauss(1, 0.01) for _ in range(10)])
        if change is not None:
            change(made, slot.execution)
        return made

    return factory.store(directory, factory.plan(["w"], policies, executions, metric=INSIDE), run)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pagelab", "compare", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return study(tmp_path_factory.mktemp("before") / "a", 1)


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return study(tmp_path_factory.mktemp("slower") / "b", 2, slower=1.1)


@pytest.fixture(scope="module")
def same(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return study(tmp_path_factory.mktemp("same") / "b", 3)


# Exit codes


def test_a_slowdown_beyond_the_limit_exits_1(before: Path, slower: Path) -> None:
    done = run(before, slower, "--fail-if", "mean>3%")
    assert done.returncode == 1, done.stderr
    assert "fail: mean>3% in w/kernel: the whole interval is beyond the limit" in done.stdout


def test_no_change_within_the_limit_exits_0(before: Path, same: Path) -> None:
    done = run(before, same, "--fail-if", "mean>3%", "--fail-if", "mean<-3%")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("pass: ") == 4


def test_a_limit_inside_the_interval_exits_3(before: Path, slower: Path) -> None:
    done = run(before, slower, "--fail-if", "mean>10%")
    assert done.returncode == 3
    told = r"inconclusive: mean>10% in w/2M: the limit lies inside the interval: if the change stays what it is, about "
    assert re.search(told + r"[\d,]+ executions of each decide", done.stdout)


def test_few_executions_pass_a_limit_and_no_line_says_that_they_cannot(tmp_path: Path) -> None:
    """Regression: of one mean "cannot tell: fewer than 6 executions", and "pass"."""
    a, b = (study(tmp_path / name, seed, spread=0.001, executions=5) for name, seed in (("a", 1), ("b", 2)))
    done = run(a, b, "--fail-if", "mean>3%")
    assert done.returncode == 0, done.stdout
    assert "pass: mean>3% in w/2M" in done.stdout
    assert "cannot tell:" not in done.stdout
    assert "higher or lower: not said below 6 executions" in done.stdout


@pytest.mark.by_turns(4)
def test_one_failure_outweighs_what_is_inconclusive(before: Path, slower: Path) -> None:
    assert run(before, slower, "--fail-if", "mean>10%", "--fail-if", "mean>3%").returncode == 1


@pytest.mark.by_turns(4)
def test_nothing_to_judge_exits_0(before: Path, slower: Path) -> None:
    done = run(before, slower)
    assert done.returncode == 0
    assert "w/kernel: 12 executions in A, 12 in B" in done.stdout
    assert ", higher" in done.stdout


@pytest.mark.by_turns(4)
def test_a_fall_can_be_a_failure_too(before: Path, slower: Path) -> None:
    assert run(slower, before, "--fail-if", "mean<-3%").returncode == 1
    assert run(before, slower, "--fail-if", "mean<-3%").returncode == 0


@pytest.mark.parametrize("text", ["mean", "mean>3", "speed>3%", "mean>=3%", "mean>3%x", ""])
def test_an_expression_that_is_not_understood_exits_2(before: Path, same: Path, text: str) -> None:
    done = run(before, same, "--fail-if", text)
    assert done.returncode == 2
    assert "METRIC one of ratio, mean, measurement, unclassified, execution" in done.stderr


def test_what_cannot_be_compared_exits_2(before: Path, same: Path, tmp_path: Path) -> None:
    other = study(tmp_path / "other", 4, policies=("4K", "mosaic"))
    for arguments, message in (
        ((before, other), "no condition is in both studies: A has w/"),
        ((before, tmp_path), "no study in"),
        ((before, same, "--metric", "measure.nothing"), "choose one with --metric"),
        ((before, same, "--level", "2"), "--level 2.0"),
    ):
        done = run(*arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr


# What is said


def test_more_spread_between_executions_is_told_from_more_spread_inside(before: Path, tmp_path: Path) -> None:
    wild = study(tmp_path / "wild", 5, spread=0.15, executions=20)
    done = run(before, wild, "--fail-if", "execution>50%", "--json")
    assert done.returncode == 1, done.stderr
    (kernel, _) = sorted(json.loads(done.stdout)["conditions"], key=lambda one: one["condition"] != "w/kernel")
    changes = kernel["changes"]
    assert changes["nondeterminism-in-execution"]["verdict"] == "higher"
    assert changes["nondeterminism-in-execution"]["percent"]["low"] > 50
    assert changes["nondeterminism-in-measurement"]["verdict"] == "undecided"
    assert changes["unclassified-nondeterminism"]["b"]["value"] == pytest.approx(0.15, rel=0.4)


def test_the_same_comparison_gives_the_same_bytes(before: Path, same: Path) -> None:
    first, second = run(before, same, "--json"), run(before, same, "--json")
    assert first.stdout == second.stdout
    found = json.loads(first.stdout)
    assert found["schema"] == "pagelab.compare/1"
    published = Path(__file__).parents[2] / "docs" / "schema" / "compare-1.json"
    assert set(found) == set(json.loads(published.read_text())["properties"])
    assert (found["outcome"], found["machine_differences"], found["same_plan"]) == ("pass", [], True)
    assert run(before, same, "--json", "--seed", "2").stdout != first.stdout


def test_machine_differences_are_shown(before: Path, tmp_path: Path) -> None:
    def upgraded(made: factory.Run, _: int) -> None:
        assert made.provenance is not None
        made.provenance = {**made.provenance, "kernel": {"release": "6.18.0", "architecture": "x86_64"}}

    done = run(before, study(tmp_path / "b", 6, change=upgraded))
    assert "the machine differs in 1 fact:\n  provenance.kernel.release: 6.12.0 → 6.18.0" in done.stdout


def test_one_value_an_execution_has_no_spread_inside(before: Path, slower: Path) -> None:
    done = run(before, slower, "--metric", "wall_s", "--fail-if", "mean>3%")
    assert done.returncode == 1
    told = "  measurement and execution cannot be told: A: an execution with one measurement has no spread inside"
    assert told not in done.stdout, "Regression: it was said in every comparison, also where no limit needed it"
    assert "– → –" not in done.stdout
    judged = run(before, slower, "--metric", "wall_s", "--fail-if", "execution>3%")
    assert judged.returncode == 3
    assert judged.stdout.count(told) == 2, "once a condition"


def test_failed_executions_are_left_out_and_counted(before: Path, tmp_path: Path) -> None:
    def failing(made: factory.Run, execution: int) -> None:
        if execution < 2:
            made.status = "failed"

    done = run(before, study(tmp_path / "b", 7, change=failing))
    assert done.returncode == 0
    assert "w/2M: 12 executions in A, 10 in B" in done.stdout
    assert "left out of B: 2 of 12 executions did not end well" in done.stdout


def test_one_execution_is_inconclusive_and_says_what_to_add(before: Path, tmp_path: Path) -> None:
    alone = study(tmp_path / "b", 8, executions=1)
    done = run(before, alone, "--fail-if", "mean>3%")
    assert done.returncode == 3
    assert "B: one execution: its spread cannot be told from chance; run at least 2 more" in done.stdout


def test_times_that_cannot_be_are_named(before: Path, tmp_path: Path) -> None:
    def broken(made: factory.Run, execution: int) -> None:
        if execution == 3:
            made.measurements[4] = -1.0

    done = run(before, study(tmp_path / "b", 9, change=broken), "--fail-if", "mean>3%")
    assert done.returncode == 3
    assert "not compared: w/kernel: B, w/kernel, latency: execution" in done.stdout
    assert "measurement 4 is -1.0" in done.stdout


# Statistics


def test_several_judgements_share_the_level(before: Path, same: Path) -> None:
    data = [factory.data_of(directory) for directory in (before, same)]
    gates = tuple(map(parse_gate, ("mean>3%", "mean<-3%")))
    found = compare(*data, gates=gates, settings=Settings(level=0.95))
    assert found.gate_level == pytest.approx(1 - 0.05 / 4)
    alone = compare(*data, gates=(), settings=Settings(level=0.95))
    changes = [one.compared[0].found.changes[0].percent for one in (found, alone)]
    widths = [change.half_width for change in changes if isinstance(change, Estimate)]
    assert widths[0] > widths[1]


@pytest.mark.parametrize(
    ("text", "low", "high", "outcome"),
    [
        ("mean>3%", 3.1, 5, "fail"),
        ("mean>3%", 3.0, 5, "inconclusive"),
        ("mean>3%", -1, 3.0, "pass"),
        ("mean<-3%", -5, -3.1, "fail"),
        ("mean<-3%", -3.0, 1, "pass"),
        ("mean<-3%", -5, -2, "inconclusive"),
        ("mean>0%", 0.1, 0.2, "fail"),
        ("mean > -1 %".replace(" %", "%"), -0.5, 0.2, "fail"),
    ],
)
def test_a_limit_is_compared_with_the_whole_interval(text: str, low: float, high: float, outcome: str) -> None:
    assert judge(parse_gate(text), "c", changed(low, high, p=0.0), 0.95).outcome == outcome


def changed(low: float, high: float, p: float) -> Any:
    """What ``judge`` looks at: the mean changed by so much, exchange of executions gives ``p`` either way."""
    change = Estimate((low + high) / 2, Interval(low, high, 0.95, None, IntervalMethod.FIELLER))
    return SimpleNamespace(
        changes=[SimpleNamespace(metric=Metric.MEAN, percent=change)],
        table=SimpleNamespace(executions=np.array([20, 20])),
        exchanged=lambda *_: Exchanged(p, p, 4_999, False),
    )


@pytest.mark.parametrize(("low", "high"), [(3.1, 5.0), (-1.0, 2.0)])
def test_an_interval_alone_decides_nothing(low: float, high: float) -> None:
    judged = judge(parse_gate("mean>3%"), "c", changed(low, high, p=0.03), 0.95)
    assert judged.outcome == "inconclusive"
    assert "exchanged executions" in judged.reason


def exactly(a: list[float], b: list[float]) -> InPairs:
    """What ``judge`` looks at of pairs."""
    pairs = Pairs(np.array(b), np.array(a), 0, 0)
    answer: Any = None
    return InPairs(pairs, answer, paired_ratio(pairs), paired_mean_ratio(pairs), False, None, None)


@pytest.mark.parametrize("count", [1, 20, 100, 777, 1000, 123_456_789])
@pytest.mark.parametrize("percent", [-20, -3, 0, 0.1, 1, 3, 7, 10, 12.5, 25])
@pytest.mark.parametrize("metric", ["ratio", "mean"])
def test_a_change_that_is_the_limit_neither_passes_nor_fails(count: int, percent: float, metric: str) -> None:
    """Regression: counts that are always the same failed or passed by the rounding of logarithms and quotients."""
    found = exactly([count] * 12, [count * (100 + percent) / 100] * 12)
    for sign in "><":
        judged = judge(parse_gate(f"{metric}{sign}{percent}%"), "c", "refused", 0.95, found)
        assert (judged.outcome, judged.needed) == ("inconclusive", None)
        assert judged.reason == "the whole interval is at the limit: choose another limit"
    # Beside the limit, by less than any count tells, the sign is that of the difference.
    assert judge(parse_gate(f"{metric}>{percent - 0.001}%"), "c", "refused", 0.95, found).outcome == "fail"
    assert judge(parse_gate(f"{metric}>{percent + 0.001}%"), "c", "refused", 0.95, found).outcome == "pass"


def test_pairs_at_the_limit_are_not_too_few_pairs() -> None:
    """Regression: twelve pairs, most of them at the limit, had the advice to run twelve."""
    tied = exactly([100.0] * 12, [103.0] * 8 + [101.0, 101.5, 102.0, 102.5])
    judged = judge(parse_gate("ratio>3%"), "c", "refused", 0.95, tied)
    assert judged.outcome == "inconclusive"
    assert judged.reason == "8 of 12 pairs are at the limit: choose another limit"
    few = judge(parse_gate("ratio>3%"), "c", "refused", 0.95, exactly([100.0] * 4, [110.0, 111.0, 112.0, 113.0]))
    assert few.needed is None or few.needed == 6


def test_names_of_metrics_are_allocs() -> None:
    assert parse_gate(" execution > 50% ").metric is Metric.EXECUTION
    with pytest.raises(BadInputError, match="for example"):
        parse_gate("cache>3%")


def test_a_ratio_of_pairs_is_no_gate_for_two_studies(before: Path, same: Path) -> None:
    done = run(before, same, "--fail-if", "ratio>3%")
    assert done.returncode == 2
    assert 'judge the mean: --fail-if "mean>3%"' in done.stderr


def interleaved(
    directory: Path,
    factor: float,
    executions: int = 12,
    lost: int | None = None,
    test: str = "pairs",
    done: int | None = None,
) -> Path:
    """One study of two commands on a machine that slows by 10% from block to block; ``done``: the blocks that ran."""

    def behave(condition: Condition, slot: Slot) -> factory.Run | None:
        if done is not None and slot.block >= done:
            return None
        level = 1.1**slot.block * (factor if condition.workload == "B" else 1.0)
        crashed = condition.workload == "A" and slot.block == lost
        return factory.Run(wall_s=level, status="failed" if crashed else "ok")

    plan = factory.plan(["A", "B"], ["kernel"], executions).model_copy(update={"test": test})
    return factory.store(directory, plan, behave)


@pytest.mark.by_turns(4)
def test_two_commands_are_judged_within_their_blocks(tmp_path: Path) -> None:
    """The machine slows threefold meanwhile; B takes 4% longer than the A beside it, always."""
    kept = interleaved(tmp_path / "kept", 1.04)
    done = run(kept, "--fail-if", "ratio>3%", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["outcome"]) == (1, "fail")
    pairs = found["conditions"][0]["in_pairs"]
    assert (pairs["pairs"], pairs["said"]) == (12, "higher")
    assert [pairs["ratio"][key] for key in ("value", "low", "high")] == pytest.approx([4, 4, 4])
    assert pairs["mean"]["low"] == pytest.approx(4)
    assert pairs["p"] == pytest.approx(2 / 2**12)
    assert run(kept, "--fail-if", "ratio>5%", "--fail-if", "mean>5%").returncode == 0
    assert "B is 4.0% slower than A (95% interval 4.0–4.0%, 12 pairs, p = " in run(kept).stdout


def test_a_lost_partner_is_told(tmp_path: Path) -> None:
    done = run(interleaved(tmp_path / "kept", 1.04, lost=3))
    assert "11 pairs" in done.stdout
    assert "1 execution without a partner in the same block left out" in done.stdout


def test_five_pairs_cannot_tell(tmp_path: Path) -> None:
    done = run(interleaved(tmp_path / "kept", 2.0, executions=5))
    assert "B against A: cannot tell: 5 pairs, 6 are the fewest" in done.stdout


def test_an_unfinished_study_passes_and_fails_nothing(tmp_path: Path) -> None:
    """Regression: each look between two parts of a study had a verdict, with all of its error."""
    kept = interleaved(tmp_path / "kept", 1.3, executions=60, done=12)
    done = run(kept, "--fail-if", "ratio>3%")
    assert done.returncode == 3, done.stdout
    told = "12 of 60 executions of A and 12 of 60 executions of B are done; go on with: pagelab study resume "
    assert done.stdout.splitlines()[1] == f"warning: only {told}{kept}"
    assert f"inconclusive: ratio>3% in A against B: only {told}{kept}" in done.stdout
    assert "next:" not in done.stdout
    found = json.loads(run(kept, "--json").stdout)
    assert found["unfinished"] == [{"side": side, "done": 12, "planned": 60} for side in "AB"]


def test_an_unfinished_one_of_two_studies_passes_and_fails_nothing(tmp_path: Path) -> None:
    whole = interleaved(tmp_path / "a", 1.3)
    part = interleaved(tmp_path / "b c", 1.3, executions=60, done=12)
    done = run(whole, part, "--fail-if", "mean>3%")
    assert done.returncode == 3, done.stdout
    told = f"warning: only 24 of 120 executions of B are done; go on with: pagelab study resume '{part}'"
    assert done.stdout.splitlines()[0] == told


LOOKS = [20, 25, 30, 35]


def stopped(directory: Path, seed: int, slower: float, **plan: Any) -> StudyData:
    """A study that its precision stop ended at the first of four looks; ``plan``: what is planned otherwise."""
    draws = random.Random(seed)
    kind = draws.choice(("time", "rounded", "count", "late"))

    def behave(condition: Condition, slot: Slot) -> factory.Run | None:
        value = 100 * draws.gauss(1, 0.01) * (slower if condition.policy == "b" else 1.0)
        value = {"rounded": round(value), "count": max(0, round(value) - 98)}.get(kind, value)
        late = kind == "late" and draws.random() < 0.1
        run = factory.Run(wall_s=value, status="timed-out" if late else "ok")
        return run if slot.block < LOOKS[0] else None

    planned = factory.plan(["w"], ["a", "b"], LOOKS[-1]).model_copy(update={"test": "pairs", **plan})
    look = {"look": LOOKS[0], "stop": True, "reason": "target-met"}
    return factory.data_of(factory.store(directory, planned, behave, looks=[look] if planned.precision else []))


@pytest.mark.parametrize("seed", range(12))
def test_the_report_of_the_same_executions_says_the_same(tmp_path: Path, seed: int) -> None:
    """Regression: of a study with a precision stop ``compare`` gave p, interval and outcome as without any looks."""
    looked: dict[str, Any] = {"precision": Precision(target=0.05, looks=LOOKS)}
    if seed % 4 == 0:
        looked = {"earlier_looks": [10, 15], "executions": LOOKS[0]}
    data = stopped(tmp_path / "s", seed, 1.006, level=(0.95, 0.99)[seed % 2], **looked)
    reported = analyse(data)
    (one,) = judged_of(reported.compared(), reported.design, reported.metrics)
    found = compare(*sides_of(data), settings=Settings(level=data.plan.level, resamples=199), one_study=True)
    assert found.in_pairs is not None
    assert found.in_pairs.answer == one.answer
    assert found.level == reported.design.interval_level
    if found.in_pairs.ratio is not None and one.answer.interval is not None:
        assert isinstance(found.in_pairs.ends, Interval), "compared with the limits, at the same level"
        ends = found.in_pairs.ends.low / 100, found.in_pairs.ends.high / 100
        assert ends == pytest.approx((one.answer.interval.low, one.answer.interval.high))


def test_a_limit_is_judged_after_the_planned_looks(tmp_path: Path) -> None:
    """Regression: 0.5% more, which one look alone would find, failed; four looks share the error."""
    fixed = stopped(tmp_path / "fixed", 2, 1.005, executions=LOOKS[0])
    planned = stopped(tmp_path / "planned", 2, 1.005, precision=Precision(target=0.05, looks=LOOKS))
    outcomes, told = [], []
    for data in (fixed, planned):
        found = compare(*sides_of(data), gates=(parse_gate("ratio>0%"),), one_study=True)
        outcomes.append((found.outcome, found.level, found.planned_looks))
        told.append(text(found, None, None))
    assert outcomes == [("fail", 0.95, 1), ("inconclusive", 0.9875, 4)]
    assert "intervals at 98.75%" in told[1]
    assert "at any of 4 planned looks, which share the error: judged at 98.75%" in told[1]
    assert "planned looks" not in told[0]


def test_two_studies_share_the_error_over_all_their_looks(tmp_path: Path) -> None:
    """Each of the two could end at any of its looks."""
    data = [stopped(tmp_path / name, 3, 1.0, precision=Precision(target=0.05, looks=LOOKS[:2])) for name in "ab"]
    found = compare(data[0], data[1], gates=(parse_gate("mean>3%"),))
    assert (found.planned_looks, found.level) == (4, 0.9875)


@pytest.mark.parametrize(("looks", "told"), [(([], []), 0), (([10], []), 1), (([10], [10]), 2), (([10, 20], [10]), 3)])
def test_every_look_at_either_of_two_studies_has_an_error_of_its_own(
    tmp_path: Path, looks: tuple[list[int], list[int]], told: int
) -> None:
    """Regression: the study with more looks counted, so the look at which the other one was extended had no error of
    its own: extended in turn, they spent more than twice the level's error."""
    data = [stopped(tmp_path / name, 3, 1.0, earlier_looks=each) for name, each in zip("ab", looks, strict=True)]
    found = compare(data[0], data[1])
    assert (found.earlier_looks, found.level) == (told, 1 - 0.05 / 2**told)


def test_a_study_that_is_not_tested_in_pairs_is_not_judged_in_pairs(tmp_path: Path) -> None:
    kept = interleaved(tmp_path / "kept", 1.04, test="rank-sum")
    done = run(kept)
    told = 'A and B are compared like two studies, not in pairs: the study has test = "rank-sum".'
    assert done.stdout.splitlines()[0] == told
    assert "A: /usr/bin/A" in done.stdout
    assert "12 pairs" not in done.stdout


def test_imported_executions_are_no_pairs(tmp_path: Path) -> None:
    """Regression: the n-th execution of one command made a pair with the n-th of the other, run long before, and a
    drift between them failed a limit.
    """
    times = [[10 + number / 50 + 20 / 50 * side for number in range(20)] for side in (0, 1)]
    path = tmp_path / "hf.json"
    path.write_text(json.dumps({"results": [{"command": c, "times": t} for c, t in zip("ab", times, strict=True)]}))
    import_into(tmp_path / "kept", read_hyperfine(path), origin=path, name="hf")
    done = run(tmp_path / "kept")
    assert done.returncode == 0, done.stderr
    like_two, not_in_turn, a, b, *_ = done.stdout.splitlines()
    assert like_two.startswith("A and B are compared like two studies, not in pairs: the executions of hf.json were")
    assert not_in_turn.startswith("The executions were not in turns: in hf.json all of A come before those of B.")
    assert (a, b) == ("A: a", "B: b")
    assert " pairs" not in "".join(done.stdout.splitlines()[2:])
    found = json.loads(run(tmp_path / "kept", "--json").stdout)
    assert found["caveats"] == [like_two, not_in_turn]
    (condition,) = found["conditions"]
    assert condition["in_pairs"] is None
    mean = condition["changes"]["mean-response-time"]["percent"]
    assert mean["high"] - mean["low"] > 1.0, "as wide as of two studies"
    refused = run(tmp_path / "kept", "--fail-if", "ratio>3%")
    assert refused.returncode == 2
    assert "a ratio needs pairs, and the executions of hf.json were imported" in refused.stderr
    assert 'judge the mean: --fail-if "mean>3%"' in refused.stderr
