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

from pagelab.analysis.compare import Settings, compare
from pagelab.analysis.gates import judge, parse_gate
from pagelab.errors import BadInputError
from pagelab.stats.interval import Interval, IntervalMethod
from pagelab.stats.nondeterminism import Estimate, Metric
from pagelab.stats.nondeterminism.exchange import Exchanged

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


def test_one_failure_outweighs_what_is_inconclusive(before: Path, slower: Path) -> None:
    assert run(before, slower, "--fail-if", "mean>10%", "--fail-if", "mean>3%").returncode == 1


def test_nothing_to_judge_exits_0(before: Path, slower: Path) -> None:
    done = run(before, slower)
    assert done.returncode == 0
    assert "w/kernel: 12 executions in A, 12 in B" in done.stdout
    assert ", higher" in done.stdout


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


def test_names_of_metrics_are_allocs() -> None:
    assert parse_gate(" execution > 50% ").metric is Metric.EXECUTION
    with pytest.raises(BadInputError, match="for example"):
        parse_gate("cache>3%")


def test_a_ratio_of_pairs_is_no_gate_for_two_studies(before: Path, same: Path) -> None:
    done = run(before, same, "--fail-if", "ratio>3%")
    assert done.returncode == 2
    assert 'judge the mean: --fail-if "mean>3%"' in done.stderr


def interleaved(directory: Path, factor: float, executions: int = 12, lost: int | None = None) -> Path:
    """One study of two commands on a machine that slows by 10% from block to block."""
    from pagelab.study.plan import Condition
    from pagelab.study.schedule import Slot

    def behave(condition: Condition, slot: Slot) -> factory.Run:
        level = 1.1**slot.block * (factor if condition.workload == "B" else 1.0)
        crashed = condition.workload == "A" and slot.block == lost
        return factory.Run(wall_s=level, status="failed" if crashed else "ok")

    return factory.store(directory, factory.plan(["A", "B"], ["kernel"], executions), behave)


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
